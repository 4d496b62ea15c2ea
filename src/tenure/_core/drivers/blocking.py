"""The blocking driver: it carries out the steps of a turn in the calling thread.

It decides nothing. It throws an error that a step raised back into the generator, so that its clean-up runs, and
passes on whatever comes out of it. drivers/asyncio.py does the same on asyncio.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tenure._core.base.clock import Clock
from tenure._core.base.threads import warn
from tenure._core.turn import (
    Abandon,
    Amend,
    Await,
    Commit,
    Enter,
    Leave,
    Look,
    Operate,
    Read,
    Renew,
    Step,
    Steps,
    Survey,
    Touch,
)

Outcome = TypeVar("Outcome")
_STOP_LOOK_SECONDS: Final = 0.1
_warned = False  # once in a process


class Stopped(Exception):
    """The caller's own event was set while steps waited. Never leaves the face."""


def perform(step: Step) -> Any:  # Any: each step has its own outcome, see turn.Steps
    """Carry out a step that talks to the store; blocks until its deadline at most. The usual ones come first."""
    # Plain calls and no table of methods: a type checker sees each of them.
    match step:
        case Enter(lease, entry, until):
            return lease.enter(entry, until)
        case Leave(lease, ticket, until):
            return lease.leave(ticket, until)
        case Look(lease, ticket, reach, until):
            return lease.look(ticket, reach, until)
        case Survey(lease, resource, until, front):
            return lease.survey(resource, until, front=front)
        case Amend(lease, ticket, value, until):
            return lease.amend(ticket, value, until)
        case Renew(lease, until):
            return lease.renew(until)
        case Abandon(lease, entry):
            return lease.abandon(entry)
        case Read(lease, ticket, keys, until):
            return lease.read(ticket, keys, until)
        case Commit(lease, ticket, compares, writes, until):
            return lease.commit(ticket, compares, writes, until)
        case Touch(lease, ticket, until):
            return lease.touch(ticket, until)
        case Operate(call, until):
            return call(until)
    raise TypeError(f"not a step that talks to the store: {step!r}")


def run(steps: Steps[Outcome], clock: Clock, stopped: Callable[[], bool] | None = None) -> Outcome:
    """Drive `steps` in this thread. Raises Stopped once `stopped()` is true while they wait."""
    # An interrupt may come between any two lines of this. Within a step it is thrown in like any other error; outside
    # of one, `close` at the end lets the generator clean up.
    if not _warned:
        _warn_on_event_loop()
    try:
        step = next(steps)
        while True:
            try:
                outcome = _wait(step, clock, stopped) if isinstance(step, Await) else perform(step)
            # Thrown in, not raised here: only the generator knows what has to be undone, and by which steps.
            except BaseException as error:  # KeyboardInterrupt too: the ticket must not outlive the call
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
                outcome = None  # a waiter must not keep what it read last: a line may be long
    except StopIteration as done:
        result: Outcome = done.value
        return result
    finally:
        steps.close()  # interrupted in this very function, it would wait for ever within whatever it has taken


def _warn_on_event_loop() -> None:
    """Warn, once, where this thread's event loop runs: none of its tasks goes on until the call is over."""
    global _warned
    events = sys.modules.get("asyncio.events")  # not imported: half of the time to import tenure would be asyncio's
    if events is not None and events._get_running_loop() is not None:
        _warned = True
        warn(
            "a blocking call of tenure keeps the event loop of this thread waiting, with all of its tasks: use "
            "tenure.aio.connect there (the same names with `await`), or asyncio.to_thread. Said once",
            RuntimeWarning,
        )


def _wait(step: Await, clock: Clock, stopped: Callable[[], bool] | None) -> bool:
    # In slices where there is an event: one of `threading` calls nobody back, and a thread that waited for it in our
    # place could not be ended.
    while stopped is not None:
        if stopped():
            raise Stopped
        look = clock.now() + _STOP_LOOK_SECONDS
        if step.until is not None and step.until <= look:
            break
        if clock.wait(step.signal, look):
            return True
    return clock.wait(step.signal, step.until)
