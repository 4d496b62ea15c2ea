"""What each recipe promises, on every backend and both faces."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import HoldState, InvalidOption, Leader, LeaseLost, LineMismatch
from holdfast.limits import VALUE_BYTES_MAX
from holdfast.testing.conformance.worlds import World, eventually, needs


def test_semaphore_admits_up_to_its_limit_in_order(world: World) -> None:
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


def test_semaphore_heavy_ticket_is_not_overtaken(world: World) -> None:
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


def test_semaphore_many_workers_never_exceed_the_weight(world: World) -> None:
    """Random weights and hold times from many threads: the sum of held weights never exceeds the limit."""
    clients = [world.client(ttl=20) for _ in range(2)]
    guard, held, most = threading.Lock(), 0, 0

    def work(number: int) -> None:
        nonlocal held, most
        seats = clients[number % 2].semaphore("s", limit=4)
        for turn in range(6):
            weight = (number * 7 + turn * 3) % 4 + 1
            with seats.acquire(60.0, weight=weight):
                with guard:
                    held += weight
                    most = max(most, held)
                time.sleep(0.002)
                with guard:
                    held -= weight

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(work, range(8)))
    assert 0 < most <= 4


def test_semaphore_waiters_all_get_through_when_waiters_give_up(world: World) -> None:
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


@needs("lose_answer", "cut")
def test_semaphore_seat_that_was_admitted_while_its_answer_was_lost_wakes_the_next(world: World) -> None:
    """It never saw itself wait, and the one behind it did: that one sleeps until it is told of the admission."""
    holder, slow, quick = (world.client(ttl=20) for _ in range(3))
    for client in (slow, quick):
        client.semaphore("s", limit=2).acquire().release()  # connected, and the line is there
    both = holder.semaphore("s", limit=2).acquire(weight=2)
    world.lose_answer(slow, "enter", times=1000)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(slow.semaphore("s", limit=2).acquire, 15.0)
        assert eventually(lambda: len(world.tickets("s")) == 2)
        world.cut(slow)
        second = pool.submit(quick.semaphore("s", limit=2).acquire, 15.0)
        assert eventually(lambda: len(world.tickets("s")) == 3)
        time.sleep(0.2)  # it watches by now; if not, there is nothing to see
        both.release()
        world.forget(slow)
        world.heal(slow)
        holds = [first.result(), second.result()]
    for hold in holds:
        assert hold.release() is True


def test_semaphore_nonsense_is_refused_before_sending(world: World) -> None:
    """Limits and weights that can't be are InvalidOption."""
    client = world.client(ttl=10)
    for limit in (0, -1, 1.5, True, "3", None):
        with pytest.raises(InvalidOption):
            client.semaphore("s", limit=limit)
    with pytest.raises(InvalidOption, match="limit of 2"):
        client.semaphore("s", limit=2).acquire(weight=3)
    with pytest.raises(InvalidOption):
        client.semaphore("s", limit=2).try_acquire(weight=0)


def test_rwlock_readers_share_and_writers_do_not(world: World) -> None:
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


def test_rwlock_writer_is_not_starved_by_readers(world: World) -> None:
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


def test_kinds_do_not_mix_where_they_can_not_agree(world: World) -> None:
    """A read/write lock and a semaphore under one name: an error that says so. A lock excludes both."""
    client = world.client(ttl=10)
    with client.rwlock("x").read(), pytest.raises(LineMismatch, match="read/write"):
        client.semaphore("x", limit=2).acquire(5)
    with client.semaphore("x", limit=2), pytest.raises(LineMismatch, match="semaphore"):
        client.rwlock("x").read().acquire(5)
    with client.lock("x"):
        assert client.semaphore("x", limit=2).try_acquire() is None
        assert client.rwlock("x").read().try_acquire() is None


def test_election_leader_and_value(world: World) -> None:
    """Others read who leads and its value, which it can change while leading; nobody leads after it resigned."""
    client, other = world.client(ttl=10, owner="first"), world.client(ttl=10)
    watching = other.election("e")
    assert watching.leader() is None
    with client.election("e", value="10.0.0.7:8080").campaign() as hold:
        assert watching.leader() == Leader("10.0.0.7:8080", "first", hold.token, hold.id)
        hold.amend("10.0.0.7:9090 ✓")
        told = watching.leader()
        assert told is not None
        assert told.value == "10.0.0.7:9090 ✓"
        assert hold.value == told.value
    assert watching.leader() is None


def test_election_observer_sees_every_change_in_order_and_nothing_stale(world: World) -> None:
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
    told = [leader.token for leader in seen if leader is not None]
    assert told == sorted(told)
    assert set(told) == set(tokens)


@needs("cut")
def test_election_observer_resumes_after_its_connections_broke(world: World) -> None:
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


def test_election_successor_leads_after_the_leader_is_lost(world: World) -> None:
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


def test_value_of_64_kib_goes_through_and_larger_is_refused(world: World) -> None:
    """Values up to the limit are stored whole; one byte more is refused before sending."""
    client = world.client(ttl=10)
    value = "x" * VALUE_BYTES_MAX
    with client.election("e", value=value).campaign() as hold:
        told = client.election("e").leader()
        assert told is not None
        assert told.value == value
        with pytest.raises(InvalidOption):
            hold.amend(value + "x")
    with pytest.raises(InvalidOption):
        client.election("e", value="é" * VALUE_BYTES_MAX)


def test_granted_ttl_rules_and_is_shown(world: World) -> None:
    """Below the store's minimum the granted TTL is what the hold shows and lives by."""
    client = world.client(ttl=0.1)
    hold = client.lock("a").acquire()
    assert hold.ttl >= max(0.1, world.ttl_least)
    assert hold.remaining() <= hold.ttl
    hold.release()


def test_lost_hold_raises_at_the_edge_of_with(world: World) -> None:
    """A body that ended normally although the hold was lost meanwhile does not pass for protected."""
    client = world.client(ttl=2)
    with pytest.raises(LeaseLost), client.lock("a") as hold:
        world.expire(hold)
        hold.lost.wait(5)
