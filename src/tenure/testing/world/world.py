"""World: a store in memory, clients of it, virtual time, and faults on demand. For tests of code that uses tenure.

    with World() as world:
        a, b = world.client(owner="a", ttl=10), world.client(owner="b")
        hold = a.lock("ledger").acquire()
        world.faults(a).pause()                        # a stopped process
        successor = b.lock("ledger").acquire()         # waits until a's lease has ended; takes no real time
        world.faults(a).resume()
        assert hold.lost.is_set() and successor.token > hold.token

No time passes but by `advance`, or while everybody waits: a call that waits (`acquire`, a retry) lets time go on by
itself, to each moment at which something is due. `start` runs a call of its own thread where two must wait at once.
In asyncio the loop is not ours to wait for: there, `await world.until(…)` or `await world.aadvance(seconds)` let time
pass. The clients are those of `tenure.connect`; what lies below them is the memory backend, held to the same laws
as etcd and ZooKeeper. It shows nothing about a real store's own faults, nor about timing: what several threads do in
one moment they do in any order, and the pauses between retries are drawn by lot, as ever.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import tenure
from tenure import aio
from tenure._core.base.options import parse
from tenure._core.base.signals import Signal
from tenure._core.base.validation import encode
from tenure._core.runtime import Runtime
from tenure.testing.world.client_clock import ClientClock, Turnstile, WorldHelpers
from tenure.testing.world.faults import Faults
from tenure.testing.world.virtual_time import PATIENCE_SECONDS, VIRTUAL_SECONDS_MAX, StandsStill, WorldClock

Outcome = TypeVar("Outcome")
Face = TypeVar("Face", tenure.Client, aio.Client)
_NAMESPACE: Final = "world"
_ROUNDS: Final = 20
"""How often the loop goes round before time passes: for tasks that wake others of the same moment."""
_numbers = itertools.count(1)


class World:
    """A store for one test, with virtual time. Made and used by the thread of the test; `close` it, or use `with`."""

    def __init__(self) -> None:
        self.clock: WorldClock = WorldClock()
        self.url: str = f"memory://world-{next(_numbers)}/{_NAMESPACE}"
        self.tolerates_left = False
        """Set it where a test means to leave tickets or leases behind: the fixture `tenure_world` asks."""
        self._faces: list[Any] = []  # Any: of either face
        self._faults: dict[int, Faults] = {}
        self._runtimes: list[Runtime] = []
        self._started: list[Started[Any]] = []
        self._keeper = self._runtime({"owner": "keeper"})  # the store lives as long as somebody refers to it

    @property
    def now(self) -> float:
        """Seconds of virtual time."""
        return self.clock.now()

    def client(self, **options: Any) -> tenure.Client:
        """A blocking client, as of `tenure.connect(world.url, **options)`."""
        runtime = self._runtime(options)
        return self._known(tenure.Client(runtime), runtime)

    def aclient(self, **options: Any) -> aio.Client:
        """An asyncio client, as of `tenure.aio.connect(world.url, **options)`."""
        runtime = self._runtime(options)
        return self._known(aio.Client(runtime), runtime)

    def faults(self, client: tenure.Client | aio.Client) -> Faults:
        """The faults between `client` and the store. Raises KeyError for a client of another world."""
        return self._faults[id(client)]

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass, with everything that falls due meanwhile. Raises StandsStill."""
        self.clock.advance_settled(seconds)

    def start(self, call: Callable[[], Outcome]) -> Started[Outcome]:
        """Run `call` on a thread of its own, and return when it waits for the first time or has ended."""
        started = Started(call, self.clock)
        self._started.append(started)
        self.clock.settle()
        return started

    async def until(self, awaitable: Awaitable[Outcome]) -> Outcome:
        """Let time pass until it is done: what it returned or raised. Raises StandsStill."""
        task = asyncio.ensure_future(awaitable)
        give_up = self.now + VIRTUAL_SECONDS_MAX
        await self._settle_loop()
        while not task.done():
            if not self.clock.step_before(give_up):
                task.cancel()
                raise StandsStill(f"not done within {VIRTUAL_SECONDS_MAX:g} s of virtual time: {awaitable!r}")
            await self._settle_loop()
        return await task

    async def aadvance(self, seconds: float) -> None:
        """`advance`, with the reaction of this loop's tasks to each moment before the next one comes."""
        goal = self.now + seconds
        await self._settle_loop()
        while self.clock.step_before(goal):
            await self._settle_loop()
        self.clock.advance(goal - self.now)
        await self._settle_loop()

    def owners(self, name: str) -> list[str]:
        """The owners in the line of `name`, in its order: the holder first."""
        return [ticket.owner or "?" for ticket in self.store.lines.get(f"{_NAMESPACE}/{encode(name)}", ())]

    def standing(self) -> list[str]:
        """Every ticket the store has, in words."""
        tickets = [ticket for line in self.store.lines.values() for ticket in line]
        return [f"a ticket of {ticket.owner!r} in the line of {ticket.resource!r}" for ticket in tickets]

    def left(self) -> list[str]:
        """Every ticket and every lease the store has. A client has its leases until it is closed."""
        return [*self.standing(), *(f"lease {lease}" for lease in self.store.leases)]

    @property
    def store(self) -> Any:
        """The memory store itself: its lines, leases and records. Any: only the runtime knows backends."""
        return self._keeper._backend.store  # type: ignore[attr-defined]  # a memory backend has one

    def close(self) -> None:
        """Mend what is broken, close the clients and end the calls that were started. Raises StandsStill."""
        for faults in self._faults.values():
            faults.forget()
            faults.resume()
            faults.heal()
        for runtime in self._runtimes:
            runtime.close()
        for started in self._started:
            started.join()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _runtime(self, options: dict[str, Any]) -> Runtime:
        clock = ClientClock(self.clock)
        runtime = Runtime(
            parse(self.url, options), clock, helpers=lambda name, maximum: WorldHelpers(name, maximum, self.clock)
        )
        self._adapt(runtime._backend, Faults(runtime, clock))
        self._runtimes.append(runtime)
        return runtime

    def _adapt(self, backend: Any, faults: Faults) -> None:
        """Replace what lies between client and store, and let locks that are held across requests wait on the clock."""
        backend.faults = faults
        opened = backend.open

        def open_lease(ttl: float, lock_delay: float) -> Any:
            lease = opened(ttl, lock_delay)
            lease._guard = Turnstile(self.clock)
            return lease

        backend.open = open_lease

    def _known(self, face: Face, runtime: Runtime) -> Face:
        self._faces.append(face)  # as long as it lives, its id is its own
        self._faults[id(face)] = runtime._backend.faults  # type: ignore[attr-defined]  # set above
        return face

    async def _settle_loop(self) -> None:
        for _ in range(_ROUNDS):
            self.clock.settle()
            await asyncio.sleep(0)


class Started(Generic[Outcome]):
    """A call on a thread of its own."""

    def __init__(self, call: Callable[[], Outcome], clock: WorldClock) -> None:
        self._call = call
        self._clock = clock
        self._party = clock.invite()
        self._ended = Signal()
        self._outcome: list[Outcome] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tenure-world-call", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """True where the call has come back."""
        return self._ended.is_set()

    def result(self) -> Outcome:
        """The value that the call returned, or raise what it raised; time passes until then. Raises StandsStill."""
        self._clock.rest(self._ended)
        self.join()
        if self._error is not None:
            raise self._error
        return self._outcome[0]

    def join(self) -> None:
        """Wait in real time. Raises StandsStill."""
        self._thread.join(PATIENCE_SECONDS)
        if self._thread.is_alive():
            raise StandsStill(f"{self._call!r} does not end")

    def _run(self) -> None:
        self._clock.join(self._party)
        try:
            self._outcome.append(self._call())
        except BaseException as error:  # for whoever asks for the result
            self._error = error
        finally:
            self._ended.set()
            self._clock.leave(self._party)
