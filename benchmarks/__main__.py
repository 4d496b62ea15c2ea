"""`python -m benchmarks [--only locks|guards] [--quick] [--markdown FILE] [--no-fail] [--no-fsync] [--seed N]`.

From the project's root. Starts one etcd and one ZooKeeper of its own, and for the guards their databases. What the
servers count comes first, while nobody else is connected; then all contestants run in turns, and then the guards with
the bare operations. Exit code 1 when a floor is missed; the guards have none.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import random
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks import guards, imports, scale
from benchmarks.contestants import Servers, field
from benchmarks.measure import Plan, Results, interleave
from benchmarks.report import Findings, Locks, as_markdown, floors
from benchmarks.scale import FEW, MANY, SEATS, Counts, HandOvers
from tests.servers import PROVIDER_NAMES, EtcdSpec, ZooKeeperSpec, choose, start_together

_STORES: Final = ("etcd", "zookeeper")
_PARTS: Final = ("locks", "guards")
_PACKAGES: Final = {"locks": ("etcd3gw", "kazoo", "tooz"), "guards": guards.PACKAGES}


@dataclass(frozen=True)
class Effort:
    """How much of each; a full run takes about six minutes."""

    plan: Plan
    hand_overs: int
    imports: int


_FULL: Final = Effort(Plan(rounds=40, block_seconds=0.15), hand_overs=600, imports=15)
_QUICK: Final = Effort(Plan(rounds=8, block_seconds=0.12), hand_overs=200, imports=5)


def main() -> int:
    arguments = _arguments()
    effort = _QUICK if arguments.quick else _FULL
    parts = _PARTS if arguments.only is None else (arguments.only,)
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # it warns of the old etcd that the wheel brings
    about = _about(parts, seed, effort, arguments.no_fsync)
    _tell("; ".join(about))
    provider = choose(arguments.servers)
    try:
        etcd_spec = EtcdSpec(heartbeat_ms=100, election_ms=1000, extra_args=_disk(arguments.no_fsync))
        etcd, zookeeper = start_together(provider, etcd_spec, ZooKeeperSpec(tick_ms=2000))
        findings = _find(parts, Servers(etcd, zookeeper), effort, random.Random(seed))
    finally:
        provider.close()
    report = as_markdown(findings, [*about, f"load average at the end: {os.getloadavg()[0]:.1f}"])
    sys.stdout.write(report)
    if arguments.markdown is not None:
        arguments.markdown.write_text(report, encoding="utf-8")
    return 0 if arguments.no_fail or all(floor.kept for floor in floors(findings)) else 1


def _find(parts: Sequence[str], servers: Servers, effort: Effort, shuffler: random.Random) -> Findings:
    """The guards' databases start first, so that a missing one is told at once; they have nothing to do meanwhile."""
    with ExitStack() as stack:
        grounds = guards.open_grounds(servers, stack) if "guards" in parts else None
        locks = _locks(servers, effort, shuffler) if "locks" in parts else None
        costs = [] if grounds is None else guards.compare(grounds, effort.plan, shuffler, _tell)
        return Findings(locks, costs)


def _locks(servers: Servers, effort: Effort, shuffler: random.Random) -> Locks:
    counted: dict[str, dict[str, Counts]] = {}
    hand_overs: dict[tuple[str, str], dict[int, HandOvers]] = {}
    for store in _STORES:
        _tell(f"counting at {store}")
        cluster = servers.of(store)
        counted[store] = scale.per_cycle(cluster)
        for recipe, seats in (("lock", 1), ("semaphore", SEATS)):
            hand_overs[store, recipe] = {
                waiters: scale.hand_overs(cluster, seats, waiters, effort.hand_overs) for waiters in (FEW, MANY)
            }
    cycles = {store: _cycles(servers, store, effort.plan, shuffler) for store in _STORES}
    return Locks(cycles, counted, hand_overs, imports.compare(effort.imports))


def _cycles(servers: Servers, store: str, plan: Plan, shuffler: random.Random) -> Results:
    """All contestants on one store in one run; only their ratios on the same store mean anything."""
    with ExitStack() as stack:
        blocks = {name: contestant(servers, stack) for name, contestant in field(store).items()}
        return interleave(blocks, plan, shuffler, lambda progress: _tell(f"{store}: {progress}"))


def _disk(no_fsync: bool) -> tuple[str, ...]:
    """A slow or busy disk draws every ratio towards that of the writes, 2 of ours to 3 of etcd3gw's and tooz's."""
    return ("--unsafe-no-fsync",) if no_fsync else ()


def _about(parts: Sequence[str], seed: int, effort: Effort, no_fsync: bool) -> list[str]:
    packages = ", ".join(f"{name} {version(name)}" for part in parts for name in _PACKAGES[part])
    plan = effort.plan
    return [
        f"seed {seed}; {plan.rounds} rounds of {plan.block_seconds:g} s per contestant, order shuffled in each",
        f"Python {platform.python_version()}, {os.cpu_count()} processors; {packages}",
        f"etcd {'does not wait' if no_fsync else 'waits'} for its disk; ZooKeeper waits",
        *([guards.DISK] if "guards" in parts else []),
        "ratios are medians over rounds of the round's ratio of medians, with quartiles: lower is faster",
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, under two minutes")
    parser.add_argument("--only", choices=_PARTS, help="one half: the locks and their peers, or the guards")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the report there, too")
    parser.add_argument("--no-fail", action="store_true", help="exit with 0 even when a floor is missed")
    parser.add_argument("--seed", type=int, help="of the order of contestants; printed when not given")
    parser.add_argument(
        "--no-fsync", action="store_true", help="etcd without waiting for its disk: compares the clients alone"
    )
    parser.add_argument("--servers", choices=PROVIDER_NAMES, default="native")
    return parser.parse_args()


def _tell(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
