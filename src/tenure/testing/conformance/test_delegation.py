"""Holds that others renew, for backends that can have such. No face: the verbs of `Entrusting` themselves."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tenure import ClientClosed, LeaseLost, StoreUnavailable
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.delegation import Delegated, IdempotencyKey, KeyReused, KeySpent
from tenure._core.lease import Entry, LeaseState, Line, Reach, Ticket
from tenure._core.runtime import runtime_of
from tenure.testing.conformance.store_world import StoreWorld, eventually, inner, needs

TTL = 2.0
LONG_TTL = 6.0  # for what is to stay alive: a machine may stand still for long


def entrusting_of(client: Any) -> Any:
    found = runtime_of(inner(client)).delegation()
    assert found is not None
    return found


def soon() -> float:
    return SYSTEM_CLOCK.now() + 5.0


def entry(**facts: Any) -> Entry:
    return Entry("a", "me", **({"reach": Reach.AHEAD} | facts))


def stand(
    delegation: Any, ttl: float = 10.0, once: IdempotencyKey | None = None, **facts: Any
) -> tuple[Any, Entry, Ticket]:
    """A ticket in the line, on a lease of its own."""
    lease, asked = delegation.open(ttl, once), entry(**facts)
    line: Line = lease.enter(asked, soon())
    me = line.find(asked.id)
    assert me is not None
    return lease, asked, me


def delegate(delegation: Any, ttl: float = 10.0, once: IdempotencyKey | None = None, **facts: Any) -> Delegated:
    """A hold in others' hands."""
    lease, _, me = stand(delegation, ttl, once, **facts)
    hold: Delegated = lease.delegate(me)
    return hold


def once(key: str = "k", wish: str = "w", seconds: float = 2.0) -> IdempotencyKey:
    return IdempotencyKey(key, wish, seconds)


ID = "0123456789abcdef0123"
"""The id that every client derives from the same key."""


@needs("has_delegation")
def test_entrusted_hold_outlives_its_client_and_any_other_renews_it(world_below: StoreWorld) -> None:
    """The hold lives by requested renewals alone; it ends within its TTL, and a little, from the last renewal on."""
    first, second = world_below.client(), world_below.client()
    hold = delegate(entrusting_of(first), LONG_TTL)
    first.close()
    other = entrusting_of(second)
    for _ in range(7):
        before = SYSTEM_CLOCK.now()
        proof = other.renew(hold, soon())
        assert proof is not None
        assert before < proof.deadline < SYSTEM_CLOCK.now() + proof.ttl
        assert proof.owner == "me"
        threading.Event().wait(LONG_TTL / 6)
    assert len(world_below.tickets("a")) == 1
    assert eventually(lambda: world_below.tickets("a") == [], proof.ttl + 5.0)
    assert SYSTEM_CLOCK.now() > proof.deadline, "the store ended it before its owner stopped believing"
    assert other.renew(hold, soon()) is None
    assert other.release(hold, soon()) is False


@needs("has_delegation")
def test_entrusted_hold_is_not_renewed_by_us(world_below: StoreWorld) -> None:
    """The hold of an owner who died ends, though its client lives and goes on with others."""
    delegation = entrusting_of(world_below.client())
    delegate(delegation, TTL)
    lease, _, me = stand(delegation, LONG_TTL)
    assert eventually(lambda: len(world_below.tickets("a")) == 1, TTL + 5.0)
    assert lease.look(me, Reach.AHEAD, soon()).find(me.id) is not None
    assert lease.leave(me, soon())


@needs("has_delegation")
def test_lease_of_a_ticket_that_waits_is_renewed(world_below: StoreWorld) -> None:
    """The lease outlives many TTLs in the line; then it is proven for as long as the answer says."""
    delegation = entrusting_of(world_below.client())
    waiting = [stand(delegation, LONG_TTL) for _ in range(70)]  # more than are renewed at once
    states: list[LeaseState] = []
    for lease, _, _ in waiting:
        lease.on_end(lambda state, reason: states.append(state))
    later = [SYSTEM_CLOCK.now() + 2 * lease.remaining() for lease, _, _ in waiting]

    def are_proven_anew() -> bool:
        """True where the leases are proven by renewals that were asked for after the end of the first proofs."""
        proven = [SYSTEM_CLOCK.now() + lease.remaining() for lease, _, _ in waiting]
        return all(until > than for until, than in zip(proven, later, strict=True))

    assert eventually(lambda: LeaseState.LOST in states or are_proven_anew(), 4 * LONG_TTL)
    assert LeaseState.LOST not in states
    assert len(world_below.tickets("a")) == 70
    for lease, _, me in waiting:
        assert lease.leave(me, soon())
    assert world_below.tickets("a") == []


