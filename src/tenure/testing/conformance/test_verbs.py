"""Tests of each verb of the Lease protocol, on every backend. No face: the leases themselves."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tenure import ClientClosed, LeaseLost
from tenure._core.lease import Entry, LeaseState, Mode, Reach
from tenure._core.runtime import runtime_of
from tenure.testing.conformance.store_world import StoreWorld, eventually, inner, needs

ANY = Reach.AHEAD


def lease_of(world_below: StoreWorld, ttl: float = 20.0) -> Any:
    return runtime_of(inner(world_below.client(ttl=ttl))).lease(ttl)


def soon() -> float:
    from tenure._core.base.clock import SYSTEM_CLOCK

    return SYSTEM_CLOCK.now() + 5.0


def entry(**facts: Any) -> Entry:
    return Entry("a", "me", **({"reach": ANY} | facts))


def test_enter_returns_the_line_with_my_ticket_and_its_token(world_below: StoreWorld) -> None:
    """A single round trip puts the ticket at the end and shows who stands ahead."""
    lease = lease_of(world_below)
    first, second = entry(value="one"), entry(mode=Mode.SEAT, weight=2, limit=5)
    lease.enter(first, soon())
    line = lease.enter(second, soon())
    assert [t.id for t in line.tickets] == [first.id, second.id]
    mine = line.find(second.id)
    assert mine is not None
    assert (mine.mode, mine.weight, mine.limit, mine.owner) == (Mode.SEAT, 2, 5, "me")
    assert isinstance(mine.token, int)
    assert mine.token > 0


def test_enter_twice_is_one_ticket(world_below: StoreWorld) -> None:
    """The same entry entered again finds its first ticket, with the first token."""
    lease = lease_of(world_below)
    asked = entry()
    one = lease.enter(asked, soon()).find(asked.id)
    if not world_below.repeats_enter:
        if world_below.can("lose_answer"):
            world_below.lose_answer(world_below.clients[-1], "enter")  # only a retry may find it
        asked = entry()
        lease.enter(asked, soon())
        assert len(world_below.tickets("a")) == 2
        return
    two = lease.enter(asked, soon()).find(asked.id)
    assert one.token == two.token
    assert len(world_below.tickets("a")) == 1


def test_enter_with_reach_predecessor_shows_at_least_the_one_before(world_below: StoreWorld) -> None:
    """The ticket before the asker's is shown, however long the line."""
    lease = lease_of(world_below)
    entries = [entry(reach=Reach.PREDECESSOR) for _ in range(5)]
    for asked in entries:
        line = lease.enter(asked, soon())
    assert [t.id for t in line.tickets[-2:]] == [e.id for e in entries[-2:]]
    mine = line.find(entries[-1].id)
    looked = lease.look(mine, Reach.PREDECESSOR, soon())
    assert [t.id for t in looked.tickets[-2:]] == [e.id for e in entries[-2:]]


def test_look_shows_the_line_up_to_me(world_below: StoreWorld) -> None:
    """Tickets after the asker's need not be shown."""
    lease = lease_of(world_below)
    entries = [entry() for _ in range(3)]
    mine = [lease.enter(e, soon()).find(e.id) for e in entries][1]
    assert [t.id for t in lease.look(mine, ANY, soon()).tickets] == [e.id for e in entries[:2]]


def test_look_without_me_when_my_ticket_is_gone(world_below: StoreWorld) -> None:
    """A ticket that was removed is not in the line that look returns."""
    lease = lease_of(world_below)
    asked = entry()
    mine = lease.enter(asked, soon()).find(asked.id)
    lease.leave(mine, soon())
    assert lease.look(mine, ANY, soon()).find(asked.id) is None


