"""Knowledge of one playing: its leases and what they told, and the tickets, versions and lines that were seen."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

from tenure._core.lease import Entry, Lease, LeaseState, Line, Ticket
from tests.verify.traces.answers import Change
from tests.verify.traces.commands import Known, View
from tests.verify.traces.watching import SECONDS, Reading

_NEVER_A_VERSION: Final = 2**40
_LIVING: Final = (LeaseState.HELD, LeaseState.SUSPECT)


class Held:
    """A lease of the trace, and what it told of its end."""

    def __init__(self, name: str, client: str, lease: Lease) -> None:
        self.name = name
        self.client = client
        self.lease = lease
        self.granted = False  # by a verb that grants at every store
        self.ended = False  # by a command, whether its client has heard of it or not
        self._news = threading.Condition()  # guards _ends
        self._ends: list[str] = []
        self.deafen = lease.on_end(self._hear)

    def news(self, expected: int | None) -> tuple[str, ...]:
        """The ends told since the last call; where a number is expected, waits for as many."""
        with self._news:
            if expected:
                self._news.wait_for(lambda: len(self._ends) >= expected, SECONDS)
            ends, self._ends = self._ends, []
        return tuple(f"{self.name} {state}" for state in ends)

    def __str__(self) -> str:
        """HELD and SUSPECT alternate by the clock, and what is proven before the grant is a store's own."""
        state = self.lease.state
        believed = self.lease.remaining() > 0 if self.granted else state in _LIVING
        return f"{self.name} {'living' if state in _LIVING else state.value}{'' if believed else ' unproven'}"

    def _hear(self, state: LeaseState, reason: str) -> None:
        if state not in _LIVING:
            with self._news:
                self._ends.append(state.value if reason else f"{state.value} for no reason")
                self._news.notify_all()


class Knowledge:
    """The things seen, by the trace's own names."""

    def __init__(self) -> None:
        self.leases: dict[str, Held] = {}
        self.entries: dict[str, tuple[str, Entry]] = {}  # ticket -> its lease, and what was entered
        self.lines: dict[tuple[str, str], Reading] = {}  # by lease and resource
        self._tickets: dict[str, list[list[Ticket]]] = {}  # generations, each as it was seen one time after another
        self._versions: dict[str, list[int]] = {}  # all that were seen of a key, 0 where there was nothing

    def names_of_leases(self) -> Mapping[str, str]:
        """The trace's names of leases, by the store's ids."""
        return {held.lease.id: name for name, held in self.leases.items() if held.lease.id}

    def saw(self, name: str, ticket: Ticket | None) -> bool:
        """Note a ticket under this name, and say whether it is one not seen before."""
        if ticket is None:
            return False
        generations = self._tickets.setdefault(name, [])
        for generation in generations:
            if generation[0].token == ticket.token:
                generation.append(ticket)
                return False
        generations.append([ticket])
        return True

    def ticket(self, name: str, view: View) -> Ticket | None:
        generations = self._tickets.get(name, [])
        if view is View.OLDER:
            return generations[-2][-1] if len(generations) > 1 else None
        return generations[-1][0 if view is View.ENTERED else -1] if generations else None

    def saw_line(self, held: Held, line: Line, step: int, *, whole: bool) -> None:
        if not held.ended:  # by then not every store still shows lines
            self.lines[held.name, line.resource] = Reading(line, whole, step)

    def saw_record(self, key: str, version: int) -> None:
        """Note the version that stands at `key` now; 0 where none does."""
        seen = self._versions.setdefault(key, [0])
        if seen[-1] != version:
            seen.append(version)

    def version(self, key: str, known: Known, *, put: bool) -> int:
        """The version that a comparison asks for. Only what the same commit puts may be asked to be new."""
        seen = self._versions.get(key, [0])
        match known:
            case Known.NEW:
                return 0
            case Known.LATEST if put or seen[-1]:
                return seen[-1]
            case Known.OLDER:
                return next((version for version in reversed(seen[:-1]) if version), _NEVER_A_VERSION)
        return _NEVER_A_VERSION


def changes(
    before: Mapping[str, Sequence[Ticket]], after: Mapping[str, Sequence[Ticket]], names: Mapping[str, str]
) -> tuple[Change, ...]:
    """The changes of the lines between two looks from inside."""
    found = []
    for resource in sorted(before.keys() | after.keys()):
        then = {ticket.token: ticket for ticket in before.get(resource, ())}
        now = {ticket.token: ticket for ticket in after.get(resource, ())}
        found += [Change(resource, "departure", names.get(then[token].id, "?")) for token in then if token not in now]
        found += [Change(resource, "arrival", names.get(now[token].id, "?")) for token in now if token not in then]
        amended = (token for token in now if token in then and now[token].version != then[token].version)
        found += [Change(resource, "amendment", names.get(now[token].id, "?")) for token in amended]
    return tuple(found)
