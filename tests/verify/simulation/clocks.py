"""Time as one client sees it: the world's, at a rate and an offset of its own, waited for by threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tenure._core.base.clock import Timer
from tenure._core.base.signals import Signal
from tests.verify.simulation.scheduler import Process, Scheduler

EARLY = 1e-9
"""What rounding between two clocks may cost: a timer is never early by its own client's clock."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The reading of a client's clock: `offset + rate * world`."""

    rate: float = 1.0
    offset: float = 0.0


class Steps(Protocol):
    """The delay of a process between being allowed to go on and doing so."""

    def reaction(self) -> float: ...


class StoresClock:
    """The store's own clock, which is the world's. Its timers run at once; nothing waits on it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> float:
        return self._scheduler.now

    def wait(self, signal: Signal, until: float | None) -> bool:
        raise NotImplementedError("the store waits for nobody")

    def schedule(self, due: float, run: Callable[[], None]) -> Timer:
        timer = Timer(due, run)
        self._scheduler.at(due, lambda: _run(timer))
        return timer


class ClientsClock:
    """The clock of a client. While the client is paused it goes on, and nothing it announces is heard."""

    def __init__(self, scheduler: Scheduler, process: Process, rate: Rate, steps: Steps) -> None:
        self._scheduler = scheduler
        self._process = process
        self._rate = rate
        self._steps = steps

    def now(self) -> float:
        return self._rate.offset + self._rate.rate * self._scheduler.now

    def wait(self, signal: Signal, until: float | None) -> bool:
        if signal.is_set():
            return True
        scheduler, steps = self._scheduler, self._steps
        thread = scheduler.running()
        epoch = thread.epoch

        def wake() -> None:
            scheduler.wake(thread, epoch, steps.reaction())

        signal.add_callback(wake)
        if until is not None:
            scheduler.at(self._world(until), wake, self._process)
        try:
            while True:
                scheduler.park()
                if signal.is_set() or (until is not None and self.now() >= until):
                    return signal.is_set()
                epoch = thread.epoch
        finally:
            signal.remove_callback(wake)

    def schedule(self, due: float, run: Callable[[], None]) -> Timer:
        """Run it on a simulated thread of its own, since in a simulation a timer's request takes time too."""
        timer = Timer(due, run)
        if not self._process.dead:
            self._scheduler.at(self._world(due), lambda: self._fire(timer), self._process)
        return timer

    def _fire(self, timer: Timer) -> None:
        if not timer.cancelled:
            self._scheduler.spawn("timer", self._process, lambda: _run(timer), self._steps.reaction())

    def _world(self, reading: float) -> float:
        return (reading - self._rate.offset) / self._rate.rate + EARLY


def _run(timer: Timer) -> None:
    run = timer.run
    if not timer.cancelled and run is not None:
        run()
