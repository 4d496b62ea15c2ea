"""`assert_held` and `hold.deadline`: what is held here, and how long the next call may take."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import tenure
from tenure import InvalidOption, LeaseLost, NotHeld, assert_held
from tenure._backends import memory
from tenure._core import context
from tenure._core.base.clock import VirtualClock
from tenure._core.runtime import runtime_of

TTL = 10.0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def client(clock: VirtualClock) -> Iterator[tenure.Client]:
    """A client on a virtual clock."""
    with tenure.connect("memory://context", clock=clock, ttl=TTL) as made:
        yield made


def deep_down() -> int:
    return assert_held("ledger").token


def deep_down_async() -> int:
    return tenure.aio.assert_held("ledger").token


def test_entered_hold_is_found_deep_in_the_call_tree(client: tenure.Client) -> None:
    """Without passing it along, and only within its block."""
    with client.lock("ledger") as hold:
        assert deep_down() == hold.token
        assert assert_held("ledger") is hold
    with pytest.raises(NotHeld):
        deep_down()


def test_acquired_hold_counts_once_it_is_entered(client: tenure.Client) -> None:
    """`acquire` alone says nothing about where the work is done; `with hold` does."""
    hold = client.lock("ledger").acquire()
    with pytest.raises(NotHeld, match="nothing is"):
        deep_down()
    with hold:
        assert deep_down() == hold.token


def test_every_kind_of_hold_can_be_asserted(client: tenure.Client) -> None:
    """A seat, a reader, a writer and a leader too."""
    with client.semaphore("seat", limit=2), client.rwlock("rw").read(), client.election("e").campaign():
        assert {assert_held(name).resource for name in ("seat", "rw", "e")} == {"seat", "rw", "e"}


def test_another_name_is_not_held_and_the_error_says_what_is(client: tenure.Client) -> None:
    """The message helps: it names what is held instead."""
    with client.lock("ledger"), client.lock("other"), pytest.raises(NotHeld, match="'ledger', 'other' is"):
        assert_held("missing")


def test_lost_hold_is_not_held(client: tenure.Client, clock: VirtualClock) -> None:
    """Entered, and over: LeaseLost, by the clock alone."""
    with pytest.raises(LeaseLost), client.lock("ledger") as hold:
        runtime_of(client)._backend.faults.cut_off = True  # type: ignore[attr-defined]  # memory's
        clock.advance(TTL)
        assert hold.remaining() == 0.0
        with pytest.raises(LeaseLost):
            deep_down()
        runtime_of(client)._backend.heal()  # type: ignore[attr-defined]  # memory's


def test_hold_released_within_its_block_is_not_held(client: tenure.Client) -> None:
    """Released early is released."""
    with client.lock("ledger") as hold:
        hold.release()
        with pytest.raises(LeaseLost, match="released"):
            deep_down()


def test_of_two_holds_of_one_name_the_living_one_counts(client: tenure.Client) -> None:
    """Two seats of one semaphore, the inner one given up."""
    seats = client.semaphore("ledger", limit=2)
    with seats as outer:
        with seats as inner:
            assert assert_held("ledger") is inner
            inner.release()
            assert assert_held("ledger") is outer
        assert assert_held("ledger") is outer


def test_new_thread_inherits_nothing_and_a_copied_context_does(client: tenure.Client) -> None:
    """A thread started within the block did not enter it; what runs in a copy of the context did."""
    with client.lock("ledger") as hold, ThreadPoolExecutor(1) as pool:
        with pytest.raises(NotHeld):
            pool.submit(deep_down).result()
        assert pool.submit(contextvars.copy_context().run, deep_down).result() == hold.token


def test_threads_do_not_see_each_others_holds(client: tenure.Client) -> None:
    """Two threads within two blocks at the same time."""
    both_in, done = threading.Barrier(2), threading.Barrier(2)

    def work(name: str, other: str) -> None:
        with client.lock(name):
            both_in.wait(10)
            assert assert_held(name).resource == name
            with pytest.raises(NotHeld):
                assert_held(other)
            done.wait(10)

    with ThreadPoolExecutor(2) as pool:
        for one in [pool.submit(work, "a", "b"), pool.submit(work, "b", "a")]:
            one.result()


def test_block_left_in_another_context_is_left(client: tenure.Client) -> None:
    """A block may be entered in one context and left in another: nothing of it stays asserted."""
    context = contextvars.copy_context()
    hold = context.run(client.lock("ledger").acquire().__enter__)
    assert context.run(deep_down) == hold.token
    hold.__exit__(None, None, None)
    with pytest.raises(LeaseLost):
        context.run(deep_down)


def test_tasks_inherit_what_is_held_and_no_more() -> None:
    """A task started within the block sees the hold, one started before does not, and not beyond the block."""

    async def deep() -> int:
        return deep_down_async()

    async def main() -> None:
        client = tenure.aio.connect("memory://context-aio", ttl=TTL)
        gate, seen = asyncio.Event(), asyncio.Event()

        async def outsider() -> None:
            await gate.wait()
            with pytest.raises(NotHeld):
                deep_down_async()
            seen.set()

        async def lingering() -> None:
            await seen.wait()
            await released.wait()
            with pytest.raises(LeaseLost):
                deep_down_async()

        released = asyncio.Event()
        early = asyncio.create_task(outsider())
        async with client.lock("ledger") as hold:
            assert await deep() == hold.token
            assert await asyncio.create_task(deep()) == hold.token
            assert await asyncio.to_thread(deep_down_async) == hold.token
            late = asyncio.create_task(lingering())
            gate.set()
            await early
        released.set()
        await late
        with pytest.raises(NotHeld):
            deep_down_async()
        await client.close()

    asyncio.run(main())


def test_each_face_finds_its_own_holds_and_names_the_other() -> None:
    """What is returned can be used: a blocking hold's methods block, the other's are awaited."""

    async def main() -> None:
        async with tenure.aio.connect("memory://context-faces") as client, client.lock("ledger") as hold:
            assert tenure.aio.assert_held("ledger") is hold
            with pytest.raises(NotHeld, match=r"tenure\.aio"):
                assert_held("ledger")

    asyncio.run(main())


def test_client_tells_which_of_several_stores_is_meant(client: tenure.Client) -> None:
    """The name alone says nothing of the store."""
    with tenure.connect("memory://another") as other, client.lock("ledger") as hold:
        assert assert_held("ledger", client=client) is hold
        with pytest.raises(NotHeld):
            assert_held("ledger", client=other)
        with other.lock("ledger") as second:
            assert assert_held("ledger") is second
            assert assert_held("ledger", client=client) is hold


def test_timeout_never_outlives_the_hold(client: tenure.Client, clock: VirtualClock) -> None:
    """The smaller of what is asked for and what is proven; less what is kept in reserve."""
    with client.lock("ledger") as hold:
        deadline = hold.deadline
        assert deadline.timeout(2.0) == 2.0
        assert deadline.timeout() == hold.remaining() == deadline.left()
        assert deadline.timeout(60, reserve=1.5) == pytest.approx(hold.remaining() - 1.5)
        runtime_of(client)._backend.faults.cut_off = True  # type: ignore[attr-defined]  # memory's
        clock.advance(hold.remaining() - 1.0)
        assert deadline.timeout(2.0) == pytest.approx(1.0)
        with pytest.raises(LeaseLost, match="reserve"):
            deadline.timeout(2.0, reserve=1.5)
        runtime_of(client)._backend.heal()  # type: ignore[attr-defined]  # memory's
        hold.renew()
        assert deadline.timeout(2.0) == 2.0


def test_timeout_of_a_lost_or_released_hold_raises(client: tenure.Client) -> None:
    """There is no time left for another call."""
    hold = client.lock("ledger").acquire()
    memory.store("context", runtime_of(hold).clock).expire(hold.lease_id)
    with pytest.raises(LeaseLost):
        hold.renew()
    with pytest.raises(LeaseLost, match="expired"):
        hold.deadline.timeout(1.0)
    assert "in 0.000 s" in repr(hold.deadline)


@pytest.mark.parametrize("bad", [-1, float("nan"), "1"])
def test_bad_timeout_is_refused(client: tenure.Client, bad: float) -> None:
    """Seconds, and not less than none."""
    with client.lock("ledger") as hold:
        with pytest.raises(InvalidOption):
            hold.deadline.timeout(bad)
        with pytest.raises(InvalidOption):
            hold.deadline.timeout(1.0, reserve=bad)


def test_hold_that_was_never_left_and_is_over_is_not_named(client: tenure.Client) -> None:
    """A block that was entered by hand and given up some other way: what is told to be held is held."""
    hold = client.lock("over").acquire()
    hold.__enter__()
    hold.release()
    with pytest.raises(NotHeld, match="'ledger' is not held here; nothing is"):
        assert_held("ledger")


def test_holds_given_up_elsewhere_do_not_pile_up(client: tenure.Client) -> None:
    """A thread that enters blocks which others leave may live as long as the program."""
    for _ in range(20):
        client.lock("over").acquire().__enter__().release()
    assert len([hold for hold in context._entered.get() if hold.resource == "over"]) == 1
