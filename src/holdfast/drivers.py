"""The two drivers: they carry out the steps of a turn, in this thread or on asyncio.

Neither decides anything. Both throw what a step raised back into the generator, so that its
clean-up runs, and both pass on what comes out of it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, TypeVar

from holdfast.clock import Clock
from holdfast.lease import Workers
from holdfast.signals import Signal
from holdfast.turn import Abandon, Amend, Await, Enter, Leave, Look, Renew, Step, Steps, Survey

Outcome = TypeVar("Outcome")


def perform(step: Step) -> Any:  # Any: each step has its own outcome, see turn.Steps
    """Carry out a step that talks to the store; blocks until its deadline at most."""
    match step:
        case Enter(lease, entry, until):
            return lease.enter(entry, until)
        case Look(lease, ticket, reach, until):
            return lease.look(ticket, reach, until)
        case Survey(lease, resource, until, front):
            return lease.survey(resource, until, front=front)
        case Amend(lease, ticket, value, until):
            return lease.amend(ticket, value, until)
        case Leave(lease, ticket, until):
            return lease.leave(ticket, until)
        case Renew(lease, until):
            return lease.renew(until)
        case Abandon(lease, entry):
            return lease.abandon(entry)
    raise TypeError(f"not a step that talks to the store: {step!r}")


def run(steps: Steps[Outcome], clock: Clock) -> Outcome:
    """Drive `steps` in this thread."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = clock.wait(step.signal, step.until) if isinstance(step, Await) else perform(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as done:
        result: Outcome = done.value
        return result


async def arun(steps: Steps[Outcome], clock: Clock, workers: Workers) -> Outcome:
    """Drive `steps` as part of a task: requests run on `workers`, waits cost no thread.

    A cancelled request may still be under way on its worker; withdrawing what it asked for starts
    only after it has ended, so that its fate is known first.
    """
    under_way: concurrent.futures.Future[Any] | None = None
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Await):
                    outcome: Any = await wait(step.signal, step.until, clock)
                elif isinstance(step, Abandon):
                    _after(under_way, step)
                    outcome = None
                else:
                    under_way = workers.submit(lambda step=step: perform(step))  # type: ignore[misc]  # default binds now
                    outcome = await asyncio.wrap_future(under_way)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as done:
        result: Outcome = done.value
        return result


async def wait(signal: Signal, until: float | None, clock: Clock) -> bool:
    """Await `signal` until `until`; True when it was set."""
    if signal.is_set():
        return True
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(_resolve, woken)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    signal.add_callback(wake)
    timer = None if until is None else clock.schedule(until, wake)
    try:
        await woken
    finally:
        signal.remove_callback(wake)
        if timer is not None:
            timer.cancel()
    return signal.is_set()


def _resolve(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _after(under_way: concurrent.futures.Future[Any] | None, step: Abandon) -> None:
    if under_way is None or under_way.done():
        perform(step)
    else:
        under_way.add_done_callback(lambda _: perform(step))
