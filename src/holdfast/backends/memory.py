"""memory:// — the reference implementation of the laws, in this process.

Also what users test their own code with: give `connect` a VirtualClock and nothing sleeps; a backend's
`faults` lose requests and answers or cut its client off, and `store(name)` expires leases. Clients of the
same name in one process share one store; each has faults of its own. It is held to the same conformance
suite as etcd and ZooKeeper; it coordinates nothing beyond this process.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.belief import EXPIRED, Belief, provable
from holdfast.clock import Clock
from holdfast.errors import ClientClosed, LeaseLost, StoreUnavailable
from holdfast.lease import Entry, LeaseState, Line, Reach, Surroundings, Ticket
from holdfast.options import Options
from holdfast.reaper import Reaper
from holdfast.retry import persist
from holdfast.signals import Signal

Outcome = TypeVar("Outcome")


class MemoryFaults:
    """What goes wrong between one client and its memory store, on demand. Operations are the verbs' names."""

    def __init__(self) -> None:
        self._lost_requests: Counter[str] = Counter()
        self._lost_answers: Counter[str] = Counter()
        self.cut_off = False
        """While true no request gets through and no change is told."""

    def lose_request(self, operation: str, times: int = 1) -> None:
        """The next `times` requests of this kind never reach the store."""
        self._lost_requests[operation] += times

    def lose_answer(self, operation: str, times: int = 1) -> None:
        """The next `times` requests of this kind are carried out, and their answers lost."""
        self._lost_answers[operation] += times

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
class _Watch:
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
        self._watches: dict[str, list[_Watch]] = {}

    @property
    def lines(self) -> dict[str, tuple[Ticket, ...]]:
        """All tickets, by line; lines without any are not there."""
        with self._guard:
            return {name: tuple(line.values()) for name, line in self._lines.items()}

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
        """None where the lease is gone."""
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

    def amend(self, line: str, ticket: Ticket, value: str) -> bool:
        with self._guard:
            standing = self._lines.get(line, {}).get(ticket.id)
            if standing is None or standing.token != ticket.token:
                return False
            self._revision += 1
            self._lines[line][ticket.id] = dataclasses.replace(standing, value=value)
            self._tell(line, ticket.id, amended=True)
            return True

    def leave(self, line: str, ticket_id: str, token: int | None) -> bool:
        """Remove the ticket of this id, and where a token is given only with that token."""
        with self._guard:
            standing = self._lines.get(line, {}).get(ticket_id)
            if standing is None or token not in (None, standing.token):
                return False
            self._leases[standing.lease_id].keys.pop(ticket_id, None)
            self._remove(line, ticket_id)
            return True

    def watch(
        self, line: str, since: Line, ids: Sequence[str], amendments: bool, signal: Signal, faults: MemoryFaults
    ) -> None:
        watch = _Watch(frozenset(ids) or None, amendments, signal, faults)
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
        """A client is back after a cut: it can't know what it missed, so all of its watches wake."""
        with self._guard:
            signals = [w.signal for watches in self._watches.values() for w in watches if w.faults is faults]
        for signal in signals:
            signal.set()

    def _changed(self, line: str, since: Line, watch: _Watch) -> bool:
        now = self._lines.get(line, {})
        if watch.ids is None:
            return tuple(now.values()) != since.tickets
        before = {t.id: t for t in since.tickets}
        return any(i not in now or (watch.amendments and now[i] != before.get(i)) for i in watch.ids)

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
                watch.signal.set()

    def _come_back(self, lease_id: str) -> None:
        """A timer per lease, moved on as the lease is kept alive."""
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
    )


_stores: dict[str, MemoryStore] = {}
_stores_guard = threading.RLock()  # guards _stores


def store(name: str, clock: Clock) -> MemoryStore:
    """The store of this name in this process; made with `clock` where it is new."""
    with _stores_guard:
        if name not in _stores:
            _stores[name] = MemoryStore(clock)
        return _stores[name]


