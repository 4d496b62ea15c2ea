"""The one place where the demo waits. Everything that happens arrives here, in one order: what the workers and
the store report, errors, and the signals that end the demo.

A signal handler only puts a note here, so the story ends between two steps and never in the middle of one.
"""

from __future__ import annotations

import enum
import json
import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from holdfast.cli.hearing import hearing


class Kind(enum.StrEnum):
    """What a report tells."""

    IN_LINE = "in line"
    ELECTED = "elected"
    WROTE = "wrote"
    REFUSED = "refused"
    LOST = "lost"
    RESIGNING = "resigning"
    FAILED = "failed"
    ENDED = "ended"
    LEADER = "leader"
    """The store names the leader; told by the observer."""


@dataclass(frozen=True, slots=True)
class Report:
    """One thing that happened. `at` is time.monotonic(), which all processes of one machine share."""

    kind: Kind
    who: str
    at: float
    token: int = 0
    remaining: float = 0.0
    ttl: float = 0.0
    highest: int = 0
    """The highest token the ledger has seen."""
    text: str = ""

    def to_line(self) -> bytes:
        """One line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> Report:
        """The report that `to_line` wrote."""
        fields = json.loads(line)
        return Report(**{**fields, "kind": Kind(fields["kind"])})


class Interrupted(Exception):
    """A signal asks the demo to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Inbox:
    """A queue that many threads and signal handlers fill and the story empties."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Report | Exception] = queue.SimpleQueue()  # its put() is re-entrant

    def put(self, item: Report | Exception) -> None:
        """Add a report, or an error that ends the story."""
        self._items.put(item)

    def take(self, until: float) -> Report | None:
        """The next report, or None when none came until then. Raises the error that was put."""
        try:
            item = self._items.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            raise item
        return item


@contextmanager
def signals_into(inbox: Inbox) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal arrive in the inbox as Interrupted. Only from the main thread."""
    with hearing(lambda number: inbox.put(Interrupted(number))):
        yield
