"""EtcdLease: an etcd lease, and tickets that are keys bound to it.

Entering a line is one transaction: put my key unless it is there, and read the line. Leaving is one:
delete my key if it still has my create revision. The create revision is the token.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Sequence

from holdfast.backends.etcd import codec, guarded
from holdfast.backends.etcd.audit import Audit
from holdfast.backends.etcd.lines import Lines
from holdfast.backends.etcd.operating import EtcdOperating
from holdfast.backends.etcd.places import Places
from holdfast.backends.etcd.wire import Wire
from holdfast.backends.etcd.words import (
    CreatedAt,
    DeleteKey,
    LeaseGone,
    OutOfSpace,
    PutKey,
    Range,
    Txn,
)
from holdfast.beats import Beats, end_quietly
from holdfast.belief import EXPIRED, Belief, provable
from holdfast.errors import (
    ClientClosed,
    HoldfastError,
    LeaseLost,
    StoreUnavailable,
)
from holdfast.lease import (
    Committed,
    Compare,
    Delete,
    Entry,
    LeaseState,
    Line,
    Put,
    Reach,
    Record,
    Surroundings,
    Ticket,
    Workers,
)
from holdfast.locks import take
from holdfast.reaper import Reaper
from holdfast.signals import Signal


class EtcdLease:
    """One etcd lease, granted at the first `enter`, kept alive by timed renewals on the backend's heart."""

    def __init__(
        self,
        wire: Wire,
        namespace: str,
        ttl: float,
        lock_delay: float,
        around: Surroundings,
        heart: Workers,
        beat_seconds_max: Callable[[], float],
    ) -> None:
        self._wire = wire
        self._namespace = namespace
        self._around = around
        self._clock = around.clock
        self._belief = Belief(around.clock, ttl)
        self._beats = Beats(self, self._belief, self._keep_alive, beat_seconds_max, around, heart)
        self._belief.on_change(self._changed)
        self._lines = Lines(wire, namespace, around, self._belief)
        self.operating = EtcdOperating(wire, namespace, self._belief)
        self._reaper = Reaper(self._withdraw, lambda: self.state, around)
        self._guard = threading.RLock()  # guards the granting
        self._places = Places(namespace)
        self._audit = Audit(wire, self._places, lambda: self.state, around)
        self._number = 0
        self._id = ""
        self._lock_delay = lock_delay
        self.ttl = ttl

    @property
    def id(self) -> str:
        return self._id

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
        if not self._belief.proven:
            self._grant(until)
        if self.state.over:
            raise self._over()
        key = self._places.take(entry, self._number)
        at = codec.wall_time()
        put = PutKey(key, codec.write_value(entry, at), self._number)
        request = Txn((CreatedAt(key, 0),), (put, self._lines.range(entry.resource, entry.reach)))
        try:
            answer = self._wire.txn(request, until)
        except LeaseGone:
            raise self._gone() from None
        if answer.tries > 1:
            self._places.doubt(entry.id)
            self._audit.doubt(self._number, self.ttl)
        if not answer.succeeded:
            return self._find(entry, key, until)
        line, whole = self._lines.told(
            answer, entry.resource, lambda kv: codec.own_ticket(kv, entry, self._id, at) if kv.key == key else None
        )
        me = None if whole else line.find(entry.id)
        return line if me is None else self.look(me, entry.reach, until)

    def _find(self, entry: Entry, key: bytes, until: float) -> Line:
        """A key stood there: an earlier try put it, and its answer was lost; or it is a stranger's."""
        line, _ = self._lines.ask(Range(key), entry.resource, until)
        me = line.find(entry.id)
        if me is not None:
            return self.look(me, entry.reach, until)
        if not line.tickets:
            return line  # not there any more: the turn will say that the place is gone
        self._places.avoid(entry.id)
        return self.enter(entry, until)

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        return self._lines.look(ticket, reach, until)

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        return self._lines.survey(resource, until, front)

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        return self._lines.wait_change(line, tickets, amendments=amendments)

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        return self._lines.amend(ticket, value, until)

    def leave(self, ticket: Ticket, until: float) -> bool:
        key = codec.stored(ticket.key)
        request = Txn((guarded.is_still(ticket),), (DeleteKey(key),))
        try:
            answer = self._wire.txn(request, until)
        except OutOfSpace:
            # No transaction goes through, a plain deletion does; it may do so twice, and so nobody comes here again.
            self._places.doubt(ticket.id)
            gone = ticket.lease_id == self.id and self._wire.delete(key, until)
            self._places.free(ticket.id)
            return gone
        if answer.tries > 1:
            self._places.doubt(ticket.id)
        if answer.succeeded or answer.tries > 1:
            self._places.free(ticket.id)
        # gone after a lost answer: that try was ours, or the end of the lease
        return answer.succeeded or (answer.tries > 1 and not self.state.over)

    def abandon(self, entry: Entry) -> None:
        self._places.give_up(entry.id)
        self._reaper.own(entry)
        self._audit.doubt(self._number, self.ttl)

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        return self._lines.read(ticket, keys, until)

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        return self._lines.commit(ticket, compares, writes, until)

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        return self._lines.touch(ticket, until)

    def renew(self, until: float) -> float:
        if not self._belief.proven:
            self._grant(until)
        if self.state.over:
            raise self._over()
        if not self._keep_alive(until):
            raise self._gone()
        return self.remaining()

    def on_end(self, told: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return self._belief.on_change(told)

    def close(self, until: float) -> None:
        delayed = self._lock_delay > 0 and self.state is LeaseState.LOST
        self._belief.end(LeaseState.CLOSED, "the client was closed")
        with self._guard:  # a grant under way ends first: its lease must be revoked too
            number = self._number
        if number and not delayed:
            self._revoke(until)
            self._around.hub.emit("lease_closed", lease_id=self.id, ttl=self.ttl)

    # Life and death of the lease itself.

    def _grant(self, until: float) -> None:
        """Once. The id is ours, so that a second try after a lost answer finds the first one's lease."""
        taken: list[bool] = []
        try:
            if not take(self._guard.acquire, until - self._clock.now(), taken):
                raise StoreUnavailable("another thread's request for a lease was not answered in time")
            if self._belief.proven:
                return
            if self.state.over:
                raise self._over()
            number = self._number or secrets.randbits(62) + 1
            self._number, self._id = number, f"{number:x}"
            sent = self._clock.now()
            ttl = self._grant_or_find(number, until)
            self.ttl = ttl - self._lock_delay
            self._beats.start()
            self._belief.prove(sent, provable(self.ttl))
        finally:
            if taken and taken[0]:
                self._guard.release()
        self._wire.greet()
        self._around.hub.emit("lease_opened", lease_id=self.id, ttl=self.ttl)

    def _grant_or_find(self, number: int, until: float) -> float:
        try:
            granted, found = self._wire.grant_or_find(number, math.ceil(self.ttl + self._lock_delay), until)
        except LeaseGone:
            raise self._gone() from None
        # granted earlier than `sent`: only a keep-alive from now on proves it for its whole time
        if found and not self._keep_alive(until):
            raise self._gone()
        return granted

    def _keep_alive(self, until: float) -> bool:
        """One renewal; False when the store says that the lease is gone."""
        sent = self._clock.now()
        try:
            ttl = self._wire.keep_alive(self._number, until)
        except LeaseGone:
            return False
        if ttl <= 0:
            return False
        # measured from before this send: after retries on the wire that is too early, never too late
        self._belief.prove(sent, provable(ttl - self._lock_delay))
        return True

    def _changed(self, state: LeaseState, reason: str) -> None:
        if state.over:
            self._beats.stop()
        if state is LeaseState.LOST:
            self._around.hub.emit("lease_lost", lease_id=self.id, ttl=self.ttl, reason=reason)
            if self._lock_delay:
                return  # whoever comes next has to wait until the store ends it
            end_quietly(self._revoke, self.ttl, self._around)

    def _revoke(self, until: float) -> None:
        try:
            self._wire.revoke(self._number, until)
        except LeaseGone:
            return

    def _gone(self) -> LeaseLost:
        self._belief.end(LeaseState.LOST, EXPIRED)
        return LeaseLost(f"lease {self.id} is gone: {EXPIRED}")

    def _over(self) -> HoldfastError:
        if self.state is LeaseState.CLOSED:
            return ClientClosed("the client is closed")
        return LeaseLost(f"lease {self.id} is gone: {self._belief.reason}")

    def _withdraw(self, entry: Entry, until: float) -> bool:
        key = self._places.key(entry.id)
        if key is None:
            return False  # nothing was sent
        gone = self._wire.delete(key, until)
        self._places.forget(entry.id)
        return gone
