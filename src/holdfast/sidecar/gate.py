"""The gate: only so many calls at a time put their tickets; the others stand here, and not before a store that is busy.

What a request to the store may take counts from when it is asked, so a thousand that are asked in one moment would
fail together. Once its ticket stands, a call makes room for the next: waiting for its turn costs the store nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from holdfast.aiodriver import arun
from holdfast.errors import StoreUnavailable
from holdfast.house import House
from holdfast.lanes import Lanes
from holdfast.turn import Enter, Steps

Outcome = TypeVar("Outcome")
ENTERING_MAX: Final = 16


class Gate:
    """For one event loop."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._places = asyncio.Semaphore(ENTERING_MAX)

    @property
    def crowded(self) -> bool:
        """Would whoever comes now have to wait?"""
        return self._places.locked()

    async def run(
        self, begin: Callable[[float], Steps[Outcome]], wait_seconds: float, lanes: Lanes | None = None
    ) -> Outcome:
        """Carry out what `begin` gives, which is told how much of `wait_seconds` is left when it comes through.

        Raises StoreUnavailable where it does not within that time, or that of a request.
        """
        clock = self._house.clock
        came = clock.now()
        if self.crowded:
            await self._wait(max(wait_seconds, self._house.request_seconds))
        else:
            await self._places.acquire()  # at once: a time-out would cost more than the place
        through = _Through(self._places)
        try:
            left = max(0.0, wait_seconds - (clock.now() - came)) if wait_seconds else 0.0
            steps = _until_entered(begin(left), through)
            return await arun(steps, clock, self._house.workers, lanes)
        finally:
            through.leave()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"{ENTERING_MAX} others wait for {self._house.store} to answer, so it was not asked in time"
            ) from None


class _Through:
    """One place in the gate, given back once."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places: asyncio.Semaphore | None = places

    def leave(self) -> None:
        places, self._places = self._places, None
        if places is not None:
            places.release()


def _until_entered(steps: Steps[Outcome], through: _Through) -> Steps[Outcome]:
    """The same steps; the place is given back after the first `Enter`, whatever came of it."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = yield step
            except BaseException as error:
                step = steps.throw(error)
            else:
                if isinstance(step, Enter):
                    through.leave()
                step = steps.send(outcome)
                del outcome  # a waiter must not keep what it read last: a line may be long
    except StopIteration as done:
        result: Outcome = done.value
        return result
    finally:
        steps.close()
