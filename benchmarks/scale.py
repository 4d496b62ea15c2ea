"""Many holds and many waiters: what a process takes, and what the server is asked per hand-over, as their number grows.

A hand-over is one waiter's admission; with law 10 it costs the same whether 10 or 1,000 stand in the line. Every scene
runs in a process of its own (crowd.py), one at a time, and nobody else is connected.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from benchmarks import svg
from benchmarks.contestants import STORE_NAMES
from benchmarks.contestants.ours import GRPC, url, without_grpc
from benchmarks.contestants.place import SEATS
from benchmarks.crowd import CYCLES
from benchmarks.findings import Findings, Floor, Section, at_most, unmeasured
from benchmarks.ground import Ground, Servers
from benchmarks.players import python
from benchmarks.report import table
from tests.processes import ROOT

Told: TypeAlias = dict[str, Any]  # JSON, as crowd.py says it
NAMES: Final = 100
THREADS_MAX, SOCKETS_MAX, MEGABYTES_MAX = 10, 6, 30.0
_FACES: Final = ("blocking", "asyncio")
_LINES: Final = {"lock": 1, "semaphore": SEATS}
_SCENE_SECONDS: Final = 900
_LEAST_LINE: Final = 10
_MOST_WORK: Final = 1.1
_STORES: Final = {"etcd": "etcd", GRPC: "etcd", "zookeeper": "zookeeper"}


@dataclass(frozen=True)
class Scenes:
    """What was told of one way to a store."""

    cycles: Told
    holds: Mapping[str, Told]
    """By face."""
    waiters: Told
    lines: dict[str, dict[int, Told]] = field(default_factory=dict)
    """By recipe and number of waiters."""


def run(ground: Ground) -> Findings:
    """The part `scale`."""
    found: dict[str, Scenes] = {}
    absent = {}
    with ExitStack() as stack:
        servers = ground.servers(stack)
        for scheme in _STORES:
            if scheme == GRPC and (why := without_grpc()) is not None:
                absent["tenure over gRPC"] = why
            else:
                found[scheme] = _scenes(ground, servers, scheme)
    effort = ground.effort
    sections = [
        Section(f"What the server counts per cycle ({CYCLES} cycles)", _cycles(found)),
        Section(f"{effort.holds} holds in one process", _holds(found)),
        Section(f"{effort.waiters} waiters in one asyncio process, over {NAMES} names", _waiters(found)),
        Section("Waiters on one name: per hand-over", _lines(found)),
    ]
    floors = [floor for scheme in _STORES for floor in _floors(scheme, found.get(scheme), effort.holds)]
    return Findings(sections, floors, {"work-per-hand-over.svg": _plot(found)}, absent)


def _scenes(ground: Ground, servers: Servers, scheme: str) -> Scenes:
    effort = ground.effort

    def scene(name: str, **arguments: object) -> Told:
        ground.tell(f"scale, {scheme}: {name} {' '.join(f'{key}={value}' for key, value in arguments.items())}")
        return _played(servers, scheme, name, arguments)

    cycles = scene("cycles")
    holds = {face: scene("holds", face=face, count=effort.holds, idle=effort.idle_seconds) for face in _FACES}
    times = max(1, effort.hand_overs // NAMES)
    waiters = scene("waiters", count=effort.waiters, names=NAMES, times=times, idle=effort.idle_seconds)
    found = Scenes(cycles, holds, waiters)
    for recipe, seats in _LINES.items():
        found.lines[recipe] = {
            count: scene("line", count=count, seats=seats, times=effort.hand_overs) for count in effort.lines
        }
    return found


def _played(servers: Servers, scheme: str, scene: str, arguments: Mapping[str, object]) -> Told:
    cluster = servers.of(_STORES[scheme])
    words = (url(scheme, cluster.endpoints[0]), cluster.members[0].metrics_endpoint, json.dumps(arguments))
    done = subprocess.run(
        python("crowd", scene, *words), cwd=ROOT, capture_output=True, text=True, timeout=_SCENE_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the scene {scene} {arguments} on {scheme} failed: {done.stderr[-2000:]}")
    told: Told = json.loads(done.stdout)
    return told


def _all(work: Mapping[str, float]) -> float:
    return sum(work.values())


def _work(work: Mapping[str, float]) -> tuple[str, ...]:
    """Cells of what the server has done."""
    return tuple(f"{work[kind]:.2f}" for kind in ("transactions", "other_requests", "watch_messages"))


def _cycles(found: Mapping[str, Scenes]) -> list[str]:
    rows = [
        (scheme, recipe, *_work(work)) for scheme, scenes in found.items() for recipe, work in scenes.cycles.items()
    ]
    return table(("", "recipe", "transactions", "other requests", "watch messages"), rows)


_TAKEN_HEAD: Final = (
    "added MB",
    "threads",
    "sockets",
    "keep-alives per s",
    "all requests per s at rest",
    "seconds to get there",
)


def _taken(told: Told) -> tuple[str, ...]:
    idle = told["idle"]
    return (
        f"{told['memory_megabytes']:.1f}",
        f"{told['threads']}",
        f"{told['sockets']}",
        f"{idle['keep_alives']:.2f}",
        f"{_all(idle):.2f}",
        f"{told['seconds']:.1f}",
    )


def _holds(found: Mapping[str, Scenes]) -> list[str]:
    rows = [(scheme, face, *_taken(told)) for scheme, scenes in found.items() for face, told in scenes.holds.items()]
    return table(("", "face", *_TAKEN_HEAD), rows)


def _waiters(found: Mapping[str, Scenes]) -> list[str]:
    rows = [
        (scheme, *_taken(scenes.waiters), f"{scenes.waiters['per_second']:.0f}", _yes(scenes.waiters["in_order"]))
        for scheme, scenes in found.items()
    ]
    return table(("", *_TAKEN_HEAD, "hand-overs per s", "in order"), rows)


def _lines(found: Mapping[str, Scenes]) -> list[str]:
    rows = [
        (
            scheme,
            recipe,
            f"{count}",
            *_work(told["work"]),
            f"{told['per_second']:.0f}",
            f"{told['memory_megabytes']:.1f}",
            f"{told['threads']}",
            f"{told['sockets']}",
            _yes(told["in_order"]),
        )
        for scheme, scenes in found.items()
        for recipe, by_count in scenes.lines.items()
        for count, told in by_count.items()
    ]
    work = ("transactions", "other requests", "watch messages", "per s")
    return table(("", "recipe", "waiters", *work, "added MB", "threads", "sockets", "in order"), rows)


def _yes(in_order: bool) -> str:
    return "yes" if in_order else "NO"


def _plot(found: Mapping[str, Scenes]) -> str:
    series: dict[str, Sequence[tuple[float, float]]] = {
        f"{scheme} {recipe}": [(float(count), _all(told["work"])) for count, told in by_count.items()]
        for scheme, scenes in found.items()
        for recipe, by_count in scenes.lines.items()
    }
    return svg.lines(
        svg.Lines("Server work per hand-over", "waiters on one name", "requests and watch messages", series)
    )


def _floors(scheme: str, scenes: Scenes | None, holds: int) -> Iterator[Floor]:
    store = STORE_NAMES[_STORES[scheme]] + (" over gRPC" if scheme == GRPC else "")
    for recipe in _LINES:
        figure = f"{store} {recipe}: server work per hand-over, most waiters / {_LEAST_LINE}"
        if scenes is None:
            yield unmeasured(figure, _MOST_WORK, without_grpc() or "", headline=True)
            continue
        by_count = scenes.lines[recipe]
        maximum = max(by_count)
        ratio = _all(by_count[maximum]["work"]) / _all(by_count[_LEAST_LINE]["work"])
        yield at_most(figure.replace("most waiters", f"{maximum} waiters"), _MOST_WORK, ratio, headline=True)
    if scenes is None:
        return
    for face, told in scenes.holds.items():
        of = f"{store}, {face}, {holds} holds"
        yield at_most(f"{of}: threads", THREADS_MAX, told["threads"])
        yield at_most(f"{of}: sockets", SOCKETS_MAX, told["sockets"])
        yield at_most(f"{of}: added memory, MB", MEGABYTES_MAX, told["memory_megabytes"])
    lines = [told for by_count in scenes.lines.values() for told in by_count.values()]
    yield at_most(
        f"{store}: lines served out of order", 0, sum(not told["in_order"] for told in [*lines, scenes.waiters])
    )
    if _STORES[scheme] == "etcd":
        maximum = max(cycle["transactions"] + cycle["other_requests"] for cycle in scenes.cycles.values())
        yield at_most(f"{store}: requests per cycle", 2, maximum)
