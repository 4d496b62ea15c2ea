"""The Keeper on every store: what an owner behind HTTP may rely on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import LineMismatch
from holdfast.sidecar.keeping import HoldGone
from tests.conformance.worlds import World
from tests.sidecar.keepers import ALL, keeper_of, run, until, wanted


@ALL
def test_holds_exclude_each_other_and_tokens_grow(store: World) -> None:
    """One at a time, in the order in which they came, each with a token above the last."""

    async def test() -> None:
        async with keeper_of(store) as one, keeper_of(store) as two:
            tokens: list[int] = []
            holding = 0

            async def work(keeper: Any, owner: str) -> None:
                nonlocal holding
                kept = await keeper.acquire(wanted(owner=owner), wait_seconds=60)
                holding += 1
                assert holding == 1
                tokens.append(kept.token)
                assert kept.owner == owner
                assert 0.0 < kept.remaining() <= kept.ttl
                await keeper.renew(kept.id)
                holding -= 1
                await keeper.release(kept.id)

            await asyncio.gather(*(work(keeper, f"{n}") for n in range(6) for keeper in (one, two)))
            assert len(tokens) == 12
            assert tokens == sorted(tokens)

    run(test())


@ALL
def test_not_in_time_is_none_and_leaves_no_ticket(store: World) -> None:
    """Busy at once, or after a wait: nobody stands in the line for it any more."""

    async def test() -> None:
        async with keeper_of(store) as keeper:
            kept = await keeper.acquire(wanted(), wait_seconds=0)
            assert kept is not None
            assert await keeper.acquire(wanted(), wait_seconds=0) is None
            assert await keeper.acquire(wanted(), wait_seconds=0.3) is None
            await until(lambda: len(store.tickets("a")) == 1)
            await keeper.release(kept.id)
            await until(lambda: store.tickets("a") == [])

    run(test())


@ALL
def test_own_ttl_ends_a_hold_though_the_service_lives(store: World) -> None:
    """Belief ends first; then the next in line is admitted, by the owner's TTL and not the service's."""

    async def test() -> None:
        async with keeper_of(store, ttl=60) as keeper:
            kept = await keeper.acquire(wanted(ttl=2.0), wait_seconds=0)
            assert kept is not None
            successor = await keeper.acquire(wanted(owner="next", ttl=2.0), wait_seconds=30)
            assert successor is not None
            assert kept.remaining() == 0.0
            assert successor.token > kept.token
            for late in (keeper.renew, keeper.release):
                with pytest.raises(HoldGone):
                    await late(kept.id)
            assert (await keeper.renew(successor.id)).token == successor.token  # a late release frees no successor
            await keeper.release(successor.id)

    run(test())


@ALL
def test_seats_readers_and_values(store: World) -> None:
    """Each kind of hold is the library's own: seats up to the slots, readers together, values for others to read."""

    async def test() -> None:
        async with keeper_of(store) as keeper:
            seats = [await keeper.acquire(wanted("s", slots=3), wait_seconds=0) for _ in range(2)]
            assert await keeper.acquire(wanted("s", slots=3, weight=2), wait_seconds=0) is None
            third = await keeper.acquire(wanted("s", slots=3), wait_seconds=0)
            with pytest.raises(LineMismatch):
                await keeper.acquire(wanted("s", slots=4), wait_seconds=0)
            readers = [await keeper.acquire(wanted("r", shared=True, value="x"), wait_seconds=0) for _ in range(2)]
            assert await keeper.acquire(wanted("r"), wait_seconds=0) is None
            for kept in (*seats, third, *readers):
                assert kept is not None
                assert kept.fence is not None
                assert kept.fence.shared
                again = await keeper.renew(kept.id)
                assert again.fence == kept.fence
                await keeper.release(kept.id)

    run(test())


@ALL
def test_force_release_ends_the_hold_for_its_owner(store: World) -> None:
    """Whom an operator forced out is told so at the next renewal, and may release nothing."""

    async def test() -> None:
        store.keeps_notes = True
        async with keeper_of(store) as keeper, store.client(ttl=10) as client:
            kept = await keeper.acquire(wanted(), wait_seconds=0)
            assert kept is not None
            await client.operator().force_release("a", token=kept.token, reason="stuck")

            async def gone() -> bool:
                try:
                    await keeper.renew(kept.id)
                except HoldGone:
                    return True
                return False

            async with asyncio.timeout(15):  # where a timer keeps it, its replica has to hear of it
                while not await gone():
                    await asyncio.sleep(0.02)
            with pytest.raises(HoldGone):
                await keeper.release(kept.id)

    run(test())


@ALL
@pytest.mark.parametrize("key", [None, "k"])
def test_caller_that_hangs_up_while_waiting_leaves_nothing(store: World, key: str | None) -> None:
    """Its ticket goes, those behind move up."""

    async def test() -> None:
        async with keeper_of(store) as keeper:
            kept = await keeper.acquire(wanted(), wait_seconds=0)
            assert kept is not None
            gone = asyncio.create_task(keeper.acquire(wanted(idempotency=key), wait_seconds=60))
            await until(lambda: len(store.tickets("a")) == 2)
            behind = asyncio.create_task(keeper.acquire(wanted(owner="behind"), wait_seconds=60))
            await until(lambda: len(store.tickets("a")) == 3)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            await until(lambda: len(store.tickets("a")) == 2)
            await keeper.release(kept.id)
            last = await behind
            assert last is not None
            await keeper.release(last.id)

    run(test())
