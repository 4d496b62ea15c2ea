"""The signals of one playing: what each watches, and which of them were set.

Which must be set is the memory store's word: it sets exactly those that the protocol promises. At a real store each of
them is waited for; whether others were set too is asked once at the end, behind a last change of each lease's own that
the store tells of after everything before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.signals import Signal
from tenure._core.lease import Entry, Lease, Line, Ticket
from tests.verify.traces.commands import Pick, WatchCommand

SECONDS: Final = 5.0
"""For how long a change may be under way."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A line as a lease last read it, cut to what all stores show; `whole` where nothing of it can be missing."""

    line: Line
    whole: bool
    step: int


@dataclass(frozen=True, slots=True)
class Watched:
    """A watch that was set: how, since which step, on which tickets (by their names in the trace)."""

    command: WatchCommand
    client: str
    since: int
    tickets: tuple[str, ...]
    signal: Signal


class Watching:
    """The watches of one playing."""

    def __init__(self) -> None:
        self.all: dict[str, Watched] = {}
        self._told: set[str] = set()

    def add(self, command: WatchCommand, client: str, lease: Lease, reading: Reading, names: Mapping[str, str]) -> bool:
        """False where there is nothing to watch."""
        tickets = _picked(command.pick, reading)
        if tickets is None or command.watch in self.all:
            return False
        signal = lease.wait_change(reading.line, tickets, amendments=command.amendments)
        watched = tuple(names.get(ticket.id, "?") for ticket in tickets)
        self.all[command.watch] = Watched(command, client, reading.step, watched, signal)
        return True

    def end(self, name: str) -> bool:
        """End a watch: no wait for it any longer."""
        if name not in self.all:
            return False
        self.all[name].signal.close()
        return True

    def fired(self, expected: Sequence[str] | None) -> tuple[str, ...]:
        """The watches that were set since the last call; where some are `expected`, those of them that come in time."""
        if expected is not None:
            until = SYSTEM_CLOCK.now() + SECONDS
            found = [w for w in expected if w in self.all and SYSTEM_CLOCK.wait(self.all[w].signal, until)]
        else:
            found = [name for name, watched in self.all.items() if watched.signal.is_set() and name not in self._told]
        self._told.update(found)
        return tuple(found)

    def early(self) -> tuple[str, ...]:
        """The watches that were set and that `fired` has not told."""
        return tuple(n for n, watched in self.all.items() if watched.signal.is_set() and n not in self._told)

    def close(self) -> None:
        for watched in self.all.values():
            watched.signal.close()


def _picked(pick: Pick, reading: Reading) -> tuple[Ticket, ...] | None:
    tickets = reading.line.tickets
    match pick:
        case Pick.NONE:
            return () if reading.whole else None
        case Pick.ALL:
            return tickets or None
        case Pick.LAST:
            return tickets[-1:] or None
        case Pick.BEFORE:
            return tickets[-2:-1] or None


def pass_by(leases: Sequence[Lease]) -> tuple[bool, ...]:
    """See changes of each lease's own go by: what the store told before has arrived. False where one does not come.

    Two of them. etcd tells a watch of what was before it in rounds, ten a second: the first change is before its watch,
    so it comes with whatever that round has to tell, and the second one comes after all of the round.
    """
    return tuple(come for late in (True, False) for come in _gone_by(leases, late=late))


def _gone_by(leases: Sequence[Lease], *, late: bool) -> list[bool]:
    until = SYSTEM_CLOCK.now() + SECONDS
    signals = [_change(lease, until, late=late) for lease in leases]
    try:
        return [SYSTEM_CLOCK.wait(signal, until) for signal in signals]
    finally:
        for signal in signals:
            signal.close()


def _change(lease: Lease, until: float, *, late: bool) -> Signal:
    """A ticket enters and leaves, and is watched after that or just before."""
    entry = Entry("the end", "traces")
    line = lease.enter(entry, until)
    mine = tuple(ticket for ticket in line.tickets if ticket.id == entry.id)
    if late:
        lease.leave(mine[0], until)
    signal = lease.wait_change(line, mine, amendments=False)
    if not late:
        lease.leave(mine[0], until)
    return signal
