"""The workers of a run as processes, each with its history and its stderr. None of them outlives the run.

A worker that is stopped, resumed or killed is stamped in the fault log as event.py's table wants it: paused after it
stood, resumed before it goes on, died once it is gone. A worker that ends by itself is noticed by `check_running`.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from pathlib import Path

from tenure.testing.history.event import Kind
from tests.processes import END_SECONDS, ProcessFailed, Spawner, WorkerProcess, python_module
from tests.verify.torture.fault_log import RunFaultLog
from tests.verify.torture.parts import Rig
from tests.verify.torture.tail import Tail
from tests.verify.torture.worker.plan import Plan


class RunWorker:
    """The `Worker` of parts.py. Thread-safe."""

    def __init__(self, make: Plan, place: str, rig: Rig, fault_log: RunFaultLog, spawner: Spawner) -> None:
        self.place = place
        self.name = make.name
        self.histories: list[Path] = []
        self._plan = make
        self._rig = rig
        self._fault_log = fault_log
        self._spawner = spawner
        self._guard = threading.RLock()  # guards everything below
        self._lives = 0
        self._paused = False
        self._killed = False
        self._start(self._plan)

    def _start(self, plan: Plan) -> None:
        self._process: WorkerProcess = self._spawner.start(
            python_module("tests.verify.torture.worker", str(plan)),
            prefix=self._rig.command(self.place),
            log=Path(plan.history).with_suffix(".stderr"),
            name=f"worker {plan.name}",
        )
        self.name = plan.name
        self.histories.append(Path(plan.history))
        self._tail = Tail(Path(plan.history))
        self._paused = self._killed = False

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True where it lives, and was not stopped or killed."""
        return not self._paused and not self._killed and self._process.status is None

    def wait_ready(self) -> None:
        """Wait until it is at work. Raises ProcessFailed."""
        self._process.wait_ready()

    def stop(self) -> None:
        """SIGSTOP, stamped in the fault_log once it stands."""
        with self._guard:
            if self._paused or self._killed:
                return
            self._process.stop()
            self._paused = True
            self._fault_log.write(Kind.PAUSED, self.name)

    def resume(self) -> None:
        """SIGCONT, stamped before."""
        with self._guard:
            if self._paused and not self._killed:
                self._fault_log.write(Kind.RESUMED, self.name)
                self._process.resume()
            self._paused = False

    def kill(self) -> None:
        """SIGKILL, stamped once it is gone."""
        with self._guard:
            if self._killed:
                return
            self._killed = True
            self._process.close()
            self._fault_log.write(Kind.DIED, self.name)
            if self._paused:
                self._paused = False
                self._fault_log.write(Kind.RESUMED, self.name)

    def replace(self) -> None:
        """Start a new process at this place after a kill: a new client with a new name."""
        with self._guard:
            if not self._killed:
                return
            self._lives += 1
            name = f"{self._plan.name}-{self._lives}"
            history = Path(self._plan.history).with_name(f"{name}.jsonl")
            seed = f"{self._plan.seed} {self._lives}"
            self._start(dataclasses.replace(self._plan, name=name, history=str(history), seed=seed))
        self.wait_ready()

    def order(self, words: str) -> None:
        """A line on its standard input. One that is gone hears nothing."""
        with self._guard:
            self._process.send(words)

    def held_at(self) -> float:
        """The time at which its records last showed that it held something; 0.0 where it holds nothing."""
        return self._tail.held_at()

    def check_running(self) -> None:
        """Raise ProcessFailed where it ended by itself."""
        with self._guard:
            if not self._killed and self._process.status is not None:
                raise self._process.failed("ended by itself")

    def tell_to_end(self) -> None:
        """SIGTERM. It goes on first, where it was stopped."""
        self.resume()
        if not self._killed:
            self._process.signal(signal.SIGTERM)

    def wait_ended(self, until: float) -> None:
        """Raises ProcessFailed where it did not end in good order."""
        if self._killed:
            return
        try:
            status = self._process.wait(until - time.monotonic())
        except ProcessFailed:
            self._fault_log.write(Kind.DIED, self.name)
            raise
        finally:
            self._process.close()
        if status:
            raise self._process.failed("ended badly")

    def end_at_once(self) -> None:
        """Kill it, whatever it does. Not a fault of the run."""
        with self._guard:
            self._process.close()


class RunWorkers:
    """The `Workers` of parts.py."""

    def __init__(self) -> None:
        self.all: list[RunWorker] = []

    def holder(self) -> RunWorker | None:
        """A worker that held something a moment ago: of those, the one that was seen to last."""
        seen = [(worker.held_at(), worker) for worker in self.all if worker.running]
        at, last = max(seen, key=lambda pair: pair[0], default=(0.0, None))
        return last if at else None

    def check_running(self) -> None:
        """Raises ProcessFailed where one ended by itself."""
        for worker in self.all:
            worker.check_running()

    def end(self) -> list[str]:
        """SIGTERM to all, and wait; what went wrong."""
        for worker in self.all:
            worker.tell_to_end()
        until = time.monotonic() + END_SECONDS
        wrong = []
        for worker in self.all:
            try:
                worker.wait_ended(until)
            except ProcessFailed as error:
                wrong.append(str(error))
        return wrong

    def close(self) -> None:
        """Kill those that still run."""
        for worker in self.all:
            worker.end_at_once()
