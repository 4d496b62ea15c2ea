"""Background work without threads: queues whose jobs are threads, and an event loop whose ticks are steps."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any

from tenure.errors import ClientClosed, TenureError
from tests.verify.simulation.clocks import Steps
from tests.verify.simulation.scheduler import UNWIND_MAX, Crash, Process, Scheduler

Complain = Callable[[str, BaseException], None]


class Queue:
    """A queue in the place of `Helpers`: at most `maximum` jobs at a time, the others wait their turn."""

    def __init__(
        self, name: str, maximum: int, scheduler: Scheduler, process: Process, steps: Steps, complain: Complain
    ) -> None:
        self._name = name
        self._maximum = maximum
        self._scheduler = scheduler
        self._process = process
        self._steps = steps
        self._complain = complain
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running = 0
        self._closed = False
        self._wake_closer: Callable[[], None] | None = None

    @property
    def crowded(self) -> bool:
        return bool(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._running

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        # callbacks are taken even then: the house would start a real thread for the last of them
        if self._closed and "callback" not in self._name:
            raise ClientClosed("the client is closed")
        future: Future[Any] = Future()
        if not self._process.dead:
            self._waiting.append((future, work))
            self._start()
        return future

    def close(self, seconds: float) -> None:
        self._closed = True
        if not self._running and not self._waiting:
            return
        thread = self._scheduler.running()
        epoch = thread.epoch
        self._wake_closer = lambda: self._scheduler.wake(thread, epoch, 0.0)
        self._scheduler.wake(thread, epoch, seconds)
        self._scheduler.park()

    def _start(self) -> None:
        while self._waiting and self._running < self._maximum:
            future, work = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                self._running += 1
                do = partial(self._do, future, work)
                self._scheduler.spawn(self._name, self._process, do, self._steps.reaction())

    def _do(self, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            outcome = work()
        except Crash:
            raise
        except BaseException as error:  # carried over to whoever waits for it
            if not isinstance(error, TenureError):
                self._complain(self._name, error)
            future.set_exception(error)
        else:
            future.set_result(outcome)
        self._running -= 1
        self._start()
        if not self._running and self._wake_closer is not None:
            self._wake_closer()


class Loop:
    """An event loop as far as tasks and futures need one. Its ticks are steps of its process; it has no threads.

    Not an AbstractEventLoop: of what that asks for, tasks and futures use the few things here.
    """

    def __init__(self, scheduler: Scheduler, process: Process, steps: Steps, complain: Complain) -> None:
        self._scheduler = scheduler
        self._process = process
        self._steps = steps
        self._complain = complain
        self._ready: deque[asyncio.Handle] = deque()
        self._ticking = False
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._as_loop: Any = self  # Any: asyncio's own code takes whatever has these methods

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._as_loop, context)
        self._ready.append(handle)
        if not self._ticking:
            self._ticking = True
            self._scheduler.at(self._scheduler.now + self._steps.reaction(), self._tick, self._process)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _tick(self) -> None:
        self._ticking = False
        asyncio._set_running_loop(self._as_loop)
        try:
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(None)
        if self._ready and not self._ticking:
            self._ticking = True
            self._scheduler.at(self._scheduler.now, self._tick, self._process)

    def run_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda _: self._tasks.pop(task, None))
        return task

    def kill(self) -> None:
        """Unwind what its tasks are doing: their process is gone."""
        asyncio._set_running_loop(self._as_loop)  # some of them ask for it on their way out
        try:
            for task in tuple(self._tasks):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is pending, and stays so
                _unwind(task.get_coro())
        finally:
            asyncio._set_running_loop(None)
        self._tasks.clear()
        self._ready.clear()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self._as_loop, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._complain("event loop", error or RuntimeError(context.get("message", "?")))

    def time(self) -> float:
        return self._scheduler.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._process.dead


def _unwind(coroutine: Any) -> None:
    for _ in range(UNWIND_MAX):
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED:
            return  # at its end, and only its task has not heard of it
        try:
            coroutine.throw(Crash())
        except (Crash, StopIteration):
            return
    raise RuntimeError(f"{coroutine!r} goes on after its process died")
