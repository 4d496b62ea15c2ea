"""The promises of each recipe, on every backend and both faces."""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import pytest

from tenure import HoldState, InvalidOption, Leader, LeaseLost, LineMismatch
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.limits import VALUE_BYTES_MAX
from tenure._core.recipes.semaphore import seat
from tenure._core.runtime import runtime_of
from tenure.testing.conformance.store_world import StoreWorld, eventually, inner, needs


def test_semaphore_admits_up_to_its_limit_in_order(world: StoreWorld) -> None:
    """Never more seats than the limit, and the next in line gets the seat that is given up."""
    client = world.client(ttl=20)
    seats = client.semaphore("s", limit=3)
    holds = [seats.acquire() for _ in range(3)]
    assert seats.try_acquire() is None
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(seats.acquire, 20.0)
        assert eventually(lambda: len(world.tickets("s")) == 4)
        assert not waiting.done()
        holds[1].release()
        holds.append(waiting.result())
    assert len({hold.token for hold in holds}) == 4
    for hold in (holds[0], *holds[2:]):
        assert hold.release() is True


def test_semaphore_heavy_ticket_is_not_overtaken(world: StoreWorld) -> None:
    """Strictly first come first served: a light ticket waits behind a heavy one that does not fit yet."""
    client = world.client(ttl=20)
    seats = client.semaphore("s", limit=3)
    two = seats.acquire(weight=2)
    with ThreadPoolExecutor() as pool:
        heavy = pool.submit(lambda: seats.acquire(20.0, weight=3))
        assert eventually(lambda: len(world.tickets("s")) == 2)
        assert seats.try_acquire() is None
        light = pool.submit(lambda: seats.acquire(20.0))
        assert eventually(lambda: len(world.tickets("s")) == 3)
        two.release()
        first = heavy.result()
        assert not light.done()
        first.release()
        assert light.result().release() is True


def test_semaphore_many_workers_never_exceed_the_weight(world: StoreWorld) -> None:
    """Random weights and hold times from many threads: the sum of held weights never exceeds the limit."""
    clients = [world.client(ttl=20) for _ in range(2)]
    guard, held, maximum = threading.Lock(), 0, 0

    def work(number: int) -> None:
        nonlocal held, maximum
        seats = clients[number % 2].semaphore("s", limit=4)
        for turn in range(6):
            weight = (number * 7 + turn * 3) % 4 + 1
            with seats.acquire(60.0, weight=weight):
                with guard:
                    held += weight
                    maximum = max(maximum, held)
                time.sleep(0.002)
                with guard:
                    held -= weight

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(work, range(8)))
    assert 0 < maximum <= 4


def test_semaphore_waiters_all_get_through_when_waiters_give_up(world: StoreWorld) -> None:
    """Waiters that give up in the middle of the line leave nobody asleep."""
    client = world.client(ttl=20)
    seats = client.semaphore("s", limit=2)
    holds = [seats.acquire() for _ in range(2)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        waiting = []
        for number in range(6):
            waiting.append(pool.submit(seats.acquire, 1.5 if number % 2 == 0 else 30.0))
            assert eventually(lambda n=number: client.statistics()["events"]["entered"] == n + 3)  # type: ignore[misc]
        for future in waiting[::2]:
            with pytest.raises(TimeoutError):
                future.result()
        for hold in holds:
            hold.release()
        for future in waiting[1::2]:
            future.result(20).release()


def test_semaphore_admits_those_behind_a_waiter_that_is_hung(world: StoreWorld) -> None:
    """Its lease is renewed, its ticket stands, and it never looks: all seats but its own are for those behind it."""
    holder, hung, quick = (world.client(ttl=20) for _ in range(3))
    seats = quick.semaphore("s", limit=3)
    holds = [holder.semaphore("s", limit=3).acquire() for _ in range(3)]
    entry = seat("s", 3, 1, 20.0, "hung").entry()
    runtime_of(inner(hung)).lease(20.0).enter(entry, SYSTEM_CLOCK.now() + 5.0)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(seats.acquire, 15.0) for _ in range(3)]
        assert eventually(lambda: len(world.tickets("s")) == 7)
        for hold in holds:
            hold.release()
        seated, _ = wait(waiting, return_when=FIRST_COMPLETED)
        assert seated.pop().result().release() is True
        for hold in (future.result() for future in waiting):
            hold.release()


