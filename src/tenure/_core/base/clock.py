"""Time, injected: the clock deadlines are read from, and the timers that announce them.

Deadlines are absolute readings of `Clock.now()`. The system clock is CLOCK_BOOTTIME where there is
one, because CLOCK_MONOTONIC stands still while the machine is suspended and a lease does not.
`VirtualClock` moves only when told to, and runs everything that falls due on the way.

Belief never depends on a timer: timers only announce what a reading of the clock already says.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from tenure._core.base.signals import Signal

_log = logging.getLogger("tenure.clock")
_SOON: Final = 1.0
_SWEEP_MIN: Final = 1024


class Timer:
    """Call that is due at one time. `cancel` is idempotent and may come too late."""

    __slots__ = ("cancelled", "due", "run")

    def __init__(self, due: float, run: Callable[[], None]) -> None:
        self.due: float = due
        self.run: Callable[[], None] | None = run
        self.cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True
        self.run = None  # frees what the callback holds on to long before the timer falls due


class Clock(Protocol):
    """Source of time, and of calls at a time."""

    def now(self) -> float:
        """Seconds since some fixed point; never goes back, counts suspend."""

    def wait(self, signal: Signal, until: float | None) -> bool:
        """Block until `signal` is set (True) or `until` has come (False)."""

    def schedule(self, due: float, run: Callable[[], None]) -> Timer:
        """Call `run` once `due` has come, on the clock's own thread: it must not block."""


class SystemClock:
    """Real time. One daemon thread per process runs the timers, and only while there are any."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._guard = threading.RLock()  # guards everything below
        self._sooner = threading.Condition(self._guard)
        self._timers: list[tuple[float, int, Timer]] = []
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0
        self._order = itertools.count()
        self._sweep_at = _SWEEP_MIN

    if hasattr(time, "CLOCK_BOOTTIME"):

        def now(self) -> float:
            return time.clock_gettime(time.CLOCK_BOOTTIME)

    else:  # macOS: monotonic counts suspend there

        def now(self) -> float:
            return time.monotonic()

    def wait(self, signal: Signal, until: float | None) -> bool:
        while not signal.wait(None if until is None else min(max(0.0, until - self.now()), threading.TIMEOUT_MAX)):
            if until is not None and self.now() >= until:
                return False
        return True

    def schedule(self, due: float, run: Callable[[], None]) -> Timer:
        timer = Timer(due, run)
        with self._guard:
            heapq.heappush(self._timers, (due, next(self._order), timer))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tenure-timers", daemon=True)
                thread.start()  # raises where the process may have no more threads: the next timer tries again
                self._thread = thread
            elif due < self._wakes_at or len(self._timers) >= self._sweep_at:
                self._sooner.notify()
                self._wakes_at = due  # last: whoever is interrupted here wakes it once too often, never too rarely
        return timer

    def _sweep(self) -> None:
        """Drop the cancelled timers, each time their number may have doubled. Guard held."""
        # On the clock's thread only: in the main thread a signal handler could add a timer half-way.
        self._timers = [entry for entry in self._timers if not entry[2].cancelled]
        heapq.heapify(self._timers)
        self._sweep_at = max(_SWEEP_MIN, 2 * len(self._timers))

    def _run(self) -> None:
        while True:
            with self._guard:
                timer = self._next()
                if timer is None:
                    self._thread = None
                    return
            _call(timer)

    def _next(self) -> Timer | None:
        """The next timer that is due; None where there are no more. Guard held."""
        # Every hold has a timer, and most cancel it before it falls due: this thread must not be woken for each. So it
        # sleeps until a timer that is due soon even where that is cancelled: those after it then need not wake it, and
        # those that were cancelled meanwhile go with it.
        while self._timers:
            if len(self._timers) >= self._sweep_at:
                self._sweep()
                continue
            due, _, timer = self._timers[0]
            left = due - self.now()
            if left <= 0 or (timer.cancelled and left > _SOON):
                heapq.heappop(self._timers)
                if not timer.cancelled:
                    return timer
                self._drop_cancelled()  # on a late thread many are overdue: the time is not asked for each
            else:
                self._wakes_at = due
                if not self._sooner.wait(min(left, 3600.0)):
                    self._drop_cancelled()
        return None

    def _drop_cancelled(self) -> None:
        """Drop the cancelled timers at the front."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)


class VirtualClock:
    """Time that moves only by `advance`. For tests: nothing sleeps, everything due is run in order."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._guard = threading.Condition()  # guards _now and _timers
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    def wait(self, signal: Signal, until: float | None) -> bool:
        wake = Signal()  # no Event: a signal handler that closes the client may come while one holds its own lock
        signal.add_callback(wake.set)
        timer = None if until is None else self.schedule(until, wake.set)
        wake.wait(None)  # no end of its own: in virtual time the test that advances the clock is the end
        if timer is not None:
            timer.cancel()
        return signal.is_set()

    def schedule(self, due: float, run: Callable[[], None]) -> Timer:
        timer = Timer(due, run)
        with self._guard:
            heapq.heappush(self._timers, (due, next(self._order), timer))
            late = due <= self._now
        if late:
            self.advance(0.0)
        return timer

    def advance(self, seconds: float) -> None:
        """Move time on and run what falls due, each at its own time."""
        goal = self._now + seconds
        while (timer := self._due(goal)) is not None:
            _call(timer)
        self._now = max(self._now, goal)

    def _due(self, goal: float) -> Timer | None:
        with self._guard:
            while self._timers and self._timers[0][0] <= goal:
                due, _, timer = heapq.heappop(self._timers)
                if not timer.cancelled:
                    self._now = max(self._now, due)
                    return timer
        return None


def _call(timer: Timer) -> None:
    run = timer.run
    if timer.cancelled or run is None:
        return
    try:
        run()
    except (Exception, SystemExit):  # a timer that fails must not take every other lease's timers with it
        _log.exception("a tenure timer failed; please report this")


SYSTEM_CLOCK = SystemClock()
