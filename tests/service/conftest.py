"""Keepers over every store: a world with keepers in it, empty again at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.testing.conformance import Face, eventually
from tests.conformance.store_worlds import EtcdGrpcWorld, EtcdWorld, MemoryWorld, StoreWorld, ZooKeeperWorld

WORLDS = {"etcd": EtcdWorld, "etcd+grpc": EtcdGrpcWorld, "zookeeper": ZooKeeperWorld}


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[StoreWorld]:
    """The store of the kind that the test's marks name; clients are asyncio's, and the test closes them."""
    face = Face("plain asyncio")
    if request.param == "memory":
        world: StoreWorld = MemoryWorld(face)
    else:
        cluster = request.getfixturevalue("singles")[request.param.partition("+")[0]]
        world = WORLDS[request.param](face, cluster)
    leases = world.leases()
    try:
        yield world
    finally:
        world.close()
    assert eventually(lambda: world.forgotten() == []), f"left in the store: {world.forgotten()}"
    # one whose ticket was forced out ends by its TTL
    assert eventually(lambda: world.leases() <= leases, 20.0), f"{world.leases() - leases} leases are left"
