"""The process of one client: its runtime, clock, way to the store, and what can befall it."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from tenure import _client, aio
from tenure._core.base.options import Options
from tenure._core.base.signals import Signal
from tenure._core.runtime import Runtime
from tests.verify.simulation.clocks import ClientsClock, StoresClock
from tests.verify.simulation.executors import Complain, Loop, Queue
from tests.verify.simulation.ground_truth import GroundTruth
from tests.verify.simulation.network import Network, Turnstile
from tests.verify.simulation.plan import REQUEST_SECONDS, Client
from tests.verify.simulation.scheduler import Scheduler, SimulatedThread

NAMESPACE: Final = "simulated"
_numbers = itertools.count(1)


def options(store: str, owner: str, ttl: float) -> Options:
    return Options("memory", ((store, 0),), NAMESPACE, owner, ttl, REQUEST_SECONDS)


def new_store(scheduler: Scheduler) -> tuple[str, Runtime]:
    """A memory store nobody else has: its name, and a house that keeps it alive. It runs on the world's clock."""
    name = f"simulation-{next(_numbers)}"
    return name, Runtime(options(name, "keeper", 1.0), StoresClock(scheduler))


class _InOrder(dict[Signal, None]):
    """A set of signals that are set in the order they came: a set's own order follows from addresses."""

    def add(self, signal: Signal) -> None:
        self[signal] = None

    def discard(self, signal: Signal) -> None:
        self.pop(signal, None)


class ClientProcess:
    """The process of one client."""

    def __init__(self, plan: Client, store: str, seed: str, scheduler: Scheduler, truth: GroundTruth) -> None:
        self.name = plan.name
        self.plan = plan
        self.dead = False
        self.paused = False
        self.stops = 0  # how often it was paused
        self.deferred: list[Callable[[], None]] = []
        self.running: dict[str, SimulatedThread | Any] = {}  # Any: a thread, or an asyncio task
        self._scheduler = scheduler
        self._truth = truth
        self._choices = Random(f"{seed} {plan.name}")
        self.network = Network(plan.name, scheduler, self, self._choices, truth)
        self.clock = ClientsClock(scheduler, self, plan.rate, self)
        self.loop = Loop(scheduler, self, self, self._complain)
        complain: Complain = self._complain
        self.runtime = Runtime(
            options(store, plan.name, plan.ttl),
            self.clock,
            helpers=lambda name, maximum: Queue(name, maximum, scheduler, self, self, complain),
            caller=lambda: scheduler.current,
        )
        self.face: Any = aio.Client(self.runtime) if plan.asyncio else _client.Client(self.runtime)  # Any: either face
        self._adapt(self.runtime._backend)

    def _adapt(self, backend: Any) -> None:
        """Replace what lies between client and store, and the locks that are held across requests."""
        backend.faults = self.network
        opened = backend.open

        def open_lease(ttl: float, lock_delay: float) -> Any:
            lease = opened(ttl, lock_delay)
            lease._guard = Turnstile(self._scheduler)
            lease._belief._waits = _InOrder()
            return lease

        backend.open = open_lease

    @property
    def store(self) -> Any:
        return self.runtime._backend.store  # type: ignore[attr-defined]  # a memory backend has one

    @property
    def leases(self) -> list[str]:
        return [lease.id for lease in self.runtime._leases.values() if lease.id]

    @property
    def living(self) -> bool:
        return not self.dead and not self.runtime.closing.is_set()

    def reaction(self) -> float:
        """The time until a thread, task or timer that may run does."""
        drawn = self._choices.random()
        return drawn * (0.0005 if drawn < 0.85 else 0.01 if drawn < 0.98 else 0.15)

    def begin(self, name: str, program: Callable[[], Coroutine[Any, Any, None]], after: float) -> None:
        """Run an actor's program: on a thread, or as a task."""
        if self.plan.asyncio:
            self._scheduler.at(after, lambda: self._begin_task(name, program), self)
        else:
            self.running[name] = self._scheduler.spawn(name, self, lambda: self._drive(name, program()), after)

    def _begin_task(self, name: str, program: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.running[name] = self.loop.run_task(program())

    def _drive(self, name: str, program: Coroutine[Any, Any, None]) -> None:
        """The program of a blocking actor awaits nothing that blocks elsewhere than on this thread."""
        try:
            program.send(None)
        except StopIteration:
            return
        except Exception as error:
            self._complain(name, error)
            return
        self._complain(name, RuntimeError("a blocking program awaits something"))

    def _complain(self, where: str, error: BaseException) -> None:
        self._truth.violate("bug", f"{self.name} {where}: {type(error).__name__}: {error}")

    # What can befall it.

    def cancel(self, actor: str) -> None:
        """Cancel what an actor does: as a KeyboardInterrupt in a thread, as a cancelled task."""
        running = self.running.get(actor)
        if isinstance(running, SimulatedThread):
            self._scheduler.interrupt(running, KeyboardInterrupt())
        elif running is not None and inspect.getcoroutinestate(running.get_coro()) != inspect.CORO_CREATED:
            running.cancel()

    def pause(self) -> None:
        self.paused = True
        self.stops += 1

    def resume(self) -> None:
        """Run now, in its order, what fell due meanwhile."""
        self.paused = False
        deferred, self.deferred = self.deferred, []
        for run in deferred:
            self._scheduler.at(self._scheduler.now, run, self)

    def heal(self) -> None:
        """Let everything through again, at its usual speed; a client back from a cut looks at what it missed."""
        self.network.slowness = 1.0
        if self.network.cut_off:
            self.network.cut_off = False
            self.store.wake(self.network)

    def close(self) -> None:
        if self.living:
            self._scheduler.spawn("close", self, self.runtime.close)

    def crash(self) -> None:
        """Gone, as by SIGKILL. What it has at the store goes with its leases."""
        if not self.dead:
            self.dead = True
            self._scheduler.kill(self)
            self.loop.kill()
            self.deferred.clear()
            self._drop_watches()

    def _drop_watches(self) -> None:
        """Drop the client's watches, which go with its connection."""
        for line, watches in tuple(self.store._watches.items()):
            for watch in tuple(watches):
                if watch.faults is self.network:
                    self.store.unwatch(line, watch.signal)
