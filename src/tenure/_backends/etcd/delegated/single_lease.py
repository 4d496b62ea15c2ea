"""EtcdSingleLease: an etcd lease for one ticket, whose key is named by the lease alone, as Go's `concurrency` does it.

Because it has but one ticket, a doubt ends with the lease: a request that is carried out late finds no lease, and is
refused. No key is looked for, and none can be left behind.

    enter: a pooled lease or a new one ─▶ one transaction (key, idempotency record) ─▶ BatchRenewal, while it waits
    then one of: delegated to its owner, left, abandoned, closed; `_claim_end` lets only the first of them end the lease
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tenure._backends.etcd import codec, guarded_keys
from tenure._backends.etcd.delegated.background import Background, revoke
from tenure._backends.etcd.delegated.idempotency import IdempotencyRecord, IdempotencyRecords, read_record
from tenure._backends.etcd.delegated.leases import BatchRenewal, LeasePool, PooledLease
from tenure._backends.etcd.lines import EtcdLeaseVerbs, EtcdLines
from tenure._backends.etcd.requests import (
    Condition,
    CreatedAt,
    DeleteKey,
    LeaseGone,
    ModifiedAt,
    Operation,
    PutKey,
    Range,
    Txn,
    TxnResult,
)
from tenure._backends.etcd.wire import Wire
from tenure._core.belief import EXPIRED, Belief, provable
from tenure._core.delegation import Delegated, DelegatedProof, IdempotencyKey, KeyReused, KeySpent
from tenure._core.lease import (
    BackendContext,
    Entry,
    LeaseState,
    Line,
    Ticket,
)
from tenure.errors import ClientClosed, LeaseLost, TenureError

FRESH: Final = 0.95
"""Share of a proof that must be left for a hold to be delegated without another one."""
_LEASES_TRIED_MAX: Final = 24


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that all single leases of one client share."""

    wire: Wire
    namespace: str
    context: BackendContext
    pool: LeasePool
    renewal: BatchRenewal
    records: IdempotencyRecords
    background: Background
    known: Callable[[Delegated, DelegatedProof], None]
    """Called with every hold that is delegated, and its proof."""
    leases: set[EtcdSingleLease]
    """Leases that are still ours to end."""


