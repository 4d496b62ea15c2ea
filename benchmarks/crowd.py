"""Many holds, or many waiters, in one fresh process: `python -m benchmarks.crowd SCENE URL METRICS JSON`.

Says one line of JSON. Scenes:

    cycles    each recipe's uncontended cycle, counted at the server
    holds     `count` holds at once, each of another name, on one face; then idle for a while
    waiters   `count` tasks that wait over `names` names; then `times` hand-overs
    line      `count` tasks that wait at one lock, or one semaphore (`seats`); `times` hand-overs
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

import tenure
from benchmarks.contestants.ours import RECIPES, at
from benchmarks.meter import Footprint, Meter, footprint

CYCLES: Final = 200
_TTL: Final = 60.0
"""So that hardly a renewal falls into the counting."""
_IDLE_TTL: Final = 6.0
"""So that several do, where they are what is counted."""
_TURN_SECONDS_MAX: Final = 120.0
_ENTER_SECONDS_MAX: Final = 300.0
_AT_ONCE: Final = 32


def main() -> None:
    scene, url, metrics, arguments = sys.argv[1:]
    logging.getLogger("tenure").setLevel(logging.ERROR)
    meter = Meter(url.partition(":")[0].partition("+")[0], metrics)
    print(json.dumps(asyncio.run(_SCENES[scene](url, meter, **json.loads(arguments)))), flush=True)


async def _cycles(url: str, meter: Meter) -> dict[str, Any]:
    found = {}
    for recipe in RECIPES:
        with tenure.connect(url, ttl=_TTL) as client:
            place = at(client, recipe, f"cycle-{recipe}")
            place.acquire(_TURN_SECONDS_MAX).release()
            before = await meter.still()
            for _ in range(CYCLES):
                place.acquire(_TURN_SECONDS_MAX).release()
            found[recipe] = dataclasses.asdict(meter.now().since(before).per(CYCLES))
    return found


async def _holds(url: str, meter: Meter, face: str, count: int, idle: float) -> dict[str, Any]:
    if face == "asyncio":
        async with tenure.aio.connect(url, ttl=_IDLE_TTL) as client:
            await client.lock("first").acquire(_TURN_SECONDS_MAX)
            began, before = time.monotonic(), footprint()
            held: list[Any] = []
            numbers = iter(range(count))

            async def take_some() -> None:
                for number in numbers:  # a task each would cost more than the hold that it takes, and stay with us
                    held.append(await client.lock(f"hold-{number}").acquire(_ENTER_SECONDS_MAX))

            await asyncio.gather(*(take_some() for _ in range(_AT_ONCE)))
            return await _at_rest(meter, before, began, held, idle)
    with tenure.connect(url, ttl=_IDLE_TTL) as blocking:
        blocking.lock("first").acquire(_TURN_SECONDS_MAX)
        began, before = time.monotonic(), footprint()
        held = [blocking.lock(f"hold-{number}").acquire(_TURN_SECONDS_MAX) for number in range(count)]
        return await _at_rest(meter, before, began, held, idle)


async def _at_rest(meter: Meter, before: Footprint, began: float, held: Sequence[Any], idle: float) -> dict[str, Any]:
    """What holds cost that nobody touches."""
    took = time.monotonic() - began
    counted = await meter.still()
    at = time.monotonic()
    await asyncio.sleep(idle)
    per_second = meter.now().since(counted).per(time.monotonic() - at)
    for hold in held:
        hold.check()
    return {**_added(before), "seconds": took, "idle": dataclasses.asdict(per_second)}


def _added(before: Footprint) -> dict[str, Any]:
    after = footprint()
    return {
        "memory_megabytes": after.memory_megabytes - before.memory_megabytes,
        "threads": after.threads,
        "sockets": after.sockets,
    }


async def _waiters(url: str, meter: Meter, count: int, names: int, times: int, idle: float) -> dict[str, Any]:
    return await _stand(url, meter, [(f"name-{n}", 1, count // names) for n in range(names)], times, idle)


async def _line(url: str, meter: Meter, count: int, seats: int, times: int) -> dict[str, Any]:
    return await _stand(url, meter, [(f"line-{seats}", seats, count)], times, 0.0)


async def _stand(
    url: str, meter: Meter, lines: Sequence[tuple[str, int, int]], times: int, idle: float
) -> dict[str, Any]:
    """`times` hand-overs at each line while its waiters stand there."""
    client = tenure.aio.connect(url, ttl=_IDLE_TTL if idle else _TTL, timeout=_ENTER_SECONDS_MAX)
    try:
        await client.lock("first").acquire(_TURN_SECONDS_MAX)
        began, before = time.monotonic(), footprint()
        crowd = Crowd(client, lines, times)
        tasks = crowd.tasks()
        await asyncio.wait_for(crowd.formed.wait(), _ENTER_SECONDS_MAX)
        formed = time.monotonic() - began
        counted, at = await meter.still(), time.monotonic()
        await asyncio.sleep(idle)
        resting = meter.now().since(counted).per(max(idle, time.monotonic() - at))
        added = _added(before)
        before_turns, begun = await meter.still(), time.monotonic()
        crowd.begin.set()
        await asyncio.wait_for(crowd.over.wait(), _TURN_SECONDS_MAX)
        took = time.monotonic() - begun
        work = (await meter.still()).since(before_turns)
    finally:
        await client.close()
    await asyncio.gather(*tasks, return_exceptions=True)  # who still waited is told that the client was closed
    all_times = times * len(lines)
    return {
        **added,
        "threads": max(added["threads"], crowd.threads_max),
        "seconds": formed,
        "idle": dataclasses.asdict(resting),
        "work": dataclasses.asdict(work.per(all_times)),
        "per_second": all_times / took,
        "in_order": crowd.in_order,
    }


class Place(Protocol):
    """Where a task can stand in line: a lock or a semaphore of the asyncio face."""

    def acquire(self, timeout: float | None = None) -> Awaitable[tenure.aio.Hold]: ...


class Crowd:
    """Lines that stay as long as they are: whoever has had a turn goes to its end, until all hand-overs are made.

    So no hand-over is cheaper for being the last of a line, and lines of different lengths can be compared.
    """

    def __init__(self, client: tenure.aio.Client, lines: Sequence[tuple[str, int, int]], times: int) -> None:
        self.formed, self.begin, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.threads_max = 0
        self._lines = [
            _Line(self, client.lock(name) if seats == 1 else client.semaphore(name, limit=seats), seats, waiters, times)
            for name, seats, waiters in lines
        ]
        self._by_name = {name: line for (name, _, _), line in zip(lines, self._lines, strict=True)}
        self._missing = sum(seats + waiters for _, seats, waiters in lines)
        self._going_on = len(lines)
        self._loop = asyncio.get_running_loop()
        client.subscribe(self._hear)

    def tasks(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(line.stand()) for line in self._lines for _ in range(line.tickets)]

    @property
    def in_order(self) -> bool:
        return all(line.in_order for line in self._lines)

    def line_is_done(self) -> None:
        self._going_on -= 1
        if self._going_on == 0:
            self.over.set()

    def _hear(self, event: tenure.Event) -> None:
        """Told on whichever thread it happens; counted on the loop's."""
        if event.event == "entered" and event.token is not None and event.resource is not None:
            self._loop.call_soon_threadsafe(self._count, event.resource, event.token)

    def _count(self, resource: str, token: int) -> None:
        self._by_name[resource].entered.append(token)
        self._missing -= 1
        if self._missing == 0:
            self.formed.set()


