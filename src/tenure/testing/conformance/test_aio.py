"""Properties of asyncio alone: a body cancelled on loss, cancellation at every moment, waiters without threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tenure import ClientClosed, HoldState, LeaseLost
from tenure._core.base.limits import TICKET_WATCH_AFTER
from tenure._core.runtime import runtime_of
from tenure.testing.conformance.store_world import StoreWorld, inner, needs


async def until(what: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.01)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_body_is_cancelled_on_loss_and_lease_lost_raised_at_its_edge(world_aio: StoreWorld) -> None:
    """The protected work stops by itself when the hold is lost."""

    async def test() -> None:
        async with world_aio.client(ttl=2) as client:
            cancelled = False
            with pytest.raises(LeaseLost):
                async with client.lock("a") as hold:
                    try:
                        await asyncio.to_thread(world_aio.expire, hold)
                        await asyncio.sleep(30)
                    except asyncio.CancelledError:
                        cancelled = True
                        raise
            assert cancelled
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    run(test())


@pytest.mark.parametrize("recipe", ["lock", "semaphore", "rwlock", "election"])
def test_body_is_cancelled_when_another_task_closes_its_client(world_aio: StoreWorld, recipe: str) -> None:
    """ClientClosed is raised at its edge, and by then the line is free."""

    async def test() -> None:
        client, cancelled = world_aio.client(ttl=30), False
        places: dict[str, Callable[[], Any]] = {
            "lock": lambda: client.lock("a"),
            "semaphore": lambda: client.semaphore("a", limit=2),
            "rwlock": lambda: client.rwlock("a").write(),
            "election": lambda: client.election("a").campaign(),
        }
        with pytest.raises(ClientClosed):
            async with places[recipe]() as hold:
                closing = asyncio.create_task(client.close())
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    cancelled = True
                    raise
        assert cancelled
        assert hold.state is HoldState.RELEASED
        assert await asyncio.to_thread(world_aio.tickets, "a") == []
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await closing

    run(test())


def test_body_that_closes_its_own_client_ends_quietly(world_aio: StoreWorld) -> None:
    """A body that gave its hold up itself is neither cancelled nor told of a loss."""

    async def test() -> None:
        async with world_aio.client(ttl=30) as client, client.lock("a"):
            await client.close()
            await asyncio.sleep(0.05)

    run(test())


def test_outer_cancellation_while_the_client_is_closed_stays_one(world_aio: StoreWorld) -> None:
    """An outer cancellation and a close at the same time, in either order."""

    async def test(closes_first: bool) -> None:
        client, inside = world_aio.client(ttl=30), asyncio.Event()

        async def body() -> None:
            async with client.lock("a"):
                inside.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(body())
        await inside.wait()
        if not closes_first:
            task.cancel()
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        if closes_first:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closing
        assert await asyncio.to_thread(world_aio.tickets, "a") == []

    run(test(True))
    run(test(False))


def test_run_ends_in_client_closed_when_the_client_is_closed_in_office(world_aio: StoreWorld) -> None:
    """election.run cancels the leader's work and says why."""

    async def test() -> None:
        client = world_aio.client(ttl=30)
        closing: list[asyncio.Task[None]] = []

        async def lead(_: Any) -> None:
            closing.append(asyncio.create_task(client.close()))
            await asyncio.sleep(60)

        with pytest.raises(ClientClosed):
            await client.election("e").run(lead)
        await closing[0]

    run(test())


def test_outer_cancellation_stays_one_and_releases(world_aio: StoreWorld) -> None:
    """Cancelling the task from outside is not turned into LeaseLost, and the ticket goes."""

    async def test() -> None:
        async with world_aio.client(ttl=20) as client:

            async def body() -> None:
                async with client.lock("a"):
                    inside.set()
                    await asyncio.sleep(60)

            inside = asyncio.Event()
            task = asyncio.create_task(body())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            hold = await client.lock("a").acquire(timeout=5)
            assert await hold.release()

    run(test())


@pytest.mark.parametrize("after_switches", [0, 1, 2, 3, 4, 6, 8, 12, 20, 40])
def test_cancelled_acquire_leaves_nothing(world_aio: StoreWorld, after_switches: int) -> None:
    """However far the acquire had come, after the cancellation the lock is free."""

    async def test() -> None:
        async with world_aio.client(ttl=20) as client:
            await (await client.lock("warm").acquire()).release()
            for _ in range(5):
                task = asyncio.create_task(client.lock("a").acquire())
                for _ in range(after_switches):
                    await asyncio.sleep(0.0005)
                task.cancel()
                try:
                    await (await task).release()
                except asyncio.CancelledError:
                    pass
            hold = await client.lock("a").acquire(timeout=10)
            assert await hold.release()

    run(test())


