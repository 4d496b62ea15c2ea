"""Trying again: until it works, the store says no, or the time is over."""

from __future__ import annotations

import pytest

from tenure._core.base.clock import VirtualClock
from tenure._core.base.retry import persist
from tenure._core.base.signals import Signal
from tenure.errors import StoreUnavailable


class LateClock(VirtualClock):
    """On a machine so busy that every wait takes ten seconds longer than it should."""

    def wait(self, signal: Signal, until: float | None) -> bool:
        assert until is not None
        self.advance(until - self.now() + 10.0)
        return False


def test_pause_that_took_too_long_does_not_hide_why_the_tries_failed() -> None:
    """There is no time for another try: what is raised is the last one's reason, not that the time was over."""
    clock, tries = LateClock(), list[str]()

    def attempt() -> None:
        tries.append(f"reason {len(tries) + 1}")
        raise StoreUnavailable(tries[-1])

    with pytest.raises(StoreUnavailable, match="reason 2"):
        persist(attempt, clock.now() + 5.0, clock)
    assert len(tries) == 2


def test_try_that_was_cut_short_does_not_hide_why_the_ones_before_it_failed() -> None:
    """The last try had less time than an answer takes: that it timed out says nothing of the store."""
    clock, tries = VirtualClock(), list[str]()
    until = clock.now() + 5.0

    def attempt() -> None:
        tries.append("")
        if len(tries) == 1:
            raise StoreUnavailable("no leader")
        clock.advance(10.0)
        raise StoreUnavailable("timed out")

    with pytest.raises(StoreUnavailable, match="no leader"):
        persist(attempt, until, clock)
    assert len(tries) == 2