@needs("has_delegation")
def test_lease_lost_while_its_ticket_waits_ends_the_wait(world_below: StoreWorld) -> None:
    """The store says so at the next renewal; whoever waits for a change is woken."""
    delegation = entrusting_of(world_below.client())
    ahead, _, first = stand(delegation, 20.0)
    lease, _, me = stand(delegation, TTL)
    line = lease.look(me, Reach.AHEAD, soon())
    signal = lease.wait_change(line, (first,), amendments=False)
    world_below.expire(SimpleNamespace(lease_id=lease.id, resource="a", id=me.id))
    assert signal.wait(TTL + 5.0)
    signal.close()
    assert eventually(lambda: lease.state is LeaseState.LOST)
    with pytest.raises(LeaseLost):
        lease.delegate(me)
    lease.abandon(entry(id=me.id))
    assert ahead.leave(first, soon())


@needs("has_delegation", "leases")
def test_tries_cost_no_lease_each(world_below: StoreWorld) -> None:
    """A lease whose ticket left, entrusted or not, serves the next one; tokens grow; closing ends what is left."""
    client = world_below.client()
    delegation = entrusting_of(client)
    before = world_below.leases()
    tokens = []
    for _ in range(20):
        hold = delegate(delegation)
        tokens.append(hold.token)
        assert delegation.release(hold, soon()) is True
        lease, _, me = stand(delegation)
        tokens.append(me.token or 0)
        assert lease.leave(me, soon()) is True
        assert delegation.statistics()["waiting"] == 0
    assert tokens == sorted(set(tokens))
    assert world_below.leases() <= before + 1
    client.close()
    assert eventually(lambda: world_below.leases() <= before)


@needs("has_delegation", "leases")
def test_spare_leases_are_bounded(world_below: StoreWorld) -> None:
    """However many tickets there were at once: what is not kept for later is ended."""
    delegation = entrusting_of(world_below.client())
    before = world_below.leases()
    holds = [delegate(delegation, ttl) for ttl in (10.0, 11.0) for _ in range(40)]
    for hold in holds:
        assert delegation.release(hold, soon())
    assert eventually(lambda: world_below.leases() <= before + 32)
    assert delegation.statistics()["spares"] <= 32


@needs("has_delegation")
def test_spare_lease_that_died_is_replaced(world_below: StoreWorld) -> None:
    """Spare leases are not renewed: whether one lives is found out by using it, at the cost of no hold."""
    delegation = entrusting_of(world_below.client())
    hold = delegate(delegation)
    assert delegation.release(hold, soon())
    world_below.expire(SimpleNamespace(lease_id=hold.lease_id, resource="a", id=hold.ticket_id))
    again = delegate(delegation)
    assert again.lease_id != hold.lease_id
    assert again.token > hold.token
    assert delegation.release(again, soon())


@needs("has_delegation")
def test_lease_that_is_used_again_is_proven_anew(world_below: StoreWorld) -> None:
    """However long ago that was done last, and by whom."""
    one, two = entrusting_of(world_below.client()), entrusting_of(world_below.client())
    for releasing in (one, two):
        hold = delegate(one, 4.0)
        threading.Event().wait(1.0)
        assert releasing.release(hold, soon())
        lease, _, me = stand(releasing, 4.0)
        assert lease.id == hold.lease_id
        assert lease.remaining() > 0.85 * lease.ttl
        assert lease.leave(me, soon())


