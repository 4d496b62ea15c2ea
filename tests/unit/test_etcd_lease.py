"""An etcd lease over a transport whose answers a test writes: what it asks, and what it believes of the answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from tenure._backends.etcd import codec
from tenure._backends.etcd.lease import EtcdLease
from tenure._backends.etcd.requests import (
    CreatedAt,
    DeleteKey,
    Header,
    KeyValue,
    LeaseGone,
    Life,
    ModifiedAt,
    OutOfSpace,
    PutKey,
    Range,
    Txn,
    TxnResult,
)
from tenure._backends.etcd.wire import Wire
from tenure._core.base.clock import VirtualClock
from tenure._core.base.options import parse
from tenure._core.belief import EXPIRED, provable
from tenure._core.lease import BackendContext, Compare, Entry, LeaseState, Put, Reach, Ticket
from tenure.errors import LeaseLost, StoreRefused, StoreUnavailable, StoreWentBack
from tenure.events import Hub
from tests.unit.fakes import ImmediateWorkers

START = 1000.0
TTL = 15.0
GRANTED = 20.0
SECONDS = 5.0
Usual = TypeVar("Usual")
LOST = StoreUnavailable("told by the test: the answer was lost")


class Pool:
    """The part of a connection pool that the wire and its watcher look at."""

    goes_aside = False


class Answers:
    """A transport that answers at once and agrees, unless `written` has another answer for a verb; `takes` its time."""

    def __init__(self, clock: VirtualClock) -> None:
        self.session: Any = Pool()
        self.asked: list[tuple[str, Any]] = []
        self.written: dict[str, list[Any]] = defaultdict(list)
        self.takes: dict[str, float] = defaultdict(float)
        self.revision = 100
        self._clock = clock

    def of(self, verb: str) -> list[Any]:
        """What was asked by this verb, in order."""
        return [asked for name, asked in self.asked if name == verb]

    def txn(self, txn: Txn, until: float) -> TxnResult:
        self.revision += 1
        puts = [put for put in txn.success if isinstance(put, PutKey)]
        found = [KeyValue(put.key, put.value or b"", self.revision, self.revision) for put in puts]
        return self._answer("txn", txn, self.result(*found))

    def range(self, asked: Range, until: float) -> TxnResult:
        return self._answer("range", asked, self.result())

    def delete(self, key: bytes, until: float) -> bool:
        return self._answer("delete", key, True)

    def grant(self, number: int, ttl: int, until: float) -> float:
        return self._answer("grant", (number, ttl), GRANTED)

    def life(self, number: int, keys: bool, until: float) -> Life:
        return self._answer("life", keys, Life(GRANTED, ()))

    def keep_alive(self, number: int, until: float) -> float:
        return self._answer("keep alive", number, GRANTED)

    def keep_alives(self, numbers: Sequence[int], until: float) -> Mapping[int, float]:
        raise NotImplementedError

    def revoke(self, number: int, until: float) -> None:
        self._answer("revoke", number, None)

    def version(self, until: float) -> str:
        return "3.6.9"

    def position(self, until: float) -> Header:
        raise NotImplementedError

    def open_stream(self, *_: object) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to give back."""

    def result(self, *found: KeyValue, succeeded: bool = True) -> TxnResult:
        return TxnResult(Header(1, self.revision), succeeded, list(found))

    def _answer(self, verb: str, asked: Any, usual: Usual) -> Usual:
        self.asked.append((verb, asked))
        self._clock.advance(self.takes[verb])
        if not self.written[verb]:
            return usual
        answer = self.written[verb].pop(0)
        if isinstance(answer, Exception):
            raise answer
        given: Usual = answer
        return given


