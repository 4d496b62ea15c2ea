"""The asyncio driver where the clock's thread and the loop's meet in one moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from tenure._core.base.clock import VirtualClock
from tenure._core.drivers.asyncio import arun
from tenure._core.turn import Renew, Steps
from tenure.errors import StoreUnavailable
from tests.unit.rig import reached


class SlowToReturn(Future[Any]):
    """Not begun. On the clock's thread `cancel` returns once the loop has heard of it: any machine may do so."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = threading.Event()

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if threading.current_thread() is not threading.main_thread():
            reached(self.heard)
        return cancelled


class Busy:
    """Workers who are all at something else."""

    crowded = True

    def __init__(self) -> None:
        self.asked = SlowToReturn()

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        return self.asked


def test_deadline_that_the_loop_hears_of_first_is_still_a_deadline() -> None:
    """What no worker has begun in time is StoreUnavailable, never a CancelledError that nobody asked for."""
    clock, busy = VirtualClock(), Busy()

    def steps() -> Steps[None]:
        try:
            yield Renew(None, clock.now() + 1.0)  # type: ignore[arg-type]  # no worker ever looks at it
        finally:
            busy.asked.heard.set()

    async def test() -> None:
        advancing = threading.Timer(0.0, lambda: clock.advance(2.0))
        asyncio.get_running_loop().call_soon(advancing.start)
        with pytest.raises(StoreUnavailable, match="not sent"):
            await arun(steps(), clock, busy)
        await asyncio.to_thread(advancing.join)

    asyncio.run(test())


def test_deadline_after_a_cancellation_that_was_caught_is_still_a_deadline() -> None:
    """A task that cleans up after its cancellation calls us again: that one is not ours to raise once more."""
    clock, busy = VirtualClock(), Busy()

    def steps() -> Steps[None]:
        yield Renew(None, clock.now() + 1.0)  # type: ignore[arg-type]  # no worker ever looks at it

    async def body() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            with pytest.raises(StoreUnavailable, match="not sent"):
                await arun(steps(), clock, busy)

    async def test() -> None:
        task = asyncio.create_task(body())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        busy.asked.heard.set()
        await asyncio.to_thread(clock.advance, 2.0)
        await asyncio.wait_for(task, 20)

    asyncio.run(test())
