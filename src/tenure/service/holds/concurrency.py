"""Calls under way: a limit on those that enter a line at the same time, and the set of those that wait.

The time limit of a request to the store counts from when the request is made. A thousand made in one moment would
queue in front of a busy store and time out together, so no more than `ENTERING_MAX` calls enter at a time and the
others wait here. Once its ticket stands a call frees its slot: waiting for a turn costs the store nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from tenure._core.drivers.asyncio import arun
from tenure._core.drivers.greenlets import Lanes
from tenure._core.runtime import Runtime
from tenure._core.turn import Enter, Steps
from tenure.errors import ClientClosed, StoreUnavailable

Outcome = TypeVar("Outcome")
ENTERING_MAX: Final = 16
CLOSING: Final = "the service is shutting down; ask another replica"


class EnterLimit:
    """A semaphore of `ENTERING_MAX` slots around the `Enter` step of calls. Belongs to one event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._free = asyncio.Semaphore(ENTERING_MAX)

    @property
    def crowded(self) -> bool:
        """True when the next call has to wait for a slot."""
        return self._free.locked()

    async def run(
        self, begin: Callable[[float], Steps[Outcome]], wait_seconds: float, lanes: Lanes | None = None
    ) -> Outcome:
        """Carry out the steps that `begin` returns, once a slot is free.

        `begin` is called with what is left of `wait_seconds` by then. Raises StoreUnavailable where no slot is free
        within that time or, if longer, the time limit of a request.
        """
        clock = self._runtime.clock
        came = clock.now()
        if self.crowded:
            await self._wait(max(wait_seconds, self._runtime.request_seconds))
        else:
            await self._free.acquire()  # returns at once; asyncio.timeout would cost more than the slot
        slot = _Slot(self._free)
        try:
            left = max(0.0, wait_seconds - (clock.now() - came)) if wait_seconds else 0.0
            steps = _free_after_enter(begin(left), slot)
            return await arun(steps, clock, self._runtime.workers, lanes)
        finally:
            slot.free()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"{ENTERING_MAX} others wait for {self._runtime.store} to answer, so it was not asked in time"
            ) from None


class _Slot:
    """A slot of the limit, freed once however often `free` is called."""

    def __init__(self, semaphore: asyncio.Semaphore) -> None:
        self._semaphore: asyncio.Semaphore | None = semaphore

    def free(self) -> None:
        semaphore, self._semaphore = self._semaphore, None
        if semaphore is not None:
            semaphore.release()


def _free_after_enter(steps: Steps[Outcome], slot: _Slot) -> Steps[Outcome]:
    """Pass on the same steps, and free the slot after the first `Enter` that did not raise."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = yield step
            except BaseException as error:
                step = steps.throw(error)
            else:
                if isinstance(step, Enter):
                    slot.free()
                step = steps.send(outcome)
                del outcome  # a waiter must not keep what it read last: a line may be long
    except StopIteration as done:
        result: Outcome = done.value
        return result
    finally:
        steps.close()


class Waiters:
    """The calls that wait. `end` cancels them, and they raise ClientClosed; a caller that hangs up is cancelled too,
    and its call raises CancelledError. Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._cancelled: dict[asyncio.Task[Any], bool] = {}  # every waiting task: was it cancelled by `end`?
        self._none_left = asyncio.Event()  # set when the last one has ended

    def __len__(self) -> int:
        return len(self._cancelled)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the running task among the waiting ones inside the block."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("this needs a running task")
        before = task.cancelling()
        self._cancelled[task] = False
        try:
            yield
        except asyncio.CancelledError:
            # With a cancellation from elsewhere as well, that one wins: its sender waits for a cancelled task.
            if self._cancelled[task] and task.uncancel() <= before:
                raise ClientClosed(CLOSING) from None
            raise
        finally:
            del self._cancelled[task]
            if not self._cancelled:
                self._none_left.set()

    async def end(self, seconds: float) -> None:
        """Cancel all waiting calls, and wait at most `seconds` until they have ended."""
        self._none_left.clear()
        for task in self._cancelled:
            self._cancelled[task] = True
            task.cancel(CLOSING)
        if self._cancelled:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._none_left.wait(), seconds)
