"""`async with` on what `acquire` returns; what says which face to use; truth of a hold."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tenure
from tenure import HoldState, LeaseLost, aio
from tests.unit.rig import PATIENCE_SECONDS, Rig

TTL = 12.0


@pytest.mark.parametrize("kind", ["lock", "semaphore", "candidacy"])
def test_acquire_with_a_timeout_is_entered_with_async_with(rig: Rig, kind: str) -> None:
    """`async with lock.acquire(timeout=3) as hold:` holds in the body and releases at its end."""

    async def test() -> None:
        async with rig.aclient(ttl=TTL) as client:
            places: dict[str, Callable[[], Any]] = {
                "lock": lambda: client.lock("a"),
                "semaphore": lambda: client.semaphore("a", limit=2),
                "candidacy": lambda: client.election("a").campaign(),
            }
            async with places[kind]().acquire(timeout=3) as hold:
                assert aio.assert_held("a") is hold
                hold.check()
            assert str(hold.state) == str(HoldState.RELEASED)
            assert rig.tickets == 0

    asyncio.run(test())


def test_body_of_an_acquire_with_a_timeout_is_cancelled_on_loss(rig: Rig) -> None:
    """The same as with the lock itself."""

    async def test() -> None:
        async with rig.aclient(ttl=TTL) as client:
            with pytest.raises(LeaseLost):
                async with client.lock("a").acquire(timeout=3):
                    rig.faults(client).cut_off = True
                    rig.clock.advance(TTL)
                    await asyncio.Event().wait()
            rig.faults(client).cut_off = False

    asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))


def test_what_acquire_returns_is_still_a_coroutine(rig: Rig) -> None:
    """create_task, gather, wait_for and await take it as before; one that nobody awaits is warned of by Python."""

    async def test() -> None:
        async with rig.aclient() as client:
            first = await asyncio.create_task(client.lock("a").acquire())
            second = await asyncio.wait_for(client.lock("b").acquire(timeout=3), PATIENCE_SECONDS)
            (third,) = await asyncio.gather(client.semaphore("c", limit=1).acquire(weight=1))
            assert all((first, second, third))
            with pytest.raises(tenure.AcquireTimeout):
                async with client.lock("a").acquire(timeout=0):
                    raise AssertionError("never entered")
            forgotten = client.lock("d").acquire()
            assert inspect.isawaitable(forgotten)
            assert asyncio.iscoroutine(forgotten)
            with pytest.warns(RuntimeWarning, match="never awaited"):
                del forgotten

    asyncio.run(test())


def test_with_of_the_wrong_face_says_which_one_to_use(rig: Rig) -> None:
    """A forgotten `async`, or one too many, is named; nothing was acquired."""
    client = rig.client()
    wrong: list[Any] = [client.lock("a"), client.semaphore("s", limit=1), client]

    async def blocking_ones() -> None:
        for thing in wrong:
            with pytest.raises(TypeError, match=r"`with`, not `async with`.*tenure\.aio\.connect"):
                async with thing:
                    raise AssertionError("never entered")

    async def asyncio_ones() -> None:
        async with rig.aclient() as aclient:
            hold = await aclient.lock("h").acquire()
            acquiring = aclient.lock("a").acquire(timeout=3)
            for thing in (aclient.lock("a"), aclient.semaphore("s", limit=1), aclient, hold, acquiring):
                plain: Any = thing
                with pytest.raises(TypeError, match=r"`async with`, not `with`.*tenure\.connect"), plain:
                    raise AssertionError("never entered")
            acquiring.close()

    with client.lock("h") as hold:
        wrong.append(hold)
        asyncio.run(blocking_ones())
    assert rig.tickets == 0
    asyncio.run(asyncio_ones())
    assert rig.tickets == 0


def test_hold_is_true_while_it_is_held_or_suspect(rig: Rig) -> None:
    """`if hold:` says what `state` says, by the clock alone."""
    client = rig.client(ttl=TTL)
    released, hold = client.lock("b").acquire(), client.lock("a").acquire()
    assert released
    released.release()
    assert not released
    rig.faults(client).cut_off = True
    seen = [(hold.state.value, bool(hold))]
    for _ in range(2):
        rig.clock.advance(0.55 * TTL)
        seen.append((hold.state.value, bool(hold)))
    assert seen == [("held", True), ("suspect", True), ("lost", False)]
