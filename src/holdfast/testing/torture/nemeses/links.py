"""Links that are broken in one direction only, refuse, swallow, or lose some of what they carry."""

from __future__ import annotations

from random import Random

from holdfast.testing.torture.nemeses.claims import servers
from holdfast.testing.torture.nemeses.kinds import BOTH, LINKS, NAMESPACES, NOTHING, Backends, Touches, last
from holdfast.testing.torture.nemeses.network import broken_links, cut_off, leader_or_any
from holdfast.testing.torture.parts import Crew, Diary, Ground, Need


class OneWayToServers:
    """What a client sends reaches no server; what they send still reaches it."""

    name = "one-way-to-servers"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = LINKS

    def strike(self, ground: Ground, crew: Crew, diary: Diary, random: Random, seconds: float) -> None:
        client = random.choice(ground.clients)
        with broken_links(ground, diary, self.name) as network:
            for server in servers(ground):
                network.cut(client, server)
            with cut_off(crew, diary, client):
                last(seconds)


class OneWayToClient:
    """What a client sends still reaches the servers, and is carried out; no answer reaches it."""

    name = "one-way-to-client"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = LINKS

    def strike(self, ground: Ground, crew: Crew, diary: Diary, random: Random, seconds: float) -> None:
        client = random.choice(ground.clients)
        with broken_links(ground, diary, self.name) as network:
            for server in servers(ground):
                network.cut(server, client)
            with cut_off(crew, diary, client):
                last(seconds)


class OneWayFromLeader:
    """What the leader sends to the other servers is lost; what they send reaches it."""

    name = "one-way-from-leader"
    backends: Backends = BOTH
    needs: frozenset[Need] = NAMESPACES
    touches: Touches = LINKS

    def strike(self, ground: Ground, crew: Crew, diary: Diary, random: Random, seconds: float) -> None:
        leader = leader_or_any(ground, random)
        with broken_links(ground, diary, self.name) as network:
            for server in servers(ground):
                if server != leader:
                    network.cut(leader, server)
            last(seconds)


class Reset:
    """A client's connections break with a reset, and new ones are refused."""

    name = "reset"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = LINKS

    def strike(self, ground: Ground, crew: Crew, diary: Diary, random: Random, seconds: float) -> None:
        client = random.choice(ground.clients)
        with broken_links(ground, diary, self.name) as network:
            for server in servers(ground):
                network.reset(client, server)
            with cut_off(crew, diary, client):
                last(seconds)


class Blackhole:
    """No client reaches one of the servers, nor it them: connections stand, and carry nothing."""

    name = "blackhole"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = LINKS

    def strike(self, ground: Ground, crew: Crew, diary: Diary, random: Random, seconds: float) -> None:
        server = random.choice(servers(ground))
        with broken_links(ground, diary, self.name) as network:
            for client in ground.clients:
                network.cut(client, server)
                network.cut(server, client)
            last(seconds)


class Loss:
    """Between 5 and 50 % of the packets are lost, at every client or at one of the servers."""

    name = "loss"
    backends: Backends = BOTH
    needs: frozenset[Need] = NAMESPACES
    touches: Touches = LINKS

    def strike(self, ground: Ground, crew: Crew, diary: Diary, random: Random, seconds: float) -> None:
        places = random.choice([list(ground.clients), [random.choice(servers(ground))]])
        share = random.uniform(0.05, 0.5)
        with broken_links(ground, diary, self.name) as network:
            for place in places:
                network.lose(place, share)
            last(seconds)
