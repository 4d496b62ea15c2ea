"""Faults of a worker from within, by orders it carries out itself: see `Worker.order` in parts.

Clocks: only the client's own, injected one is meant. The machine's clock, by which histories are written, is true.
"""

from __future__ import annotations

import time
from random import Random
from typing import ClassVar

from tests.verify.torture.nemeses.claims import one_worker
from tests.verify.torture.nemeses.kinds import BOTH, NOTHING, WORKERS, ZOOKEEPER, Backends, Touches, last
from tests.verify.torture.parts import FaultLog, Need, Rig, Workers

_SLOWEST, _FASTEST = 0.995, 2.0  # a clock slower than the margin of one percent is more than the library promises
_ORDER_EVERY_SECONDS = 0.3


class Stall:
    """A worker keeps the interpreter to itself (its GIL) for a while: none of its threads runs."""

    name = "stall"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = WORKERS
    word: ClassVar[str] = "stall"

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with one_worker(workers, random) as worker, fault_log.broken(self.name, client=worker.name):
            worker.order(f"{self.word} {random.uniform(0.2, 1.0) * seconds:.3f}")
            last(seconds)


class StallLoop(Stall):
    """A worker's event loop is kept busy for a while: no task of it runs."""

    name = "stall-loop"
    word: ClassVar[str] = "stall-loop"


class ClockRate:
    """A client's own clock goes up to twice as fast, or half a percent too slow."""

    name = "clock-rate"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = WORKERS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        rate = random.choice([_SLOWEST, random.uniform(1.0, _FASTEST)])
        with one_worker(workers, random) as worker, fault_log.broken(self.name, client=worker.name):
            worker.order(f"clock {rate:.4f}")
            try:
                last(seconds)
            finally:
                worker.order("clock 1")


class ClockJump:
    """A client's own clock jumps ahead, by a fraction of a second to a minute. It never goes back."""

    name = "clock-jump"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = WORKERS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with one_worker(workers, random) as worker, fault_log.broken(self.name, client=worker.name):
            worker.order(f"jump {random.choice([0.1, 1.0, 10.0, 60.0]):.1f}")
            last(seconds)


class Suspend:
    """A worker stands still, and finds its own clock ahead when it goes on, as after a suspend of its machine."""

    name = "suspend"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = WORKERS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with one_worker(workers, random) as worker:
            fault_log.count(self.name)
            worker.stop()
            try:
                worker.order(f"jump {random.choice([2.0, 60.0, 3600.0]):.1f}")  # read as soon as it goes on
                last(random.uniform(0.2, 1.0) * seconds)
            finally:
                worker.resume()


class _Orders:
    """A nemesis that gives one order after another, to one worker after another."""

    name: str
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = WORKERS
    word: ClassVar[str]

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with one_worker(workers, random) as worker:
                worker.order(self.word)
                fault_log.count(self.name)
            last(_ORDER_EVERY_SECONDS)


class Fork(_Orders):
    """Workers fork while they hold and wait; the child uses what it inherited, and ends."""

    name = "fork"
    word: ClassVar[str] = "fork"


class Cancel(_Orders):
    """Workers give up calls that are under way."""

    name = "cancel"
    word: ClassVar[str] = "cancel"


class SessionMove(_Orders):
    """Clients go from one server to another within their session, again and again."""

    name = "session-move"
    backends: Backends = ZOOKEEPER
    word: ClassVar[str] = "hop"
