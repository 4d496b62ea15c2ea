"""Links between places that carry nothing, break, or lose packets.

Each nemesis breaks its links in a layer of its own and mends that, whatever others broke meanwhile. A client that is
left without a way to any server is in the fault_log as `cut`, within the fault itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random

from tenure.testing.servers import ServerFailed
from tests.verify.torture.nemeses.claims import server_name, servers, wait_serving
from tests.verify.torture.nemeses.kinds import BOTH, LINKS, NAMESPACES, NOTHING, Backends, Touches, last
from tests.verify.torture.parts import FaultLog, Need, Network, Rig, Workers


@contextmanager
def broken_links(rig: Rig, fault_log: FaultLog, fault: str) -> Iterator[Network]:
    """A layer of the network, mended at the end of the block; then waits until the servers serve."""
    network = rig.network.layer()
    with fault_log.broken(fault):
        try:
            yield network
        finally:
            network.heal()
        wait_serving(rig)


@contextmanager
def cut_off(workers: Workers, fault_log: FaultLog, place: str) -> Iterator[None]:
    """Say of every worker at this place that it has no way to any server, while that lasts."""
    with ExitStack() as stack:
        for worker in workers.all:
            if worker.place == place:
                stack.enter_context(fault_log.broken("cut", client=worker.name))
        yield


def part(network: Network, one: str, other: str) -> None:
    """Cut the two off from each other, both ways."""
    network.cut(one, other)
    network.cut(other, one)


class PartitionClient:
    """A client has no way to any server, nor they to it; nobody is told."""

    name = "partition-client"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        client = random.choice(rig.clients)
        with broken_links(rig, fault_log, self.name) as network:
            for server in servers(rig):
                part(network, client, server)
            with cut_off(workers, fault_log, client):
                last(seconds)


class PartitionMember:
    """Every client loses the servers it is connected to, and none of the others."""

    name = "partition-member"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with broken_links(rig, fault_log, self.name) as network:
            for client in rig.clients:
                for server in list(rig.reached(client))[:1]:
                    part(network, client, server)
            last(seconds)


class PartitionLeader:
    """The leader has no way to the other servers; the clients still reach it, or every other time they don't."""

    name = "partition-leader"
    backends: Backends = BOTH
    needs: frozenset[Need] = NAMESPACES
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        leader = leader_or_any(rig, random)
        others = [server for server in servers(rig) if server != leader]
        if random.random() < 0.5:
            others += rig.clients
        with broken_links(rig, fault_log, self.name) as network:
            for other in others:
                part(network, other, leader)
            last(seconds)


class PartitionHalves:
    """Two halves: the majority of servers with some clients, the rest with the others."""

    name = "partition-halves"
    backends: Backends = BOTH
    needs: frozenset[Need] = NAMESPACES
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        shuffled = random.sample(servers(rig), len(servers(rig)))
        fewer = len(shuffled) // 2
        clients = random.sample(list(rig.clients), len(rig.clients))
        here = [*shuffled[:fewer], *clients[: len(clients) // 2]]
        there = [*shuffled[fewer:], *clients[len(clients) // 2 :]]
        with broken_links(rig, fault_log, self.name) as network:
            for one in here:
                for other in there:
                    if one.startswith("server") or other.startswith("server"):
                        part(network, one, other)
            last(seconds)


class PartitionRing:
    """Every server sees a majority, and no two see the same: of three, two don't see each other."""

    name = "partition-ring"
    backends: Backends = BOTH
    needs: frozenset[Need] = NAMESPACES
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        leader = leader_or_any(rig, random)
        other = random.choice([server for server in servers(rig) if server != leader])
        with broken_links(rig, fault_log, self.name) as network:
            part(network, leader, other)
            last(seconds)


class IsolateFollower:
    """A follower has no way to the other servers, while its clients still reach it and believe what it says."""

    name = "isolate-follower"
    backends: Backends = BOTH
    needs: frozenset[Need] = NAMESPACES
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        leader = leader_or_any(rig, random)
        follower = random.choice([server for server in servers(rig) if server != leader])
        with broken_links(rig, fault_log, self.name) as network:
            for other in servers(rig):
                if other != follower:
                    part(network, follower, other)
            last(seconds)


def leader_or_any(rig: Rig, random: Random) -> str:
    """The leader's place; anybody's where others have broken the quorum meanwhile, and nobody leads."""
    try:
        member = rig.cluster.leader()
    except ServerFailed:
        member = random.choice(rig.cluster.members)
    return server_name(rig, member)
