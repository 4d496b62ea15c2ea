"""The fault_log: what was broken and when, as events of one more file of the history, and counted for the figures.

Faults of one name may overlap; the history sees one stretch from the first beginning to the last end. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import Records


@dataclass(frozen=True, slots=True)
class Removals:
    """Removals that administrators were about to make: tickets by a name they stand in, leases by their id."""

    tickets: list[str] = field(default_factory=list)
    leases: set[str] = field(default_factory=set)

    def named(self, hold: str) -> bool:
        """True where this ticket was meant."""
        return bool(hold) and any(hold in name for name in self.tickets)


class RunFaultLog:
    """The `FaultLog` of a run (see parts.py)."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._guard = threading.Lock()  # guards everything below
        self._going_on: Counter[tuple[str, str]] = Counter()
        self._counts: Counter[str] = Counter()
        self._removals = Removals()

    @contextmanager
    def broken(self, fault: str, client: str = "") -> Iterator[None]:
        """A fault from now until the end of the block."""
        self._begin(fault, client)
        try:
            yield
        finally:
            self._end(fault, client)

    def count(self, fault: str) -> None:
        """Count one fault more of this name."""
        with self._guard:
            self._counts[fault] += 1

    def removing(self, *, ticket: str = "", lease: str = "") -> None:
        """An administrator is about to remove this ticket, or to end this lease."""
        with self._guard:
            if ticket:
                self._removals.tickets.append(ticket)
            if lease:
                self._removals.leases.add(lease)

    def write(self, kind: Kind, client: str, operation: str = "") -> None:
        """Something that happened to one client: paused, resumed, died."""
        self._records.record(Event(self._records.now(), client, kind, operation))

    @property
    def counts(self) -> dict[str, int]:
        """The number of faults of each name."""
        with self._guard:
            return dict(sorted(self._counts.items()))

    @property
    def removals(self) -> Removals:
        """The removals that administrators announced."""
        return self._removals

    def _begin(self, fault: str, client: str) -> None:
        with self._guard:
            self._counts[fault] += 1
            self._going_on[fault, client] += 1
            if self._going_on[fault, client] == 1:
                self.write(Kind.FAULT, client, fault)

    def _end(self, fault: str, client: str) -> None:
        with self._guard:
            self._going_on[fault, client] -= 1
            if not self._going_on[fault, client]:
                self.write(Kind.HEALED, client, fault)
