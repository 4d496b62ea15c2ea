"""Memory stores with one behaviour changed, kept as patches: what the comparison with a real store must find.

`DIFFERENCES` names them; `with DIFFERENCES[name]():` puts one in. The last three are what the memory store really did
until traces were played.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from tenure._backends.memory.lease import MemoryLease
from tenure._backends.memory.server import MemoryStore
from tenure._core.lease import Committed, Compare, Delete, Entry, Line, Put, Reach, Ticket

Change = Callable[[], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def leave_without_token() -> Iterator[None]:
    """Law 5: a ticket of yesterday removes the one that stands under its id today."""
    right = MemoryStore.leave

    def leave(self: MemoryStore, line: str, ticket_id: str, token: int | None) -> bool:
        return right(self, line, ticket_id, None)

    with patch.object(MemoryStore, "leave", leave):
        yield


@contextlib.contextmanager
def watch_that_does_not_fire() -> Iterator[None]:
    """A departure is heard by no watch."""

    def tell(self: MemoryStore, line: str, ticket_id: str, *, amended: bool, arrived: bool = False) -> None:
        return None

    with patch.object(MemoryStore, "_tell", tell):
        yield


@contextlib.contextmanager
def watch_that_misses_what_was_before() -> Iterator[None]:
    """A change between the reading of the line and the watch is not told."""

    def changed(self: MemoryStore, line: str, since: Line, watch: Any) -> bool:
        return False

    with patch.object(MemoryStore, "_changed", changed):
        yield


@contextlib.contextmanager
def watch_that_is_deaf_to_amendments() -> Iterator[None]:
    """Departures and arrivals alone are told, whatever was asked for."""
    right = MemoryStore._tell

    def tell(self: MemoryStore, line: str, ticket_id: str, *, amended: bool, arrived: bool = False) -> None:
        if not amended:
            right(self, line, ticket_id, amended=amended, arrived=arrived)

    with patch.object(MemoryStore, "_tell", tell):
        yield


@contextlib.contextmanager
def watch_that_wakes_the_herd() -> Iterator[None]:
    """Every change of a line wakes everybody who waits at it: law 10."""

    def tell(self: MemoryStore, line: str, ticket_id: str, *, amended: bool, arrived: bool = False) -> None:
        for watch in self._watches.get(line, ()):
            watch.signal.set()

    with patch.object(MemoryStore, "_tell", tell):
        yield


@contextlib.contextmanager
def amend_that_bumps_the_token() -> Iterator[None]:
    """A new value is a new place in the order."""
    right = MemoryStore._amended

    def amended(self: MemoryStore, line: str, ticket: Ticket) -> Ticket:
        done = right(self, line, ticket)
        self._lines[line][ticket.id] = done._replace(token=done.version)
        return self._lines[line][ticket.id]

    with patch.object(MemoryStore, "_amended", amended):
        yield


@contextlib.contextmanager
def commit_that_ignores_compares() -> Iterator[None]:
    """The last writer wins."""
    right = MemoryStore.commit

    def commit(
        self: MemoryStore, line: str, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete]
    ) -> Committed:
        return right(self, line, ticket, (), writes)

    with patch.object(MemoryStore, "commit", commit):
        yield


@contextlib.contextmanager
def commit_of_an_amended_ticket() -> Iterator[None]:
    """A commit is not tied to the ticket's version: one whose answer was lost may come late."""
    right = MemoryStore.commit

    def commit(
        self: MemoryStore, line: str, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete]
    ) -> Committed:
        return right(self, line, ticket._replace(version=None), compares, writes)

    with patch.object(MemoryStore, "commit", commit):
        yield


@contextlib.contextmanager
def touch_that_moves_nothing() -> Iterator[None]:
    """The ticket stays at its version."""

    def touch(self: MemoryStore, line: str, ticket: Ticket) -> Ticket | None:
        return self._standing(line, ticket)

    with patch.object(MemoryStore, "touch", touch):
        yield


