"""Retry policy of all stores: go on until it works, the store says no, or the deadline has come.

Only for requests that may be sent twice: every request of tenure is one (law 6). The usual case,
a first try that works, pays nothing for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from tenure._core.base import yielding
from tenure._core.base.clock import Clock
from tenure._core.base.limits import RETRY_PAUSE_FIRST, RETRY_PAUSE_MAX
from tenure._core.base.signals import Signal
from tenure.errors import StoreUnavailable

Outcome = TypeVar("Outcome")


def jittered(seconds: float) -> float:
    """A pause of `seconds` at most, and half of that at least: those who failed together don't come back together."""
    return seconds * random.uniform(0.5, 1.0)


def persist(attempt: Callable[[], Outcome], until: float, clock: Clock) -> Outcome:
    """Return what `attempt` returns; try again after each StoreUnavailable until `until`, with growing pauses."""
    try:
        return attempt()
    except StoreUnavailable as error:
        if clock.now() >= until:
            raise
        why = error
    return _persist(attempt, why, until, clock)


def _persist(attempt: Callable[[], Outcome], why: StoreUnavailable, until: float, clock: Clock) -> Outcome:
    import tenacity  # not before it is needed: it would be half of tenure's import time

    def again() -> Outcome:
        nonlocal why
        if clock.now() >= until:  # the pause took longer than it should: a try without time would only say so
            raise why
        try:
            return attempt()
        except StoreUnavailable as error:
            if clock.now() >= until:
                raise why from error  # cut short, which would hide why the tries before it failed
            why = error
            raise

    def pause(seconds: float) -> None:
        lane, due = yielding.lane(), min(until, clock.now() + seconds)
        if lane is None:
            clock.wait(Signal(), due)
        else:
            lane.called(lambda wake: clock.schedule(due, wake))

    policy = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(StoreUnavailable),
        wait=tenacity.wait_random_exponential(multiplier=RETRY_PAUSE_FIRST, max=RETRY_PAUSE_MAX),
        # not `now >= until`: a try that has no time left would hide why the ones before it failed
        stop=lambda state: clock.now() + state.upcoming_sleep >= until,
        sleep=pause,
        reraise=True,
    )
    return policy(again)  # at once: another endpoint, or a connection that is not stale, may do it
