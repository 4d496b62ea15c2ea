"""Delegated holds on etcd: each has a lease of its own, which any client can keep alive. See _core/delegation.py.

    single_lease    EtcdSingleLease: a lease for one ticket, renewed by us until it is delegated
    leases          the pool of leases without a ticket; the renewal of those whose tickets wait
    idempotency     the store's records of idempotency keys
    background      work retried until it is done: revocations, removals

This module has the verbs for holds in others' hands. What it remembers of them is a convenience: until when a lease is
proven when it comes back, and which id the ticket has. What it does not remember is asked of the store.
"""

from __future__ import annotations

import hmac
import threading
from typing import NamedTuple

from tenure._backends.etcd import codec
from tenure._backends.etcd.delegated.background import Background, revoke
from tenure._backends.etcd.delegated.idempotency import IdempotencyRecords
from tenure._backends.etcd.delegated.leases import BatchRenewal, LeasePool, PooledLease
from tenure._backends.etcd.delegated.single_lease import EtcdSingleLease, Parts
from tenure._backends.etcd.requests import CreatedAt, DeleteKey, LeaseGone, ModifiedAt, OutOfSpace, Range, Txn
from tenure._backends.etcd.wire import Wire
from tenure._core.base.limits import DELEGATED_KNOWN_MAX, REQUEST_TIMEOUT_DEFAULT
from tenure._core.belief import provable
from tenure._core.delegation import Delegated, DelegatedProof, IdempotencyKey
from tenure._core.lease import BackendContext, Ticket, Workers
from tenure.errors import TenureError


class _KnownHold(NamedTuple):
    hold: Delegated
    proof: DelegatedProof


class EtcdDelegation:
    """The verbs of `Delegation`, for one client."""

    def __init__(self, wire: Wire, namespace: str, context: BackendContext, renewal_thread: Workers) -> None:
        self._wire = wire
        self._namespace = namespace
        self._clock = context.clock
        self._guard = threading.RLock()  # guards _known
        self._known: dict[str, _KnownHold] = {}  # by lease, the one heard of last at the end
        self._parts = Parts(
            wire=wire,
            namespace=namespace,
            context=context,
            pool=LeasePool(context.clock),
            renewal=BatchRenewal(wire, context, renewal_thread),
            records=IdempotencyRecords(wire, namespace, context.clock),
            background=Background(context),
            known=self._remember,
            leases=set(),
        )

    def open(self, ttl: float, once: IdempotencyKey | None) -> EtcdSingleLease:
        lease = EtcdSingleLease(self._parts, ttl, once)
        self._parts.leases.add(lease)
        return lease

    def renew(self, hold: Delegated, until: float) -> DelegatedProof | None:
        # Before: a lease may be used again, and who asks for a hold that is gone must keep no other one alive. After:
        # some servers answer for a lease that was revoked just then (etcd #20590), and nobody watches over this hold.
        ticket = self._standing(hold, until)
        if ticket is None:
            return None
        sent = self._clock.now()
        try:
            ttl = self._wire.keep_alive(int(hold.lease_id, 16), until)
        except LeaseGone:
            return None
        if ttl <= 0 or self._standing(hold, until) is None:
            return None
        proof = DelegatedProof(sent + provable(ttl), ttl, ticket.owner or "")
        self._remember(hold, proof)
        return proof

    def release(self, hold: Delegated, until: float) -> bool:
        proof = self._proof_of(hold) or self.renew(hold, until)
        if proof is None:
            return False
        key = self._key(hold)
        try:
            answer = self._wire.txn(Txn((CreatedAt(key, hold.token),), (DeleteKey(key),)), until)
        except OutOfSpace:  # no transaction goes through, the end of a lease does
            return self._release_with_lease(hold, until)
        self._forget(hold)
        if answer.succeeded and answer.tries == 1 and not hold.single_use:
            self._give_back(hold, proof)
        elif answer.succeeded:
            self._end_lease(hold)
        # gone after a lost answer: that try was ours, or the end of the lease
        return answer.succeeded or (answer.tries > 1 and self._clock.now() < proof.deadline)

    def _release_with_lease(self, hold: Delegated, until: float) -> bool:
        if self._standing(hold, until) is None:
            return False
        revoke(self._wire, int(hold.lease_id, 16), until)
        self._forget(hold)
        return True

    def withdraw(self, hold: Delegated, once: IdempotencyKey, until: float) -> bool:
        if hold.record_revision is None:
            return False
        key, record = self._key(hold), self._parts.records.key(once)
        nobody_else = (CreatedAt(key, hold.token), ModifiedAt(record, hold.record_revision))
        answer = self._wire.txn(Txn(nobody_else, (DeleteKey(key), DeleteKey(record))), until)
        if answer.succeeded:
            self._forget(hold)
            self._end_lease(hold)
        return answer.succeeded

    def statistics(self) -> dict[str, object]:
        parts = self._parts
        return {"waiting": len(parts.renewal), "spares": len(parts.pool), "chores": parts.background.open}

    def close(self, until: float) -> None:
        now = self._clock.now()
        self._parts.background.finish(now + (until - now) / 2)  # the other half is for what is still ours
        for lease in list(self._parts.leases):
            self._end(lease, until)
        for pooled in self._parts.pool.close():
            try:
                revoke(self._wire, pooled.number, until)
            except TenureError:
                return  # nobody renews them: their TTLs end them

    def _end(self, lease: EtcdSingleLease, until: float) -> None:
        try:
            lease.close(until)
        except TenureError:
            return  # as above

    def _standing(self, hold: Delegated, until: float) -> Ticket | None:
        """Read the hold's ticket if it stands and its id is the given one; None otherwise."""
        answer = self._wire.range(Range(self._key(hold)), until)
        for kv in answer.key_values:
            ticket = codec.read_ticket(kv, self._namespace, hold.resource)
            if ticket is not None and ticket.token == hold.token and hmac.compare_digest(ticket.id, hold.ticket_id):
                return ticket
        return None

    def _key(self, hold: Delegated) -> bytes:
        return codec.line_prefix(self._namespace, hold.resource) + b"%x" % int(hold.lease_id, 16)

    def _give_back(self, hold: Delegated, proof: DelegatedProof) -> None:
        number, now = int(hold.lease_id, 16), self._clock.now()
        if not self._parts.pool.put(PooledLease(number, proof.ttl, proof.deadline, now + proof.ttl)):
            self._end_lease(hold)

    def _end_lease(self, hold: Delegated) -> None:
        number = int(hold.lease_id, 16)
        self._parts.background.until_done(lambda until: revoke(self._wire, number, until), REQUEST_TIMEOUT_DEFAULT)

    def _remember(self, hold: Delegated, proof: DelegatedProof) -> None:
        with self._guard:
            self._known.pop(hold.lease_id, None)
            self._known[hold.lease_id] = _KnownHold(hold, proof)
            while len(self._known) > DELEGATED_KNOWN_MAX:
                del self._known[next(iter(self._known))]

    def _proof_of(self, hold: Delegated) -> DelegatedProof | None:
        """The last proof, where this very hold is known here."""
        known = self._known.get(hold.lease_id)
        return known.proof if known is not None and _same(known.hold, hold) else None

    def _forget(self, hold: Delegated) -> None:
        with self._guard:
            if self._proof_of(hold) is not None:
                del self._known[hold.lease_id]


def _same(known: Delegated, hold: Delegated) -> bool:
    facts = (known.resource, known.token, known.single_use) == (hold.resource, hold.token, hold.single_use)
    return facts and hmac.compare_digest(known.ticket_id, hold.ticket_id)