def test_timeout_around_a_waiting_acquire_is_a_plain_timeout(world_aio: StoreWorld) -> None:
    """asyncio.timeout works around our calls and withdraws the ticket."""

    async def test() -> None:
        async with world_aio.client(ttl=20) as client, client.lock("a"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.lock("a").acquire()
            await until(lambda: len(world_aio.tickets("a")) == 1)

    run(test())


def test_two_hundred_waiters_are_served_in_order_without_threads(world_aio: StoreWorld) -> None:
    """Strictly first come first served, and at most twelve threads in the process."""

    async def test(recipe: Callable[[Any], Any]) -> None:
        order: list[int] = []
        most_threads = 0
        others = threading.active_count() - 1  # the test's own: proxies, servers' spawner

        async def one(number: int) -> None:
            nonlocal most_threads
            async with recipe(client):
                order.append(number)
                most_threads = max(most_threads, threading.active_count())

        async with world_aio.client(ttl=20) as client:
            first = await recipe(client).acquire()
            tasks = []
            for number in range(200):
                tasks.append(asyncio.create_task(one(number)))
                await until(lambda n=number: runtime_of(inner(client)).hub.counts["entered"] == n + 2)  # type: ignore[misc]
            await first.release()
            await asyncio.gather(*tasks)
            assert order == list(range(200))
            assert most_threads - others <= 12

    run(test(lambda client: client.lock("a")))
    run(test(lambda client: client.semaphore("s", limit=1)))


SETTLED = 2 * TICKET_WATCH_AFTER


@needs("work")
@pytest.mark.parametrize("recipe", ["lock", "semaphore"])
def test_server_work_per_hand_over_does_not_grow_with_waiters(world_aio: StoreWorld, recipe: str) -> None:
    """Requests and watch messages per hand-over, counted at the server, are the same for 10 waiters as for 200."""
    work = _work_per_hand_over(world_aio, recipe)
    assert work[200] <= work[10] * 1.1 + 0.5, work


def _work_per_hand_over(world_aio: StoreWorld, recipe: str) -> dict[int, float]:
    """The server's work per hand-over, over ten hand-overs in the middle, for 10 and for 200 waiters."""

    async def measure(waiters: int) -> float:
        async with world_aio.client(ttl=60) as client:
            place = client.lock("a") if recipe == "lock" else client.semaphore("a", limit=2)
            held = [await place.acquire() for _ in range(1 if recipe == "lock" else 2)]
            tasks = []
            for number in range(waiters):
                tasks.append(asyncio.create_task(place.acquire()))
                await until(lambda n=number: runtime_of(inner(client)).hub.counts["entered"] == n + 1 + len(held))  # type: ignore[misc]
            await asyncio.sleep(SETTLED)  # the last watches are being set up
            before = world_aio.work()
            for task in tasks[:8]:
                await held.pop(0).release()
                held.append(await task)
                await asyncio.sleep(SETTLED)  # every hold gets as old, and so gets the watch on its own ticket
            after = world_aio.work()
            for task in tasks[8:]:
                task.cancel()
            await asyncio.gather(*tasks[8:], return_exceptions=True)
            for hold in held:
                await hold.release()
        return sum(after[name] - before.get(name, 0.0) for name in after) / 8

    return {waiters: asyncio.run(measure(waiters)) for waiters in (10, 200)}


def test_run_leads_again_after_a_loss(world_aio: StoreWorld) -> None:
    """election.run cancels the leader's work on loss, campaigns again, and returns what the work returns in office."""

    async def test() -> None:
        terms: list[int] = []

        async def lead(hold: Any) -> str:
            terms.append(hold.token)
            if len(terms) == 1:
                await asyncio.to_thread(world_aio.expire, hold)
                await asyncio.sleep(60)
            return "done"

        async with world_aio.client(ttl=2) as client:
            async with asyncio.timeout(30):
                assert await client.election("e").run(lead) == "done"
        assert len(terms) == 2
        assert terms[0] < terms[1]

    run(test())


def test_lost_can_be_awaited(world_aio: StoreWorld) -> None:
    """hold.lost.wait() is awaitable, with and without a time-out."""

    async def test() -> None:
        async with world_aio.client(ttl=2) as client:
            hold = await client.lock("a").acquire()
            assert await hold.lost.wait(0.05) is False
            await asyncio.to_thread(world_aio.expire, hold)
            assert await hold.lost.wait(10) is True
            assert hold.state is HoldState.LOST
            assert await hold.release() is False

    run(test())
