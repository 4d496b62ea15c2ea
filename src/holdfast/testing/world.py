"""World: a store in memory, clients of it, virtual time, and faults on demand. For tests of code that uses holdfast.

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
pass. The clients are those of `holdfast.connect`; what lies below them is the memory backend, held to the same laws
as etcd and ZooKeeper. It shows nothing about a real store's own faults, nor about timing: what several threads do in
one moment they do in any order, and the pauses between retries are drawn by lot, as ever.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import holdfast
from holdfast import aio
from holdfast.house import House
from holdfast.names import encode
from holdfast.options import parse
from holdfast.signals import Signal
from holdfast.testing.faults import Faults
from holdfast.testing.share import ClientsClock, Crew, Turnstile
from holdfast.testing.virtual import PATIENCE_SECONDS, VIRTUAL_SECONDS_MAX, StandsStill, WorldClock

Outcome = TypeVar("Outcome")
Face = TypeVar("Face", holdfast.Client, aio.Client)
_NAMESPACE: Final = "world"
_ROUNDS: Final = 20
"""How often the loop goes round before time passes: for tasks that wake others of the same moment."""
_numbers = itertools.count(1)


class World:
    """One test's store, with virtual time. Made and used by the thread of the test; `close` it, or use `with`."""

    def __init__(self) -> None:
        self.clock = WorldClock()
        self.url = f"memory://world-{next(_numbers)}/{_NAMESPACE}"
        self.tolerates_left = False
        """Set it where a test means to leave tickets or leases behind: the fixture `holdfast_world` asks."""
        self._faces: list[Any] = []  # Any: of either face
        self._faults: dict[int, Faults] = {}
        self._houses: list[House] = []
        self._started: list[Started[Any]] = []
        self._keeper = self._house({"owner": "keeper"})  # the store lives as long as somebody refers to it

    @property
    def now(self) -> float:
        """Seconds of virtual time."""
        return self.clock.now()

    def client(self, **options: Any) -> holdfast.Client:
        """A blocking client, as of `holdfast.connect(world.url, **options)`."""
        house = self._house(options)
        return self._known(holdfast.Client(house), house)

    def aclient(self, **options: Any) -> aio.Client:
        """An asyncio client, as of `holdfast.aio.connect(world.url, **options)`."""
        house = self._house(options)
        return self._known(aio.Client(house), house)

    def faults(self, client: holdfast.Client | aio.Client) -> Faults:
        """What can go wrong between `client` and the store. Raises KeyError for a client of another world."""
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
        """Who stands in the line of `name`, in its order: the holder first."""
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
        """The memory store itself: its lines, leases and records. Any: only the house knows backends."""
        return self._keeper._backend.store  # type: ignore[attr-defined]  # a memory backend has one

    def close(self) -> None:
        """Mend what is broken, close the clients and end the calls that were started. Raises StandsStill."""
        for faults in self._faults.values():
            faults.forget()
            faults.resume()
            faults.heal()
        for house in self._houses:
            house.close()
        for started in self._started:
            started.join()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _house(self, options: dict[str, Any]) -> House:
        clock = ClientsClock(self.clock)
        house = House(parse(self.url, options), clock, helpers=lambda name, most: Crew(name, most, self.clock))
        self._adapt(house._backend, Faults(house, clock))
        self._houses.append(house)
        return house

    def _adapt(self, backend: Any, faults: Faults) -> None:
        """What lies between client and store is ours; what a lease holds across requests is waited for on the clock."""
        backend.faults = faults
        opened = backend.open

        def open_lease(ttl: float, lock_delay: float) -> Any:
            lease = opened(ttl, lock_delay)
            lease._guard = Turnstile(self.clock)
            return lease

        backend.open = open_lease

    def _known(self, face: Face, house: House) -> Face:
        self._faces.append(face)  # as long as it lives, its id is its own
        self._faults[id(face)] = house._backend.faults  # type: ignore[attr-defined]  # set above
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
        self._thread = threading.Thread(target=self._run, name="holdfast-world-call", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Has it come back?"""
        return self._ended.is_set()

    def result(self) -> Outcome:
        """What the call returned or raised; time passes until it has. Raises StandsStill."""
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