class Desk:
    """One lease, its clock and its transport."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START)
        self.etcd = Answers(self.clock)
        self.context = BackendContext(self.clock, Hub(self.clock.now), ImmediateWorkers())
        self.wire = Wire(parse("etcd://127.0.0.1:2379/n", {}), self.context, self.etcd)
        self.lease = self.leased()

    def leased(self, lock_delay: float = 0.0) -> EtcdLease:
        return EtcdLease(self.wire, "n", TTL, lock_delay, self.context, ImmediateWorkers(), lambda: SECONDS)

    @property
    def until(self) -> float:
        return self.clock.now() + SECONDS

    def enter(self, **how: Any) -> Ticket:
        """A new ticket in the line `a`."""
        entry = Entry("a", "me", **how)
        me = self.lease.enter(entry, self.until).find(entry.id)
        assert me is not None
        return me


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.lease._belief.end(LeaseState.CLOSED, "the test is over")
    made.wire.close()


# Law 2: what proves the lease, and from when on.


def test_proof_counts_from_before_the_sending_of_what_was_answered(desk: Desk) -> None:
    """An answer may take its time; the store counts from when the request came, which nobody here knows."""
    desk.etcd.takes.update({"grant": 3.0, "keep alive": 2.0})
    desk.enter()
    assert desk.lease._belief.deadline == START + provable(GRANTED)
    desk.clock.advance(1.0)
    sent = desk.clock.now()
    desk.lease.renew(desk.until)
    assert desk.lease._belief.deadline == sent + provable(GRANTED)


@pytest.mark.parametrize("answer", [0.0, LeaseGone("requested lease not found")])
def test_renewal_of_a_lease_that_the_store_has_no_more_ends_it(desk: Desk, answer: object) -> None:
    """etcd says so with a TTL of 0, and no error."""
    desk.enter()
    desk.etcd.written["keep alive"] = [answer]
    with pytest.raises(LeaseLost):
        desk.lease.renew(desk.until)
    assert (desk.lease.state, desk.lease._belief.reason) == (LeaseState.LOST, EXPIRED)


def test_lease_found_after_a_lost_answer_is_proven_by_a_keep_alive(desk: Desk) -> None:
    """It was granted earlier than this grant was sent: how much of it is left, only a renewal makes known."""
    desk.etcd.written["grant"] = [LOST, StoreRefused("etcdserver: lease already exists")]
    desk.etcd.takes["life"] = 1.0
    desk.enter()
    assert len(desk.etcd.of("keep alive")) == 1
    assert desk.lease._belief.deadline == START + 1.0 + provable(GRANTED)


def test_lease_found_and_gone_is_lost(desk: Desk) -> None:
    """Its time was over before the second try had an answer."""
    desk.etcd.written["grant"] = [StoreRefused("etcdserver: lease already exists")]
    desk.etcd.written["keep alive"] = [0.0]
    with pytest.raises(LeaseLost):
        desk.enter()
    assert desk.lease.state is LeaseState.LOST


def test_grant_tried_again_by_the_next_call_asks_for_the_same_lease(desk: Desk) -> None:
    """Law 6: another number would leave the first lease, if it was granted, to its TTL."""
    desk.etcd.written["grant"] = [LOST]
    with pytest.raises(StoreUnavailable):
        desk.lease.enter(Entry("a", "me"), desk.clock.now())
    desk.enter()
    first, second = desk.etcd.of("grant")
    assert first == second


def test_granted_time_counts_and_not_what_was_asked_for(desk: Desk) -> None:
    """etcd grants no less than its election time-out allows."""
    desk.enter()
    assert desk.etcd.of("grant")[0][1] == TTL
    assert desk.lease.ttl == GRANTED


def test_lease_is_renewed_while_it_is_believed_and_no_longer(desk: Desk) -> None:
    """Three times a TTL, without anybody's doing; a closed one costs the store nothing more."""
    desk.enter()
    desk.clock.advance(10 * GRANTED)
    assert desk.lease.state is LeaseState.HELD
    assert 30 <= len(desk.etcd.of("keep alive")) <= 32
    desk.lease.close(desk.until)
    assert len(desk.etcd.of("revoke")) == 1
    renewed = len(desk.etcd.of("keep alive"))
    desk.clock.advance(10 * GRANTED)
    assert len(desk.etcd.of("keep alive")) == renewed


def test_lock_delay_is_kept_by_the_store_and_believed_by_nobody(desk: Desk) -> None:
    """The proof is shorter by it, from the grant on; a lost lease is left to the store, closing included."""
    lease = desk.lease = desk.leased(lock_delay=5.0)
    desk.enter()
    assert desk.etcd.of("grant")[-1][1] == TTL + 5.0
    assert lease._belief.deadline == START + provable(GRANTED - 5.0)
    desk.clock.advance(1.0)
    assert lease.renew(desk.until) == pytest.approx(provable(GRANTED - 5.0))
    desk.etcd.written["keep alive"] = [0.0]
    with pytest.raises(LeaseLost):
        lease.renew(desk.until)
    lease.close(desk.until)
    assert desk.etcd.of("revoke") == []


def test_lost_lease_is_revoked_for_those_who_wait(desk: Desk) -> None:
    """Nobody here believes in it any more: its tickets need not wait for its TTL."""
    desk.enter()
    desk.etcd.written["keep alive"] = [0.0]
    with pytest.raises(LeaseLost):
        desk.lease.renew(desk.until)
    assert len(desk.etcd.of("revoke")) == 1


# Entering and leaving.


