"""The tables, and the floors: what holdfast must reach next to its peers. A floor is a ratio or a count.

No floor is a time: the machine is shared, and not yours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.contestants import BARE, LOCK, LOCK_ASYNCIO
from benchmarks.guards import Costs
from benchmarks.imports import Imports
from benchmarks.measure import Results, Spread
from benchmarks.scale import CYCLES, FEW, MANY, Counts, HandOvers

THREADS_MAX: Final = 12
_STORE_NAMES: Final = {"etcd": "etcd", "zookeeper": "ZooKeeper"}
_ASYNCIO_FLOOR: Final = 1.25
_PEER_FLOORS: Final = (("etcd", "tooz etcd lock", 0.5), ("etcd", "etcd3gw Lock", 0.5), ("zookeeper", "kazoo Lock", 0.8))


@dataclass(frozen=True)
class Findings:
    """All that was measured, as far as it was asked for."""

    locks: Locks | None
    guards: Sequence[Costs]


@dataclass(frozen=True)
class Locks:
    """What was measured of the locks. Keys are stores; those of `hand_overs` are store and recipe."""

    cycles: Mapping[str, Results]
    counted: Mapping[str, Mapping[str, Counts]]
    hand_overs: Mapping[tuple[str, str], Mapping[int, HandOvers]]
    imports: Imports


@dataclass(frozen=True)
class Floor:
    """One promise, and what was found."""

    promise: str
    wanted: str
    found: str
    kept: bool


def floors(found: Findings) -> list[Floor]:
    """Every floor, kept or not. The locks have them: what a guard may cost is for its resource to say."""
    locks = found.locks
    if locks is None:
        return []
    return [*_against_peers(locks), _one_transaction_each(locks), *_at_scale(locks), _lean_import(locks)]


def _against_peers(found: Locks) -> Iterator[Floor]:
    """The peers block, so the blocking face is measured against them, and the asyncio face against it."""
    for store, peer, most in _PEER_FLOORS:
        yield _cycle_floor(found, store, LOCK, peer, most)
    for store in found.cycles:
        yield _cycle_floor(found, store, LOCK_ASYNCIO, LOCK, _ASYNCIO_FLOOR)


def _cycle_floor(found: Locks, store: str, who: str, against: str, most: float) -> Floor:
    ratio = found.cycles[store].ratio(who, against)
    promise = f"{_STORE_NAMES[store]}: cycle of {who} / {against}"
    return Floor(promise, f"≤ {most}", _spread(ratio, digits=3), ratio.median <= most)


def _one_transaction_each(found: Locks) -> Floor:
    counts = found.counted["etcd"][LOCK]
    exactly = counts.transactions == 2.0
    return Floor("etcd: one transaction to acquire, one to release", "= 2", f"{counts.transactions:g}", exactly)


def _at_scale(found: Locks) -> Iterator[Floor]:
    for (store, recipe), by_waiters in found.hand_overs.items():
        few, many = by_waiters[FEW], by_waiters[MANY]
        ratio = many.work.all / few.work.all
        promise = f"{_STORE_NAMES[store]}: server work per hand-over of a {recipe}, {MANY} / {FEW} waiters"
        yield Floor(promise, "≤ 1.1", f"{ratio:.3f}", ratio <= 1.1)
    runs = [run for by_waiters in found.hand_overs.values() for run in by_waiters.values()]
    threads = max(run.threads_max for run in runs)
    yield Floor(f"threads of a process with {MANY} waiters", f"≤ {THREADS_MAX}", f"{threads}", threads <= THREADS_MAX)
    in_order = all(run.in_order for run in runs)
    yield Floor("first come, first served", "always", "always" if in_order else "not always", in_order)


def _lean_import(found: Locks) -> Floor:
    clients = found.imports.store_clients
    return Floor("`import holdfast` imports a store's client", "none", ", ".join(clients) or "none", not clients)


def as_markdown(found: Findings, about: Sequence[str]) -> str:
    """The whole report."""
    sections = [_section("Benchmarks", [f"- {line}" for line in about])]
    if found.locks is not None:
        sections += _of_locks(found.locks)
    if found.guards:
        sections.append(_section("What a guard costs", _guards(found.guards)))
    if held := floors(found):
        sections.append(_section("Floors", _floors(held)))
    return "\n".join(sections)


def _of_locks(found: Locks) -> list[str]:
    return [
        *(_section(f"Uncontended cycle on {_STORE_NAMES[store]}", _cycles(found, store)) for store in found.cycles),
        _section(f"What the server counts per cycle ({CYCLES} cycles)", _counted(found)),
        _section("What the server counts per hand-over", _hand_overs(found)),
        _section("Import", [_import(found.imports)]),
    ]


def _cycles(found: Locks, store: str) -> list[str]:
    """Ratios first; the times are for orientation, of this machine in this minute."""
    results, bare = found.cycles[store], BARE[store]
    peers = [peer for of, peer, _ in _PEER_FLOORS if of == store]
    rows = [
        (
            name,
            _spread(results.ratio(name, bare)),
            *(_spread(results.ratio(name, peer)) for peer in peers),
            f"{results.median(name) * 1000:.2f}",
            f"{results.p99(name) * 1000:.2f}",
        )
        for name in results.by_speed
    ]
    return _table(("acquire + release", "/ bare", *(f"/ {peer}" for peer in peers), "median ms", "p99 ms"), rows)


def _counted(found: Locks) -> list[str]:
    rows = [
        (_STORE_NAMES[store], name, f"{c.transactions:g}", f"{c.other_requests:g}", f"{c.watch_messages:g}")
        for store, counts in found.counted.items()
        for name, c in counts.items()
    ]
    return _table(("store", "recipe", "transactions", "other requests", "watch messages"), rows)


def _hand_overs(found: Locks) -> list[str]:
    rows = [
        (
            _STORE_NAMES[store],
            recipe,
            str(waiters),
            f"{run.work.transactions:.2f}",
            f"{run.work.other_requests:.2f}",
            f"{run.work.watch_messages:.2f}",
            str(run.threads_max),
            "yes" if run.in_order else "NO",
        )
        for (store, recipe), by_waiters in found.hand_overs.items()
        for waiters, run in by_waiters.items()
    ]
    head = ("store", "recipe", "waiters", "transactions", "other requests", "watch messages", "threads", "in order")
    return _table(head, rows)


def _import(imports: Imports) -> str:
    loaded = ", ".join(imports.store_clients) or "no store's client"
    ratio, milliseconds = _spread(imports.holdfast_to_kazoo), imports.holdfast_seconds * 1000
    return f"`import holdfast` / `import kazoo.client`: {ratio} ({milliseconds:.0f} ms); it imports {loaded}."


def _guards(guards: Sequence[Costs]) -> list[str]:
    """As ratios, and the bare operation's time for orientation: twice of little is little."""
    rows = [
        (
            costs.resource,
            guarded,
            bare,
            _spread(costs.results.ratio(guarded, bare)),
            f"{costs.results.median(bare) * 1000:.3f}",
        )
        for costs in guards
        for guarded, bare in costs.pairs
    ]
    return _table(("resource", "guarded", "bare", "guarded / bare", "bare median ms"), rows)


def _floors(floors: Sequence[Floor]) -> list[str]:
    rows = [(f.promise, f.wanted, f.found, "pass" if f.kept else "**FAIL**") for f in floors]
    return _table(("floor", "wanted", "measured", ""), rows)


def _spread(spread: Spread, *, digits: int = 2) -> str:
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f}–{spread.high:.{digits}f})"


def _section(title: str, lines: Iterable[str]) -> str:
    mark = "#" if title == "Benchmarks" else "##"
    return "\n".join([f"{mark} {title}", "", *lines, ""])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
