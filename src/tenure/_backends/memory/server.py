"""The memory store, the server's side: leases, lines and watches in one total order; and its faults."""

from __future__ import annotations

import dataclasses
import itertools
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tenure._admin.protocol import StoredRecord, TimeLeft
from tenure._core.base.clock import Clock
from tenure._core.base.signals import Signal
from tenure._core.lease import Committed, Compare, Delete, Entry, Fate, Line, Put, Record, Ticket
from tenure.errors import StoreUnavailable

Outcome = TypeVar("Outcome")


class MemoryFaults:
    """Faults between one client and its memory store, on demand. Operations are the verbs' names.

    Everything that passes between the two passes through `carry` and `tell`: a simulation that puts its own
    object in the place of a backend's `faults` may let time go by there, and carry a request out late.
    """

    def __init__(self) -> None:
        self._lost_requests: Counter[str] = Counter()
        self._lost_answers: Counter[str] = Counter()
        self.cut_off = False
        """True while no request gets through and no change is reported."""

    def lose_request(self, operation: str, times: int = 1) -> None:
        """Lose the next `times` requests of this kind before they reach the store."""
        self._lost_requests[operation] += times

    def lose_answer(self, operation: str, times: int = 1) -> None:
        """Lose the answers to the next `times` requests of this kind, which are carried out."""
        self._lost_answers[operation] += times

    def forget(self) -> None:
        """Cancel the losses that have not met their request."""
        self._lost_requests.clear()
        self._lost_answers.clear()

    def carry(self, operation: str, request: Callable[[], Outcome]) -> Outcome:
        """Carry one exchange: the request on its way, its execution, and its answer on the way back."""
        self.before(operation)
        outcome = request()
        self.after(operation)
        return outcome

    def tell(self, signal: Signal) -> None:
        """Tell of a change that `signal` was watching for."""
        signal.set()

    def before(self, operation: str) -> None:
        """Raise where the request is lost on its way."""
        if self.cut_off or _take(self._lost_requests, operation):
            raise StoreUnavailable(f"the memory store did not answer {operation!r}: request lost by a fault")

    def after(self, operation: str) -> None:
        """Raise where the answer is lost on its way."""
        if self.cut_off or _take(self._lost_answers, operation):
            raise StoreUnavailable(f"the memory store did not answer {operation!r}: answer lost by a fault")


def _take(counter: Counter[str], operation: str) -> bool:
    if counter[operation] <= 0:
        return False
    counter[operation] -= 1
    return True


@dataclass(slots=True)
class _Granted:
    ttl: float
    expires: float
    keys: dict[str, str] = field(default_factory=dict)  # ticket id -> line


@dataclass(slots=True)
class _WatchEntry:
    ids: frozenset[str] | None  # None: any change of the line
    amendments: bool
    signal: Signal
    faults: MemoryFaults


