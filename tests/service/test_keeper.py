"""The Keeper on every store: what an owner behind HTTP may rely on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import LineMismatch
from tenure.service.holds.keeper import HoldGone
from tests.conformance.store_worlds import StoreWorld
from tests.service.keepers import ALL, keeper_of, run, until, wanted


@ALL
def test_holds_exclude_each_other_and_tokens_grow(store: StoreWorld) -> None:
    """Owners hold one at a time, in the order in which they came, each with a token above the last."""

    async def test() -> None:
        async with keeper_of(store) as one, keeper_of(store) as two:
            tokens: list[int] = []
            holding = 0

            async def work(keeper: Any, owner: str) -> None:
                nonlocal holding
                grant = await keeper.acquire(wanted(owner=owner), wait_seconds=60)
                holding += 1
                assert holding == 1
                tokens.append(grant.token)
                assert grant.owner == owner
                assert 0.0 < grant.remaining() <= grant.ttl
                await keeper.renew(grant.id)
                holding -= 1
                await keeper.release(grant.id)

            await asyncio.gather(*(work(keeper, f"{n}") for n in range(6) for keeper in (one, two)))
            assert len(tokens) == 12
            assert tokens == sorted(tokens)

    run(test())


@ALL
def test_not_in_time_is_none_and_leaves_no_ticket(store: StoreWorld) -> None:
    """Busy at once, or after a wait: nobody stands in the line for it any more."""

    async def test() -> None:
        async with keeper_of(store) as keeper:
            grant = await keeper.acquire(wanted(), wait_seconds=0)
            assert grant is not None
            assert await keeper.acquire(wanted(), wait_seconds=0) is None
            assert await keeper.acquire(wanted(), wait_seconds=0.3) is None
            await until(lambda: len(store.tickets("a")) == 1)
            await keeper.release(grant.id)
            await until(lambda: store.tickets("a") == [])

    run(test())


@ALL
def test_own_ttl_ends_a_hold_though_the_service_lives(store: StoreWorld) -> None:
    """Belief ends first; then the next in line is admitted, by the owner's TTL and not the service's."""

    async def test() -> None:
        async with keeper_of(store, ttl=60) as keeper:
            grant = await keeper.acquire(wanted(ttl=2.0), wait_seconds=0)
            assert grant is not None
            successor = await keeper.acquire(wanted(owner="next", ttl=2.0), wait_seconds=30)
            assert successor is not None
            assert grant.remaining() == 0.0
            assert successor.token > grant.token
            for late in (keeper.renew, keeper.release):
                with pytest.raises(HoldGone):
                    await late(grant.id)
            assert (await keeper.renew(successor.id)).token == successor.token  # a late release frees no successor
            await keeper.release(successor.id)

    run(test())


@ALL
def test_seats_readers_and_values(store: StoreWorld) -> None:
    """Holds are the library's kinds: seats up to the slots, readers together, values for others to read."""

    async def test() -> None:
        async with keeper_of(store) as keeper:
            seats = [await keeper.acquire(wanted("s", slots=3), wait_seconds=0) for _ in range(2)]
            assert await keeper.acquire(wanted("s", slots=3, weight=2), wait_seconds=0) is None
            third = await keeper.acquire(wanted("s", slots=3), wait_seconds=0)
            with pytest.raises(LineMismatch):
                await keeper.acquire(wanted("s", slots=4), wait_seconds=0)
            readers = [await keeper.acquire(wanted("r", shared=True, value="x"), wait_seconds=0) for _ in range(2)]
            assert await keeper.acquire(wanted("r"), wait_seconds=0) is None
            for grant in (*seats, third, *readers):
                assert grant is not None
                assert grant.fence is not None
                assert grant.fence.shared
                again = await keeper.renew(grant.id)
                assert again.fence == grant.fence
                await keeper.release(grant.id)

    run(test())


@ALL
def test_force_release_ends_the_hold_for_its_owner(store: StoreWorld) -> None:
    """An owner that was forced out learns of it at the next renewal, and may release nothing."""

    async def test() -> None:
        store.keeps_records = True
        async with keeper_of(store) as keeper, store.client(ttl=10) as client:
            grant = await keeper.acquire(wanted(), wait_seconds=0)
            assert grant is not None
            await client.operator().force_release("a", token=grant.token, reason="stuck")

            async def gone() -> bool:
                try:
                    await keeper.renew(grant.id)
                except HoldGone:
                    return True
                return False

            async with asyncio.timeout(15):  # where a timer keeps it, its replica has to hear of it
                while not await gone():
                    await asyncio.sleep(0.02)
            with pytest.raises(HoldGone):
                await keeper.release(grant.id)

    run(test())


@ALL
@pytest.mark.parametrize("key", [None, "k"])
def test_caller_that_hangs_up_while_waiting_leaves_nothing(store: StoreWorld, key: str | None) -> None:
    """The ticket of a cancelled call goes, and those after it move up."""

    async def test() -> None:
        async with keeper_of(store) as keeper:
            grant = await keeper.acquire(wanted(), wait_seconds=0)
            assert grant is not None
            gone = asyncio.create_task(keeper.acquire(wanted(idempotency=key), wait_seconds=60))
            await until(lambda: len(store.tickets("a")) == 2)
            behind = asyncio.create_task(keeper.acquire(wanted(owner="behind"), wait_seconds=60))
            await until(lambda: len(store.tickets("a")) == 3)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            await until(lambda: len(store.tickets("a")) == 2)
            await keeper.release(grant.id)
            last = await behind
            assert last is not None
            await keeper.release(last.id)

    run(test())
