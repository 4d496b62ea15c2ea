"""Steps on the event loop's own thread: as on a worker, whatever the store does, and the loop is nobody's to keep."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

import tenure
from tenure import aio
from tenure._backends.zookeeper import handler, sweeper
from tenure._core.drivers.greenlets import Lane, Lanes
from tenure._core.runtime import runtime_of
from tenure.errors import StoreUnavailable
from tenure.service.holds.keeper import AcquireRequest, Grant, Keeper
from tenure.testing.servers import Cluster, FaultProxy
from tests.conformance.store_worlds import eventually
from tests.faults.test_faults import proxied
from tests.faults.transports import enters, leaves
from tests.service.keepers import until

BOTH = pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
TIMEOUT = 2.0
"""Of a request."""
TICK = 0.01
STALL_TICKS_MAX = TIMEOUT / 4 / TICK
"""A loop that waits for an answer stands still for half of it, which is one try's, or for longer."""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Lane]:
    """Every lane that was begun."""
    lanes: list[Lane] = []
    begin = Lanes.begin

    def noted(self: Lanes, step: Any) -> Lane:
        lanes.append(begin(self, step))
        return lanes[-1]

    monkeypatch.setattr(Lanes, "begin", noted)
    return lanes


class Behind(NamedTuple):
    """A keeper, and the way that it goes to its store, which fails when it is told to."""

    keeper: Keeper
    proxy: FaultProxy
    url: str


@asynccontextmanager
async def keeper_at(cluster: Cluster) -> AsyncIterator[Behind]:
    """It has a connection already, as one that was used before has."""
    with FaultProxy(cluster.endpoints[0], cluster.kind) as proxy:
        url = proxied(cluster, proxy)
        async with aio.connect(url, ttl=10.0, timeout=TIMEOUT) as client:
            keeper = Keeper(client)
            try:
                await cycle(keeper)
                yield Behind(keeper, proxy, url)
            finally:
                await keeper.close()


async def acquired(keeper: Keeper, name: str = "a") -> Grant:
    kept = await keeper.acquire(AcquireRequest(resource=name, owner="me", ttl=10.0), wait_seconds=0)
    assert kept is not None
    return kept


async def cycle(keeper: Keeper, name: str = "a") -> None:
    await keeper.release((await acquired(keeper, name)).id)


@asynccontextmanager
async def going_on() -> AsyncIterator[None]:
    """The loop does, all the time. By the ticks of a thread: where the machine stands still, that does so, too."""
    ticks = longest = 0
    over = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not over.wait(TICK):
            ticks += 1

    async def tick() -> None:
        nonlocal longest
        while True:
            before = ticks
            await asyncio.sleep(TICK)
            longest = max(longest, ticks - before)

    counting = threading.Thread(target=count)
    counting.start()
    ticking = asyncio.create_task(tick())
    await asyncio.sleep(2 * TICK)  # it has begun before anything else does
    try:
        yield
    finally:
        await asyncio.sleep(5 * TICK)  # it has to hear of what was the last thing, too
        ticking.cancel()
        over.set()
        counting.join()
    assert longest < STALL_TICKS_MAX, f"the loop stood still for {longest} ticks of {TICK} s"


def nobody_stands(url: str, name: str = "a") -> bool:
    with tenure.connect(url, ttl=5) as client:
        return client.operator().line(name).tickets == ()


@BOTH
def test_loop_goes_on_while_a_store_says_nothing(singles: dict[str, Cluster], begun: list[Lane], kind: str) -> None:
    """A request ends by its own time, and nobody else waits for it; when the store is there again, all is as before."""

    async def test() -> None:
        async with keeper_at(singles[kind]) as (keeper, proxy, _):
            kept, before = await acquired(keeper), len(begun)
            proxy.blackhole()
            async with going_on():
                for asked in (acquired(keeper, "b"), keeper.release(kept.id)):
                    began = time.monotonic()
                    with pytest.raises(StoreUnavailable):
                        await asked
                    assert time.monotonic() - began < 2 * TIMEOUT
                assert len(begun) == before + 2, "these were not asked in lanes"
                proxy.heal()
                while True:
                    try:
                        await cycle(keeper, "c")
                    except StoreUnavailable:
                        continue  # it takes a moment
                    break

    asyncio.run(test())