@needs("lose_answer", "cut")
@pytest.mark.parametrize("limit", [2, 10])
def test_semaphore_seat_that_was_admitted_while_its_answer_was_lost_wakes_the_next(
    world: StoreWorld, limit: int
) -> None:
    """A seat whose answer was lost never saw itself wait; the next waiter is not left asleep for it."""
    holder, slow, quick = (world.client(ttl=20) for _ in range(3))
    for client in (slow, quick):
        client.semaphore("s", limit=limit).acquire().release()  # connected, and the line is there
    both = holder.semaphore("s", limit=limit).acquire(weight=limit)
    world.lose_answer(slow, "enter", times=1000)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(slow.semaphore("s", limit=limit).acquire, 15.0)
        assert eventually(lambda: len(world.tickets("s")) == 2)
        world.cut(slow)
        second = pool.submit(quick.semaphore("s", limit=limit).acquire, 15.0)
        assert eventually(lambda: len(world.tickets("s")) == 3)
        time.sleep(0.2)  # it watches by now; if not, there is nothing to see
        both.release()
        world.forget(slow)
        world.heal(slow)
        holds = [first.result(), second.result()]
    for hold in holds:
        assert hold.release() is True


def test_semaphore_nonsense_is_refused_before_sending(world: StoreWorld) -> None:
    """Limits and weights that can't be are InvalidOption."""
    client = world.client(ttl=10)
    for limit in (0, -1, 1.5, True, "3", None):
        with pytest.raises(InvalidOption):
            client.semaphore("s", limit=limit)
    with pytest.raises(InvalidOption, match="limit of 2"):
        client.semaphore("s", limit=2).acquire(weight=3)
    with pytest.raises(InvalidOption):
        client.semaphore("s", limit=2).try_acquire(weight=0)


def test_rwlock_readers_share_and_writers_do_not(world: StoreWorld) -> None:
    """Readers hold together; a writer holds alone."""
    client = world.client(ttl=20)
    both = client.rwlock("rw")
    readers = [both.read().acquire() for _ in range(3)]
    assert both.write().try_acquire() is None
    for hold in readers:
        hold.release()
    with both.write():
        assert both.read().try_acquire() is None
        assert both.write().try_acquire() is None


def test_rwlock_writer_is_not_starved_by_readers(world: StoreWorld) -> None:
    """A reader that comes after a waiting writer waits behind it."""
    client = world.client(ttl=20)
    both = client.rwlock("rw")
    reader = both.read().acquire()
    with ThreadPoolExecutor() as pool:
        writer = pool.submit(both.write().acquire, 20.0)
        assert eventually(lambda: len(world.tickets("rw")) == 2)
        assert both.read().try_acquire() is None
        late = [pool.submit(both.read().acquire, 20.0) for _ in range(3)]
        assert eventually(lambda: len(world.tickets("rw")) == 5)
        reader.release()
        held = writer.result()
        assert not any(f.done() for f in late)
        held.release()
        for future in late:
            assert future.result(20).release() is True


def test_kinds_do_not_mix_where_they_can_not_agree(world: StoreWorld) -> None:
    """A name in use as a semaphore refuses locks, candidates, readers and writers at once, and theirs refuse seats."""
    client = world.client(ttl=10)
    seats, rw = client.semaphore("x", limit=2), client.rwlock("x")
    for other in (client.lock("x"), client.election("x").campaign(), rw.read(), rw.write()):
        for first, second, words in ((seats, other, "in use as a sem"), (other, seats, "in use as a (lock|read)")):
            with first:
                with pytest.raises(LineMismatch, match=words):
                    second.acquire(timeout=5)
                with pytest.raises(LineMismatch, match=words):
                    second.try_acquire()
                assert len(world.tickets("x")) == 1


