"""Performers of the actors' steps: threads for the blocking face, tasks for asyncio. Orders reach them here.

`cancel`, blocking: a signal is sent to the main thread until it arrives within a call of the library, where its handler
raises as Ctrl-C would; between two calls it does nothing, as an exception there could come after a hold was had and
before anybody knew of it. asyncio: a task that is within such a call is cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Protocol

import tenure
from tenure._core.drivers import blocking
from tenure.testing.history.history import Recorder
from tenure.testing.history.record import Log, recorded
from tests.verify.torture.worker.acts import Actor, Acts, Do, Interrupted, Rest, Scene, observing
from tests.verify.torture.worker.fenced import AsyncStore, BlockingStore
from tests.verify.torture.worker.plan import Plan
from tests.verify.torture.worker.skewed import SkewedClock

_CANCEL_WITHIN_SECONDS: Final = 1.0
_CANCEL_EVERY_SECONDS: Final = 0.003
_END_SECONDS: Final = 8.0


class Troupe(Protocol):
    """The actors of one worker, on one face."""

    client: Any  # Any: of either face
    scene: Scene

    def perform(self) -> None:
        """Perform all turns, until `end`; then close the client."""

    def end(self) -> None:
        """Begin no further turn. From any thread or a signal handler; idempotent."""

    def cancel(self) -> None:
        """Break one call that is under way, if there is one soon."""

    @property
    def has_loop(self) -> bool:
        """True where there is an event loop that can be frozen."""

    def freeze_loop(self, seconds: float) -> None:
        """Block the event loop; returns when it goes on."""


class Threads:
    """The blocking face. The first actor has the main thread, where signals arrive."""

    def __init__(self, plan: Plan, recorder: Recorder, clock: SkewedClock, lots: random.Random) -> None:
        self._plan = plan
        self._lots = lots
        self._ending = threading.Event()
        self._interrupt = False
        self._closes_first = lots.random() < 0.5
        log = Log(recorder, plan.name, seconds=clock.real)
        client = tenure.connect(plan.url, clock=clock, owner=plan.name, **plan.options)
        self.client = recorded(client, recorder, name=plan.name, log=log)
        self.scene = Scene(self.client, log, self._ending.is_set, lambda: None)
        signal.signal(signal.SIGUSR1, self._interrupted)  # before the first order can come: unhandled, it would end us

    def perform(self) -> None:
        jobs = [self._job(number) for number in range(self._plan.actors)]
        threads = [threading.Thread(target=job, name=f"actor-{n}") for n, job in enumerate(jobs[1:], 1)]
        watch = observing(self.scene, random.Random(self._lots.random()))
        threads.append(threading.Thread(target=lambda: _carry_out(watch), name="observer"))
        for thread in threads:
            thread.start()
        jobs[0]()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        self._leave(threads)

    def _leave(self, threads: list[threading.Thread]) -> None:
        """Close the client under them, or when they have ended; the observer ends with the client only."""
        actors = [] if self._closes_first else threads[:-1]
        until = time.monotonic() + _END_SECONDS
        for thread in actors:
            thread.join(max(0.0, until - time.monotonic()))
        self.client.close()
        for thread in threads:
            thread.join(_END_SECONDS)

    def _job(self, number: int) -> Callable[[], None]:
        lots = random.Random(self._lots.random())

        def act() -> None:
            store = BlockingStore(self._plan.register)
            try:
                _carry_out(Actor(f"{self._plan.name}-{number}", self.scene, store, lots, self._plan.careless).turns())
            finally:
                store.close()

        return act

    def end(self) -> None:
        self._ending.set()

    def cancel(self) -> None:
        main = threading.main_thread().ident
        until = time.monotonic() + _CANCEL_WITHIN_SECONDS
        self._interrupt = True
        while main is not None and self._interrupt and time.monotonic() < until:
            signal.pthread_kill(main, signal.SIGUSR1)
            time.sleep(_CANCEL_EVERY_SECONDS)
        self._interrupt = False

    def _interrupted(self, _: int, frame: FrameType | None) -> None:
        while frame is not None and self._interrupt:
            if frame.f_code is blocking.run.__code__:
                self._interrupt = False
                raise Interrupted
            frame = frame.f_back

    @property
    def has_loop(self) -> bool:
        return False

    def freeze_loop(self, seconds: float) -> None:
        """Do nothing: threads have no loop."""


def _carry_out(acts: Acts) -> None:
    step = _resumed(acts)
    while step is not None:
        outcome: Any = None
        failure: BaseException | None = None
        try:
            if isinstance(step, Rest):
                time.sleep(step.seconds)
            else:
                outcome = step.call()
        except (Exception, Interrupted) as error:
            failure = error
        step = _resumed(acts, outcome, failure)


def _resumed(acts: Acts, outcome: Any = None, failure: BaseException | None = None) -> Do | Rest | None:
    """The script's next step, now that it hears what became of the last; None at its end."""
    try:
        return acts.send(outcome) if failure is None else acts.throw(failure)
    except StopIteration:
        return None


