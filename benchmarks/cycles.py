"""One uncontended acquire and release, of every recipe and every peer; and the first acquire after connect.

All contestants of a store run in turns in one run. Redis's run with etcd's, for orientation: what they promise is
less. What a program in another language does is timed by itself, in its own process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from benchmarks import players, svg
from benchmarks.contestants import STORE_NAMES, bare, peers, programs
from benchmarks.contestants.crowded import HAND_OVER
from benchmarks.contestants.ours import GRPC, OURS, RECIPES, label
from benchmarks.contestants.place import OPEN_TTL, Blocking, Contestant, Door, Program, Tasked
from benchmarks.findings import Findings, Floor, Section, at_most, unmeasured
from benchmarks.ground import Ground, Servers, slug, taking_part
from benchmarks.measure import Block, Results, blocking, interleave, opened, tasked
from benchmarks.report import milliseconds, table

_FIELDS: Final = {"etcd": ("etcd", "redis"), "zookeeper": ("zookeeper",), "memory": ("memory",)}
_AGAINST: Final = {
    "etcd": (bare.ETCD, peers.TOOZ_ETCD, peers.ETCD3GW),
    "zookeeper": (bare.ZOOKEEPER, peers.KAZOO_LOCK),
    "memory": (label("lock", scheme="memory"),),
}
"""What every contestant of a store is compared with, column by column."""
_FIRST_AGAINST: Final = {"etcd": peers.TOOZ_ETCD, "zookeeper": peers.KAZOO_LOCK}
_STARTS_ANEW: Final = "etcdctl lock"  # connects each time: its every cycle is a first


def run(ground: Ground) -> Findings:
    """The part `cycles`."""
    with ExitStack() as stack:
        servers = ground.servers(stack, redis=True)
        results: dict[str, Results] = {}
        absent: dict[str, str] = {}
        sections: list[Section] = []
        for store, stores in _FIELDS.items():
            here, missing = taking_part(servers, *stores)
            absent |= missing
            results[store] = _cycles(ground, servers, store, [who for who in here if who.recipe != HAND_OVER])
            sections.append(
                Section(f"Uncontended cycle: {STORE_NAMES[store]}", _table(results[store], _AGAINST[store]))
            )
        for store, against in _FIRST_AGAINST.items():
            first = _first(ground, servers, store, taking_part(servers, *_FIELDS[store])[0])
            sections.append(
                Section(f"First acquire after connect: {STORE_NAMES[store]}", _table(first, (against,), p99=False))
            )
    floors = [*_floors(results, absent)]
    return Findings(
        sections, floors, {f"cycles-{store}.svg": _plot(store, results[store]) for store in bare.FLOOR}, absent
    )


def block_of(who: Contestant, endpoint: str, stack: ExitStack) -> Block:
    """Blocks of its cycle. Clients, connections and places are made before the clock starts."""
    name = slug(who.name)
    if isinstance(who, Program):
        return players.block(who, endpoint, name, stack)
    door = Door(endpoint, name, OPEN_TTL, stack)
    if isinstance(who, Tasked):
        runner = stack.enter_context(asyncio.Runner())
        task = who.open(door)()

        async def cycle_async() -> None:
            await task.enter()
            await task.leave()

        return tasked(runner, cycle_async)
    place = who.open(door)()

    def cycle() -> None:
        place.enter()
        place.leave()

    return blocking(cycle)


def _cycles(ground: Ground, servers: Servers, store: str, here: Sequence[Contestant]) -> Results:
    with ExitStack() as stack:
        blocks = {who.name: block_of(who, servers.endpoint(who.store), stack) for who in here}
        tell = ground.tell
        return interleave(blocks, ground.effort.cycles, ground.shuffler, lambda told: tell(f"cycles, {store}: {told}"))


def _first(ground: Ground, servers: Servers, store: str, here: Sequence[Contestant]) -> Results:
    """From nothing to the first hold, in a process that has its modules loaded."""
    blocks = {
        who.name: _opening(who, servers.endpoint(who.store))
        for who in here
        if who.recipe == "lock" and who.name != _STARTS_ANEW and not isinstance(who, Program)
    }
    tell = ground.tell
    return interleave(blocks, ground.effort.first, ground.shuffler, lambda told: tell(f"first, {store}: {told}"))


def _opening(who: Blocking | Tasked, endpoint: str) -> Block:
    def connect_and_acquire(stack: ExitStack) -> None:
        door = Door(endpoint, f"first-{slug(who.name)}", OPEN_TTL, stack)
        if isinstance(who, Tasked):
            runner = stack.enter_context(asyncio.Runner())
            task = who.open(door)()

            async def enter() -> None:
                await task.enter()

            async def leave() -> None:
                await task.leave()

            runner.run(enter())
            stack.callback(lambda: runner.run(leave()))
        else:
            place = who.open(door)()
            place.enter()
            stack.callback(place.leave)

    return opened(connect_and_acquire)


def _table(results: Results, against: Sequence[str], *, p99: bool = True) -> list[str]:
    """Ratios first; the times are for orientation, of this machine in this minute."""
    columns = [peer for peer in against if peer in results]
    rows = [
        (
            name,
            *(str(results.ratio(name, peer)) for peer in columns),
            milliseconds(results.median(name)),
            *([milliseconds(results.p99(name))] if p99 else []),
            milliseconds(results.cpu_each(name)),
        )
        for name in results.by_speed
    ]
    times = ["p50 ms", *(["p99 ms"] if p99 else []), "CPU ms"]
    return table(("", *(f"/ {peer}" for peer in columns), *times), rows)


def _plot(store: str, results: Results) -> str:
    """Ratios to the floor; what starts a process each time would make everything else look alike."""
    floor = bare.FLOOR[store]
    shown = {name: results.ratio(name, floor).median for name in results.by_speed if name != _STARTS_ANEW}
    ordered = dict(sorted(shown.items(), key=lambda item: item[1]))
    return svg.bars(f"Uncontended cycle on {STORE_NAMES[store]} / {floor}", ordered, unit="×", mark=1.0)


def _floors(results: Mapping[str, Results], absent: Mapping[str, str]) -> Iterator[Floor]:
    """Of the blocking face, as the peers block; the asyncio face against it."""
    etcd, zookeeper, grpc = label("lock"), label("lock", scheme="zookeeper"), label("lock", scheme=GRPC)
    wanted = [
        ("etcd", "etcd lock cycle / two bare transactions", 1.15, etcd, bare.ETCD),
        ("etcd", "etcd lock cycle / tooz", 0.42, etcd, peers.TOOZ_ETCD),
        ("etcd", "etcd lock cycle / etcd3gw.Lock", 0.42, etcd, peers.ETCD3GW),
        ("etcd", "etcd lock cycle over gRPC / two bare transactions", 1.15, grpc, bare.ETCD_GRPC),
        ("etcd", "etcd lock cycle over gRPC / Go's Mutex", 1.6, grpc, programs.GO_MUTEX),
        ("zookeeper", "ZooKeeper lock cycle / create and delete", 1.10, zookeeper, bare.ZOOKEEPER),
        ("zookeeper", "ZooKeeper lock cycle / kazoo Lock", 0.72, zookeeper, peers.KAZOO_LOCK),
        (
            "zookeeper",
            "ZooKeeper semaphore cycle / kazoo Semaphore",
            0.5,
            label("semaphore", scheme="zookeeper"),
            peers.KAZOO_SEMAPHORE,
        ),
    ]
    for store, scheme in (("etcd", "etcd"), ("etcd", GRPC), ("zookeeper", "zookeeper")):
        lock = label("lock", scheme=scheme)
        for recipe in RECIPES[1:]:
            who = label(recipe, scheme=scheme)
            wanted.append((store, f"cycle of {who} / lock", 1.15, who, lock))
        wanted.append((store, f"{lock}: asyncio / blocking", 1.25, label("lock", scheme=scheme, face="asyncio"), lock))
    for store, figure, bound, who, peer in wanted:
        found, headline = results[store], not peer.startswith(OURS)
        if who in found and peer in found:
            yield at_most(figure, bound, found.ratio(who, peer), headline=headline)
        else:
            why = next(absent[name] for name in (who, peer) if name in absent)
            yield unmeasured(figure, bound, why, headline=headline)
