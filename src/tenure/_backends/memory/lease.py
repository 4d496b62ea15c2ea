"""MemoryLease: a lease of the memory store as its client sees it. Knows nothing that a real store would not say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from tenure._backends.memory.admin import MemoryAdmin
from tenure._backends.memory.server import MemoryFaults, MemoryStore
from tenure._core.base.retry import persist
from tenure._core.base.signals import Signal
from tenure._core.base.validation import encode
from tenure._core.belief import EXPIRED, Belief, provable
from tenure._core.heartbeat import end_quietly
from tenure._core.lease import (
    BackendContext,
    Committed,
    Compare,
    Delete,
    Entry,
    LeaseState,
    Line,
    Put,
    Reach,
    Record,
    Ticket,
)
from tenure._core.reaper import Reaper
from tenure.errors import ClientClosed, LeaseLost, StoreUnavailable

Outcome = TypeVar("Outcome")


class MemoryLease:
    """A lease of the memory store, as its client sees it."""

    def __init__(
        self,
        server: MemoryStore,
        faults: MemoryFaults,
        namespace: str,
        ttl: float,
        lock_delay: float,
        context: BackendContext,
    ) -> None:
        self._store = server
        self._faults = faults
        self._namespace = namespace
        self._context = context
        self._clock = context.clock
        self._belief = Belief(context.clock, ttl)
        self._belief.on_change(self._changed)
        self._reaper = Reaper(self._withdraw, lambda: self.state, context)
        self._guard = threading.RLock()  # guards the granting
        self._lock_delay = lock_delay
        self.admin = MemoryAdmin(server, faults, namespace, self._ask, self._belief)
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
        if position is None or line.tickets[position].token != ticket.token:
            return line._replace(tickets=())
        return line._replace(tickets=line.tickets[: position + 1])

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        line = self._ask("survey", until, lambda: self._store.look(self._line(resource), resource))
        return line._replace(tickets=line.tickets[:front])

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        path = self._line(line.resource)

        def stop() -> None:
            self._store.unwatch(path, signal)
            self._belief.drop_signal(signal)

        signal = Signal()
        signal.on_close(stop)
        self._belief.add_signal(signal)
        self._store.watch(path, line, [t.id for t in tickets], amendments, signal, self._faults)
        return signal

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        line, standing = self._line(ticket.resource), ticket
        while True:  # ends: each round but the last is another amendment of this very ticket
            tied_to = standing  # a try that arrives late does nothing
            found = self._ask("amend", until, lambda: self._store.amend(line, tied_to, value))  # noqa: B023  # run now
            if found is None or found.value == value:
                return found is not None
            standing = found

    def leave(self, ticket: Ticket, until: float) -> bool:
        line, tries = self._line(ticket.resource), 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            left = self._ask_once("leave", lambda: self._store.leave(line, ticket.id, ticket.token))
            # gone after a try that was not answered: that try was ours, or the end of the lease
            return left or (tries > 1 and not self.state.over)

        return persist(attempt, until, self._clock)

    def abandon(self, entry: Entry) -> None:
        self._reaper.own(entry)

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        return self._ask("read", until, lambda: self._store.read(self._line(ticket.resource), ticket, keys))

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        return self._ask_once(
            "commit", lambda: self._store.commit(self._line(ticket.resource), ticket, compares, writes)
        )

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        return self._ask("touch", until, lambda: self._store.touch(self._line(ticket.resource), ticket))

    def renew(self, until: float) -> float:
        self._grant(until)
        self._refuse_ended()
        sent = self._clock.now()
        if not self._ask("renew", until, lambda: self._store.keep_alive(self.id)):
            raise self._gone()
        self._belief.prove(sent, provable(self.ttl))
        return self.remaining()

    def on_end(self, callback: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return self._belief.on_change(callback)

    def close(self, until: float) -> None:
        lost = self.state is LeaseState.LOST
        self._belief.end(LeaseState.CLOSED, "the client was closed")
        with self._guard:  # a grant under way ends first
            granted = bool(self.id)
        if granted and not (lost and self._lock_delay):
            self._ask("close", until, self._end)
            self._context.hub.emit("lease_closed", lease_id=self.id, ttl=self.ttl)

    def _line(self, resource: str) -> str:
        return f"{self._namespace}/{encode(resource)}"

    def _withdraw(self, entry: Entry, until: float) -> bool:
        line = self._line(entry.resource)
        return self._ask("leave", until, lambda: self._store.withdraw(line, entry.id, self.id))

    def _ask(self, operation: str, until: float, request: Callable[[], Outcome]) -> Outcome:
        return persist(lambda: self._ask_once(operation, request), until, self._clock)

    def _ask_once(self, operation: str, request: Callable[[], Outcome]) -> Outcome:
        def carried_out() -> Outcome:
            self._store.requests[operation] += 1
            return request()

        return self._faults.carry(operation, carried_out)

    def _grant(self, until: float) -> None:
        with self._guard:
            if self.id:
                return
            self._refuse_ended()
            sent = self._clock.now()
            self.id = self._ask("grant", until, lambda: self._store.grant(self.ttl + self._lock_delay))
            self._belief.prove(sent, provable(self.ttl))
            self._context.hub.emit("lease_opened", lease_id=self.id, ttl=self.ttl)
        self._beat_later()

    def _changed(self, state: LeaseState, reason: str) -> None:
        if state is LeaseState.LOST:
            self._context.hub.emit("lease_lost", lease_id=self.id, ttl=self.ttl, reason=reason)
            if not self._lock_delay:  # with one, whoever comes next has to wait until the store ends it
                end_quietly(lambda _: self._ask_once("close", self._end), self.ttl, self._context)

    def _end(self) -> None:
        self._store.expire(self.id)

    def _refuse_ended(self) -> None:
        if self.state is LeaseState.CLOSED:
            raise ClientClosed("the client is closed")
        if self.state is LeaseState.LOST:
            raise LeaseLost(f"lease {self.id} is gone: {self._belief.reason}")

    def _beat_later(self) -> None:
        self._clock.schedule(self._clock.now() + self.ttl / 3, self._beat)

    def _beat(self) -> None:
        """Renew once; the next beat is the retry. Runs on the clock's thread, and blocks nowhere."""
        if self.state.over:
            return
        sent = self._clock.now()
        try:
            alive = self._faults.carry("renew", lambda: self._store.keep_alive(self.id))
        except StoreUnavailable as error:
            self._context.hub.emit("renewal_failed", lease_id=self.id, ttl=self.ttl, reason=str(error))
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
