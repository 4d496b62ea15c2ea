"""Half an hour of mixed work in one process per store and face: memory and descriptors must stay what they are.

The work is soaker.py's. What is compared is the last quarter of the time with the second: in the first one caches fill
and threads start; what grows after that would go on growing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final, TypeAlias

from benchmarks import svg
from benchmarks.contestants.ours import GRPC, url, without_grpc
from benchmarks.findings import Findings, Floor, Section, at_most
from benchmarks.ground import Ground
from benchmarks.players import Player, python
from benchmarks.report import table

Samples: TypeAlias = Sequence[dict[str, float]]  # as soaker.py says them
FACES: Final = ("blocking", "asyncio")
_STORES: Final = {"etcd": "etcd", GRPC: "etcd", "zookeeper": "zookeeper"}
_SAMPLES: Final = 120
_LATE_SECONDS: Final = 120.0
_MEMORY_RATIO: Final = 1.05
_DESCRIPTORS: Final = 2


def run(ground: Ground) -> Findings:
    """The part `soak`; it runs only when it is asked for."""
    every = ground.effort.soak_minutes * 60 / _SAMPLES
    found: dict[str, list[dict[str, float]]] = {}
    with ExitStack() as stack:
        servers = ground.servers(stack)
        schemes = [scheme for scheme in _STORES if scheme != GRPC or without_grpc() is None]
        players: dict[str, Player] = {}
        for scheme in schemes:
            for face in FACES:
                address = url(scheme, servers.of(_STORES[scheme]).endpoints[0])
                seed = ground.shuffler.randrange(10**6)
                players[f"{scheme}, {face}"] = Player(python("soaker", address, face, str(seed)), stack)
        for player in players.values():
            player.ready()
        for number in range(_SAMPLES):
            ground.tell(f"soak: {number * every / 60:.1f} of {ground.effort.soak_minutes:g} minutes")
            for player in players.values():
                player.ask(every)
            for name, player in players.items():
                found.setdefault(name, []).append(player.answer(every + _LATE_SECONDS))
    minutes = every / 60
    return Findings(
        [Section(f"Soak: {ground.effort.soak_minutes:g} minutes", _table(found))],
        [floor for name, samples in found.items() for floor in _floors(name, samples)],
        {"soak-memory.svg": _plot(found, minutes)},
    )


def _quarters(samples: Samples, what: str) -> tuple[float, float]:
    """Its median in the second and in the last quarter."""
    quarter = max(1, len(samples) // 4)
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    return statistics.median(one[what] for one in second), statistics.median(one[what] for one in last)


def _table(found: dict[str, list[dict[str, float]]]) -> list[str]:
    rows = []
    for name, samples in found.items():
        quarters: list[Any] = [_quarters(samples, what) for what in ("memory_megabytes", "descriptors", "threads")]
        cells = [f"{second:.1f} → {last:.1f}" for second, last in quarters]
        done = sum(one["done"] for one in samples)
        rows.append((name, *cells, f"{done:.0f}", f"{sum(one['failed'] for one in samples):.0f}"))
    return table(
        ("", "MB, second → last quarter", "descriptors", "threads", "done", "refused, or unanswered in time"), rows
    )


def _floors(name: str, samples: Samples) -> list[Floor]:
    second, last = _quarters(samples, "memory_megabytes")
    before, after = _quarters(samples, "descriptors")
    return [
        at_most(f"soak, {name}: memory, last quarter / second", _MEMORY_RATIO, last / second),
        at_most(f"soak, {name}: descriptors, last quarter − second", _DESCRIPTORS, after - before),
    ]


def _plot(found: dict[str, list[dict[str, float]]], minutes: float) -> str:
    series = {
        name: [(number * minutes, one["memory_megabytes"]) for number, one in enumerate(samples, 1)]
        for name, samples in found.items()
    }
    return svg.lines(svg.Lines("Memory under mixed work", "minutes", "MB", series, log_x=False))