class MemoryStore:
    """The server's side: leases, lines and watches, in one total order of revisions."""

    def __init__(self, clock: Clock) -> None:
        self.requests: Counter[str] = Counter()
        self._clock = clock
        self._guard = threading.RLock()  # guards everything below
        self._revision = 0
        self._lease_ids = itertools.count(1)
        self._leases: dict[str, _Granted] = {}
        self._lines: dict[str, dict[str, Ticket]] = {}
        self._watches: dict[str, list[_WatchEntry]] = {}
        self._wide: dict[Signal, tuple[str, MemoryFaults]] = {}  # with what the lines that each watches begin
        self._notes: dict[str, StoredRecord] = {}  # by their paths
        self.records: dict[str, Record] = {}  # the users' own keys

    @property
    def lines(self) -> dict[str, tuple[Ticket, ...]]:
        """Copies of all lines that have tickets, by name."""
        with self._guard:
            return {name: tuple(line.values()) for name, line in self._lines.items()}

    @property
    def notes(self) -> dict[str, StoredRecord]:
        """Copies of the operators' records, by path, in the order in which they were made."""
        with self._guard:
            return dict(self._notes)

    @property
    def leases(self) -> tuple[str, ...]:
        """The ids of the living leases."""
        with self._guard:
            return tuple(self._leases)

    def grant(self, ttl: float) -> str:
        with self._guard:
            lease_id = f"{next(self._lease_ids):x}"
            self._leases[lease_id] = _Granted(ttl, self._clock.now() + ttl)
        self._come_back(lease_id)
        return lease_id

    def keep_alive(self, lease_id: str) -> bool:
        with self._guard:
            granted = self._leases.get(lease_id)
            if granted is None:
                return False
            granted.expires = self._clock.now() + granted.ttl
            return True

    def expire(self, lease_id: str) -> None:
        """End a lease: all its tickets go. What a revocation, a crash or an administrator does."""
        with self._guard:
            granted = self._leases.pop(lease_id, None)
            for ticket_id, line in granted.keys.items() if granted else ():
                self._remove(line, ticket_id)

    def enter(self, line: str, entry: Entry, lease_id: str) -> Line | None:
        """Put the ticket, if it is not there, and return the line; None where the lease is gone."""
        with self._guard:
            granted = self._leases.get(lease_id)
            if granted is None:
                return None
            tickets = self._lines.setdefault(line, {})
            if entry.id not in tickets:
                self._revision += 1
                tickets[entry.id] = _ticket(entry, lease_id, line, self._revision)
                granted.keys[entry.id] = line
                self._tell(line, entry.id, amended=False, arrived=True)
            return self.look(line, entry.resource)

    def look(self, line: str, resource: str) -> Line:
        with self._guard:
            return Line(resource, tuple(self._lines.get(line, {}).values()), self._revision)

    def amend(self, line: str, ticket: Ticket, value: str) -> Ticket | None:
        """Amend the ticket if it has this version, and return it as it stands then; None where it is gone."""
        with self._guard:
            standing = self._standing(line, ticket)
            if standing is not None and ticket.version in (None, standing.version):
                return self._amended(line, standing._replace(value=value))
            return standing

    def leave(self, line: str, ticket_id: str, token: int | None) -> bool:
        """Remove the ticket of this id, and where a token is given only with that token."""
        with self._guard:
            standing = self._lines.get(line, {}).get(ticket_id)
            if standing is None or token not in (None, standing.token):
                return False
            self._leases[standing.lease_id].keys.pop(ticket_id, None)
            self._remove(line, ticket_id)
            return True

    def withdraw(self, line: str, ticket_id: str, lease_id: str) -> bool:
        """Remove the ticket of this id, whatever its token, where it is this lease's."""
        with self._guard:
            granted = self._leases.get(lease_id)
            return granted is not None and granted.keys.get(ticket_id) == line and self.leave(line, ticket_id, None)

    def read(self, line: str, ticket: Ticket, keys: Sequence[str]) -> tuple[Record | None, ...] | None:
        with self._guard:
            if self._standing(line, ticket) is None:
                return None
            return tuple(self.records.get(key) for key in keys)

    def commit(
        self, line: str, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete]
    ) -> Committed:
        with self._guard:
            standing = self._standing(line, ticket)
            if standing is None:
                return Committed(Fate.GONE)
            if ticket.version not in (None, standing.version):
                return Committed(Fate.AMENDED, ticket=standing)
            if any(self._version(c.key) != c.version for c in compares):
                return Committed(Fate.DIFFERS)
            self._revision += 1
            for write in writes:
                if isinstance(write, Put):
                    self.records[write.key] = Record(write.key, write.value, self._revision)
                else:
                    self.records.pop(write.key, None)
            return Committed(Fate.DONE, {w.key: self._revision for w in writes if isinstance(w, Put)})

    def touch(self, line: str, ticket: Ticket) -> Ticket | None:
        with self._guard:
            standing = self._standing(line, ticket)
            if standing is None or ticket.version not in (None, standing.version):
                return standing
            return self._amended(line, standing)

    def time_left(self, lease_id: str) -> TimeLeft | None:
        with self._guard:
            granted = self._leases.get(lease_id)
            return None if granted is None else TimeLeft(granted.ttl, granted.expires - self._clock.now())

    def remove(self, line: str, ticket: Ticket, path: str, note: StoredRecord | None) -> bool:
        """Remove the ticket and put the record, or neither. True also where an earlier try has done it."""
        with self._guard:
            if note is not None and (known := self._notes.get(path)) is not None and known.text == note.text:
                return True
            if not self.leave(line, ticket.id, ticket.token):
                return False
            if note is not None:
                self.put_note(path, note)
            return True

    def put_note(self, path: str, note: StoredRecord) -> None:
        with self._guard:
            self._revision += 1
            known = self._notes.get(path)
            order = self._revision if known is None else known.order
            self._notes[path] = dataclasses.replace(note, order=order)

    def drop_note(self, path: str) -> None:
        with self._guard:
            self._notes.pop(path, None)

    def watch_all(self, prefix: str, signal: Signal, faults: MemoryFaults) -> None:
        """Set `signal` at every change of a line that begins with `prefix`."""
        with self._guard:
            self._wide[signal] = (prefix, faults)

    def unwatch_all(self, signal: Signal) -> None:
        with self._guard:
            self._wide.pop(signal, None)

    def watch(
        self, line: str, since: Line, ids: Sequence[str], amendments: bool, signal: Signal, faults: MemoryFaults
    ) -> None:
        watch = _WatchEntry(frozenset(ids) or None, amendments, signal, faults)
        with self._guard:
            if self._revision != since.revision and self._changed(line, since, watch):
                signal.set()
            else:
                self._watches.setdefault(line, []).append(watch)

    def unwatch(self, line: str, signal: Signal) -> None:
        with self._guard:
            left = [w for w in self._watches.get(line, ()) if w.signal is not signal]
            if left:
                self._watches[line] = left
            else:
                self._watches.pop(line, None)

    def wake(self, faults: MemoryFaults) -> None:
        """Wake all watches of a client that is back after a cut: it can't know what it missed."""
        with self._guard:
            signals = [w.signal for watches in self._watches.values() for w in watches if w.faults is faults]
            signals += [signal for signal, (_, theirs) in self._wide.items() if theirs is faults]
        for signal in signals:
            signal.set()

    def _changed(self, line: str, since: Line, watch: _WatchEntry) -> bool:
        now = self._lines.get(line, {})
        if watch.ids is None:
            return tuple(now.values()) != since.tickets
        before = {t.id: t for t in since.tickets}
        return any(i not in now or (watch.amendments and now[i] != before.get(i)) for i in watch.ids)

    def _standing(self, line: str, ticket: Ticket) -> Ticket | None:
        standing = self._lines.get(line, {}).get(ticket.id)
        return None if standing is None or standing.token != ticket.token else standing

    def _amended(self, line: str, ticket: Ticket) -> Ticket:
        self._revision += 1
        ticket = self._lines[line][ticket.id] = ticket._replace(version=self._revision)
        self._tell(line, ticket.id, amended=True)
        return ticket

    def _version(self, key: str) -> int:
        record = self.records.get(key)
        return 0 if record is None else record.version

    def _remove(self, line: str, ticket_id: str) -> None:
        tickets = self._lines[line]
        del tickets[ticket_id]
        if not tickets:
            del self._lines[line]
        self._revision += 1
        self._tell(line, ticket_id, amended=False)

    def _tell(self, line: str, ticket_id: str, *, amended: bool, arrived: bool = False) -> None:
        for watch in self._watches.get(line, ()):
            if watch.faults.cut_off:
                continue
            if watch.ids is None or (ticket_id in watch.ids and not arrived and (watch.amendments or not amended)):
                self.requests["event"] += 1
                watch.faults.tell(watch.signal)
        for signal, (prefix, faults) in list(self._wide.items()):
            if line.startswith(prefix) and not faults.cut_off:
                faults.tell(signal)

    def _come_back(self, lease_id: str) -> None:
        """Expire the lease if it is due, or set its timer again: it was kept alive meanwhile."""
        with self._guard:
            granted = self._leases.get(lease_id)
            if granted is None:
                return
            if granted.expires <= self._clock.now():
                self.expire(lease_id)
                return
            self._clock.schedule(granted.expires, lambda: self._come_back(lease_id))


def _ticket(entry: Entry, lease_id: str, line: str, token: int) -> Ticket:
    return Ticket(
        resource=entry.resource,
        id=entry.id,
        key=f"{line}/{entry.id}",
        token=token,
        mode=entry.mode,
        weight=entry.weight,
        limit=entry.limit,
        owner=entry.owner,
        value=entry.value,
        lease_id=lease_id,
        created_at=time.time(),
        version=token,
    )


# A store lives as long as anybody refers to it: its clients do.
_stores: weakref.WeakValueDictionary[str, MemoryStore] = weakref.WeakValueDictionary()
_stores_guard = threading.RLock()  # guards _stores


def _forget_stores() -> None:
    """A child's stores are its own, without the parent's tickets; a thread that had the lock is not there."""
    global _stores_guard
    _stores_guard = threading.RLock()
    _stores.clear()


os.register_at_fork(after_in_child=_forget_stores)


def store(name: str, clock: Clock) -> MemoryStore:
    """The store of this name in this process; made with `clock` where it is new."""
    with _stores_guard:
        found = _stores.get(name)
        if found is None:
            found = _stores[name] = MemoryStore(clock)
        return found
