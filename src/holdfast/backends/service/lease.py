"""ServiceLease: a lease that a service keeps at its store for us, as long as we renew it there."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast import remote
from holdfast.backends.service.calls import LeaseIsOver
from holdfast.backends.service.operating import ServiceOperating
from holdfast.backends.service.replicas import Replicas
from holdfast.beats import Beats, end_quietly
from holdfast.belief import EXPIRED, Belief, provable
from holdfast.errors import ClientClosed, HoldfastError, LeaseLost, StoreUnavailable
from holdfast.lease import (
    Committed,
    Compare,
    Delete,
    Entry,
    Fate,
    LeaseState,
    Line,
    Put,
    Reach,
    Record,
    Surroundings,
    Ticket,
)
from holdfast.locks import take
from holdfast.reaper import Reaper
from holdfast.remote import Json
from holdfast.retry import persist
from holdfast.signals import Signal

_BEAT_SECONDS_MAX: Final = 5.0
_TICKETS_MAX: Final = 300
"""Tickets that one wait may name."""
_TICKETS_BYTES_MAX: Final = 48 * 1024
"""All that one wait says of them: it must fit into a request, see changes.py. A key has the name of the line in it."""
_BESIDE_KEY_BYTES: Final = 100
"""Token, version, and what they are called."""


class ServiceLease:
    """One lease, opened at the first `enter`, kept alive by timed renewals at the replica that lent it."""

    def __init__(self, replicas: Replicas, ttl: float, lock_delay: float, around: Surroundings) -> None:
        self._replicas = replicas
        self._calls, self._changes = replicas.any.calls, replicas.any.changes  # the lender's, once there is one
        self._around = around
        self._clock = around.clock
        self._belief = Belief(around.clock, ttl)
        self._beats: Beats | None = None
        self._belief.on_change(self._changed)
        self._reaper = Reaper(self._withdraw, lambda: self.state, around)
        self._guard = threading.RLock()  # guards the opening
        self._orders = itertools.count(1)
        self._nonce = secrets.token_hex(16)
        self._path = ""
        self._lease_id = ""
        self._lock_delay = lock_delay
        self.operating = ServiceOperating(self._calls, self._changes, self._belief)
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

    # The verbs.

    def enter(self, entry: Entry, until: float) -> Line:
        told = self._ask("enter", self._entry(entry), until)
        return remote.read_line(told, entry.resource)

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        told = self._ask("look", {"ticketId": ticket.id, "reach": reach.value}, until)
        line = remote.read_line(told, ticket.resource)
        me = line.find(ticket.id)
        return line if me is not None and me.token == ticket.token else line._replace(tickets=())

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        told = self._ask("survey", {"resource": self._calls.inside(resource), "front": front}, until)
        return remote.read_line(told, resource)

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        signal = Signal()
        self._belief.add_wait(signal)
        stops = [self._changes.wait_for(signal, body) for body in self._waits(line, tickets, amendments=amendments)]

        def stop() -> None:
            for each in stops:
                each()
            self._belief.drop_wait(signal)

        signal.on_close(stop)
        return signal

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        body = {**_named(ticket), "value": value, "order": next(self._orders)}
        return bool(self._ask("amend", body, until)["stands"])

    def leave(self, ticket: Ticket, until: float) -> bool:
        tries = 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            # gone after a try that was not answered: that try was ours, or the end of the lease
            return self._leave_once(ticket, until) or (tries > 1 and not self.state.over)

        return persist(attempt, until, self._clock)

    def _leave_once(self, ticket: Ticket, until: float) -> bool:
        """Also when we don't believe in the lease any more: its ticket may stand all the same."""
        if self.state is LeaseState.CLOSED:
            raise self._over()
        body = {**_named(ticket), "resource": self._calls.inside(ticket.resource)}
        try:
            told = self._calls.ask_once(f"{self._path}/leave", body, until)
        except LeaseIsOver as error:
            self._belief.end(LeaseState.LOST, EXPIRED)
            raise StoreUnavailable(
                f"the lease of the ticket in the line of {ticket.resource!r} is over, and the ticket stands until the "
                "store has ended that, too"
            ) from error
        if told.get("leaseOver", False):
            raise self._gone()  # and the ticket with it: no try of ours is known to have removed it
        return bool(told["left"])

    def abandon(self, entry: Entry) -> None:
        self._reaper.own(entry)

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        told = self._ask("read", {**_named(ticket), "keys": list(keys)}, until)
        return tuple(map(remote.read_record, told["records"])) if told["stands"] else None

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        body = {
            **_named(ticket),
            "compares": [remote.write_compare(compare) for compare in compares],
            "writes": [remote.write_change(change) for change in writes],
        }
        done = remote.read_committed(self._ask_once("commit", body, until), ticket.resource)
        if done.fate is Fate.AMENDED and done.ticket is not None:
            return Committed(done.fate, done.versions, ticket._replace(version=done.ticket.version))
        return done

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        told = self._ask("touch", _named(ticket), until)["ticket"]
        return None if told is None else ticket._replace(version=remote.read_ticket(told, ticket.resource).version)

    def renew(self, until: float) -> float:
        self._opened(until)
        if not persist(lambda: self._keep_alive(until), until, self._clock):
            raise self._gone()
        return self.remaining()

    def on_end(self, told: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return self._belief.on_change(told)

    def close(self, until: float) -> None:
        delayed = self._lock_delay > 0 and self.state is LeaseState.LOST
        self._belief.end(LeaseState.CLOSED, "the client was closed")
        with self._guard:  # an opening under way ends first
            path = self._path
        if path and not delayed:
            self._close(until)
            self._around.hub.emit("lease_closed", lease_id=self.id, ttl=self.ttl)

    # Life and death of the lease itself.

    def _opened(self, until: float) -> None:
        """Once. The nonce is ours, so that a second try after a lost answer finds the first one's lease."""
        if not self._belief.proven:
            self._open(until)
        if self.state.over:
            raise self._over()

    def _open(self, until: float) -> None:
        taken: list[bool] = []
        try:
            if not take(self._guard.acquire, until - self._clock.now(), taken):
                raise StoreUnavailable("another thread's request for a lease was not answered in time")
            if self._belief.proven or self.state.over:
                return
            sent, endpoint, told = self._ask_for_lease(until)
            lender = self._replicas.at(endpoint)
            self._calls, self._changes = lender.calls, lender.changes
            self._lease_id, self._path = told["leaseId"], f"/v1/leases/{told['leaseId']}"
            self.id, self.ttl = told["storeLease"], told["ttlSeconds"]
            self._replicas.any.calls.settle(told)
            self._beats = Beats(self, self._belief, self._keep_alive, self._longest, self._around, lender.heart)
            self._beats.start()
            self._belief.prove(sent, provable(told["remainingSeconds"]))
        finally:
            if taken and taken[0]:
                self._guard.release()
        self._around.hub.emit("lease_opened", lease_id=self.id, ttl=self.ttl)

    def _ask_for_lease(self, until: float) -> tuple[float, tuple[str, int], Json]:
        body = {"nonce": self._nonce, "ttlSeconds": self.ttl, "lockDelaySeconds": self._lock_delay}

        def attempt() -> tuple[float, tuple[str, int], Json]:
            sent = self._clock.now()
            return sent, *self._replicas.any.calls.ask_anybody("/v1/leases", body, until)

        try:
            return persist(attempt, until, self._clock)
        except LeaseIsOver:
            raise self._gone() from None

    def _keep_alive(self, until: float) -> bool:
        """One renewal, tried once; False when the service says that the lease is over."""
        sent = self._clock.now()
        try:
            told = self._calls.ask_once(f"{self._path}/renew", {}, until)
        except LeaseIsOver:
            return False
        self._belief.prove(sent, provable(told["remainingSeconds"]))
        return True

    def _longest(self) -> float:
        """How long one renewal may keep the heart."""
        return min(_BEAT_SECONDS_MAX, provable(self.ttl) / 3)

    def _changed(self, state: LeaseState, reason: str) -> None:
        if state.over and self._beats is not None:
            self._beats.stop()
        if state is LeaseState.LOST:
            self._around.hub.emit("lease_lost", lease_id=self.id, ttl=self.ttl, reason=reason)
            if self._lock_delay or not self._path:
                return  # whoever comes next has to wait until the service ends it
            end_quietly(self._close, self.ttl, self._around)

    def _close(self, until: float) -> None:
        try:
            self._calls.ask(f"{self._path}/close", {}, until)
        except LeaseIsOver:
            return

    def _gone(self) -> LeaseLost:
        self._belief.end(LeaseState.LOST, EXPIRED)
        return LeaseLost(f"lease {self.id} is gone: {EXPIRED}")

    def _over(self) -> HoldfastError:
        if self.state is LeaseState.CLOSED:
            return ClientClosed("the client is closed")
        return LeaseLost(f"lease {self.id} is gone: {self._belief.reason}")

    # Exchanges.

    def _ask(self, verb: str, body: Json, until: float) -> Any:  # Any: JSON
        return persist(lambda: self._ask_once(verb, body, until), until, self._clock)

    def _ask_once(self, verb: str, body: Json, until: float) -> Any:  # Any: JSON
        self._opened(until)
        try:
            return self._calls.ask_once(f"{self._path}/{verb}", body, until)
        except LeaseIsOver:
            raise self._gone() from None

    def _withdraw(self, entry: Entry, until: float) -> bool:
        if not self._path:
            return False  # nothing was sent
        self._ask("abandon", self._entry(entry), until)
        return True

    def _entry(self, entry: Entry) -> Json:
        return {**remote.write_entry(entry), "resource": self._calls.inside(entry.resource)}

    def _waits(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> list[Json]:
        """What to wait for, a request's share of tickets at a time: whichever changes sets the signal."""
        shares = _shares(tickets or line.tickets)
        if not tickets and len(shares) > 1:
            shares = shares[:1]  # of so long a line any change at all is news: the rest of it is one
        return [
            {
                "leaseId": self._lease_id,
                "resource": self._calls.inside(line.resource),
                "revision": str(line.revision),
                "tickets": [
                    {"key": ticket.key, "token": _text(ticket.token), "version": _text(ticket.version)}
                    for ticket in share
                ],
                "amendments": amendments,
                "anyChange": not tickets,
            }
            for share in shares
        ]


def _shares(tickets: Sequence[Ticket]) -> list[list[Ticket]]:
    """In their order, each of what one wait may name."""
    shares: list[list[Ticket]] = [[]]
    room = _TICKETS_BYTES_MAX
    for ticket in tickets:
        needed = len(ticket.key) + _BESIDE_KEY_BYTES
        if shares[-1] and (len(shares[-1]) == _TICKETS_MAX or needed > room):
            shares.append([])
            room = _TICKETS_BYTES_MAX
        shares[-1].append(ticket)
        room -= needed
    return shares


def _named(ticket: Ticket) -> Json:
    """That very ticket, at the version at which it is known."""
    return {"ticketId": ticket.id, "token": _text(ticket.token), "version": _text(ticket.version)}


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