@BOTH
def test_loop_goes_on_while_a_store_is_away_and_the_request_is_carried_out_when_it_is_back(
    singles: dict[str, Cluster], begun: list[Lane], kind: str
) -> None:
    """Connections refused: the pauses between tries, and connecting anew, keep nobody from anything."""

    async def test() -> None:
        async with keeper_at(singles[kind]) as (keeper, proxy, _):
            before = len(begun)
            proxy.refuse()
            async with going_on():
                asked = asyncio.create_task(acquired(keeper))
                await asyncio.sleep(TIMEOUT / 4)
                assert not asked.done()
                proxy.heal()
                await keeper.release((await asked).id)
            assert len(begun) > before

    asyncio.run(test())


def test_loop_goes_on_where_only_the_first_of_two_requests_was_sent(
    singles: dict[str, Cluster], begun: list[Lane], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that belong together kazoo may take one and refuse the other: then the last is not the last answered."""
    monkeypatch.setattr(sweeper, "_SWEEP_AFTER", 60.0)  # nobody else asks

    async def test() -> None:
        async with keeper_at(singles["zookeeper"]) as (keeper, proxy, _):
            before = len(begun)
            lease: Any = next(iter(keeper._runtime._leases.values()))
            client = lease._connection._client
            proxy.blackhole()  # whoever connects is not let in, and kazoo keeps for that time what is asked
            proxy.reset()
            await until(lambda: client.client_state == "CONNECTING")
            await asyncio.sleep(1.2)  # the second try to be let in takes twice as long as the first
            assert not client._queue
            monkeypatch.setattr(handler, "_QUEUED_MAX", 1)
            async with going_on():
                with pytest.raises(StoreUnavailable):
                    await acquired(keeper)
            assert len(begun) > before
            monkeypatch.undo()
            proxy.heal()

    asyncio.run(test())


def test_answer_that_was_lost_is_asked_for_again(singles: dict[str, Cluster], begun: list[Lane]) -> None:
    """The first try was carried out: the second one finds that it stands, or is gone."""

    async def test() -> None:
        async with keeper_at(singles["etcd"]) as (keeper, proxy, url):
            before = len(begun)
            lost = proxy.lose_answer(enters)
            kept = await acquired(keeper)
            assert lost.is_set()
            lost = proxy.lose_answer(leaves)
            await keeper.release(kept.id)
            assert lost.is_set()
            assert len(begun) == before + 2
            assert await asyncio.to_thread(nobody_stands, url)

    asyncio.run(test())


def test_who_is_cancelled_leaves_no_ticket_behind(singles: dict[str, Cluster], begun: list[Lane]) -> None:
    """The request is under way: it goes on alone, and what it puts is taken away when that is known."""

    async def test() -> None:
        async with keeper_at(singles["etcd"]) as (keeper, proxy, url):
            answer = proxy.hold_answer(enters)
            asked = asyncio.create_task(acquired(keeper))
            assert await asyncio.to_thread(answer.arrived.wait, 10.0)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asked, 30.0)
            assert not begun[-1].done()
            assert not await asyncio.to_thread(nobody_stands, url), "it was not carried out: this shows nothing"
            answer.release()
            assert await asyncio.to_thread(eventually, lambda: nobody_stands(url))
            assert begun[-1].done()

    asyncio.run(test())


@BOTH
def test_many_at_once_are_all_served_in_a_few_lanes_and_by_workers(
    singles: dict[str, Cluster], begun: list[Lane], kind: str
) -> None:
    """Lanes are for a service that has little to do: beyond that it is as without them."""

    async def test() -> None:
        async with keeper_at(singles[kind]) as (keeper, proxy, _):
            begun.clear()
            proxy.delay(to_client=0.05)
            names = [f"n{number}" for number in range(12)]
            held = await asyncio.gather(*(acquired(keeper, name) for name in names))
            assert 0 < len(begun) < len(names)
            assert len({kept.token for kept in held}) == len(names)
            await asyncio.gather(*(keeper.release(kept.id) for kept in held))

    asyncio.run(test())


@BOTH
def test_cycle_of_one_who_is_alone_takes_no_worker(
    singles: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Neither the request nor the answer wakes a thread of ours."""

    async def test() -> None:
        async with aio.connect(singles[kind].url(f"lanes-{time.monotonic_ns():x}"), ttl=10) as client:
            keeper = Keeper(client)
            await cycle(keeper)
            asked: list[Callable[[], Any]] = []
            submit = runtime_of(client).workers.submit

            def noted(work: Callable[[], Any]) -> Any:
                asked.append(work)
                return submit(work)

            monkeypatch.setattr(runtime_of(client).workers, "submit", noted)
            for _ in range(10):
                await cycle(keeper)
            assert asked == []
            await keeper.close()

    asyncio.run(test())
