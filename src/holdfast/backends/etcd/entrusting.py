"""Holds that others renew, on etcd: each has a lease of its own, which any client can keep alive. See
holdfast/entrusting.py.

What is known here of holds in others' hands is a convenience: until when a lease is proven when it comes back, and
that a ticket's id is the one that was told. What is not known is asked of the store.
"""

from __future__ import annotations

import hmac
import threading
from typing import NamedTuple

from holdfast.backends.etcd import codec
from holdfast.backends.etcd.chores import Chores, revoke
from holdfast.backends.etcd.marks import Marks
from holdfast.backends.etcd.own import EtcdOwnLease, Parts
from holdfast.backends.etcd.rounds import Rounds
from holdfast.backends.etcd.spares import Spare, Spares
from holdfast.backends.etcd.wire import Wire
from holdfast.backends.etcd.words import CreatedAt, DeleteKey, LeaseGone, ModifiedAt, OutOfSpace, Range, Txn
from holdfast.belief import provable
from holdfast.entrusting import Entrusted, Once, Proof
from holdfast.errors import HoldfastError
from holdfast.lease import Surroundings, Ticket, Workers
from holdfast.limits import ENTRUSTED_KNOWN_MAX, REQUEST_TIMEOUT_DEFAULT


class _Known(NamedTuple):
    hold: Entrusted
    proof: Proof


class EtcdEntrusting:
    """The verbs, for one client."""

    def __init__(self, wire: Wire, namespace: str, around: Surroundings, heart: Workers) -> None:
        self._wire = wire
        self._namespace = namespace
        self._clock = around.clock
        self._guard = threading.RLock()  # guards _known
        self._known: dict[str, _Known] = {}  # by lease, the one heard of last at the end
        self._parts = Parts(
            wire=wire,
            namespace=namespace,
            around=around,
            spares=Spares(around.clock),
            rounds=Rounds(wire, around, heart),
            marks=Marks(wire, namespace, around.clock),
            chores=Chores(around),
            known=self._remember,
            leases=set(),
        )

    def open(self, ttl: float, once: Once | None) -> EtcdOwnLease:
        lease = EtcdOwnLease(self._parts, ttl, once)
        self._parts.leases.add(lease)
        return lease

    def renew(self, hold: Entrusted, until: float) -> Proof | None:
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
        proof = Proof(sent + provable(ttl), ttl, ticket.owner or "")
        self._remember(hold, proof)
        return proof

    def release(self, hold: Entrusted, until: float) -> bool:
        proof = self._proof_of(hold) or self.renew(hold, until)
        if proof is None:
            return False
        key = self._key(hold)
        try:
            answer = self._wire.txn(Txn((CreatedAt(key, hold.token),), (DeleteKey(key),)), until)
        except OutOfSpace:  # no transaction goes through, the end of a lease does
            return self._release_with_lease(hold, until)
        self._forget(hold)
        if answer.succeeded and answer.tries == 1 and not hold.worn:
            self._give_back(hold, proof)
        elif answer.succeeded:
            self._end_lease(hold)
        # gone after a lost answer: that try was ours, or the end of the lease
        return answer.succeeded or (answer.tries > 1 and self._clock.now() < proof.deadline)

    def _release_with_lease(self, hold: Entrusted, until: float) -> bool:
        if self._standing(hold, until) is None:
            return False
        revoke(self._wire, int(hold.lease_id, 16), until)
        self._forget(hold)
        return True

    def withdraw(self, hold: Entrusted, once: Once, until: float) -> bool:
        if hold.mark is None:
            return False
        key, mark = self._key(hold), self._parts.marks.key(once)
        nobody_else = (CreatedAt(key, hold.token), ModifiedAt(mark, hold.mark))
        answer = self._wire.txn(Txn(nobody_else, (DeleteKey(key), DeleteKey(mark))), until)
        if answer.succeeded:
            self._forget(hold)
            self._end_lease(hold)
        return answer.succeeded

    def statistics(self) -> dict[str, object]:
        parts = self._parts
        return {"waiting": len(parts.rounds), "spares": len(parts.spares), "chores": parts.chores.open}

    def close(self, until: float) -> None:
        now = self._clock.now()
        self._parts.chores.finish(now + (until - now) / 2)  # the other half is for what is still ours
        for lease in list(self._parts.leases):
            self._end(lease, until)
        for spare in self._parts.spares.close():
            try:
                revoke(self._wire, spare.number, until)
            except HoldfastError:
                return  # nobody renews them: their TTLs end them

    def _end(self, lease: EtcdOwnLease, until: float) -> None:
        try:
            lease.close(until)
        except HoldfastError:
            return  # as above

    def _standing(self, hold: Entrusted, until: float) -> Ticket | None:
        """That very ticket, where its id shows that it was told to whoever asks."""
        answer = self._wire.range(Range(self._key(hold)), until)
        for kv in answer.key_values:
            ticket = codec.read_ticket(kv, self._namespace, hold.resource)
            if ticket is not None and ticket.token == hold.token and hmac.compare_digest(ticket.id, hold.ticket_id):
                return ticket
        return None

    def _key(self, hold: Entrusted) -> bytes:
        return codec.line_prefix(self._namespace, hold.resource) + b"%x" % int(hold.lease_id, 16)

    def _give_back(self, hold: Entrusted, proof: Proof) -> None:
        number, now = int(hold.lease_id, 16), self._clock.now()
        if not self._parts.spares.put(Spare(number, proof.ttl, proof.deadline, now + proof.ttl)):
            self._end_lease(hold)

    def _end_lease(self, hold: Entrusted) -> None:
        number = int(hold.lease_id, 16)
        self._parts.chores.until_done(lambda until: revoke(self._wire, number, until), REQUEST_TIMEOUT_DEFAULT)

    def _remember(self, hold: Entrusted, proof: Proof) -> None:
        with self._guard:
            self._known.pop(hold.lease_id, None)
            self._known[hold.lease_id] = _Known(hold, proof)
            while len(self._known) > ENTRUSTED_KNOWN_MAX:
                del self._known[next(iter(self._known))]

    def _proof_of(self, hold: Entrusted) -> Proof | None:
        """The last one, where this very hold is known here."""
        known = self._known.get(hold.lease_id)
        return known.proof if known is not None and _same(known.hold, hold) else None

    def _forget(self, hold: Entrusted) -> None:
        with self._guard:
            if self._proof_of(hold) is not None:
                del self._known[hold.lease_id]


def _same(known: Entrusted, hold: Entrusted) -> bool:
    facts = (known.resource, known.token, known.worn) == (hold.resource, hold.token, hold.worn)
    return facts and hmac.compare_digest(known.ticket_id, hold.ticket_id)
