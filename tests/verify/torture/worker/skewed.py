"""A clock that can be made to run wrong: fast, slow, or ahead at once, as after a suspend. The library's is injected.

What the recorder stamps stays on the machine's clock; `real` turns this clock's seconds into those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from tenure._core.base.clock import SYSTEM_CLOCK, Timer
from tenure._core.base.signals import Signal

_NAP_SECONDS: Final = 0.1
"""Who waits looks again this often: the clock may have been changed meanwhile."""


class SkewedClock:
    """True until told otherwise. Never goes back."""

    def __init__(self) -> None:
        self._guard = threading.RLock()  # guards _timers, and changes of _line
        self._timers: set[Timer] = set()
        start = SYSTEM_CLOCK.now()
        self._line = (start, start, 1.0)  # this clock's time, the machine's time then, and the rate since

    def now(self) -> float:
        own, real, rate = self._line
        return own + (SYSTEM_CLOCK.now() - real) * rate

    def real(self, seconds: float) -> float:
        """Seconds of this clock in seconds of the machine's."""
        return seconds / self._line[2]

    def run_at(self, rate: float) -> None:
        """Let so many of its seconds go by in one from now on; 1.0 is true."""
        with self._guard:
            self._line = (self.now(), SYSTEM_CLOCK.now(), rate)

    def jump(self, seconds: float) -> None:
        """Be that much further at once. `rearm` when everybody has had a look."""
        with self._guard:
            _, _, rate = self._line
            self._line = (self.now() + max(0.0, seconds), SYSTEM_CLOCK.now(), rate)

    def rearm(self) -> None:
        """Let the timers follow a change."""
        with self._guard:
            pending = [timer for timer in self._timers if not timer.cancelled]
            self._timers = set(pending)
        for timer in pending:
            self._arm(timer)

    def wait(self, signal: Signal, until: float | None) -> bool:
        while True:
            nap = _NAP_SECONDS if until is None else min(self.real(max(0.0, until - self.now())), _NAP_SECONDS)
            if SYSTEM_CLOCK.wait(signal, SYSTEM_CLOCK.now() + nap):
                return True
            if until is not None and self.now() >= until:
                return False

    def schedule(self, due: float, run: Callable[[], None]) -> Timer:
        timer = Timer(due, run)
        with self._guard:
            self._timers.add(timer)
        self._arm(timer)
        return timer

    def _arm(self, timer: Timer) -> None:
        due = SYSTEM_CLOCK.now() + self.real(max(0.0, timer.due - self.now()))
        SYSTEM_CLOCK.schedule(due, lambda: self._fire(timer))

    def _fire(self, timer: Timer) -> None:
        with self._guard:
            if timer not in self._timers:
                return  # armed more than once, and this is not the first to fire
            if not timer.cancelled and self.now() < timer.due:
                self._arm(timer)
                return
            self._timers.discard(timer)
        run = timer.run
        if run is not None and not timer.cancelled:
            run()
