"""ServiceLease: a lease that a service keeps at its store for us, as long as we renew it there.

Any replica of the service that answers opens a lease; that one is asked for everything about it afterwards. So failing
over is for opening alone. A refusal or silence of one replica disturbs no lease of another: each has its own
connections, its own stream of changes, and its own thread for renewals.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from tenure._backends.service.admin import ServiceAdmin
from tenure._backends.service.calls import Calls, LeaseIsOver
from tenure._backends.service.changes import Changes
from tenure._core.base.options import Endpoint, Options
from tenure._core.base.retry import persist
from tenure._core.base.signals import Signal
from tenure._core.base.threads import Helpers, take
from tenure._core.belief import EXPIRED, Belief, provable
from tenure._core.heartbeat import Heartbeat, end_quietly
from tenure._core.lease import (
    BackendContext,
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
    Ticket,
)
from tenure._core.reaper import Reaper
from tenure._transport import remote
from tenure._transport.remote import Json
from tenure.errors import ClientClosed, LeaseLost, StoreUnavailable, TenureError

_BEAT_SECONDS_MAX: Final = 5.0
_TICKETS_MAX: Final = 300
"""Limit of tickets that one wait may name."""
_TICKETS_BYTES_MAX: Final = 48 * 1024
"""Limit of what one wait says of them, to fit into a request, see changes.py. A key contains the line's name."""
_BESIDE_KEY_BYTES: Final = 100
"""Room for a token and a version with their names."""