class EtcdSingleLease(EtcdLeaseVerbs):
    """A lease for one ticket, which is entered once. See tenure._core.delegation.SingleLease."""

    def __init__(self, parts: Parts, ttl: float, once: IdempotencyKey | None) -> None:
        self._parts = parts
        self._clock = parts.context.clock
        self._wire = parts.wire
        self._once = once
        self._asked_ttl = float(math.ceil(ttl))
        self._belief = Belief(self._clock, ttl)
        self._belief.on_change(self._changed)
        self._lines = EtcdLines(parts.wire, parts.namespace, parts.context, self._belief)
        self._guard = threading.RLock()  # guards the step to `_handed_on`
        self._handed_on = False  # delegated, left, given up or closed: only the first of these ends the lease here
        self._ticket_key = b""  # of its ticket
        self._single_use = False
        self._taken = False  # its ticket was another client's, whose owner may know of it: not to be withdrawn
        self._record_version: int | None = None  # of the record as we wrote it; None: no answer said so
        self._record_ends_at = math.inf  # from then on the record may be gone by itself
        self._proven_until = 0.0  # the lease, before its ticket stands
        self.number = 0
        self.ttl = ttl

    @property
    def id(self) -> str:
        return f"{self.number:x}" if self.number else ""

    # Entering the line.

    def enter(self, entry: Entry, until: float) -> Line:
        for _ in range(_LEASES_TRIED_MAX):
            if self.state.over:
                raise self._over()
            pooled = None
            try:
                pooled = self._have_lease(until)
                line = self._enter_with_lease(entry, until)
            except LeaseGone:
                if pooled is False and self._once is None:
                    raise self._gone() from None
                self._parts.records.forget_lease()  # which of the two is gone was not said
                continue
            if line is not None:
                self._be_proven(until)
                self._parts.renewal.add(self)
                # `_changed` may have come between the proof and `add`, and would have removed nothing then.
                if self.state.over:
                    self._parts.renewal.remove(self)
                return line
        raise LeaseLost(f"{_LEASES_TRIED_MAX} leases, one after the other, were of no use for {entry.resource!r}")

    def _have_lease(self, until: float) -> bool:
        """Take a lease from the pool (True) or have one granted (False). Raises LeaseGone if it ended meanwhile."""
        self._taken = False
        pooled = self._parts.pool.take(self._asked_ttl)
        if pooled is not None:
            self.number, self.ttl, self._proven_until = pooled.number, pooled.ttl, pooled.deadline
            return True
        self.number = secrets.randbits(62) + 1
        sent = self._clock.now()
        self.ttl, found = self._wire.grant_or_find(self.number, int(self._asked_ttl), until)
        self._wire.greet()
        self._parts.pool.granted(self._asked_ttl, self.ttl)
        self._proven_until = 0.0 if found else sent + provable(self.ttl)
        return False

    def _enter_with_lease(self, entry: Entry, until: float) -> Line | None:
        """Enter the line; None where this lease can't be used in it. Raises LeaseGone."""
        key, at = self._key(entry.resource), codec.wall_time()
        answer = self._wire.txn(self._entering(entry, key, at, until), until)
        if answer.tries > 1:
            # A try without an answer may be carried out late: it must find the lease ended, and no other ticket's.
            self._single_use = True
        if not answer.succeeded:
            return self._find(answer, entry, key, until)
        self._record_version = answer.revision
        line, whole = self._lines.line_in(
            answer, entry.resource, lambda kv: codec.own_ticket(kv, entry, self.id, at) if kv.key == key else None
        )
        me = None if whole else line.find(entry.id)
        return line if me is None else self.look(me, entry.reach, until)

    def _entering(self, entry: Entry, key: bytes, at: float, until: float) -> Txn:
        self._ticket_key = key
        put = PutKey(key, codec.write_value(entry, at), self.number)
        seen = self._lines.range(entry.resource, entry.reach)
        if self._once is None:
            return Txn((CreatedAt(key, 0),), (put, seen), (Range(key),))
        record = self._parts.records.put(self._once, entry.id, self.number, self.ttl, until)
        self._record_ends_at = self._clock.now() + self._once.seconds
        return Txn((CreatedAt(key, 0), CreatedAt(record.key, 0)), (put, record, seen), (Range(key), Range(record.key)))

    def _find(self, answer: TxnResult, entry: Entry, key: bytes, until: float) -> Line | None:
        """Find out whose key stood there: an earlier try's, the same request's elsewhere, or a stranger's."""
        record = self._record_in(answer)
        mine = answer.tries > 1 and (record is None or record.lease == self.number)
        if record is not None and not mine:
            return self._take_over(record, entry, until)
        standing, _ = self._lines.line_in(_only(answer, key), entry.resource)
        me = standing.find(entry.id) if mine else None
        if me is None:
            self._end_lease()  # somebody else's, by this very name: leave it alone
            return None
        self._record_version = None if record is None else record.version
        return self.look(me, entry.reach, until)

    def _take_over(self, record: IdempotencyRecord, entry: Entry, until: float) -> Line | None:
        """Take over the ticket of the same request, put elsewhere. None where it was withdrawn: then enter anew."""
        self._give_back(self._proven_until)
        if self._once is None or (record.request, record.ticket_id) != (self._once.request, entry.id):
            raise KeyReused("this idempotency key stands for another wish; use a new key for a new one")
        key, at = self._key(entry.resource, record.lease), self._parts.records.key(self._once)
        taking = Txn(
            (CreatedAt(key, record.token), ModifiedAt(at, record.version)),
            (PutKey(at, None, None), Range(key)),
            (Range(key), Range(at)),
        )
        answer = self._wire.txn(taking, until)
        standing = self._lines.line_in(_only(answer, key), entry.resource)[0].find(entry.id)
        if not answer.succeeded:
            now = self._record_in(answer)
            if now is not None and (standing is None or standing.token != now.token):
                raise KeySpent(f"this idempotency key was used: what it acquired of {entry.resource!r} has ended")
            return None  # withdrawn, or another client was faster: look again
        if standing is None:
            return None
        self.number, self.ttl, self._proven_until = record.lease, record.ttl, 0.0
        self._record_ends_at = 0.0  # it is older than we know
        self._single_use = self._taken = True
        return self.look(standing, entry.reach, until)

    def _record_in(self, answer: TxnResult) -> IdempotencyRecord | None:
        if self._once is None:
            return None
        at = self._parts.records.key(self._once)
        return next((read_record(kv) for kv in answer.key_values if kv.key == at), None)

    def _be_proven(self, until: float) -> None:
        """Prove the lease by a recent answer, so that its owner gets nearly all of its TTL."""
        lifetime = provable(self.ttl)
        if self._proven_until - self._clock.now() >= FRESH * lifetime:
            self._belief.prove(self._proven_until - lifetime, lifetime)
        else:
            self._keep_alive(until)

    def _key(self, resource: str, lease: int | None = None) -> bytes:
        return codec.line_prefix(self._parts.namespace, resource) + b"%x" % (self.number if lease is None else lease)

    def renew(self, until: float) -> float:
        if self.state.over:
            raise self._over()
        self._keep_alive(until)
        return self.remaining()

    # Its life, while its ticket waits. See Waiting, in leases.py.

    @property
    def due(self) -> float:
        return (self._belief.deadline or 0.0) - provable(self.ttl) * 2 / 3

    def renewed(self, sent: float, ttl: float) -> None:
        if ttl > 0:
            self._belief.prove(sent, provable(ttl))
        else:
            self._belief.end(LeaseState.LOST, EXPIRED)

    def failed(self, reason: str) -> None:
        self._belief.end(LeaseState.LOST, reason)

    def _keep_alive(self, until: float) -> None:
        sent = self._clock.now()
        try:
            ttl = self._wire.keep_alive(self.number, until)
        except LeaseGone:
            ttl = 0.0
        if ttl <= 0:
            raise self._gone()
        self._belief.prove(sent, provable(ttl))

    def _changed(self, state: LeaseState, reason: str) -> None:
        if state.over:
            self._parts.renewal.remove(self)

    # The ways out.

    def delegate(self, ticket: Ticket) -> Delegated:
        deadline = self._belief.deadline
        if self.state.over or ticket.token is None or deadline is None or not self._claim_end():
            raise self._over()
        record = None if self._once is None or self._taken else self._record_version
        hold = Delegated(ticket.resource, ticket.id, ticket.token, self.id, self._single_use, record)
        # Before the belief ends, which takes the lease out of the renewal: from here on its proof is known by the hold.
        self._parts.known(hold, DelegatedProof(deadline, self.ttl, ticket.owner or ""))
        self._belief.end(LeaseState.CLOSED, "it was entrusted to its owner")
        return hold

    def leave(self, ticket: Ticket, until: float) -> bool:
        if self._taken:
            return False  # the client before may have told its owner of the hold: only its TTL ends it
        compare: tuple[Condition, ...] = (guarded_keys.is_still(ticket),)
        delete: tuple[Operation, ...] = (DeleteKey(codec.stored(ticket.key)),)
        if self._once is not None and self._record_version is not None:
            record = self._parts.records.key(self._once)
            compare, delete = (*compare, ModifiedAt(record, self._record_version)), (*delete, DeleteKey(record))
        answer = self._wire.txn(Txn(compare, delete), until)
        if answer.tries > 1:
            self._single_use = True  # as in `_enter_with_lease`
        if not answer.succeeded and (answer.tries == 1 or self._once is not None):
            return False  # gone, or taken over by another client
        gone = answer.succeeded or not self.state.over  # after a lost answer: by that try, or with the lease
        if self._claim_end():
            proven_until = self._belief.deadline or 0.0
            self._belief.end(LeaseState.CLOSED, "its ticket has left the line")  # no round renews it from here on
            self._give_back(proven_until)
        return gone

    def abandon(self, entry: Entry) -> None:
        if not self._claim_end():
            return
        self._belief.end(LeaseState.CLOSED, "its ticket was given up")
        if self.number and not self._taken:
            self._parts.background.until_done(self._withdraw, self.ttl)

    def close(self, until: float) -> None:
        if self._claim_end():
            self._belief.end(LeaseState.CLOSED, "the client was closed")
            if self.number and not self._taken:
                self._withdraw(until)

    def _claim_end(self) -> bool:
        """Claim the right to end this lease here; False where it was left, given up, closed or handed over before."""
        # Another thread may be ending it too, as closing does: only the one that sets the flag has the lease.
        with self._guard:
            first, self._handed_on = not self._handed_on, True
        self._parts.leases.discard(self)
        return first

    def _withdraw(self, until: float) -> None:
        """Remove the ticket with its lease; but not where another client took it over for the same request."""
        while self._once is not None:  # ends: each round but the last is another client's change of the record
            at = self._parts.records.key(self._once)
            record = self._record_in(self._wire.range(Range(at), until))
            if record is None and self._clock.now() >= self._record_ends_at:
                return  # perhaps taken over before the record ended: the TTL ends what is nobody's
            if record is None or record.lease != self.number:
                break
            if record.version != (self._record_version or record.token):
                return
            # both at once: whoever asks for the same again must not stand behind a ticket that is about to go
            gone = (DeleteKey(at), DeleteKey(self._ticket_key))
            if self._wire.txn(Txn((ModifiedAt(at, record.version),), gone), until).succeeded:
                break
        revoke(self._wire, self.number, until)

    def _give_back(self, proven_until: float) -> None:
        """Put the lease, now without a ticket, into the pool; end it where it was in doubt or the pool is full."""
        pooled = PooledLease(self.number, self.ttl, proven_until, self._clock.now() + self.ttl)
        if self._single_use or not self._parts.pool.put(pooled):
            self._end_lease()
        self.number = 0

    def _end_lease(self) -> None:
        number, self.number = self.number, 0
        self._parts.background.until_done(lambda until: revoke(self._parts.wire, number, until), self.ttl)

    def _gone(self) -> LeaseLost:
        self._belief.end(LeaseState.LOST, EXPIRED)
        return LeaseLost(f"lease {self.id} is gone: {EXPIRED}")

    def _over(self) -> TenureError:
        if self.state is LeaseState.LOST:
            return LeaseLost(f"lease {self.id} is gone: {self._belief.reason}")
        return ClientClosed(f"this lease is over: {self._belief.reason}")


def _only(answer: TxnResult, key: bytes) -> TxnResult:
    """Keep only this key's part of an answer."""
    return answer._replace(key_values=[kv for kv in answer.key_values if kv.key == key])
