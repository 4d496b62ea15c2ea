"""Strands: the library's blocking code, one thread, every wait a step.

A thread is what a thread is elsewhere: a stack that runs until it waits. It is a greenlet, so the code on it is the
real one, `drivers.run`, `persist` and all; there is one thread and one order of steps. What is to happen stands in
one heap, by virtual time; `Scheduler.run` takes the next, moves the clock to it and lets it run. Nothing else moves
time, and nothing waits otherwise.

Promised: with the same choices the same steps in the same order, whatever the hash seed, the machine or the garbage
collector do. Not promised: steps between two waits; code that does not wait is never interrupted.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any, Final, Protocol

from tenure.errors import ServerMissing

try:
    import greenlet  # type: ignore[import-untyped,unused-ignore]  # ships no types
except ImportError as error:  # pragma: no cover
    raise ServerMissing("the simulation needs greenlets: pip install greenlet") from error

UNWIND_MAX: Final = 20
"""How often a dying thread may try to wait once more before that is called a bug."""


class Crash(BaseException):
    """The process this ran in is gone. Unwinds its threads; nothing they do on the way reaches anybody."""


class Blocked(Exception):
    """Something waited where nothing may: on an event loop, or while a store carries out a request."""


class Process(Protocol):
    """The process of a client, which a step belongs to."""

    dead: bool
    paused: bool
    deferred: list[Callable[[], None]]
    """What fell due while it was paused."""


class SimulatedThread:
    """A thread of one process: a stack of its own."""

    __slots__ = ("epoch", "green", "name", "process")

    def __init__(self, name: str, process: Process, work: Callable[[], None], hub: Any) -> None:
        self.name = name
        self.process = process
        self.green: Any = greenlet.greenlet(lambda: _to_its_end(work), hub)  # Any: greenlet has no types
        self.epoch = 0  # one more at every wake, so that a late wake finds nobody

    @property
    def over(self) -> bool:
        return bool(self.green.dead)


class Scheduler:
    """The heap of what is to happen, and the thread that runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self.halted = False
        self.current: SimulatedThread | None = None
        self._heap: list[tuple[float, int, Process | None, Callable[[], None]]] = []
        self._order = itertools.count()
        self._threads: dict[SimulatedThread, None] = {}
        self._hub: Any = greenlet.getcurrent()

    def at(self, due: float, run: Callable[[], None], process: Process | None = None) -> None:
        """Let `run` happen at `due`; as part of `process`, which may be dead or paused by then."""
        heapq.heappush(self._heap, (due if due > self.now else self.now, next(self._order), process, run))

    def run(self, until: float) -> None:
        """Run everything that falls due until `until`, in order, or until `halted` is set."""
        heap = self._heap
        while heap and heap[0][0] <= until and not self.halted:
            due, _, process, run = heapq.heappop(heap)
            if process is not None:
                if process.dead:
                    continue
                if process.paused:
                    process.deferred.append(run)
                    continue
            self.now = due
            self.steps += 1
            run()
        if not self.halted:
            self.now = max(self.now, until)

    def spawn(self, name: str, process: Process, work: Callable[[], None], after: float = 0.0) -> SimulatedThread:
        """A new thread of `process`; it begins `after` seconds from now."""
        thread = SimulatedThread(name, process, work, self._hub)
        self._threads[thread] = None
        self.at(self.now + after, lambda: self._enter(thread), process)
        return thread

    def running(self) -> SimulatedThread:
        """The thread that asks. Raises Blocked where there is none, Crash where its process is dead."""
        if self.current is None:
            raise Blocked("a wait where nothing may wait: on an event loop, in a callback, or within the store")
        if self.current.process.dead:
            raise Crash
        return self.current

    def park(self) -> None:
        """Wait until somebody wakes the running thread."""
        self.running()
        self._hub.switch()

    def wake(self, thread: SimulatedThread, epoch: int, after: float) -> None:
        """Let `thread` go on `after` seconds from now, unless something else has woken it since `epoch`."""
        self.at(self.now + after, lambda: self._resume(thread, epoch, None), thread.process)

    def interrupt(self, thread: SimulatedThread, error: BaseException) -> None:
        """Raise `error` in `thread`, wherever it waits. Nothing where it does not wait any more."""
        self._resume(thread, thread.epoch, error)

    def kill(self, process: Process) -> None:
        """Unwind every thread of a dead process, now. Raises RuntimeError where one will not die."""
        for thread in [s for s in self._threads if s.process is process]:
            for _ in range(UNWIND_MAX):
                if not thread.green or thread.over:  # never begun, or gone
                    break
                thread.epoch += 1
                self._enter(thread, Crash())
            else:
                raise RuntimeError(f"{thread.name} goes on after its process died")
            self._threads.pop(thread, None)

    def _resume(self, thread: SimulatedThread, epoch: int, error: BaseException | None) -> None:
        if thread.epoch == epoch and thread.green and not thread.over:
            thread.epoch += 1
            self._enter(thread, error)

    def _enter(self, thread: SimulatedThread, error: BaseException | None = None) -> None:
        outer, self.current = self.current, thread
        try:
            if error is None:
                thread.green.switch()
            else:
                thread.green.throw(error)
        finally:
            self.current = outer
        if thread.over:
            self._threads.pop(thread, None)


def _to_its_end(work: Callable[[], None]) -> None:
    try:
        work()
    except Crash:
        pass  # as asked