class MemoryBackend:
    """Connects clients of this process to a MemoryStore."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self.name = options.display
        self.store = store(options.endpoints[0][0], around.clock)
        self.faults = MemoryFaults()
        self._namespace = options.namespace
        self._around = around
        self._leases: list[MemoryLease] = []

    def open(self, ttl: float) -> MemoryLease:
        lease = MemoryLease(self.store, self.faults, self._namespace, ttl, self._around)
        self._leases = [known for known in self._leases if known.state is not LeaseState.LOST] + [lease]
        return lease

    def heal(self) -> None:
        """End a cut."""
        self.faults.cut_off = False
        self.store.wake(self.faults)

    def statistics(self) -> dict[str, object]:
        return {"requests": dict(self.store.requests), "reaping": sum(lease.reaping for lease in self._leases)}

    def close(self) -> None:
        self._leases.clear()


class MemoryLease:
    """A lease of the memory store, as its client sees it."""

    def __init__(
        self, server: MemoryStore, faults: MemoryFaults, namespace: str, ttl: float, around: Surroundings
    ) -> None:
        self._store = server
        self._faults = faults
        self._namespace = namespace
        self._around = around
        self._clock = around.clock
        self._belief = Belief(around.clock, ttl)
        self._reaper = Reaper(self._withdraw, lambda: self.state, around)
        self._guard = threading.RLock()  # guards the granting
        self.id = ""
        self.ttl = ttl

    @property
    def state(self) -> LeaseState:
        return self._belief.state

    @property
    def reaping(self) -> int:
        return self._reaper.owned

    def remaining(self) -> float:
        return self._belief.remaining()

    def enter(self, entry: Entry, until: float) -> Line:
        self._grant(until)
        self._refuse_ended()
        line = self._ask("enter", until, lambda: self._store.enter(self._line(entry.resource), entry, self.id))
        if line is None:
            raise self._gone()
        return line

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        line = self._ask("look", until, lambda: self._store.look(self._line(ticket.resource), ticket.resource))
        position = line.position(ticket.id)
        return dataclasses.replace(line, tickets=line.tickets[: 0 if position is None else position + 1])

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        line = self._ask("survey", until, lambda: self._store.look(self._line(resource), resource))
        return dataclasses.replace(line, tickets=line.tickets[:front])

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        path = self._line(line.resource)

        def stop() -> None:
            self._store.unwatch(path, signal)
            self._belief.drop_wait(signal)

        signal = Signal()
        signal.on_close(stop)
        self._belief.add_wait(signal)
        self._store.watch(path, line, [t.id for t in tickets], amendments, signal, self._faults)
        return signal

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        return self._ask("amend", until, lambda: self._store.amend(self._line(ticket.resource), ticket, value))

    def leave(self, ticket: Ticket, until: float) -> bool:
        # A retry after a lost answer finds nothing: the first try was ours, so the ticket was removed by us.
        tries = 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            return self._store.leave(self._line(ticket.resource), ticket.id, ticket.token) or tries > 1

        return self._ask("leave", until, attempt)

    def abandon(self, entry: Entry) -> None:
        self._reaper.own(entry)

    def renew(self, until: float) -> float:
        self._grant(until)
        self._refuse_ended()
        sent = self._clock.now()
        if not self._ask("renew", until, lambda: self._store.keep_alive(self.id)):
            raise self._gone()
        self._belief.prove(sent, provable(self.ttl))
        return self.remaining()

    def on_end(self, told: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return self._belief.on_change(told)

    def close(self, until: float) -> None:
        self._belief.end(LeaseState.CLOSED, "the client was closed")
        if self.id:
            self._ask("close", until, lambda: self._store.expire(self.id))
            self._around.hub.emit("lease_closed", lease_id=self.id, ttl=self.ttl)

    def _line(self, resource: str) -> str:
        return f"{self._namespace}/{resource}"

    def _withdraw(self, entry: Entry, until: float) -> bool:
        return self._ask("leave", until, lambda: self._store.leave(self._line(entry.resource), entry.id, None))

    def _ask(self, operation: str, until: float, request: Callable[[], Outcome]) -> Outcome:
        def attempt() -> Outcome:
            self._faults.before(operation)
            self._store.requests[operation] += 1
            outcome = request()
            self._faults.after(operation)
            return outcome

        return persist(attempt, until, self._clock)

    def _grant(self, until: float) -> None:
        with self._guard:
            if self.id:
                return
            self._refuse_ended()
            sent = self._clock.now()
            self.id = self._ask("grant", until, lambda: self._store.grant(self.ttl))
            self._belief.prove(sent, provable(self.ttl))
            self._around.hub.emit("lease_opened", lease_id=self.id, ttl=self.ttl)
        self._beat_later()

    def _refuse_ended(self) -> None:
        if self.state is LeaseState.CLOSED:
            raise ClientClosed("the client is closed")
        if self.state is LeaseState.LOST:
            raise LeaseLost(f"lease {self.id} is gone: {self._belief.reason}")

    def _beat_later(self) -> None:
        self._clock.schedule(self._clock.now() + self.ttl / 3, self._beat)

    def _beat(self) -> None:
        """One renewal; no retry within: the next beat is the retry. Runs on the clock's thread, and blocks nowhere."""
        if self.state in (LeaseState.LOST, LeaseState.CLOSED):
            return
        sent = self._clock.now()
        try:
            self._faults.before("renew")
            alive = self._store.keep_alive(self.id)
            self._faults.after("renew")
        except StoreUnavailable:
            self._beat_later()
            return
        if alive:
            self._belief.prove(sent, provable(self.ttl))
            self._beat_later()
        else:
            self._belief.end(LeaseState.LOST, EXPIRED)

    def _gone(self) -> LeaseLost:
        self._belief.end(LeaseState.LOST, EXPIRED)
        return LeaseLost(EXPIRED)