class _Line:
    """One of them."""

    def __init__(self, crowd: Crowd, place: Place, seats: int, waiters: int, times: int) -> None:
        self.tickets = seats + waiters
        self.entered: list[int] = []
        self._crowd = crowd
        self._place = place
        self._seats = seats
        self._left = times
        self._admitted: list[int] = []
        self._kept: list[tenure.aio.Hold] = []

    async def stand(self) -> None:
        while True:
            hold = await self._place.acquire()
            self._admitted.append(hold.token)
            self._crowd.threads_max = max(self._crowd.threads_max, threading.active_count())
            await self._crowd.begin.wait()  # no end of its own: the task is given up with its client
            if self._left == 0:
                self._kept.append(hold)
                if len(self._kept) == self._seats:
                    self._crowd.line_is_done()
                return
            self._left -= 1
            await hold.release()

    @property
    def in_order(self) -> bool:
        """Was nobody admitted before its turn? Seats given at once may be noted in any order among themselves."""
        waiting = sorted(self.entered)
        for token in self._admitted:
            if waiting.index(token) >= self._seats:
                return False
            waiting.remove(token)
        return True


_SCENES: Final[dict[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]]] = {
    "cycles": _cycles,
    "holds": _holds,
    "waiters": _waiters,
    "line": _line,
}


if __name__ == "__main__":
    main()
