"""Worlds whose servers are containers, and whose clients have a Docker network each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from tenure.testing.conformance import *  # noqa: F403
from tenure.testing.conformance import Face
from tests.conformance.store_worlds import EtcdWorld, ServerWorld, ZooKeeperWorld
from tests.servers import Cluster, FaultProxy
from tests.servers.containers import client_network
from tests.servers.networks import ClientNetwork

_NETWORKS_MAX = 6


class Networks:
    """Client networks of one cluster, made when they are first needed and used again by the next test."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._made: list[ClientNetwork] = []

    def __getitem__(self, number: int) -> ClientNetwork:
        while len(self._made) <= number:
            self._made.append(client_network(self._cluster))
        return self._made[number]

    def close(self) -> None:
        """Remove them all."""
        with ExitStack() as undo:
            for network in self._made:
                undo.callback(network.close)


class Partitioned(ServerWorld):
    """A client is cut off by taking its network from the server. The proxy in front loses single answers, as ever."""

    def __init__(self, face: Face, cluster: Cluster, networks: Networks) -> None:
        super().__init__(face, cluster)
        self._networks = networks
        self._own: dict[int, ClientNetwork] = {}

    def client(self, **options: Any) -> Any:
        """A client with a network of its own; those beyond the sixth of a test share a way that can't be cut."""
        number = len(self.clients)
        client = super().client(**options)
        if number < _NETWORKS_MAX:
            self._own[id(client)] = self._networks[number]
        return client

    def way(self) -> FaultProxy:
        """Through the network that is next."""
        number = len(self.clients)
        if number >= _NETWORKS_MAX:
            return super().way()
        network = self._networks[number]
        return FaultProxy(network.endpoints[0], self.kind, host=network.host)  # type: ignore[arg-type]  # one of two

    def close(self) -> None:
        for network in self._own.values():
            network.heal()
        super().close()

    def cut(self, client: Any) -> None:
        self._own[id(client)].cut()

    def heal(self, client: Any) -> None:
        if id(client) in self._own:
            self._own[id(client)].heal()
        super().heal(client)


class EtcdInContainers(Partitioned, EtcdWorld):
    """etcd through its gateway."""


class ZooKeeperInContainers(Partitioned, ZooKeeperWorld):
    """ZooKeeper."""


WORLDS: dict[str, type[Partitioned]] = {"etcd": EtcdInContainers, "zookeeper": ZooKeeperInContainers}


@pytest.fixture(scope="session")
def networks(singles: dict[str, Cluster]) -> Iterator[dict[str, Networks]]:
    """The client networks of each server."""
    made = {kind: Networks(cluster) for kind, cluster in singles.items()}
    yield made
    for one in made.values():
        one.close()


@pytest.fixture(params=WORLDS)
def make_world(
    request: pytest.FixtureRequest, singles: dict[str, Cluster], networks: dict[str, Networks]
) -> Callable[[Face], Partitioned]:
    """A function from a face to a world, of each kind."""
    kind = request.param
    return partial(WORLDS[kind], cluster=singles[kind], networks=networks[kind])
