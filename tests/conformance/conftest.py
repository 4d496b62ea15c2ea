"""`make_world`: every backend of our own. The rest of the fixtures are the suite's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tenure.testing.conformance import *  # noqa: F403
from tests.servers import Cluster

from .services import RunningService, services
from .store_worlds import (
    KINDS,
    SERVED,
    EtcdGrpcWorld,
    EtcdWorld,
    MemoryWorld,
    ServiceOnEtcdWorld,
    ServiceOnZooKeeperWorld,
    ZooKeeperWorld,
)

WORLDS = {"etcd": EtcdWorld, "etcd+grpc": EtcdGrpcWorld, "zookeeper": ZooKeeperWorld}
THROUGH_SERVICE: dict[str, Any] = {"etcd": ServiceOnEtcdWorld, "zookeeper": ServiceOnZooKeeperWorld}


@pytest.fixture(scope="session")
def served(singles: dict[str, Cluster]) -> Iterator[dict[str, RunningService]]:
    """The services, one on each store, shared by the run."""
    with services(singles) as running:
        yield running


@pytest.fixture(params=(*KINDS, *SERVED))
def make_world(request: pytest.FixtureRequest) -> Any:
    """A function from a face to a world, of each kind."""
    if request.param == "memory":
        return MemoryWorld
    singles = request.getfixturevalue("singles")
    if request.param.startswith("http+"):
        store = request.param.removeprefix("http+")
        return partial(THROUGH_SERVICE[store], cluster=singles[store], service=request.getfixturevalue("served")[store])
    return partial(WORLDS[request.param], cluster=singles[request.param.partition("+")[0]])
