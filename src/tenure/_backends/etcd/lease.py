"""EtcdLease: an etcd lease, and tickets that are keys bound to it.

Entering a line is one transaction: put my key unless it is there, and read the line. Leaving is one:
delete my key if it still has my create revision. The create revision is the token.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable

from tenure._backends.etcd import codec, guarded_keys
from tenure._backends.etcd.admin import EtcdAdmin
from tenure._backends.etcd.lines import EtcdLeaseVerbs, EtcdLines
from tenure._backends.etcd.requests import CreatedAt, DeleteKey, LeaseGone, OutOfSpace, PutKey, Range, Txn
from tenure._backends.etcd.ticket_keys import KeyAudit, TicketKeys
from tenure._backends.etcd.wire import Wire
from tenure._core.base.threads import take
from tenure._core.belief import EXPIRED, Belief, provable
from tenure._core.heartbeat import Heartbeat, end_quietly
from tenure._core.lease import (
    BackendContext,
    Entry,
    LeaseState,
    Line,
    Ticket,
    Workers,
)
from tenure._core.reaper import Reaper
from tenure.errors import ClientClosed, LeaseLost, StoreUnavailable, TenureError


class EtcdLease(EtcdLeaseVerbs):
    """An etcd lease, granted at the first `enter`, kept alive by timed renewals on the backend's renewal thread."""

    def __init__(
        self,
        wire: Wire,
        namespace: str,
        ttl: float,
        lock_delay: float,
        context: BackendContext,
        renewal_thread: Workers,
        beat_seconds_max: Callable[[], float],
    ) -> None:
        self._wire = wire
        self._namespace = namespace
        self._context = context
        self._clock = context.clock
        self._belief = Belief(context.clock, ttl)
        self._heartbeat = Heartbeat(self, self._belief, self._keep_alive, beat_seconds_max, context, renewal_thread)
        self._belief.on_change(self._changed)
        self._lines = EtcdLines(wire, namespace, context, self._belief)
        self.admin = EtcdAdmin(wire, namespace, self._belief)
        self._reaper = Reaper(self._withdraw, lambda: self.state, context)
        self._guard = threading.RLock()  # guards the granting
        self._keys = TicketKeys(namespace)
        self._audit = KeyAudit(wire, self._keys, lambda: self.state, context)
        self._number = 0
        self._id = ""
        self._lock_delay = lock_delay
        self.ttl = ttl

    @property
    def id(self) -> str:
        return self._id

    @property
    def reaping(self) -> int:
        return self._reaper.owned

    # The verbs.

    def enter(self, entry: Entry, until: float) -> Line:
        if not self._belief.proven:
            self._grant(until)
        if self.state.over:
            raise self._over()
        key = self._keys.take(entry, self._number)
        at = codec.wall_time()
        put = PutKey(key, codec.write_value(entry, at), self._number)
        request = Txn((CreatedAt(key, 0),), (put, self._lines.range(entry.resource, entry.reach)))
        try:
            answer = self._wire.txn(request, until)
        except LeaseGone:
            raise self._gone() from None
        if answer.tries > 1:
            # A try without an answer may be carried out late: no later ticket may have its key, and if this ticket has
            # left by then, only the audit finds the orphan (law 7).
            self._keys.doubt(entry.id)
            self._audit.doubt(self._number, self.ttl)
        if not answer.succeeded:
            return self._find(entry, key, until)
        # The token is the create revision that this very transaction gave our key: no second request is needed for it.
        line, whole = self._lines.line_in(
            answer, entry.resource, lambda kv: codec.own_ticket(kv, entry, self._id, at) if kv.key == key else None
        )
        me = None if whole else line.find(entry.id)
        return line if me is None else self.look(me, entry.reach, until)

    def _find(self, entry: Entry, key: bytes, until: float) -> Line:
        """Find out whose key stood there: ours, put by an earlier try whose answer was lost, or a stranger's."""
        line, _ = self._lines.ask(Range(key), entry.resource, until)
        me = line.find(entry.id)
        if me is not None:
            return self.look(me, entry.reach, until)
        if not line.tickets:
            return line  # not there any more: the turn will say that the place is gone
        self._keys.avoid(entry.id)
        return self.enter(entry, until)

    def leave(self, ticket: Ticket, until: float) -> bool:
        key = codec.stored(ticket.key)
        request = Txn((guarded_keys.is_still(ticket),), (DeleteKey(key),))
        try:
            answer = self._wire.txn(request, until)
        except OutOfSpace:
            # No transaction goes through, a plain deletion does; it may do so twice, and so nobody comes here again.
            self._keys.doubt(ticket.id)
            gone = ticket.lease_id == self.id and self._wire.delete(key, until)
            self._keys.free(ticket.id)
            return gone
        if answer.tries > 1:
            self._keys.doubt(ticket.id)
        if answer.succeeded or answer.tries > 1:
            self._keys.free(ticket.id)
        # gone after a lost answer: that try was ours, or the end of the lease
        return answer.succeeded or (answer.tries > 1 and not self.state.over)

    def abandon(self, entry: Entry) -> None:
        # The key first: from here on no other ticket of this lease takes it, so the reaper's late delete hits none.
        self._keys.give_up(entry.id)
        self._reaper.own(entry)
        self._audit.doubt(self._number, self.ttl)

    def renew(self, until: float) -> float:
        if not self._belief.proven:
            self._grant(until)
        if self.state.over:
            raise self._over()
        if not self._keep_alive(until):
            raise self._gone()
        return self.remaining()

    def close(self, until: float) -> None:
        delayed = self._lock_delay > 0 and self.state is LeaseState.LOST  # then only the store may end it, in its time
        self._belief.end(LeaseState.CLOSED, "the client was closed")
        with self._guard:  # a grant under way ends first: its lease must be revoked too
            number = self._number
        if number and not delayed:
            self._revoke(until)
            self._context.hub.emit("lease_closed", lease_id=self.id, ttl=self.ttl)

    # Life and death of the lease itself.

    def _grant(self, until: float) -> None:
        """Have the lease granted, once. Its id is ours: a second try after a lost answer finds the first's lease."""
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
            self._heartbeat.start()  # before the proof: an interrupt must not leave a believed lease that nobody renews
            self._belief.prove(sent, provable(self.ttl))
        finally:
            if taken and taken[0]:
                self._guard.release()
        self._wire.greet()
        self._context.hub.emit("lease_opened", lease_id=self.id, ttl=self.ttl)

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
        """Renew the lease; False when the store says that it is gone."""
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
            self._heartbeat.stop()
        if state is LeaseState.LOST:
            self._context.hub.emit("lease_lost", lease_id=self.id, ttl=self.ttl, reason=reason)
            if self._lock_delay:
                return  # whoever comes next has to wait until the store ends it
            # In the background: a belief may end on the clock's thread, which must not wait for a store.
            end_quietly(self._revoke, self.ttl, self._context)

    def _revoke(self, until: float) -> None:
        try:
            self._wire.revoke(self._number, until)
        except LeaseGone:
            return

    def _gone(self) -> LeaseLost:
        self._belief.end(LeaseState.LOST, EXPIRED)
        return LeaseLost(f"lease {self.id} is gone: {EXPIRED}")

    def _over(self) -> TenureError:
        if self.state is LeaseState.CLOSED:
            return ClientClosed("the client is closed")
        return LeaseLost(f"lease {self.id} is gone: {self._belief.reason}")

    def _withdraw(self, entry: Entry, until: float) -> bool:
        key = self._keys.key(entry.id)
        if key is None:
            return False  # nothing was sent
        gone = self._wire.delete(key, until)
        self._keys.forget(entry.id)
        return gone
