"""The world that users test their own code with: time that moves by itself, and every fault on demand."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import tenure
from tenure import HoldState
from tenure.testing import StandsStill, World
from tenure.testing.world import virtual_time as virtual_module
from tenure.testing.world.client_clock import ClientClock


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        yield made
    assert made.left() == []


# Time.


def test_waiting_call_lets_time_pass_by_itself(world: World) -> None:
    """A time-out of a minute takes a minute of virtual time, and no real one."""
    a, b = world.client(owner="a"), world.client(owner="b")
    a.lock("x").acquire()
    began, real = world.now, time.monotonic()
    with pytest.raises(tenure.AcquireTimeout):
        b.lock("x").acquire(timeout=60)
    assert world.now - began == pytest.approx(60)
    assert time.monotonic() - real < 5
    assert world.owners("x") == ["a"]


def test_advance_renews_what_lives_and_ends_what_does_not(world: World) -> None:
    """A healthy client keeps its hold for many TTLs; a cut-off one knows by the clock that it has lost it."""
    healthy, cut = world.client(ttl=10), world.client(ttl=10)
    kept, lost = healthy.lock("kept").acquire(), cut.lock("lost").acquire()
    world.faults(cut).cut()
    world.advance(9)
    assert lost.state is HoldState.SUSPECT
    world.advance(100)
    assert (kept.state, lost.state) == (HoldState.HELD, HoldState.LOST)
    with pytest.raises(tenure.LeaseLost):
        lost.check()
    assert world.owners("lost") == []


def test_callback_of_a_loss_has_run_when_advance_returns(world: World) -> None:
    """Helpers' threads take part: what follows from a moment has happened before the next line of the test."""
    client = world.client(ttl=10)
    told: list[tuple[HoldState, float]] = []
    client.lock("x").acquire().on_change(lambda state: told.append((state, world.now)))
    world.faults(client).cut()
    began = world.now
    world.advance(30)
    assert [state for state, _ in told] == [HoldState.SUSPECT, HoldState.LOST]
    assert told[-1][1] - began < 10.1


def test_started_calls_wait_at_once_and_are_served_in_order(world: World) -> None:
    """`start` returns when the call stands in line; the results come as the line moves."""
    clients = [world.client(owner=name) for name in "abc"]
    hold = clients[0].lock("x").acquire()
    waiting = [world.start(client.lock("x").acquire) for client in clients[1:]]
    assert world.owners("x") == ["a", "b", "c"]
    assert not any(call.ended for call in waiting)
    hold.release()
    second = waiting[0].result()
    assert not waiting[1].ended
    second.release()
    third = waiting[1].result()
    assert hold.token < second.token < third.token


def test_started_call_raises_where_it_is_asked_for(world: World) -> None:
    """An error of the thread is the test's."""
    world.client().lock("x").acquire()
    started = world.start(lambda: world.client().lock("x").acquire(timeout=5))
    with pytest.raises(tenure.AcquireTimeout):
        started.result()


def test_wait_that_nothing_ends_is_an_error_not_a_hang(world: World) -> None:
    """A deadlock in a test is told after an hour of virtual time, and the ticket is withdrawn."""
    client = world.client(owner="a")
    hold = client.lock("x").acquire()
    with pytest.raises(StandsStill, match="3600 s of virtual time"):
        client.lock("x").acquire()
    assert world.owners("x") == ["a"]
    assert hold.release() is True


def test_started_call_that_hangs_elsewhere_is_an_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits for the test itself, not for the clock, is told."""
    monkeypatch.setattr(virtual_module, "PATIENCE_SECONDS", 0.2)
    go_on = threading.Event()
    with pytest.raises(StandsStill, match="neither waits nor ends"):
        world.start(lambda: go_on.wait(30))
    go_on.set()


def test_same_test_takes_the_same_virtual_time_each_time() -> None:
    """Time passes only when everybody waits, so real speeds do not show."""

    def once() -> list[float]:
        with World() as world:
            clients = [world.client(ttl=5, owner=str(number)) for number in range(4)]

            def work(client: tenure.Client) -> float:
                with client.lock("x"):
                    client.lock("other").try_acquire()
                    world.clock.wait(tenure._core.base.signals.Signal(), world.now + 1.5)
                return world.now

            started = [world.start(lambda client=client: work(client)) for client in clients]  # type: ignore[misc]
            return [call.result() - 1000.0 for call in started]

    first = once()
    assert first == pytest.approx([1.5, 3.0, 4.5, 6.0])
    assert all(once() == first for _ in range(5))


def test_waiting_calls_have_patience_with_a_test_that_is_at_work(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits in the background goes on waiting while the test sits in a debugger."""
    client = world.client(ttl=600)
    hold = client.lock("x").acquire()
    monkeypatch.setattr(virtual_module, "PATIENCE_SECONDS", 0.1)
    waiting = world.start(client.lock("x").acquire)
    waiting._thread.join(0.5)
    assert not waiting.ended
    monkeypatch.undo()
    hold.release()
    assert waiting.result().token > hold.token