def test_ticket_is_put_only_where_its_key_is_free_and_goes_only_by_its_token(desk: Desk) -> None:
    """Laws 5 and 6: what a retry puts again would be another ticket, and what stands there now may be somebody's."""
    me = desk.enter()
    entering: Txn = desk.etcd.of("txn")[0]
    assert entering.compare == (CreatedAt(codec.stored(me.key), 0),)
    assert desk.lease.leave(me, desk.until)
    leaving: Txn = desk.etcd.of("txn")[1]
    assert leaving == Txn((CreatedAt(codec.stored(me.key), me.token or -1),), (DeleteKey(codec.stored(me.key)),))


def test_entering_with_a_lease_that_the_store_has_no_more_ends_it(desk: Desk) -> None:
    """Law 15: the loss has its reason, for all holds of the lease."""
    desk.enter()
    desk.etcd.written["txn"] = [LeaseGone("requested lease not found")]
    with pytest.raises(LeaseLost):
        desk.enter()
    assert (desk.lease.state, desk.lease._belief.reason) == (LeaseState.LOST, EXPIRED)


def test_ticket_that_an_earlier_try_has_put_is_found_again(desk: Desk) -> None:
    """Law 6: the second try finds the key taken, by this very ticket."""
    entry = Entry("a", "me")
    key = codec.ticket_key("n", "a", int(desk.enter().lease_id, 16), 0, 1)
    standing = KeyValue(key, codec.write_value(entry, 0.0), 150, 150)
    desk.etcd.revision = 150
    desk.etcd.written["txn"] = [LOST, desk.etcd.result(succeeded=False)]
    desk.etcd.written["range"] = [desk.etcd.result(standing), desk.etcd.result(standing)]
    me = desk.lease.enter(entry, desk.until).find(entry.id)
    assert me is not None
    assert (me.token, me.key) == (150, codec.shown(key))
    assert desk.etcd.of("range")[-1].max_create_revision == 150


def test_key_where_a_stranger_stands_is_left_for_another(desk: Desk) -> None:
    """The ticket is put elsewhere in the line, and the stranger's is not touched."""
    desk.etcd.written["txn"] = [desk.etcd.result(succeeded=False)]
    desk.etcd.written["range"] = [desk.etcd.result(KeyValue(b"n/a/1-0-0", b"a stranger's", 90, 90))]
    desk.enter()
    first, second = (txn.success[0].key for txn in desk.etcd.of("txn"))
    assert first != second


def test_key_is_used_again_but_not_after_a_doubt(desk: Desk) -> None:
    """A request without an answer may be carried out late: what it puts or deletes must be no later ticket's."""
    first = desk.enter()
    assert desk.lease.leave(first, desk.until)
    second = desk.enter()
    assert second.key == first.key
    desk.etcd.written["txn"] = [LOST]
    assert desk.lease.leave(second, desk.until)
    third = desk.enter()
    assert third.key != second.key
    assert desk.lease.leave(third, desk.until)
    desk.etcd.written["txn"] = [LOST]
    fourth = desk.enter()
    assert fourth.key == third.key
    assert desk.lease.leave(fourth, desk.until)
    assert desk.enter().key != fourth.key


def test_ticket_that_a_lost_request_puts_late_is_found_and_deleted(desk: Desk) -> None:
    """Law 7: long after its own ticket has left; again and again, for as long as the lease lives."""
    desk.etcd.written["txn"] = [LOST]
    me = desk.enter()
    assert desk.lease.leave(me, desk.until)
    stands = desk.enter()
    late, anothers = codec.stored(me.key), b"n/a/777-0-0"
    desk.clock.advance(5 * GRANTED)
    assert desk.etcd.of("delete") == []
    desk.etcd.written["life"] = [Life(GRANTED, (late, codec.stored(stands.key), anothers))]
    desk.clock.advance(GRANTED)
    assert desk.etcd.of("delete") == [late]


def test_abandoned_ticket_is_deleted_by_its_key_until_that_is_answered(desk: Desk) -> None:
    """Law 7: whatever became of it; its key is no other ticket's, and is deleted once more if it comes to stand."""
    entry = Entry("a", "me")
    me = desk.lease.enter(entry, desk.until).find(entry.id)
    assert me is not None
    desk.etcd.written["delete"] = [StoreRefused("told by the test")]
    desk.lease.abandon(entry)
    assert desk.lease.reaping == 1
    assert desk.enter().key != me.key
    desk.clock.advance(1.0)
    assert desk.etcd.of("delete") == 2 * [codec.stored(me.key)]
    assert desk.lease.reaping == 0
    desk.etcd.written["life"] = [Life(GRANTED, (codec.stored(me.key),))]
    desk.clock.advance(GRANTED)
    assert desk.etcd.of("delete") == 3 * [codec.stored(me.key)]


