"""One process of a contestant in Python: `python -m benchmarks.play`, spoken to as players.py says."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Final, TypeAlias

from benchmarks.contestants import named
from benchmarks.contestants.bare import chain
from benchmarks.contestants.place import OPEN_TTL, AsyncPlace, Blocking, Contestant, Door, Loop, Place, Program, Tasked

Turns: TypeAlias = list[tuple[float, ...]]
_Times: TypeAlias = tuple[float, float]
_CONTEND_TTL: Final = 60.0


def main() -> None:
    mode, endpoint, who, name, number = sys.argv[1:]
    logging.getLogger("tenure").setLevel(logging.CRITICAL)  # it tells of the faults that are part of the measuring
    with ExitStack() as stack:
        if mode == "chain":
            _chain(who, Door(endpoint, name, OPEN_TTL, stack))
        elif mode == "pace":
            _pace(named(who), Door(endpoint, name, OPEN_TTL, stack))
        elif mode == "lead":
            _lead(named(who), Door(endpoint, name, float(number), stack))
        else:
            _contend(named(who), Door(endpoint, name, _CONTEND_TTL, stack), int(number))


def _serve(answer: Callable[[list[str]], object]) -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(line.split())), flush=True)


# Contending.


def _contend(who: Contestant, door: Door, contenders: int) -> None:
    if isinstance(who, Tasked):
        runner = door.stack.enter_context(asyncio.Runner())
        make = who.open(door)
        tasked = [make() for _ in range(contenders)]
        _serve(lambda words: {"turns": runner.run(_all_tasks(tasked[: int(words[1])], float(words[0])))})
    elif not isinstance(who, Program):
        open_place = who.open(door)
        places = [open_place() for _ in range(contenders)]
        _serve(lambda words: {"turns": _all_threads(places[: int(words[1])], float(words[0]))})


def _all_threads(places: list[Place], seconds: float) -> list[Turns]:
    turns: list[Turns] = [[] for _ in places]
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_take_turns, args=(place, until, taken))
        for place, taken in zip(places, turns, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return turns


def _take_turns(place: Place, until: float, turns: Turns) -> None:
    while (called := time.monotonic()) < until:
        token = place.enter()
        acquired = time.monotonic()
        turns.append((called, acquired, time.monotonic(), *([] if token is None else [token])))
        place.leave()


async def _all_tasks(places: list[AsyncPlace], seconds: float) -> list[Turns]:
    until = time.monotonic() + seconds
    return list(await asyncio.gather(*(_take_turns_async(place, until) for place in places)))


async def _take_turns_async(place: AsyncPlace, until: float) -> Turns:
    turns: Turns = []
    while (called := time.monotonic()) < until:
        token = await place.enter()
        acquired = time.monotonic()
        turns.append((called, acquired, time.monotonic(), *([] if token is None else [token])))
        await place.leave()
    return turns


# Leading.


def _lead(who: Contestant, door: Door) -> None:
    """`exit` closes what the library opened, as a program's clean end does."""
    enter, leave = _timed_calls(who, door)

    def answer(words: list[str]) -> dict[str, float]:
        if words[0] == "campaign":
            return {"at": enter()[1]}
        if words[0] == "resign":
            return {"at": leave()[0]}
        at = time.monotonic()
        door.stack.close()
        return {"at": at}

    _serve(answer)


def _timed_calls(who: Contestant, door: Door) -> tuple[Callable[[], _Times], Callable[[], _Times]]:
    """Entering and leaving, each with when it began and when it had ended. A task reads the clock itself: the way from
    this thread to its loop is not the library's."""
    if isinstance(who, Tasked):
        loop = Loop(door.stack)
        task = who.open(door)()
        return lambda: loop.run(_timed_task(task.enter())), lambda: loop.run(_timed_task(task.leave()))
    if isinstance(who, Program):
        raise SystemExit(f"{who.name} has a program of its own")
    place = who.open(door)()
    return lambda: _timed(place.enter), lambda: _timed(place.leave)


def _timed(call: Callable[[], object]) -> _Times:
    began = time.monotonic()
    call()
    return began, time.monotonic()


async def _timed_task(work: Awaitable[object]) -> _Times:
    began = time.monotonic()
    await work
    return began, time.monotonic()


# A round trip of a process that has slept.


def _pace(who: Contestant, door: Door) -> None:
    if not isinstance(who, Blocking):
        raise SystemExit(f"{who.name} is no floor")
    place = who.open(door)()

    def cycle() -> None:
        place.enter()
        place.leave()

    cycle()  # connected, and everything was run once, as everybody has who leads or waits

    def answer(words: list[str]) -> dict[str, float]:
        began, ended = _timed(cycle)
        return {"seconds": ended - began}

    _serve(answer)


# The floor of a hand-over.


def _chain(scheme: str, door: Door) -> None:
    keys = chain(scheme, door)
    waits: dict[int, Callable[[], None]] = {}

    def answer(words: list[str]) -> dict[str, Any]:
        count = int(words[1])
        if words[0] == "lay":
            return {"since": keys.lay(count)}
        since, mine = int(words[2]), int(words[3])
        if words[0] == "watch":
            waits.update({number: keys.watch(number, since) for number in range(count) if number % 2 != mine})
            return {}
        return _run(count, since, mine)

    def _run(count: int, since: int, mine: int) -> dict[str, Any]:
        """Each deletes its next key when it hears of the other's."""
        cut, told = {}, {}
        for number in range(count):
            if number % 2 == mine:
                cut[number] = time.monotonic()
                keys.cut(number, since)
            else:
                waits.pop(number)()
                told[number] = time.monotonic()
        return {"cut": cut, "told": told}

    _serve(answer)


if __name__ == "__main__":
    main()
