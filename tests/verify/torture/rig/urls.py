"""The store's URL for one place: all of the cluster's settings, with the addresses under which the place sees it."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.testing.servers import Cluster, ZooKeeperSpec

NAMESPACE = "torture"


def url_by_way_of(cluster: Cluster, endpoints: Sequence[str]) -> str:
    """The cluster's URL with other endpoints; for ZooKeeper with its tick, which a client has to be told."""
    tick = {"tick": cluster.spec.tick_ms / 1000} if isinstance(cluster.spec, ZooKeeperSpec) else {}
    return cluster.url(NAMESPACE, **tick).replace(",".join(cluster.endpoints), ",".join(endpoints))


def by_transport(url: str, transport: str) -> str:
    """The same store, through etcd's gateway or its gRPC."""
    return url.replace("etcd://", "etcd+grpc://", 1) if transport == "grpc" else url


def rotated(ways: Sequence[str], places: int) -> list[str]:
    """The same in another order: clients begin with different servers."""
    first = places % len(ways)
    return [*ways[first:], *ways[:first]]
