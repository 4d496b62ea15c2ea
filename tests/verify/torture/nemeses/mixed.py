"""Nemeses made of others: one of a family at random, or several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random

from tests.verify.torture.nemeses.catalogue import SINGLES
from tests.verify.torture.nemeses.kinds import BOTH, LINKS, NOTHING, Backends, Single, Thing, Touches
from tests.verify.torture.nemeses.links import OneWayFromLeader, OneWayToClient, OneWayToServers
from tests.verify.torture.nemeses.network import (
    PartitionClient,
    PartitionHalves,
    PartitionLeader,
    PartitionMember,
    PartitionRing,
)
from tests.verify.torture.parts import FaultLog, Need, Rig, Workers

AT_ONCE_MAX = 3


class Partition:
    """A symmetric partition: a client, its members, the leader, halves, a ring of majorities."""

    name = "partition"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = LINKS
    family: Sequence[type[Single]] = (
        PartitionClient, PartitionMember, PartitionLeader, PartitionHalves, PartitionRing
    )  # fmt: skip

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        fitting = [kind for kind in self.family if kind.needs <= rig.has]
        random.choice(fitting)().strike(rig, workers, fault_log, random, seconds)


class PartitionOneWay(Partition):
    """A partition in one direction: a client's requests, its answers, the leader's words to the others."""

    name = "partition-one-way"
    family: Sequence[type[Single]] = (OneWayToServers, OneWayToClient, OneWayFromLeader)


class All:
    """Up to three at a time, of all that this rig can do and that don't break the same thing."""

    name = "all"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING

    touches: Touches = frozenset({"servers", "links", "answers", "workers", "store"})

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        chosen = self.choose(rig, random)
        with ThreadPoolExecutor(max_workers=len(chosen), thread_name_prefix="nemesis") as pool:
            strikes = [
                pool.submit(kind().strike, rig, workers, fault_log, Random(random.random()), seconds) for kind in chosen
            ]
        for strike in strikes:
            strike.result()

    def choose(self, rig: Rig, random: Random) -> list[type[Single]]:
        """Nemeses that this rig can do, no two of which touch the same."""
        fitting = [k for k in SINGLES if k.needs <= rig.has and rig.cluster.kind in k.backends]
        how_many = random.randint(1, AT_ONCE_MAX)
        chosen: list[type[Single]] = []
        touched: set[Thing] = set()
        for kind in random.sample(fitting, len(fitting)):
            if len(chosen) < how_many and not touched & kind.touches:
                chosen.append(kind)
                touched |= kind.touches
        return chosen
