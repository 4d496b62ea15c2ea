"""The asyncio driver: it carries out the steps of a turn as part of a task. drivers/blocking.py has the other one."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Any, TypeVar

from tenure._core.base.clock import Clock
from tenure._core.base.signals import Signal
from tenure._core.drivers.blocking import perform
from tenure._core.lease import Workers
from tenure._core.turn import Abandon, Await, Steps
from tenure.errors import StoreUnavailable

if TYPE_CHECKING:  # it needs greenlets, and few need it
    from tenure._core.drivers.greenlets import Lane, Lanes

Outcome = TypeVar("Outcome")


async def arun(steps: Steps[Outcome], clock: Clock, workers: Workers, lanes: Lanes | None = None) -> Outcome:
    """Drive `steps` as part of a task: requests run on `workers`, or in `lanes` that take them; waits cost no thread.

    A cancelled request may still be under way on its worker; withdrawing what it asked for starts
    only after it has ended, so that its fate is known first.
    """
    # The request that this task waits for, as long as it does: cancelling a task cancels no request.
    under_way: concurrent.futures.Future[Any] | Lane | None = None
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Await):
                    outcome: Any = await wait(step.signal, step.until, clock)
                elif isinstance(step, Abandon):
                    _after(under_way, step)
                    outcome = None
                elif lanes is not None and lanes.take(step):
                    under_way = lane = lanes.begin(step)
                    outcome = await lane.ended()
                    del lane
                else:
                    under_way = workers.submit(lambda step=step: perform(step))  # type: ignore[misc]  # default binds now
                    outcome = await _begun_by(step.until, under_way, clock, crowded=workers.crowded)
            except BaseException as error:  # CancelledError too; `under_way` stays set, for the Abandon that follows
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
                outcome = under_way = None  # a waiter must not keep what it read last: a line may be long
    except StopIteration as done:
        result: Outcome = done.value
        return result
    finally:
        steps.close()  # as in drivers/blocking.py


async def _begun_by(until: float, under_way: concurrent.futures.Future[Any], clock: Clock, *, crowded: bool) -> Any:
    """Await the outcome of a request on a worker. It is never sent where no worker has begun it by `until`."""
    # All workers may wait for a silent store. Only where they do (`crowded`) is a timer needed: a worker that has begun
    # knows the deadline itself. Not by `asyncio.wrap_future`: two futures that follow each other cost as much again as
    # the thread does.
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def too_late() -> None:
        under_way.cancel()  # does nothing where a worker has it: that knows the deadline

    under_way.add_done_callback(lambda _: _wake(loop, ended))
    timer = clock.schedule(until, too_late) if crowded else None
    try:
        await ended
        return under_way.result()
    except asyncio.CancelledError:
        under_way.cancel()
        raise
    except concurrent.futures.CancelledError:
        raise StoreUnavailable("no worker came free in time, all wait for the store. It was not sent") from None
    finally:
        if timer is not None:
            timer.cancel()


async def wait(signal: Signal, until: float | None, clock: Clock) -> bool:
    """Await `signal` until `until`; True when it was set."""
    if signal.is_set():
        return True
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        _wake(loop, woken)

    # The signal first, the timer second: a signal that is set already wakes at once, and both may.
    signal.add_callback(wake)
    timer = None if until is None else clock.schedule(until, wake)
    try:
        await woken
    finally:
        signal.remove_callback(wake)
        if timer is not None:
            timer.cancel()
    return signal.is_set()


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    """Wake the task that awaits `woken`; from any thread."""
    try:
        loop.call_soon_threadsafe(_resolve, woken)
    except RuntimeError:
        pass  # the loop is closed: nobody waits any more


def _resolve(woken: asyncio.Future[None]) -> None:
    # Done already where both the signal and the timer came, or the task was cancelled meanwhile.
    if not woken.done():
        woken.set_result(None)


def _after(under_way: concurrent.futures.Future[Any] | Lane | None, step: Abandon) -> None:
    # Learn the fate of a sent request before it is undone (law 6): the reaper that looked first would find nothing, and
    # the ticket would stand a moment later.
    if under_way is None or under_way.done():
        perform(step)
    else:
        under_way.add_done_callback(lambda _: perform(step))
