"""`python -m tests.verify.torture.worker PLAN`, the plan as JSON. SIGTERM ends it in good order.

Its figures (threads, descriptors) are measured before its client is made and after it is closed.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import Recorder
from tests.verify.torture.worker.faces import Tasks, Threads
from tests.verify.torture.worker.orders import Orders, listening
from tests.verify.torture.worker.plan import Plan
from tests.verify.torture.worker.skewed import SkewedClock

ACTOR_FAILED: Final = 71
_GONE_WITHIN_SECONDS: Final = 3.0
_LOOK_EVERY_SECONDS: Final = 0.02
_LASTING: Final = ("tenure-timers",)  # one per process, until its last timer has fired


def main() -> int:
    """Perform, and leave nothing behind."""
    plan = Plan.parse(sys.argv[1])
    threading.excepthook = _die_of
    with Recorder(plan.history) as recorder:
        figures = _Figures(recorder, plan.name)
        figures.measure()
        _perform(plan, recorder)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # told once more, while it is ending
        figures.measure_again()
    return 0


def _perform(plan: Plan, recorder: Recorder) -> None:
    clock = SkewedClock()
    face: type[Tasks | Threads] = Tasks if plan.face == "asyncio" else Threads
    troupe = face(plan, recorder, clock, random.Random(plan.seed))
    signal.signal(signal.SIGTERM, lambda *_: troupe.end())
    listening(Orders(troupe, clock), sys.stdin)
    print("ready", flush=True)
    troupe.perform()


def _die_of(failed: threading.ExceptHookArgs) -> None:
    """An actor that fails must not leave the others to look as if all were well."""
    traceback.print_exception(failed.exc_type, failed.exc_value, failed.exc_traceback)
    os._exit(ACTOR_FAILED)


class _Figures:
    """Figures that must be no higher at the end than at the beginning: threads and descriptors."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder = recorder
        self._name = name
        self._first: dict[str, int] = {}
        self._of: dict[str, Callable[[], int]] = {
            "threads": lambda: len([t for t in threading.enumerate() if not t.name.startswith((*_LASTING, "orders"))]),
            "descriptors": lambda: len(os.listdir("/proc/self/fd")),
        }

    def measure(self) -> None:
        """Write them down."""
        self._first = {what: count() for what, count in self._of.items()}
        self._record(self._first)

    def measure_again(self) -> None:
        """Measure once they are back where they were, or should be by now: threads end in their own time."""
        gc.collect()
        until = time.monotonic() + _GONE_WITHIN_SECONDS
        while any(self._of[what]() > count for what, count in self._first.items()) and time.monotonic() < until:
            time.sleep(_LOOK_EVERY_SECONDS)
        self._record({what: count() for what, count in self._of.items()})

    def _record(self, figures: dict[str, int]) -> None:
        for what, count in figures.items():
            self._recorder.record(Event(self._recorder.now(), self._name, Kind.MEASURED, operation=what, count=count))


if __name__ == "__main__":
    sys.exit(main())
