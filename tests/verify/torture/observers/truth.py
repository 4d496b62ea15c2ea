"""Truth of an observer: events in the store's order, and what it could not see."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import unquote

from tenure.testing.history.event import Event
from tests.verify.torture.fault_log import Removals

_SHELF: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
GROUNDED: Final = ("S4", "S8", "S9", "S11")
"""The properties that rest on the truth."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The store's word on a run."""

    events: tuple[Event, ...]
    missing: str = ""
    """Why it is not the whole of it; "" where it is."""
    left: dict[str, int] = dataclasses.field(default_factory=dict)
    """What still stands at the end: tickets, leases."""

    def told_of(self, removals: Removals) -> Truth:
        """The truth with the administrators named where their hands were in it."""
        return dataclasses.replace(self, events=tuple(_by_hand(self.events, removals)))


class Observer(Protocol):
    """Observes from the moment it is made."""

    def finish(self) -> Truth:
        """The truth up to now. To be called once, while the servers run and all clients are quiet."""

    def close(self) -> None:
        """End its threads. Idempotent."""


def line_and_place(path: str, namespace: str) -> tuple[str, str] | None:
    """The name of the line and the ticket's place in it; None for what is no ticket of this namespace.

    Beside the lines stands what drivers keep for themselves, such as the marks of idempotency keys: `%` and a word,
    which encodes no name.
    """
    below = path.removeprefix("/").removeprefix(f"{namespace}/")
    line, slash, place = below.partition("/")
    if below == path.removeprefix("/") or not slash or not place or "/" in place or _SHELF.match(line):
        return None
    return unquote(line), place


def _by_hand(events: Iterable[Event], removals: Removals) -> Iterator[Event]:
    for event in events:
        ended = event.operation == "lease_ended" and event.lease in removals.leases
        removed = event.operation == "removed" and (removals.named(event.hold) or event.lease in removals.leases)
        yield dataclasses.replace(event, cause="admin") if ended or removed else event