@needs("has_delegation")
def test_hold_that_is_gone_renews_and_removes_no_later_one(world_below: StoreWorld) -> None:
    """The lease serves another hold by now: late renewals keep that one alive no longer, late releases do nothing."""
    delegation, other = entrusting_of(world_below.client()), entrusting_of(world_below.client())
    old = delegate(delegation, TTL)
    assert delegation.release(old, soon())
    new = delegate(delegation, TTL)
    assert new.lease_id == old.lease_id, "the test needs a lease that is used again"
    give_up = SYSTEM_CLOCK.now() + 2 * TTL + 5.0
    while world_below.tickets("a"):
        for late in (delegation, other):
            assert late.renew(old, soon()) is None
            assert late.release(old, soon()) is False
        assert SYSTEM_CLOCK.now() < give_up, "somebody else's renewals kept it alive"
    assert other.renew(new, soon()) is None


@needs("has_delegation")
def test_ticket_of_another_id_is_not_that_ticket(world_below: StoreWorld) -> None:
    """Handles from outside are not trusted: a caller without the id neither renews nor removes."""
    delegation = entrusting_of(world_below.client())
    hold = delegate(delegation)
    for client in (delegation, entrusting_of(world_below.client())):
        for forged in (
            Delegated(hold.resource, "f" * 20, hold.token, hold.lease_id),
            Delegated(hold.resource, hold.ticket_id, hold.token + 1, hold.lease_id),
            Delegated("b", hold.ticket_id, hold.token, hold.lease_id),
            Delegated(hold.resource, hold.ticket_id, hold.token, "abc"),
        ):
            assert client.renew(forged, soon()) is None
            assert client.release(forged, soon()) is False
    assert delegation.release(hold, soon())