def test_survey_tells_owners_values_and_tokens(world_below: StoreWorld) -> None:
    """The whole line, described; or its front."""
    lease = lease_of(world_below)
    entries = [entry(value=f"v{i} 🔒") for i in range(3)]
    tickets = [lease.enter(e, soon()).find(e.id) for e in entries]
    line = lease.survey("a", soon())
    assert [(t.id, t.value, t.owner, t.token) for t in line.tickets] == [
        (e.id, e.value, "me", t.token) for e, t in zip(entries, tickets, strict=True)
    ]
    assert all(t.created_at is not None and abs(t.created_at - time.time()) < 60 for t in line.tickets)
    assert [t.id for t in lease.survey("a", soon(), front=1).tickets] == [entries[0].id]
    assert lease.survey("nobody", soon()).tickets == ()


def test_wait_change_is_set_when_the_ticket_leaves(world_below: StoreWorld) -> None:
    """The departure of a watched ticket sets the signal; that of another does not have to."""
    lease = lease_of(world_below)
    entries = [entry() for _ in range(3)]
    for asked in entries:
        line = lease.enter(asked, soon())
    signal = lease.wait_change(line, (line.tickets[1],), amendments=False)
    assert not signal.wait(0.3)
    lease.leave(_with_token(lease, line.tickets[1]), soon())
    assert signal.wait(5.0)
    signal.close()


def test_wait_change_does_not_miss_what_happened_since_the_line_was_read(world_below: StoreWorld) -> None:
    """The ticket left between the look and the wait: the signal is set all the same."""
    lease = lease_of(world_below)
    first, second = entry(), entry()
    mine = lease.enter(first, soon()).find(first.id)
    line = lease.enter(second, soon())
    lease.leave(mine, soon())
    for tickets in ((line.tickets[0],), line.tickets, ()):
        signal = lease.wait_change(line, tickets, amendments=False)
        assert signal.wait(5.0), f"missed with {len(tickets)} tickets"
        signal.close()


def test_wait_change_hears_amendments_only_where_asked(world_below: StoreWorld) -> None:
    """An amended ticket sets the signal that asked for amendments."""
    lease = lease_of(world_below)
    first = entry()
    lease.enter(first, soon())
    line = lease.survey("a", soon())
    hears = lease.wait_change(line, line.tickets, amendments=True)
    assert not hears.wait(0.2)
    assert lease.amend(line.tickets[0], "new", soon())
    assert hears.wait(5.0)
    again = lease.survey("a", soon())
    assert again.tickets[0].value == "new"
    assert again.tickets[0].token == line.tickets[0].token
    hears.close()
    quiet = lease.wait_change(again, again.tickets, amendments=True)
    assert not quiet.wait(0.3), "an old amendment is no news"
    quiet.close()


def test_wait_change_of_an_empty_line_hears_the_first_arrival(world_below: StoreWorld) -> None:
    """A watch that names no tickets fires on any change: an observer waits for a first leader."""
    lease = lease_of(world_below)
    empty = lease.survey("a", soon())
    signal = lease.wait_change(empty, (), amendments=True)
    assert not signal.wait(0.2)
    lease.enter(entry(), soon())
    assert signal.wait(5.0)
    signal.close()


def test_wait_change_is_set_when_the_lease_ends(world_below: StoreWorld) -> None:
    """A waiter on a lease that is lost or closed is woken."""
    lease = lease_of(world_below)
    asked = entry()
    line = lease.enter(asked, soon())
    signal = lease.wait_change(line, line.tickets, amendments=False)
    lease.close(soon())
    assert signal.wait(5.0)
    assert lease.state is LeaseState.CLOSED
    signal.close()


def test_amend_of_a_gone_ticket_is_false_and_creates_nothing(world_below: StoreWorld) -> None:
    """An amendment changes that very ticket only."""
    lease = lease_of(world_below)
    asked = entry()
    mine = lease.enter(asked, soon()).find(asked.id)
    lease.leave(mine, soon())
    assert lease.amend(mine, "ghost", soon()) is False
    assert world_below.tickets("a") == []


def test_amended_ticket_still_ends_with_its_lease(world_below: StoreWorld) -> None:
    """Changing the value must not untie the ticket from its lease."""
    lease = lease_of(world_below, ttl=2.0)
    asked = entry()
    mine = lease.enter(asked, soon()).find(asked.id)
    assert lease.amend(mine, "new", soon())
    lease.close(soon())
    assert eventually(lambda: world_below.tickets("a") == [])