def orphans(world: World, client: tenure.Client, count: int) -> None:
    """Tickets of `client` that it could not withdraw: its reaper is after them."""
    with world.client(owner="holder") as holder, holder.lock("x"):
        world.faults(client).lose_request("leave", 10_000)
        for _ in range(count):
            with pytest.raises(tenure.AcquireTimeout):
                client.lock("x").acquire(timeout=1)


def test_closing_a_client_lets_time_pass_for_what_its_helpers_wait_for(world: World) -> None:
    """A withdrawal that is retried waits for virtual time: close() must not stand in its way for real seconds."""
    client = world.client(ttl=60)
    orphans(world, client, 3)
    assert len(world.standing()) == 3
    real = time.monotonic()
    client.close()
    assert time.monotonic() - real < 3
    assert world.standing() == []


def test_more_work_than_a_paused_client_has_helpers_stops_no_time(world: World) -> None:
    """Work that is queued behind waiting helpers is not at work."""
    client = world.client(ttl=600)
    orphans(world, client, 7)
    world.faults(client).pause()
    world.advance(30)
    world.faults(client).resume()
    world.faults(client).forget()
    world.advance(30)
    assert world.standing() == []


def test_threads_that_want_one_lease_at_once_wait_for_it_in_virtual_time(world: World) -> None:
    """The first one's grant is retried; the second waits for it, and time goes on all the same."""
    client = world.client()
    world.faults(client).lose_request("grant", 4)
    calls = [world.start(lambda name=name: client.lock(name).acquire(timeout=20)) for name in "abc"]  # type: ignore[misc]
    assert not any(call.ended for call in calls)
    assert len({call.result().lease_id for call in calls}) == 1


def test_timer_that_sets_one_too_late_is_still_a_timer() -> None:
    """A timer's call must not wait for the clock, whatever ran within it."""
    clock = virtual_module.WorldClock()
    mine, seen = ClientClock(clock), list[bool]()

    def outer() -> None:
        mine.schedule(mine.now(), lambda: seen.append(mine.on_timer))
        seen.append(mine.on_timer)

    mine.schedule(mine.now() + 1, outer)
    clock.advance(1)
    assert [*seen, mine.on_timer] == [True, True, False]


# Faults.


def test_lost_answer_of_an_enter_is_found_again(world: World) -> None:
    """The acquire comes back with its one ticket."""
    client = world.client(owner="a")
    client.lock("warm").acquire().release()
    world.faults(client).lose_answer("enter", times=3)
    began = world.now
    hold = client.lock("x").acquire(timeout=5)
    assert world.owners("x") == ["a"]
    assert world.now > began, "three tries need pauses between them"
    assert hold.release() is True


def test_lost_request_is_sent_again(world: World) -> None:
    """A request that never arrived is not in the store until the retry."""
    client = world.client()
    client.lock("warm").acquire().release()
    world.faults(client).lose_request("enter")
    before = world.store.requests["enter"]
    client.lock("x").acquire().release()
    assert world.store.requests["enter"] == before + 1


@pytest.mark.parametrize("verb", ["enter", "leave", "renew", "amend"])
def test_repeated_request_changes_nothing(world: World, verb: str) -> None:
    """Every one of these is carried out twice, and means once."""
    client = world.client(owner="a")
    client.lock("warm").acquire().release()
    world.faults(client).repeat_request(verb)
    before = world.now
    with client.election("x", value="one").campaign() as hold:
        hold.amend("two")
        hold.renew()
        assert world.owners("x") == ["a"]
        leader = client.election("x").leader()
        assert leader is not None
        assert leader.value == "two"
    assert world.owners("x") == []
    assert world.now == before


def test_repeated_grant_leaves_a_lease_to_its_ttl(world: World) -> None:
    """A second lease that no client knows of holds nothing, and ends by itself."""
    client = world.client(ttl=10)
    world.faults(client).repeat_request("grant")
    client.lock("x").acquire().release()
    client.close()
    assert world.left() == ["lease 2"]
    world.advance(10)


