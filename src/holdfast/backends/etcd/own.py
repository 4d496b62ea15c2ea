"""EtcdOwnLease: an etcd lease for one ticket, whose key is named by the lease alone, as Go's `concurrency` does it.

Because it has but one ticket, whatever was in doubt is ended with the lease: a request that is carried out late then
finds none, and is refused. No key is looked for, and none can be left behind.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.backends.etcd import codec, guarded
from holdfast.backends.etcd.chores import Chores, revoke
from holdfast.backends.etcd.lines import Lines
from holdfast.backends.etcd.marks import Mark, Marks, read_mark
from holdfast.backends.etcd.rounds import Rounds
from holdfast.backends.etcd.spares import Spare, Spares
from holdfast.backends.etcd.wire import Wire
from holdfast.backends.etcd.words import (
    Answer,
    Condition,
    CreatedAt,
    DeleteKey,
    LeaseGone,
    ModifiedAt,
    Operation,
    PutKey,
    Range,
    Txn,
)
from holdfast.belief import EXPIRED, Belief, provable
from holdfast.entrusting import Entrusted, KeyReused, KeySpent, Once, Proof
from holdfast.errors import ClientClosed, HoldfastError, LeaseLost
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
)
from holdfast.signals import Signal

FRESH: Final = 0.95
"""Share of a proof that is left, for a hold to be told without another one."""
_LEASES_TRIED_MAX: Final = 24


@dataclass(frozen=True, slots=True)
class Parts:
    """What all own leases of one client share."""

    wire: Wire
    namespace: str
    around: Surroundings
    spares: Spares
    rounds: Rounds
    marks: Marks
    chores: Chores
    known: Callable[[Entrusted, Proof], None]
    """Told of every hold that is entrusted."""
    leases: set[EtcdOwnLease]
    """Those that are still ours."""


class EtcdOwnLease:
    """See holdfast.entrusting.OwnLease. Its ticket is entered once."""

    def __init__(self, parts: Parts, ttl: float, once: Once | None) -> None:
        self._parts = parts
        self._clock = parts.around.clock
        self._wire = parts.wire
        self._once = once
        self._asked_ttl = float(math.ceil(ttl))
        self._belief = Belief(self._clock, ttl)
        self._belief.on_change(self._changed)
        self._lines = Lines(parts.wire, parts.namespace, parts.around, self._belief)
        self._guard = threading.RLock()  # guards the step to `_through`
        self._through = False  # entrusted, left or given up: it is somebody else's, or the background's
        self._place = b""  # of its ticket
        self._worn = False
        self._taken = False  # its ticket is another client's, which may have told its owner: not to be withdrawn
        self._mark_version: int | None = None  # of the mark as we wrote it; None: nothing was heard of that
        self._forgotten_from = math.inf  # from when the mark may be gone by itself
        self._proven_until = 0.0  # the lease, before its ticket stands
        self.number = 0
        self.ttl = ttl

    @property
    def id(self) -> str:
        return f"{self.number:x}" if self.number else ""

    @property
    def state(self) -> LeaseState:
        return self._belief.state

    def remaining(self) -> float:
        return self._belief.remaining()

    # Entering the line.

    def enter(self, entry: Entry, until: float) -> Line:
        for _ in range(_LEASES_TRIED_MAX):
            if self.state.over:
                raise self._over()
            spare = None
            try:
                spare = self._have_lease(until)
                line = self._enter_with_lease(entry, until)
            except LeaseGone:
                if spare is False and self._once is None:
                    raise self._gone() from None
                self._parts.marks.forget_lease()  # which of the two is gone was not said
                continue
            if line is not None:
                self._be_proven(until)
                self._parts.rounds.add(self)
                if self.state.over:  # closed just now
                    self._parts.rounds.remove(self)
                return line
        raise LeaseLost(f"{_LEASES_TRIED_MAX} leases, one after the other, were of no use for {entry.resource!r}")

    def _have_lease(self, until: float) -> bool:
        """One of the spares (True), or a new one. Raises LeaseGone where that ended before its grant was heard of."""
        self._taken = False
        spare = self._parts.spares.take(self._asked_ttl)
        if spare is not None:
            self.number, self.ttl, self._proven_until = spare.number, spare.ttl, spare.deadline
            return True
        self.number = secrets.randbits(62) + 1
        sent = self._clock.now()
        self.ttl, found = self._wire.grant_or_find(self.number, int(self._asked_ttl), until)
        self._wire.greet()
        self._parts.spares.granted(self._asked_ttl, self.ttl)
        self._proven_until = 0.0 if found else sent + provable(self.ttl)
        return False

    def _enter_with_lease(self, entry: Entry, until: float) -> Line | None:
        """None where this lease is of no use in this line. Raises LeaseGone."""
        key, at = self._key(entry.resource), codec.wall_time()
        answer = self._wire.txn(self._entering(entry, key, at, until), until)
        if answer.tries > 1:
            self._worn = True
        if not answer.succeeded:
            return self._find(answer, entry, key, until)
        self._mark_version = answer.revision
        line, whole = self._lines.told(
            answer, entry.resource, lambda kv: codec.own_ticket(kv, entry, self.id, at) if kv.key == key else None
        )
        me = None if whole else line.find(entry.id)
        return line if me is None else self.look(me, entry.reach, until)

    def _entering(self, entry: Entry, key: bytes, at: float, until: float) -> Txn:
        self._place = key
        put = PutKey(key, codec.write_value(entry, at), self.number)
        seen = self._lines.range(entry.resource, entry.reach)
        if self._once is None:
            return Txn((CreatedAt(key, 0),), (put, seen), (Range(key),))
        mark = self._parts.marks.put(self._once, entry.id, self.number, self.ttl, until)
        self._forgotten_from = self._clock.now() + self._once.seconds
        return Txn((CreatedAt(key, 0), CreatedAt(mark.key, 0)), (put, mark, seen), (Range(key), Range(mark.key)))

    def _find(self, answer: Answer, entry: Entry, key: bytes, until: float) -> Line | None:
        """A key stood there: of an earlier try whose answer was lost, of the same wish elsewhere, or a stranger's."""
        mark = self._mark_in(answer)
        mine = answer.tries > 1 and (mark is None or mark.lease == self.number)
        if mark is not None and not mine:
            return self._take_over(mark, entry, until)
        standing, _ = self._lines.told(_only(answer, key), entry.resource)
        me = standing.find(entry.id) if mine else None
        if me is None:
            self._end_lease()  # somebody else's, by this very name: leave it alone
            return None
        self._mark_version = None if mark is None else mark.version
        return self.look(me, entry.reach, until)

    def _take_over(self, mark: Mark, entry: Entry, until: float) -> Line | None:
        """The ticket of the same wish, put elsewhere. None where it was withdrawn meanwhile: then the way is free."""
        self._give_back(self._proven_until)
        if self._once is None or (mark.wish, mark.ticket_id) != (self._once.wish, entry.id):
            raise KeyReused("this idempotency key stands for another wish; use a new key for a new one")
        key, at = self._key(entry.resource, mark.lease), self._parts.marks.key(self._once)
        taking = Txn(
            (CreatedAt(key, mark.token), ModifiedAt(at, mark.version)),
            (PutKey(at, None, None), Range(key)),
            (Range(key), Range(at)),
        )
        answer = self._wire.txn(taking, until)
        standing = self._lines.told(_only(answer, key), entry.resource)[0].find(entry.id)
        if not answer.succeeded:
            now = self._mark_in(answer)
            if now is not None and (standing is None or standing.token != now.token):
                raise KeySpent(f"this idempotency key was used: what it acquired of {entry.resource!r} has ended")
            return None  # withdrawn, or another client was faster: look again
        if standing is None:
            return None
        self.number, self.ttl, self._proven_until = mark.lease, mark.ttl, 0.0
        self._forgotten_from = 0.0  # it is older than we know
        self._worn = self._taken = True
        return self.look(standing, entry.reach, until)

    def _mark_in(self, answer: Answer) -> Mark | None:
        if self._once is None:
            return None
        at = self._parts.marks.key(self._once)
        return next((read_mark(kv) for kv in answer.key_values if kv.key == at), None)

    def _be_proven(self, until: float) -> None:
        """Freshly, so that its owner is told of nearly all of its TTL."""
        lifetime = provable(self.ttl)
        if self._proven_until - self._clock.now() >= FRESH * lifetime:
            self._belief.prove(self._proven_until - lifetime, lifetime)
        else:
            self._keep_alive(until)

    def _key(self, resource: str, lease: int | None = None) -> bytes:
        return codec.line_prefix(self._parts.namespace, resource) + b"%x" % (self.number if lease is None else lease)

    # The other verbs of a lease.

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        return self._lines.look(ticket, reach, until)

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        return self._lines.survey(resource, until, front)

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        return self._lines.wait_change(line, tickets, amendments=amendments)

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        return self._lines.amend(ticket, value, until)

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        return self._lines.read(ticket, keys, until)

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        return self._lines.commit(ticket, compares, writes, until)

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        return self._lines.touch(ticket, until)

    def renew(self, until: float) -> float:
        if self.state.over:
            raise self._over()
        self._keep_alive(until)
        return self.remaining()

    def on_end(self, told: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return self._belief.on_change(told)

    # Its life, while its ticket waits. See Waiting, in rounds.py.

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
            self._parts.rounds.remove(self)

    # The ways out.

    def entrust(self, ticket: Ticket) -> Entrusted:
        deadline = self._belief.deadline
        if self.state.over or ticket.token is None or deadline is None or not self._pass_on():
            raise self._over()
        mark = None if self._once is None or self._taken else self._mark_version
        hold = Entrusted(ticket.resource, ticket.id, ticket.token, self.id, self._worn, mark)
        self._parts.known(hold, Proof(deadline, self.ttl, ticket.owner or ""))
        self._belief.end(LeaseState.CLOSED, "it was entrusted to its owner")
        return hold

    def leave(self, ticket: Ticket, until: float) -> bool:
        if self._taken:
            return False
        compare: tuple[Condition, ...] = (guarded.is_still(ticket),)
        delete: tuple[Operation, ...] = (DeleteKey(codec.stored(ticket.key)),)
        if self._once is not None and self._mark_version is not None:
            mark = self._parts.marks.key(self._once)
            compare, delete = (*compare, ModifiedAt(mark, self._mark_version)), (*delete, DeleteKey(mark))
        answer = self._wire.txn(Txn(compare, delete), until)
        if answer.tries > 1:
            self._worn = True
        if not answer.succeeded and (answer.tries == 1 or self._once is not None):
            return False  # gone, or taken over by another client
        gone = answer.succeeded or not self.state.over  # after a lost answer: by that try, or with the lease
        if self._pass_on():
            proven_until = self._belief.deadline or 0.0
            self._belief.end(LeaseState.CLOSED, "its ticket has left the line")  # no round renews it from here on
            self._give_back(proven_until)
        return gone

    def abandon(self, entry: Entry) -> None:
        if not self._pass_on():
            return
        self._belief.end(LeaseState.CLOSED, "its ticket was given up")
        if self.number and not self._taken:
            self._parts.chores.until_done(self._withdraw, self.ttl)

    def close(self, until: float) -> None:
        if self._pass_on():
            self._belief.end(LeaseState.CLOSED, "the client was closed")
            if self.number and not self._taken:
                self._withdraw(until)

    def _pass_on(self) -> bool:
        """From here on it is somebody else's, or the background's. False where it was before."""
        with self._guard:
            first, self._through = not self._through, True
        self._parts.leases.discard(self)
        return first

    def _withdraw(self, until: float) -> None:
        """The ticket goes, with its lease; but not where another client took it over for the same wish."""
        while self._once is not None:  # ends: each round but the last is somebody else's change of the mark
            at = self._parts.marks.key(self._once)
            mark = self._mark_in(self._wire.range(Range(at), until))
            if mark is None and self._clock.now() >= self._forgotten_from:
                return  # perhaps taken over before the mark was forgotten: the TTL ends what is nobody's
            if mark is None or mark.lease != self.number:
                break
            if mark.version != (self._mark_version or mark.token):
                return
            # both at once: whoever asks for the same again must not stand behind a ticket that is about to go
            gone = (DeleteKey(at), DeleteKey(self._place))
            if self._wire.txn(Txn((ModifiedAt(at, mark.version),), gone), until).succeeded:
                break
        revoke(self._wire, self.number, until)

    def _give_back(self, proven_until: float) -> None:
        """The lease has no ticket any more: it is not ours from here on."""
        spare = Spare(self.number, self.ttl, proven_until, self._clock.now() + self.ttl)
        if self._worn or not self._parts.spares.put(spare):
            self._end_lease()
        self.number = 0

    def _end_lease(self) -> None:
        number, self.number = self.number, 0
        self._parts.chores.until_done(lambda until: revoke(self._parts.wire, number, until), self.ttl)

    def _gone(self) -> LeaseLost:
        self._belief.end(LeaseState.LOST, EXPIRED)
        return LeaseLost(f"lease {self.id} is gone: {EXPIRED}")

    def _over(self) -> HoldfastError:
        if self.state is LeaseState.LOST:
            return LeaseLost(f"lease {self.id} is gone: {self._belief.reason}")
        return ClientClosed(f"this lease is over: {self._belief.reason}")


def _only(answer: Answer, key: bytes) -> Answer:
    """What it says of this key."""
    return answer._replace(key_values=[kv for kv in answer.key_values if kv.key == key])
