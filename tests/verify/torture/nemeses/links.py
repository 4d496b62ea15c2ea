"""Links that are broken in one direction only, refuse, swallow, or lose some of what they carry."""

from __future__ import annotations

from random import Random

from tests.verify.torture.nemeses.claims import servers
from tests.verify.torture.nemeses.kinds import BOTH, LINKS, NAMESPACES, NOTHING, Backends, Touches, last
from tests.verify.torture.nemeses.network import broken_links, cut_off, leader_or_any
from tests.verify.torture.parts import FaultLog, Need, Rig, Workers


class OneWayToServers:
    """Requests of a client reach no server; what the servers send still reaches it."""

    name = "one-way-to-servers"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        client = random.choice(rig.clients)
        with broken_links(rig, fault_log, self.name) as network:
            for server in servers(rig):
                network.cut(client, server)
            with cut_off(workers, fault_log, client):
                last(seconds)


class OneWayToClient:
    """Answers to a client are lost; its requests still reach the servers, and are carried out."""

    name = "one-way-to-client"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        client = random.choice(rig.clients)
        with broken_links(rig, fault_log, self.name) as network:
            for server in servers(rig):
                network.cut(server, client)
            with cut_off(workers, fault_log, client):
                last(seconds)


class OneWayFromLeader:
    """Messages of the leader to the other servers are lost; theirs still reach it."""

    name = "one-way-from-leader"
    backends: Backends = BOTH
    needs: frozenset[Need] = NAMESPACES
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        leader = leader_or_any(rig, random)
        with broken_links(rig, fault_log, self.name) as network:
            for server in servers(rig):
                if server != leader:
                    network.cut(leader, server)
            last(seconds)


class Reset:
    """A client's connections break with a reset, and new ones are refused."""

    name = "reset"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        client = random.choice(rig.clients)
        with broken_links(rig, fault_log, self.name) as network:
            for server in servers(rig):
                network.reset(client, server)
            with cut_off(workers, fault_log, client):
                last(seconds)


class Blackhole:
    """A server that no client reaches, nor it them: connections stand, and carry nothing."""

    name = "blackhole"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        server = random.choice(servers(rig))
        with broken_links(rig, fault_log, self.name) as network:
            for client in rig.clients:
                network.cut(client, server)
                network.cut(server, client)
            last(seconds)


class Loss:
    """Between 5 and 50 % of the packets are lost, at every client or at one of the servers."""

    name = "loss"
    backends: Backends = BOTH
    needs: frozenset[Need] = NAMESPACES
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        places = random.choice([list(rig.clients), [random.choice(servers(rig))]])
        share = random.uniform(0.05, 0.5)
        with broken_links(rig, fault_log, self.name) as network:
            for place in places:
                network.lose(place, share)
            last(seconds)