def test_delayed_answer_comes_in_virtual_time_or_not_at_all(world: World) -> None:
    """Within the client's time-out it is late; beyond, nobody waits for it, though what was asked for is done."""
    client = world.client(owner="a", ttl=60, timeout=5)
    client.lock("warm").acquire().release()
    faults, began = world.faults(client), world.now
    faults.delay_answer("enter", 3)
    first = client.lock("x").acquire(timeout=30)
    assert world.now - began == pytest.approx(3)
    faults.delay_answer("leave", 100)
    with pytest.raises(tenure.StoreUnavailable) as told:
        first.release()
    assert told.value.happened == "unknown"
    assert world.now - began == pytest.approx(8)
    assert world.owners("x") == []


def test_expired_lease_is_noticed_at_the_next_renewal(world: World) -> None:
    """The store has ended it; the client is told by its next beat, and the hold reads lost."""
    client = world.client(ttl=9)
    hold = client.lock("x").acquire()
    world.faults(client).expire()
    assert world.owners("x") == []
    hold.check()
    world.advance(3.1)
    assert hold.state is HoldState.LOST
    assert hold.release() is False


def test_partition_ends_in_a_successor_and_heals(world: World) -> None:
    """Cut off: the belief ends first, then another one holds. Healed: the client acquires again."""
    a, b = world.client(owner="a", ttl=5), world.client(owner="b")
    first = a.lock("x").acquire()
    world.faults(a).cut()
    second = b.lock("x").acquire()
    assert first.state is HoldState.LOST
    world.faults(a).heal()
    waiting = world.start(a.lock("x").acquire)
    assert world.owners("x") == ["b", "a"]
    second.release()
    assert waiting.result().token > second.token > first.token


def test_paused_client_hears_nothing_until_it_is_resumed(world: World) -> None:
    """A stopped process: no renewal, no callback; its own clock tells it at its first look."""
    a, b = world.client(owner="a", ttl=5), world.client(owner="b")
    hold = a.lock("x").acquire()
    told: list[HoldState] = []
    hold.on_change(told.append)
    world.faults(a).pause()
    successor = b.lock("x").acquire()
    assert told == []
    with pytest.raises(tenure.LeaseLost):
        hold.check()
    world.faults(a).resume()
    world.advance(0)
    assert told == [HoldState.LOST]
    assert successor.release() is True


def test_short_pause_costs_nothing(world: World) -> None:
    """Shorter than the TTL: the renewals that fell due are made up for."""
    client = world.client(ttl=9)
    hold = client.lock("x").acquire()
    world.faults(client).pause()
    world.advance(7)
    world.faults(client).resume()
    assert hold.state is HoldState.HELD
    world.advance(60)
    assert hold.release() is True


def test_waiter_of_a_paused_client_takes_its_turn_after_it_was_resumed(world: World) -> None:
    """A paused waiter is told of what it watched for once it is resumed, and not before."""
    a, b = world.client(owner="a"), world.client(owner="b", ttl=20)
    hold = a.lock("x").acquire()
    waiting = world.start(b.lock("x").acquire)
    world.faults(b).pause()
    hold.release()
    world.advance(5)
    assert not waiting.ended
    world.faults(b).resume()
    assert waiting.result().owner == "b"


def test_guarded_write_whose_answer_is_lost_is_made_good(world: World) -> None:
    """The user's own keys meet faults as well."""
    client = world.client()
    with client.lock("x") as hold:
        world.faults(client).lose_answer("commit")
        version = hold.store.put("data/a", b"1")
        found = hold.store.get("data/a")
        assert found is not None
        assert (found.value, found.version) == (b"1", version)


@pytest.mark.parametrize(
    "plan",
    [
        lambda faults: faults.lose_answer("enterr"),
        lambda faults: faults.lose_request("enter", 0),
        lambda faults: faults.repeat_request("enter", True),
        lambda faults: faults.delay_answer("enter", -1),
        lambda faults: faults.delay_answer("enter", 1e9),
    ],
)
def test_fault_that_can_not_be_is_refused(world: World, plan: Any) -> None:
    """A misspelt verb would never befall anything, and the test would pass."""
    with pytest.raises(tenure.InvalidOption):
        plan(world.faults(world.client()))


def test_forgotten_fault_befalls_nothing(world: World) -> None:
    """A fault that has met no request is off."""
    client = world.client()
    world.faults(client).lose_request("enter", 1000)
    world.faults(client).forget()
    began = world.now
    client.lock("x").acquire().release()
    assert world.now == began