@pytest.mark.parametrize(
    ("answers", "left"),
    [([True], True), ([False], False), ([LOST, False], True), ([LOST, False, "ended"], False)],
    ids=["there", "gone before", "gone by the lost try", "gone, perhaps with its lease"],
)
def test_leaving_tells_whether_it_removed_the_ticket(desk: Desk, answers: list[Any], left: bool) -> None:
    """Gone after a lost answer: by that try, as long as the lease is believed in."""
    me = desk.enter()
    if answers[-1] == "ended":
        desk.lease._belief.end(LeaseState.LOST, EXPIRED)
    results = [a if a is LOST else desk.etcd.result(succeeded=a) for a in answers if a != "ended"]
    desk.etcd.written["txn"] = results
    assert desk.lease.leave(me, desk.until) is left


def test_ticket_leaves_a_store_without_space_by_a_plain_deletion(desk: Desk) -> None:
    """It takes no transactions then; a plain one names no token, so only a key of our own lease is deleted."""
    me = desk.enter()
    desk.etcd.written["txn"] = [OutOfSpace("told by the test"), OutOfSpace("told by the test")]
    assert desk.lease.leave(me._replace(lease_id="777"), desk.until) is False
    assert desk.etcd.of("delete") == []
    assert desk.lease.leave(me, desk.until) is True
    assert desk.etcd.of("delete") == [codec.stored(me.key)]
    assert desk.enter().key != me.key


# Lines and guarded keys.


def test_look_asks_for_what_stood_ahead_and_no_later_ticket(desk: Desk) -> None:
    """Law 10: by the own token, and with a predecessor's reach two keys of however long a line."""
    me = desk.enter()
    for reach in Reach:
        desk.lease.look(me, reach, desk.until)
    near, far = desk.etcd.of("range")
    assert (near.limit, near.newest_first, near.max_create_revision) == (2, True, me.token)
    assert (far.limit, far.newest_first, far.max_create_revision) == (0, False, me.token)


def test_ticket_is_amended_at_its_version_and_never_another_ones(desk: Desk) -> None:
    """An amendment that comes late must not put an older value back, nor change whoever stands there now."""
    me = desk.enter()
    key = codec.stored(me.key)
    assert desk.lease.amend(me, "v", desk.until)
    assert desk.etcd.of("txn")[-1].compare == (CreatedAt(key, me.token or -1), ModifiedAt(key, me.version or -1))
    desk.etcd.written["txn"] = [desk.etcd.result(KeyValue(key, b"another's", 777, 777), succeeded=False)]
    assert desk.lease.amend(me, "v", desk.until) is False


def test_commit_is_tied_to_the_ticket_and_sent_once(desk: Desk) -> None:
    """It may have been carried out: only its caller can tell whether to send it again."""
    me = desk.enter()
    key = codec.stored(me.key)
    desk.etcd.written["txn"] = [LOST]
    with pytest.raises(StoreUnavailable):
        desk.lease.commit(me, [Compare("k", 0)], [Put("k", b"v")], desk.until)
    _, sent = desk.etcd.of("txn")
    tied = (CreatedAt(key, me.token or -1), ModifiedAt(key, me.version or -1), CreatedAt(b"k", 0))
    assert sent.compare == tied


# Law 4: the store's history.


def test_answer_of_another_cluster_stops_the_client_for_good(desk: Desk) -> None:
    """Its tokens can't be compared; a renewal, which shows no history, is not sent any more either."""
    me = desk.enter()
    desk.etcd.written["range"] = [TxnResult(Header(2, 500), True, [])]
    for _ in range(2):
        with pytest.raises(StoreWentBack):
            desk.lease.look(me, Reach.AHEAD, desk.until)
    with pytest.raises(StoreWentBack):
        desk.lease.renew(desk.until)
    assert len(desk.etcd.of("range")) == 1
    assert desk.etcd.of("keep alive") == []


def test_one_answer_from_the_past_is_asked_for_again_and_three_stop_the_client(desk: Desk) -> None:
    """One member may answer from its past once; a store that was restored does so always."""
    me = desk.enter()
    past = TxnResult(Header(1, 1), True, [])
    desk.etcd.written["range"] = [past]
    assert desk.lease.look(me, Reach.AHEAD, desk.until).revision == desk.etcd.revision
    desk.etcd.written["range"] = [past, past, past]
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            desk.lease.look(me, Reach.AHEAD, desk.clock.now())
    with pytest.raises(StoreWentBack):
        desk.lease.look(me, Reach.AHEAD, desk.clock.now())
