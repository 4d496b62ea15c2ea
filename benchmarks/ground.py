"""What every part is given: how much to do, on which servers, in which order, and whom to tell.

Each part starts servers of its own: what one leaves in a store burdens no other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass

from benchmarks.contestants import everybody
from benchmarks.contestants.place import Contestant
from benchmarks.measure import Plan
from tenure.testing.servers import Cluster, EtcdSpec, ServersMissing, ZooKeeperSpec, start_together
from tests.servers import Redis, choose, start_database


@dataclass(frozen=True)
class Effort:
    """How much of each."""

    cycles: Plan
    first: Plan
    guards: Plan
    contenders: tuple[int, ...]
    contended: Plan
    takeover_ttl: int
    takeover_trials: int
    lines: tuple[int, ...]
    """Waiters on one lock, and on one semaphore; hand-overs are counted at each."""
    hand_overs: int
    holds: int
    waiters: int
    idle_seconds: float
    imports: int
    soak_minutes: float = 30.0


FULL = Effort(
    cycles=Plan(rounds=40, block_seconds=0.15),
    first=Plan(rounds=15, block_seconds=0.1),
    guards=Plan(rounds=40, block_seconds=0.15),
    contenders=(2, 8, 32, 128),
    contended=Plan(rounds=7, block_seconds=1.5),
    takeover_ttl=3,
    takeover_trials=7,
    lines=(10, 30, 100, 300, 1000),
    hand_overs=600,
    holds=10_000,
    waiters=10_000,
    idle_seconds=20.0,
    imports=15,
)
QUICK = Effort(
    cycles=Plan(rounds=3, block_seconds=0.05),
    first=Plan(rounds=2, block_seconds=0.01),
    guards=Plan(rounds=3, block_seconds=0.04),
    contenders=(2, 32),
    contended=Plan(rounds=1, block_seconds=0.3),
    takeover_ttl=2,
    takeover_trials=1,
    lines=(10, 200),
    hand_overs=60,
    holds=1_000,
    waiters=500,
    idle_seconds=1.5,
    imports=2,
)
"""Small rounds, to see that everything runs; its spread is wide."""


@dataclass(frozen=True)
class Servers:
    """One etcd and one ZooKeeper, for all contestants of a part; Redis where it was asked for and is installed."""

    etcd: Cluster
    zookeeper: Cluster
    redis: str | None = None

    def of(self, store: str) -> Cluster:
        return self.etcd if store == "etcd" else self.zookeeper

    def endpoint(self, store: str) -> str:
        """`host:port`; of memory, a name."""
        if store == "redis":
            return self.redis or ""
        return "bench" if store == "memory" else self.of(store).endpoints[0]


@dataclass(frozen=True)
class Ground:
    """Handed to every part."""

    effort: Effort
    shuffler: random.Random
    tell: Callable[[str], None]
    provider: str = "native"
    fsync: bool = True

    def servers(self, stack: ExitStack, *, redis: bool = False, brisk: bool = False) -> Servers:
        """Started, and closed with the stack. `brisk` ones take short TTLs, as take-over needs."""
        provider = choose(self.provider)
        stack.callback(provider.close)
        disk = () if self.fsync else ("--unsafe-no-fsync",)
        calm = EtcdSpec(heartbeat_ms=100, election_ms=1000, extra_args=disk)
        etcd, zookeeper = start_together(
            provider, EtcdSpec(extra_args=disk) if brisk else calm, ZooKeeperSpec(tick_ms=200 if brisk else 2000)
        )
        return Servers(etcd, zookeeper, _redis(stack) if redis else None)


def _redis(stack: ExitStack) -> str | None:
    """For orientation only: where it is not installed, its contestants are absent."""
    try:
        server = stack.enter_context(closing(start_database(Redis())))
    except ServersMissing:
        return None
    return server.url().split("://", 1)[1].split("/", 1)[0].rpartition("@")[2]


def taking_part(servers: Servers, *stores: str) -> tuple[list[Contestant], dict[str, str]]:
    """Who is there of these stores; and of the others, by name, how to get them."""
    here: list[Contestant] = []
    absent: dict[str, str] = {}
    for contestant in everybody():
        if contestant.store not in stores:
            continue
        why = contestant.absent()
        if why is None and contestant.store == "redis" and servers.redis is None:
            why = "Redis is not installed: `apt-get install redis-server`"
        if why is None:
            here.append(contestant)
        else:
            absent[contestant.name] = why
    return here, absent


def slug(name: str) -> str:
    """A contestant's name as part of a key, a path or a file name."""
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())