@contextlib.contextmanager
def versions_used_again() -> Iterator[None]:
    """A key's versions are counted from one, and anew after it was deleted, as ZooKeeper's data versions are."""
    right = MemoryStore.commit

    def commit(
        self: MemoryStore, line: str, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete]
    ) -> Committed:
        before = {write.key: self._version(write.key) for write in writes}
        done = right(self, line, ticket, compares, writes)
        again = {key: before[key] + 1 for key in done.versions}
        for key, version in again.items():
            self.records[key] = dataclasses.replace(self.records[key], version=version)
        return dataclasses.replace(done, versions=again)

    with patch.object(MemoryStore, "commit", commit):
        yield


@contextlib.contextmanager
def enter_that_is_not_idempotent() -> Iterator[None]:
    """An entry that is sent again loses its place to its second ticket."""
    right = MemoryStore.enter

    def enter(self: MemoryStore, line: str, entry: Entry, lease_id: str) -> Line | None:
        self.leave(line, entry.id, None)
        return right(self, line, entry, lease_id)

    with patch.object(MemoryStore, "enter", enter):
        yield


@contextlib.contextmanager
def close_that_leaves_the_tickets() -> Iterator[None]:
    """Tickets of a lease stay when it is closed or revoked."""

    def expire(self: MemoryStore, lease_id: str) -> None:
        self._leases.pop(lease_id, None)

    with patch.object(MemoryStore, "expire", expire):
        yield


@contextlib.contextmanager
def values_cut_short() -> Iterator[None]:
    """A value of more than a kilobyte is not kept as it is."""
    right = MemoryStore.enter

    def enter(self: MemoryStore, line: str, entry: Entry, lease_id: str) -> Line | None:
        return right(self, line, dataclasses.replace(entry, value=entry.value[:1000]), lease_id)

    with patch.object(MemoryStore, "enter", enter):
        yield


@contextlib.contextmanager
def survey_without_its_front() -> Iterator[None]:
    """A survey of the first two shows all."""
    right = MemoryLease.survey

    def survey(self: MemoryLease, resource: str, until: float, *, front: int | None = None) -> Line:
        return right(self, resource, until)

    with patch.object(MemoryLease, "survey", survey):
        yield


@contextlib.contextmanager
def leave_that_knows_what_was_lost() -> Iterator[None]:
    """A retry after a lost request says that the ticket was gone: no client of a real store can tell."""

    def leave(self: MemoryLease, ticket: Ticket, until: float) -> bool:
        tries = 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            return self._store.leave(self._line(ticket.resource), ticket.id, ticket.token) or tries > 1

        return self._ask("leave", until, attempt)

    with patch.object(MemoryLease, "leave", leave):
        yield


@contextlib.contextmanager
def look_by_id() -> Iterator[None]:
    """A ticket that is gone is shown where another one stands under its id."""

    def look(self: MemoryLease, ticket: Ticket, reach: Reach, until: float) -> Line:
        line = self._store.look(self._line(ticket.resource), ticket.resource)
        position = line.position(ticket.id)
        return line._replace(tickets=line.tickets[: 0 if position is None else position + 1])

    with patch.object(MemoryLease, "look", look):
        yield


@contextlib.contextmanager
def abandon_of_others_tickets() -> Iterator[None]:
    """The reaper of one lease removes what another one has entered."""

    def withdraw(self: MemoryStore, line: str, ticket_id: str, lease_id: str) -> bool:
        return self.leave(line, ticket_id, None)

    with patch.object(MemoryStore, "withdraw", withdraw):
        yield


DIFFERENCES: Mapping[str, Change] = {
    change.__name__: change
    for change in (
        leave_without_token,
        watch_that_does_not_fire,
        watch_that_misses_what_was_before,
        watch_that_is_deaf_to_amendments,
        watch_that_wakes_the_herd,
        amend_that_bumps_the_token,
        commit_that_ignores_compares,
        commit_of_an_amended_ticket,
        touch_that_moves_nothing,
        versions_used_again,
        enter_that_is_not_idempotent,
        close_that_leaves_the_tickets,
        values_cut_short,
        survey_without_its_front,
        leave_that_knows_what_was_lost,
        look_by_id,
        abandon_of_others_tickets,
    )
}
