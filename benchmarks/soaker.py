"""One process of the soak: `python -m benchmarks.soaker URL blocking|asyncio SEED`.

It says `ready`; then to each line, SECONDS, it works for so long and says what it takes now:
{"memory_megabytes": …, "threads": …, "descriptors": …, "done": …, "failed": …}

Eight actors draw lots: any recipe, waits that end by a time-out or (asyncio) by being cancelled, tries, amended values,
a look at the leader, and now and then a client of one's own that is closed with what it holds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any, Final

import tenure
from benchmarks.contestants.ours import RECIPES, at
from benchmarks.meter import footprint

ACTORS: Final = 8
_NAMES: Final = 6
_HOLD_SECONDS_MAX: Final = 0.02
_PATIENCE: Final = 0.05
_TTL: Final = 10.0


def main() -> None:
    url, face, seed = sys.argv[1:]
    logging.getLogger("tenure").setLevel(logging.CRITICAL)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    lots = [random.Random(f"{seed} {number}") for number in range(ACTORS)]
    if face == "asyncio":
        with asyncio.Runner() as runner:
            client = tenure.aio.connect(url, ttl=_TTL)
            _serve(lambda seconds: runner.run(_all_tasks(client, url, lots, seconds)))
            runner.run(client.close())
    else:
        with tenure.connect(url, ttl=_TTL) as blocking:
            _serve(lambda seconds: _all_threads(blocking, url, lots, seconds))


def _serve(work: Any) -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        counts = work(float(line))
        now = footprint()
        told = {"memory_megabytes": now.memory_megabytes, "threads": now.threads, "descriptors": now.descriptors}
        print(json.dumps({**told, "done": counts["done"], "failed": counts["failed"]}), flush=True)


def _drawn(lot: random.Random) -> tuple[str, str]:
    """A recipe and a name; not every recipe under every name, as a line takes one kind of tickets."""
    recipe = lot.choice(RECIPES)
    return recipe, f"{recipe.partition(',')[0]}-{lot.randrange(_NAMES)}"


# Threads.


def _all_threads(client: tenure.Client, url: str, lots: list[random.Random], seconds: float) -> Counter[str]:
    counts: Counter[str] = Counter(done=0, failed=0)
    counting = threading.Lock()  # guards counts
    until = time.monotonic() + seconds

    def act(lot: random.Random) -> None:
        mine: Counter[str] = Counter()
        while time.monotonic() < until:
            mine[_done_by(lambda: _once(client, url, lot))] += 1
        with counting:
            counts.update(mine)

    threads = [threading.Thread(target=act, args=(lot,)) for lot in lots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts


def _done_by(work: Any) -> str:
    """A time-out is what some of them are for. Those with little patience may not even hear from a busy store."""
    try:
        work()
    except tenure.AcquireTimeout:
        return "done"
    except tenure.TenureError as error:
        print(repr(error), file=sys.stderr, flush=True)
        return "failed"
    return "done"


def _once(client: tenure.Client, url: str, lot: random.Random) -> None:
    recipe, name = _drawn(lot)
    way = lot.random()
    if way < 0.01:
        with tenure.connect(url, ttl=_TTL) as own:
            at(own, recipe, name).acquire(_PATIENCE)  # its end gives the hold up
    elif way < 0.2:
        hold = at(client, recipe, name).try_acquire()
        if hold is not None:
            hold.release()
    elif way < 0.25:
        client.election(f"election-{lot.randrange(_NAMES)}").leader()
    else:
        with at(client, recipe, name).acquire(lot.choice((_PATIENCE, 5.0))) as hold:
            time.sleep(lot.uniform(0.0, _HOLD_SECONDS_MAX))
            if recipe == "election":
                hold.amend(f"value {lot.random()}")
            hold.check()


# Tasks.


async def _all_tasks(client: tenure.aio.Client, url: str, lots: list[random.Random], seconds: float) -> Counter[str]:
    counts: Counter[str] = Counter(done=0, failed=0)
    until = time.monotonic() + seconds

    async def act(lot: random.Random) -> None:
        while time.monotonic() < until:
            try:
                await _once_async(client, url, lot)
            except tenure.AcquireTimeout:
                counts["done"] += 1
            except tenure.TenureError as error:
                print(repr(error), file=sys.stderr, flush=True)
                counts["failed"] += 1
            else:
                counts["done"] += 1

    await asyncio.gather(*(act(lot) for lot in lots))
    return counts


async def _once_async(client: tenure.aio.Client, url: str, lot: random.Random) -> None:
    recipe, name = _drawn(lot)
    way = lot.random()
    if way < 0.01:
        async with tenure.aio.connect(url, ttl=_TTL) as own:
            await at(own, recipe, name).acquire(_PATIENCE)
    elif way < 0.2:
        hold = await at(client, recipe, name).try_acquire()
        if hold is not None:
            await hold.release()
    elif way < 0.3:
        await _given_up(client, recipe, name, lot)
    elif way < 0.35:
        await client.election(f"election-{lot.randrange(_NAMES)}").leader()
    else:
        async with await at(client, recipe, name).acquire(lot.choice((_PATIENCE, 5.0))) as hold:
            await asyncio.sleep(lot.uniform(0.0, _HOLD_SECONDS_MAX))
            if recipe == "election":
                await hold.amend(f"value {lot.random()}")
            hold.check()


async def _given_up(client: tenure.aio.Client, recipe: str, name: str, lot: random.Random) -> None:
    """A wait that is cancelled, unless it was over by then."""
    waiting: asyncio.Task[Any] = asyncio.create_task(at(client, recipe, name).acquire(5.0))
    await asyncio.sleep(lot.uniform(0.0, _PATIENCE))
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        hold = await waiting
        await hold.release()


if __name__ == "__main__":
    main()