class ServiceLease:
    """A lease opened at the first `enter`, kept alive by timed renewals at the replica that opened it."""

    def __init__(self, replicas: Replicas, ttl: float, lock_delay: float, context: BackendContext) -> None:
        self._replicas = replicas
        # Those of the replica that opened it, once one has.
        self._calls, self._changes = replicas.any.calls, replicas.any.changes
        self._context = context
        self._clock = context.clock
        self._belief = Belief(context.clock, ttl)
        self._heartbeat: Heartbeat | None = None
        self._belief.on_change(self._changed)
        self._reaper = Reaper(self._withdraw, lambda: self.state, context)
        self._guard = threading.RLock()  # guards the opening
        self._orders = itertools.count(1)
        self._nonce = secrets.token_hex(16)
        self._path = ""
        self._lease_id = ""
        self._lock_delay = lock_delay
        self._lost = False
        self.admin = ServiceAdmin(self._calls, self._changes, self._belief)
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
        answer = self._ask("enter", self._entry(entry), until)
        return remote.read_line(answer, entry.resource)

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        answer = self._ask("look", {"ticketId": ticket.id, "reach": reach.value}, until)
        line = remote.read_line(answer, ticket.resource)
        me = line.find(ticket.id)
        return line if me is not None and me.token == ticket.token else line._replace(tickets=())

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        answer = self._ask("survey", {"resource": self._calls.inside(resource), "front": front}, until)
        return remote.read_line(answer, resource)

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        signal = Signal()
        self._belief.add_signal(signal)
        stops = [self._changes.wait_for(signal, body) for body in self._waits(line, tickets, amendments=amendments)]

        def stop() -> None:
            for each in stops:
                each()
            self._belief.drop_signal(signal)

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
        """Remove the ticket, by one request; also of a lease that is no longer believed: the ticket may stand."""
        if self.state is LeaseState.CLOSED:
            raise self._over()
        body = {**_named(ticket), "resource": self._calls.inside(ticket.resource)}
        try:
            answer = self._calls.ask_once(f"{self._path}/leave", body, until)
        except LeaseIsOver as error:
            self._belief.end(LeaseState.LOST, EXPIRED)
            raise StoreUnavailable(
                f"the lease of the ticket in the line of {ticket.resource!r} is over, and the ticket stands until the "
                "store has ended that, too"
            ) from error
        if answer.get("leaseOver", False):
            raise self._gone()  # and the ticket with it: no try of ours is known to have removed it
        return bool(answer["left"])

    def abandon(self, entry: Entry) -> None:
        self._reaper.own(entry)

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        answer = self._ask("read", {**_named(ticket), "keys": list(keys)}, until)
        return tuple(map(remote.read_record, answer["records"])) if answer["stands"] else None

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
        answer = self._ask("touch", _named(ticket), until)["ticket"]
        return None if answer is None else ticket._replace(version=remote.read_ticket(answer, ticket.resource).version)

    def renew(self, until: float) -> float:
        self._opened(until)
        if not persist(lambda: self._keep_alive(until), until, self._clock):
            raise self._gone()
        return self.remaining()

    def on_end(self, callback: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return self._belief.on_change(callback)

    def close(self, until: float) -> None:
        delayed = self._lock_delay > 0 and self.state is LeaseState.LOST
        self._lost = self._lost or self.state is LeaseState.LOST
        self._belief.end(LeaseState.CLOSED, "the client was closed")
        with self._guard:  # an opening under way ends first
            path = self._path
        if path and not delayed:
            self._close(until)
            self._context.hub.emit("lease_closed", lease_id=self.id, ttl=self.ttl)

    # Life and death of the lease itself.

    def _opened(self, until: float) -> None:
        """Open the lease, once. The nonce is ours: a second try after a lost answer finds the first one's lease."""
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
            sent, endpoint, answer = self._ask_for_lease(until)
            replica = self._replicas.at(endpoint)
            self._calls, self._changes = replica.calls, replica.changes
            self._lease_id, self._path = answer["leaseId"], f"/v1/leases/{answer['leaseId']}"
            self.id, self.ttl = answer["storeLease"], answer["ttlSeconds"]
            self._replicas.any.calls.settle(answer)
            self._heartbeat = Heartbeat(
                self, self._belief, self._keep_alive, self._beat_seconds_max, self._context, replica.renewal_thread
            )
            self._heartbeat.start()
            self._belief.prove(sent, provable(answer["remainingSeconds"]))
        finally:
            if taken and taken[0]:
                self._guard.release()
        self._context.hub.emit("lease_opened", lease_id=self.id, ttl=self.ttl)

    def _ask_for_lease(self, until: float) -> tuple[float, tuple[str, int], Json]:
        body = {
            "nonce": self._nonce,
            "ttlSeconds": self.ttl,
            "lockDelaySeconds": self._lock_delay,
            "journal": self._replicas.journal,
        }

        def attempt() -> tuple[float, tuple[str, int], Json]:
            sent = self._clock.now()
            return sent, *self._replicas.any.calls.ask_anybody("/v1/leases", body, until)

        try:
            return persist(attempt, until, self._clock)
        except LeaseIsOver:
            raise self._gone() from None

    def _keep_alive(self, until: float) -> bool:
        """Renew the lease, by one request; False when the service says that it is over."""
        sent = self._clock.now()
        try:
            answer = self._calls.ask_once(f"{self._path}/renew", {}, until)
        except LeaseIsOver:
            return False
        self._belief.prove(sent, provable(answer["remainingSeconds"]))
        return True

    def _beat_seconds_max(self) -> float:
        """Return how long one renewal may block the renewal thread."""
        return min(_BEAT_SECONDS_MAX, provable(self.ttl) / 3)

    def _changed(self, state: LeaseState, reason: str) -> None:
        if state.over and self._heartbeat is not None:
            self._heartbeat.stop()
        if state is LeaseState.LOST:
            self._lost = True
            self._context.hub.emit("lease_lost", lease_id=self.id, ttl=self.ttl, reason=reason)
            if self._lock_delay or not self._path:
                return  # whoever comes next has to wait until the service ends it
            end_quietly(self._close, self.ttl, self._context)

    def _close(self, until: float) -> None:
        try:
            self._calls.ask(f"{self._path}/close", {"lost": self._lost}, until)
        except LeaseIsOver:
            return

    def _gone(self) -> LeaseLost:
        self._belief.end(LeaseState.LOST, EXPIRED)
        return LeaseLost(f"lease {self.id} is gone: {EXPIRED}")

    def _over(self) -> TenureError:
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
        """Make the bodies of the waits, each with a request's share of tickets: any of them sets the signal."""
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
    """Split tickets, in their order, into shares that one wait may name."""
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
    """Name that very ticket, at the version at which it is known."""
    return {"ticketId": ticket.id, "token": _text(ticket.token), "version": _text(ticket.version)}


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


_RENEWAL_SECONDS: Final = 5.0


class Replica:
    """Connections, changes and renewal thread for one endpoint, or for whichever of several answers."""

    def __init__(self, options: Options, context: BackendContext) -> None:
        self.calls = Calls(options, context)
        self.changes = Changes(self.calls, context)
        # One thread renews all leases: a service that is away may block it, but nobody else.
        self.renewal_thread = Helpers("tenure-heart", 1)

    def close(self) -> None:
        self.renewal_thread.close(_RENEWAL_SECONDS)
        self.changes.close()
        self.calls.session.close()


class Replicas:
    """The endpoints of one service, and a Replica for each that has opened a lease. Thread-safe."""

    def __init__(self, options: Options, context: BackendContext) -> None:
        self._options = options
        self.journal = options.journal
        self._context = context
        self.any = Replica(options, context)
        self._guard = threading.RLock()  # guards _lenders
        self._by_endpoint: dict[Endpoint, Replica] = {}

    def __iter__(self) -> Iterator[Replica]:
        with self._guard:
            return iter([self.any, *self._by_endpoint.values()])

    def at(self, endpoint: Endpoint) -> Replica:
        """Return the replica at this endpoint, made where it is new."""
        if len(self._options.endpoints) == 1:
            return self.any
        with self._guard:
            replica = self._by_endpoint.get(endpoint)
            if replica is None:
                replica = Replica(replace(self._options, endpoints=(endpoint,)), self._context)
                replica.calls.session.vouch()
                self._by_endpoint[endpoint] = replica
            return replica