def test_leave_removes_only_that_very_ticket_and_says_so(world_below: StoreWorld) -> None:
    """True once, False after; and never with another token."""
    lease = lease_of(world_below)
    first, second = entry(), entry()
    mine = lease.enter(first, soon()).find(first.id)
    lease.enter(second, soon())
    if world_below.leave_checks_token:
        assert lease.leave(mine._replace(token=mine.token + 1), soon()) is False
    assert lease.leave(mine, soon()) is True
    assert lease.leave(mine, soon()) is False
    assert [t.id for t in lease.survey("a", soon()).tickets] == [second.id]


def test_abandon_removes_what_enter_left(world_below: StoreWorld) -> None:
    """The reaper withdraws the ticket of an entry whose fate its owner does not know."""
    lease = lease_of(world_below)
    asked = entry()
    lease.enter(asked, soon())
    lease.abandon(asked)
    assert eventually(lambda: world_below.tickets("a") == [])


def test_renew_proves_and_raises_when_gone(world_below: StoreWorld) -> None:
    """renew extends the proof; on a lease that ended at the store it raises LeaseLost."""
    lease = lease_of(world_below, ttl=3.0)
    lease.enter(entry(), soon())
    assert 0 < lease.renew(soon()) <= lease.ttl
    world_below.expire(SimpleNamespace(lease_id=lease.id))
    with pytest.raises(LeaseLost):
        for _ in range(200):
            lease.renew(soon())
            time.sleep(0.02)
    assert lease.state is LeaseState.LOST
    assert lease.remaining() == 0.0


def test_on_end_tells_every_change_with_its_reason(world_below: StoreWorld) -> None:
    """LOST and CLOSED come once each, with words."""
    lease = lease_of(world_below)
    lease.enter(entry(), soon())
    ends: list[tuple[LeaseState, str]] = []
    lease.on_end(lambda state, reason: ends.append((state, reason)))
    lease.close(soon())
    lease.close(soon())
    assert ends == [(LeaseState.CLOSED, "the client was closed")]


def test_closed_lease_refuses_and_leaves_nothing(world_below: StoreWorld) -> None:
    """A closed lease has no tickets, and every verb that would make one is refused."""
    lease = lease_of(world_below)
    lease.enter(entry(), soon())
    lease.close(soon())
    assert world_below.tickets("a") == []
    with pytest.raises(ClientClosed):
        lease.enter(entry(), soon())


def test_verbs_may_be_called_from_many_threads_at_once(world_below: StoreWorld) -> None:
    """Eight threads on one lease: every ticket its own token, all in one line."""
    lease = lease_of(world_below)
    tokens: list[int] = []

    def work() -> None:
        for _ in range(5):
            asked = entry()
            mine = lease.enter(asked, soon()).find(asked.id)
            tokens.append(mine.token)
            assert lease.leave(mine, soon())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(tokens)) == 40


def _with_token(lease: Any, ticket: Any) -> Any:
    return lease.survey("a", soon()).find(ticket.id)


def test_amend_that_arrives_late_does_not_put_the_older_value_back(world_below: StoreWorld) -> None:
    """A delayed first try does nothing once the second was done and another value confirmed since."""
    lease = lease_of(world_below)
    asked = entry(value="first")
    mine = lease.enter(asked, soon()).find(asked.id)
    assert lease.amend(mine, "A", soon()) is True
    assert lease.amend(mine, "B", soon()) is True  # of what it knows the version is old, and that must not matter
    world_below.arrive_late(lease, mine, "A")
    assert lease.survey("a", soon()).tickets[0].value == "B"


@needs("lose_answer")
def test_lost_answer_of_an_amend_is_found(world_below: StoreWorld) -> None:
    """The second try finds what the first one did."""
    lease = lease_of(world_below)
    asked = entry(value="first")
    mine = lease.enter(asked, soon()).find(asked.id)
    world_below.lose_answer(world_below.clients[-1], "amend")
    assert lease.amend(mine, "A", soon()) is True
    assert lease.survey("a", soon()).tickets[0].value == "A"