# asyncio.


def test_asyncio_call_that_waits_lets_time_pass_with_until(world: World) -> None:
    """The loop is not the world's to wait for: `until` goes round it, and moves time when nobody has anything to do."""

    async def test() -> None:
        async with world.aclient(owner="a", ttl=5) as a, world.aclient(owner="b") as b:
            hold = await a.lock("x").acquire()
            with pytest.raises(tenure.AcquireTimeout):
                await world.until(b.lock("x").acquire(timeout=60))
            world.faults(a).pause()
            successor = await world.until(b.lock("x").acquire())
            assert successor.token > hold.token
            world.faults(a).resume()
            assert await hold.release() is False
            assert await successor.release() is True

    asyncio.run(test())


def test_asyncio_body_is_cancelled_when_time_passes(world: World) -> None:
    """Tasks react to each moment before the next one comes."""

    async def test() -> None:
        async with world.aclient(ttl=10) as client:
            cancelled_at: list[float] = []

            async def body() -> None:
                async with client.lock("x"):
                    try:
                        await asyncio.sleep(3600)
                    except asyncio.CancelledError:
                        cancelled_at.append(world.now)
                        raise

            task = asyncio.create_task(body())
            await world.aadvance(25)
            assert not task.done()
            assert len(world.owners("x")) == 1
            began = world.now
            world.faults(client).cut()
            await world.aadvance(25)
            with pytest.raises(tenure.LeaseLost):
                await task
            assert 0 < cancelled_at[0] - began < 10.1
            world.faults(client).heal()

    asyncio.run(test())


def test_asyncio_wait_that_nothing_ends_is_an_error(world: World) -> None:
    """An hour of virtual time is enough."""

    async def test() -> None:
        async with world.aclient() as client, client.lock("x"):
            with pytest.raises(StandsStill):
                await world.until(client.lock("x").acquire())

    asyncio.run(test())


def test_asyncio_client_that_was_not_closed_is_closed_after_its_loop() -> None:
    """A test that failed within its loop leaves clients and holds: the holds are given up, with a warning that names
    their line, and the world ends the rest."""
    with World() as world:

        async def test() -> None:
            a, b = world.aclient(owner="a", ttl=5), world.aclient(owner="b")
            hold = await a.lock("x").acquire()
            hold.on_change(lambda state: None)
            waiting = asyncio.create_task(b.lock("x").acquire())
            await world.aadvance(1)
            waiting.cancel()
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            asyncio.run(test())
        with pytest.warns(ResourceWarning, match="held when its event loop ended"):
            world.advance(20)
        assert world.owners("x") == []
    assert world.left() == []


# What is left.


def test_left_names_tickets_and_leases() -> None:
    """A client that forgot to release is named."""
    with World() as world:
        client = world.client(owner="a")
        client.lock("x").acquire()
        assert world.left() == ["a ticket of 'a' in the line of 'x'", "lease 1"]
    assert world.left() == []


def test_closing_the_world_ends_what_was_started() -> None:
    """Cut off, paused, waiting: nothing keeps a test's end waiting."""
    with World() as world:
        a, b = world.client(), world.client()
        a.lock("x").acquire()
        waiting = world.start(b.lock("x").acquire)
        world.faults(a).cut()
        world.faults(b).pause()
    with pytest.raises(tenure.ClientClosed):
        waiting.result()
    assert world.left() == []


def test_client_of_another_world_has_no_faults_here(world: World) -> None:
    """A mistake in the test, and no fault planned nowhere."""
    with World() as other, pytest.raises(KeyError):
        world.faults(other.client())


def test_release_that_is_answered_only_after_its_lease_has_ended_does_not_claim_the_removal(world: World) -> None:
    """A try that was not answered is no removal where the store may have ended the lease meanwhile."""
    client = world.client(ttl=3, timeout=30)
    hold = client.lock("x").acquire()
    world.faults(client).cut()
    released = world.start(hold.release)
    world.advance(6)
    assert world.owners("x") == []
    world.faults(client).heal()
    assert released.result() is False


def test_lease_that_is_not_believed_in_any_more_is_ended_at_the_store(world: World) -> None:
    """A lease is ended as on a real store: a renewal that is carried out late can't keep its tickets for another time
    to live.
    """
    client = world.client(ttl=10)
    hold = client.lock("x").acquire()
    world.faults(client).lose_request("renew", 10_000)
    world.advance(9.95)
    assert hold.state is HoldState.LOST
    assert world.owners("x") == []