@needs("has_delegation", "lose_answer", "leases")
@pytest.mark.parametrize("fault", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("verb", ["grant", "enter", "renew", "leave"])
def test_lost_answers_and_requests_are_made_good(world_below: StoreWorld, verb: str, fault: str) -> None:
    """A verb that is sent again finds what its first try did: one ticket, one token, nothing left."""
    client = world_below.client()
    delegation = entrusting_of(client)
    before = world_below.leases()
    getattr(world_below, fault)(client, verb)
    hold = delegate(delegation)
    assert len(world_below.tickets("a")) == 1
    assert delegation.renew(hold, soon()) is not None
    assert delegation.release(hold, soon()) is True
    assert world_below.tickets("a") == []
    assert delegation.release(hold, soon()) is False
    assert eventually(lambda: world_below.leases() <= before + 1)
    world_below.forget(client)


@needs("has_delegation", "lose_answer", "leases")
def test_lease_that_was_in_doubt_is_ended_with_its_ticket(world_below: StoreWorld) -> None:
    """A try of `enter` may be carried out late: it must find no lease, or it would put a ticket that is nobody's."""
    client = world_below.client()
    delegation = entrusting_of(client)
    entrust_first = delegate(delegation)  # its lease will be the spare
    assert delegation.release(entrust_first, soon())
    world_below.lose_answer(client, "enter")
    hold = delegate(delegation)
    assert hold.lease_id == entrust_first.lease_id
    assert hold.single_use
    assert delegation.release(hold, soon())
    again = delegate(delegation)
    assert again.lease_id != hold.lease_id
    assert delegation.release(again, soon())
    assert eventually(lambda: delegation.statistics()["chores"] == 0)


@needs("has_delegation", "cut", "leases")
def test_ticket_that_was_given_up_goes_though_the_store_was_away(world_below: StoreWorld) -> None:
    """Abandoned while nothing gets through: it goes once something does, or with its TTL."""
    client = world_below.client(timeout=1.0)
    delegation = entrusting_of(client)
    before = world_below.leases()
    lease, asked, _ = stand(delegation, 30.0)
    world_below.cut(client)
    lease.abandon(asked)
    lease.abandon(asked)
    assert lease.state is LeaseState.CLOSED
    world_below.heal(client)
    assert eventually(lambda: world_below.tickets("a") == [], 20.0)
    assert eventually(lambda: world_below.leases() <= before)


@needs("has_delegation", "lose_answer")
def test_enter_whose_every_answer_was_lost_leaves_nothing(world_below: StoreWorld) -> None:
    """An enter of unknown outcome ends its lease, and with it whatever it did."""
    client = world_below.client()
    delegation = entrusting_of(client)
    lease, asked = delegation.open(10.0, None), entry()
    world_below.lose_answer(client, "enter", times=50)
    with pytest.raises(StoreUnavailable):
        lease.enter(asked, SYSTEM_CLOCK.now() + 0.5)
    world_below.forget(client)
    lease.abandon(asked)
    assert eventually(lambda: world_below.tickets("a") == [])


@needs("has_delegation")
def test_closing_the_client_ends_what_waits_and_no_entrusted_hold(world_below: StoreWorld) -> None:
    """The tickets that wait go at once; who waits is told."""
    client, other = world_below.client(), world_below.client()
    hold = delegate(entrusting_of(client))
    lease, _, me = stand(entrusting_of(client))
    line = lease.look(me, Reach.AHEAD, soon())
    signal = lease.wait_change(line, line.tickets[:1], amendments=False)
    client.close()
    assert signal.wait(5.0)
    assert lease.state is LeaseState.CLOSED
    with pytest.raises(ClientClosed):
        lease.delegate(me)
    assert len(world_below.tickets("a")) == 1
    assert entrusting_of(other).release(hold, soon())


# Once: one ticket for one wish, whichever client is asked.


@needs("has_delegation")
def test_same_wish_elsewhere_finds_the_ticket(world_below: StoreWorld) -> None:
    """The same ticket, token and hold at both clients: released by the one, it is gone for the other."""
    one, two = entrusting_of(world_below.client()), entrusting_of(world_below.client())
    first = delegate(one, once=once(), id=ID)
    second = delegate(two, once=once(), id=ID)
    assert (second.token, second.ticket_id, second.lease_id) == (first.token, first.ticket_id, first.lease_id)
    assert len(world_below.tickets("a")) == 1
    assert two.release(second, soon())
    assert one.renew(first, soon()) is None


@needs("has_delegation")
def test_other_wish_under_a_used_key_is_refused(world_below: StoreWorld) -> None:
    """Wherever it is asked for; it takes no place in any line."""
    delegation, other = entrusting_of(world_below.client()), entrusting_of(world_below.client())
    hold = delegate(delegation, once=once(), id=ID)
    for client in (delegation, other):
        lease, asked = client.open(10.0, once(wish="other")), entry(id=ID)
        with pytest.raises(KeyReused):
            lease.enter(asked, soon())
        lease.abandon(asked)
    assert len(world_below.tickets("a")) == 1
    assert delegation.release(hold, soon())


@needs("has_delegation")
def test_key_is_spent_with_its_hold_and_free_after_its_time(world_below: StoreWorld) -> None:
    """Released or run out, it is not granted again under that key; later the key is as good as new."""
    delegation, other = entrusting_of(world_below.client()), entrusting_of(world_below.client())
    hold = delegate(delegation, once=once(), id=ID)
    assert delegation.release(hold, soon())
    for client in (delegation, other):
        lease, asked = client.open(10.0, once()), entry(id=ID)
        with pytest.raises(KeySpent):
            lease.enter(asked, soon())
        lease.abandon(asked)
    assert world_below.tickets("a") == []

    def free() -> bool:
        lease, asked = other.open(10.0, once()), entry(id=ID)
        try:
            line = lease.enter(asked, soon())
        except KeySpent:
            lease.abandon(asked)
            return False
        return bool(lease.leave(line.find(asked.id), soon()))

    assert eventually(free, 15.0)


@needs("has_delegation")
@pytest.mark.parametrize("way", ["leave", "abandon"])
def test_key_is_free_again_where_nothing_was_granted(world_below: StoreWorld, way: str) -> None:
    """A wait that ended in vain is forgotten with its ticket."""
    one, two = entrusting_of(world_below.client()), entrusting_of(world_below.client())
    lease, asked, me = stand(one, once=once(seconds=3.0), id=ID)
    if way == "leave":
        assert lease.leave(me, soon())
    else:
        lease.abandon(asked)
        assert eventually(lambda: one.statistics()["chores"] == 0)
    assert world_below.tickets("a") == []
    hold = delegate(two, once=once(seconds=3.0), id=ID)
    assert hold.token > (me.token or 0)
    assert two.release(hold, soon())


@needs("has_delegation")
@pytest.mark.parametrize("way", ["leave", "abandon"])
def test_ticket_that_was_taken_over_is_withdrawn_by_nobody_else(world_below: StoreWorld, way: str) -> None:
    """A first client that gives up late, when another has told of the hold, leaves that hold standing."""
    one, two = entrusting_of(world_below.client()), entrusting_of(world_below.client())
    lease, asked, me = stand(one, TTL, once=once(seconds=3.0), id=ID)
    hold = delegate(two, TTL, once=once(seconds=3.0), id=ID)
    assert hold.token == me.token
    if way == "leave":
        assert lease.leave(me, soon()) is False
    lease.abandon(asked)
    assert eventually(lambda: one.statistics()["chores"] == 0)
    assert two.renew(hold, soon()) is not None
    assert eventually(lambda: world_below.tickets("a") == [], TTL + 5.0), "the first client goes on renewing it"


@needs("has_delegation")
@pytest.mark.parametrize("way", ["leave", "abandon", "close"])
def test_who_took_a_ticket_over_does_not_withdraw_it(world_below: StoreWorld, way: str) -> None:
    """A first client may have told the owner long ago: only the TTL ends a ticket that may have no owner."""
    client = world_below.client()
    one, two = entrusting_of(world_below.client()), entrusting_of(client)
    hold = delegate(one, TTL, once=once(), id=ID)
    lease, asked, me = stand(two, TTL, once=once(), id=ID)
    if way == "leave":
        assert lease.leave(me, soon()) is False
    if way == "close":
        two.close(soon())
    lease.abandon(asked)
    assert two.statistics()["chores"] == 0
    assert one.renew(hold, soon()) is not None
    assert eventually(lambda: world_below.tickets("a") == [], TTL + 5.0), "the second client goes on renewing it"


@needs("has_delegation")
@pytest.mark.parametrize("taken", [False, True])
def test_entrusted_hold_is_withdrawn_by_who_put_it_unless_it_was_taken_over(
    world_below: StoreWorld, taken: bool
) -> None:
    """The client that entered withdraws a hold it could tell to no owner, unless another client may have told one."""
    one, two = entrusting_of(world_below.client()), entrusting_of(world_below.client())
    hold = delegate(one, once=once(), id=ID)
    other = delegate(two, once=once(), id=ID) if taken else None
    assert one.withdraw(hold, once(), soon()) is not taken
    if other is None:
        assert world_below.tickets("a") == []
        return
    assert two.withdraw(other, once(), soon()) is False
    assert one.renew(hold, soon()) is not None
    assert one.release(hold, soon())


@needs("has_delegation", "cut")
def test_wait_of_a_client_that_died_is_gone_on_with_elsewhere(world_below: StoreWorld) -> None:
    """A wait keeps its place in the line, and its ticket alive."""
    dying, other = world_below.client(timeout=1.0), world_below.client()
    ahead, _, first = stand(entrusting_of(other), 20.0)
    gone, asked, me = stand(entrusting_of(dying), LONG_TTL, once=once(seconds=3.0), id=ID)
    world_below.cut(dying)
    lease, _, mine = stand(entrusting_of(other), LONG_TTL, once=once(seconds=3.0), id=ID)
    assert mine.token == me.token
    assert eventually(lambda: gone.state is LeaseState.LOST, LONG_TTL + 5.0)
    assert lease.state in (LeaseState.HELD, LeaseState.SUSPECT)
    assert ahead.leave(first, soon())
    hold = lease.delegate(mine)
    assert entrusting_of(other).release(hold, soon())
    world_below.heal(dying)
    gone.abandon(asked)


@needs("has_delegation", "lose_answer")
def test_lost_answer_to_the_grant_of_what_keeps_the_key_is_found_again(world_below: StoreWorld) -> None:
    """The second try of the grant finds the lease of the first."""
    client = world_below.client()
    delegation = entrusting_of(client)
    assert delegation.release(delegate(delegation), soon())  # a lease for the ticket is there
    world_below.lose_answer(client, "grant")
    hold = delegate(delegation, once=once(), id=ID)
    assert delegation.release(hold, soon())


@needs("has_delegation", "lose_answer")
def test_lost_answer_of_an_enter_with_a_key_is_found_again(world_below: StoreWorld) -> None:
    """The mark its first try made is its own."""
    client = world_below.client()
    delegation = entrusting_of(client)
    world_below.lose_answer(client, "enter")
    hold = delegate(delegation, once=once(), id=ID)
    assert len(world_below.tickets("a")) == 1
    assert delegation.release(hold, soon())
