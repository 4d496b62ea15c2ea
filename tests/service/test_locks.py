"""Acquire over HTTP, where nobody waits: one task, and every way out of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from tenure.errors import ClientClosed
from tenure.service.api import locks
from tenure.service.holds.keeper import AcquireRequest, Grant
from tenure.service.http.problems import Problem, ProblemCode
from tenure.service.http.request import HttpRequest, HungUp, Message
from tenure.service.shutdown import Shutdown

WANTED = AcquireRequest("a", "me", 20.0)
GRANT = Mock(Grant, id="the hold")


class Client:
    """The sender of the request; its body has been read."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.asked = 0

    async def receive(self) -> Message:
        self.asked += 1
        await self.gone.wait()
        return {"type": "http.disconnect"}


class Place:
    """A service as far as the handler uses it, around one keeper's `acquire`."""

    def __init__(self, acquire: Callable[[Place], Awaitable[Grant | None]], *, crowded: bool = False) -> None:
        self.client = Client()
        self.tasks = 0
        self.shutdown = Shutdown()

        async def counted(wanted: AcquireRequest, *, wait_seconds: float) -> Grant | None:
            self.tasks = len(asyncio.all_tasks())
            return await acquire(self)

        self.keeper = Mock(acquire=counted, release=AsyncMock(), crowded=crowded)
        self.admits = Mock(return_value=True)

    async def granted(self, wanted: AcquireRequest = WANTED, seconds: float = 0.0) -> Grant | None:
        request = HttpRequest({"method": "POST", "headers": []}, self.client.receive)
        return await locks._wait_for_grant(self, Mock(request=request), wanted, seconds)  # type: ignore[arg-type]


async def at_once(place: Place) -> Grant | None:
    await asyncio.sleep(0)
    return GRANT


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_acquire_that_does_not_wait_costs_no_task() -> None:
    """Neither one for the work nor one that listens for who hangs up."""

    async def scenario() -> None:
        place = Place(at_once)
        assert await place.granted() is GRANT
        assert place.tasks == 1
        assert len(asyncio.all_tasks()) == 1

    play(scenario())


@pytest.mark.parametrize(
    ("wanted", "seconds", "crowded"),
    [(WANTED, 5.0, False), (AcquireRequest("a", "me", 20.0, idempotency="k"), 0.0, False), (WANTED, 0.0, True)],
    ids=["it waits", "it has a key", "there is a crowd"],
)
def test_acquire_that_may_take_long_listens_for_who_hangs_up(
    wanted: AcquireRequest, seconds: float, crowded: bool
) -> None:
    """The call ends at once then, and not when its time is over."""

    async def scenario() -> None:
        ended: list[bool] = []

        async def for_ever(place: Place) -> Grant | None:
            place.client.gone.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)
            return None

        place = Place(for_ever, crowded=crowded)
        with pytest.raises(HungUp):
            await place.granted(wanted, seconds)
        assert ended == [True]

    play(scenario())


def test_hold_of_who_hung_up_meanwhile_is_released() -> None:
    """A hang-up is noticed after the grant, and the hold is delivered to nobody."""

    async def scenario() -> None:
        async def and_goes(place: Place) -> Grant | None:
            place.client.gone.set()
            return await at_once(place)

        place = Place(and_goes)
        with pytest.raises(HungUp):
            await place.granted()
        place.keeper.release.assert_awaited_once_with("the hold")

    play(scenario())


def test_token_that_was_taken_back_meanwhile_gets_no_hold() -> None:
    """The refusal is the same as for a call that waited."""

    async def scenario() -> None:
        place = Place(at_once)
        place.admits.return_value = False
        with pytest.raises(Problem):
            await place.granted()
        place.keeper.release.assert_awaited_once_with("the hold")

    play(scenario())


def test_acquire_ends_at_once_when_the_service_does() -> None:
    """Told as such; its task is none that was cancelled, so that the answer can be sent."""

    async def scenario() -> None:
        async def for_ever(place: Place) -> Grant | None:
            asyncio.get_running_loop().call_soon(place.shutdown.begin)
            await asyncio.Event().wait()
            return None

        place = Place(for_ever)
        with pytest.raises(Problem) as caught:
            await place.granted()
        assert caught.value.code is ProblemCode.DRAINING
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)

    play(scenario())


@pytest.mark.parametrize("by_both", [False, True])
def test_cancelled_request_is_not_answered_as_one_that_the_end_dismissed(by_both: bool) -> None:
    """A task that is cancelled stays cancelled, also where the end began in the same moment."""

    async def scenario() -> None:
        async def for_ever(place: Place) -> Grant | None:
            await asyncio.Event().wait()
            return None

        place = Place(for_ever)
        task = asyncio.create_task(place.granted())
        await asyncio.sleep(0)
        task.cancel()
        if by_both:
            place.shutdown.begin()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(scenario())


def test_error_on_the_way_out_leaves_no_cancellation_behind() -> None:
    """A withdrawal that failed is answered as such; nothing after it is cancelled."""

    async def scenario() -> None:
        async def fails(place: Place) -> Grant | None:
            asyncio.get_running_loop().call_soon(place.shutdown.begin)
            try:
                await asyncio.Event().wait()
            finally:
                raise ClientClosed("closed")

        with pytest.raises(Problem) as caught:
            await Place(fails).granted()
        assert caught.value.code is ProblemCode.DRAINING
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    play(scenario())


def test_asking_whether_somebody_has_hung_up_waits_for_nothing_and_leaves_nothing() -> None:
    """A hang-up is found also behind more messages than the body."""

    async def scenario() -> None:
        client = Client()
        came: list[Message] = [{"type": "http.request"}]

        async def receive() -> Message:
            return came.pop() if came else await client.receive()

        request = HttpRequest({"method": "POST", "headers": []}, receive)
        assert request.has_hung_up() is False
        assert came == []
        assert not client.gone._waiters
        client.gone.set()
        assert request.has_hung_up() is True

    play(scenario())