class Tasks:
    """The asyncio face. Its client is made within the loop."""

    def __init__(self, plan: Plan, recorder: Recorder, clock: SkewedClock, lots: random.Random) -> None:
        self._plan = plan
        self._lots = lots
        self._ending = False
        self._closes_first = lots.random() < 0.5
        self._loop: asyncio.AbstractEventLoop | None = None
        self._within: set[asyncio.Task[None]] = set()  # whoever is in a call that may be cancelled
        log = Log(recorder, plan.name, seconds=clock.real)
        client = tenure.aio.connect(plan.url, clock=clock, owner=plan.name, **plan.options)
        self.client = recorded(client, recorder, name=plan.name, log=log)
        self.scene = Scene(self.client, log, lambda: self._ending, _uncancel)

    def perform(self) -> None:
        asyncio.run(self._perform())

    async def _perform(self) -> None:
        self._loop = asyncio.get_running_loop()
        actors = [asyncio.create_task(self._act(number)) for number in range(self._plan.actors)]
        watch = asyncio.create_task(self._carry_out(observing(self.scene, random.Random(self._lots.random()))))
        await asyncio.wait(actors, return_when=asyncio.FIRST_COMPLETED)
        if not self._closes_first:
            await asyncio.wait(actors, timeout=_END_SECONDS)
        await self.client.close()
        await asyncio.gather(*actors, watch)

    async def _act(self, number: int) -> None:
        store = AsyncStore(self._plan.register)
        lots = random.Random(f"{self._plan.seed} {number}")
        try:
            await self._carry_out(
                Actor(f"{self._plan.name}-{number}", self.scene, store, lots, self._plan.careless).turns()
            )
        finally:
            store.close()

    async def _carry_out(self, acts: Acts) -> None:
        step = _resumed(acts)
        while step is not None:
            outcome: Any = None
            failure: BaseException | None = None
            try:
                outcome = await self._carried_out(step)
            except (Exception, asyncio.CancelledError) as error:
                failure = error
            step = _resumed(acts, outcome, failure)

    async def _carried_out(self, step: Do | Rest) -> Any:
        if isinstance(step, Rest):
            return await asyncio.sleep(step.seconds)
        task = asyncio.current_task()
        if step.cancellable and task is not None:
            self._within.add(task)
        try:
            outcome = step.call()
            return await outcome if inspect.isawaitable(outcome) else outcome
        finally:
            if task is not None:
                self._within.discard(task)

    def end(self) -> None:
        self._ending = True

    def cancel(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_one)

    def _cancel_one(self) -> None:
        if self._within:
            self._lots.choice(sorted(self._within, key=lambda task: task.get_name())).cancel("by order")

    @property
    def has_loop(self) -> bool:
        return self._loop is not None

    def freeze_loop(self, seconds: float) -> None:
        over = threading.Event()

        def freeze() -> None:
            time.sleep(seconds)
            over.set()

        if self._loop is not None:
            self._loop.call_soon_threadsafe(freeze)
            over.wait(seconds + _END_SECONDS)


def _uncancel() -> None:
    """Let a task that was cancelled by order go on."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
