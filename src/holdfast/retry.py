"""One retry policy for all stores: go on until it works, the store says no, or the deadline has come.

Only for requests that may be sent twice: every request of holdfast is one (law 6). The usual case,
a first try that works, pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast import aside
from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.limits import RETRY_PAUSE_FIRST, RETRY_PAUSE_MAX
from holdfast.signals import Signal

Outcome = TypeVar("Outcome")


def persist(attempt: Callable[[], Outcome], until: float, clock: Clock) -> Outcome:
    """What `attempt` returns, tried again after each StoreUnavailable until `until`, with growing pauses."""
    try:
        return attempt()
    except StoreUnavailable as error:
        if clock.now() >= until:
            raise
        why = error
    return _persist(attempt, why, until, clock)


def _persist(attempt: Callable[[], Outcome], why: StoreUnavailable, until: float, clock: Clock) -> Outcome:
    import tenacity  # not before it is needed: it would be half of holdfast's import time

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
        lane, due = aside.lane(), min(until, clock.now() + seconds)
        if lane is None:
            clock.wait(Signal(), due)
        else:
            lane.told(lambda wake: clock.schedule(due, wake))

    policy = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(StoreUnavailable),
        wait=tenacity.wait_random_exponential(multiplier=RETRY_PAUSE_FIRST, max=RETRY_PAUSE_MAX),
        # not `now >= until`: a try that has no time left would hide why the ones before it failed
        stop=lambda state: clock.now() + state.upcoming_sleep >= until,
        sleep=pause,
        reraise=True,
    )
    return policy(again)  # at once: another endpoint, or a connection that is not stale, may do it