def test_election_leader_and_value(world: StoreWorld) -> None:
    """Observers read who leads and its value, which the leader can change; after it resigned there is no leader."""
    client, other = world.client(ttl=10, owner="first"), world.client(ttl=10)
    watching = other.election("e")
    assert watching.leader() is None
    with client.election("e", value="10.0.0.7:8080").campaign() as hold:
        assert watching.leader() == Leader("10.0.0.7:8080", "first", hold.token, hold.id)
        hold.amend("10.0.0.7:9090 ✓")
        leader = watching.leader()
        assert leader is not None
        assert leader.value == "10.0.0.7:9090 ✓"
        assert hold.value == leader.value
    assert watching.leader() is None


def test_election_observer_sees_every_change_in_order_and_nothing_stale(world: StoreWorld) -> None:
    """Observe tells who leads now, then changes of leader and value, tokens never falling; it ends with its client."""
    client, other = world.client(ttl=10), world.client(ttl=10)
    seen: list[Any] = []

    def observe() -> None:
        seen.extend(other.election("e").observe())

    observer = threading.Thread(target=observe)
    observer.start()
    assert eventually(lambda: seen == [None])
    tokens = []
    for number in range(3):
        with client.election("e", value=f"v{number}").campaign() as hold:
            tokens.append(hold.token)
            assert eventually(lambda n=number: bool(seen) and seen[-1] is not None and seen[-1].value == f"v{n}")  # type: ignore[misc]
            hold.amend(f"w{number}")
            assert eventually(lambda n=number: seen[-1] is not None and seen[-1].value == f"w{n}")  # type: ignore[misc]
        assert eventually(lambda: seen[-1] is None)
    other.close()
    observer.join(10)
    assert not observer.is_alive()
    shown = [leader.token for leader in seen if leader is not None]
    assert shown == sorted(shown)
    assert set(shown) == set(tokens)


@needs("cut")
def test_election_observer_resumes_after_its_connections_broke(world: StoreWorld) -> None:
    """A cut observer goes on by itself and tells the leader that came meanwhile."""
    client, other = world.client(ttl=10), world.client(ttl=10)
    seen: list[Any] = []
    observer = threading.Thread(target=lambda: seen.extend(other.election("e").observe()))
    observer.start()
    assert eventually(lambda: seen == [None])
    world.cut(other)
    with client.election("e", value="new").campaign():
        time.sleep(0.2)
        world.heal(other)
        assert eventually(lambda: seen[-1] is not None and seen[-1].value == "new", 20.0)
    assert eventually(lambda: seen[-1] is None, 20.0)
    other.close()
    observer.join(10)
    assert not observer.is_alive()


def test_election_successor_leads_after_the_leader_is_lost(world: StoreWorld) -> None:
    """The next candidate leads when the leader's lease ends, with a higher token."""
    first, second = world.client(ttl=2), world.client(ttl=10)
    leading = first.election("e", value="one").campaign().acquire()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(second.election("e", value="two").campaign().acquire, 20.0)
        assert eventually(lambda: len(world.tickets("e")) == 2)
        world.expire(leading)
        next_leader = waiting.result()
    assert next_leader.token > leading.token
    assert eventually(lambda: leading.state is HoldState.LOST)
    next_leader.release()


def test_value_of_64_kib_goes_through_and_larger_is_refused(world: StoreWorld) -> None:
    """Values up to the limit are stored whole; one byte more is refused before sending."""
    client = world.client(ttl=10)
    value = "x" * VALUE_BYTES_MAX
    with client.election("e", value=value).campaign() as hold:
        leader = client.election("e").leader()
        assert leader is not None
        assert leader.value == value
        with pytest.raises(InvalidOption):
            hold.amend(value + "x")
    with pytest.raises(InvalidOption):
        client.election("e", value="é" * VALUE_BYTES_MAX)


def test_granted_ttl_rules_and_is_shown(world: StoreWorld) -> None:
    """Below the store's minimum the granted TTL is what the hold shows and lives by."""
    client = world.client(ttl=0.1)
    hold = client.lock("a").acquire()
    assert hold.ttl >= max(0.1, world.ttl_min)
    assert hold.remaining() <= hold.ttl
    hold.release()


def test_lost_hold_raises_at_the_edge_of_with(world: StoreWorld) -> None:
    """A body that ended normally although the hold was lost meanwhile does not pass for protected."""
    client = world.client(ttl=2)
    with pytest.raises(LeaseLost), client.lock("a") as hold:
        world.expire(hold)
        hold.lost.wait(5)
