"""The blocking driver: it carries out the steps of a turn in the calling thread.

It decides nothing. It throws what a step raised back into the generator, so that its clean-up runs, and
passes on what comes out of it. aiodriver.py does the same on asyncio.
"""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast.clock import Clock
from holdfast.turn import (
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


def perform(step: Step) -> Any:  # Any: each step has its own outcome, see turn.Steps
    """Carry out a step that talks to the store; blocks until its deadline at most. The usual ones come first."""
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
        case Operate(ask, until):
            return ask(until)
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
                outcome = None  # a waiter must not keep what it read last: a line may be long
    except StopIteration as done:
        result: Outcome = done.value
        return result
    finally:
        steps.close()  # interrupted in this very function, it would wait for ever within whatever it has taken
