"""Stores and transports of the fault suite: etcd over either of its transports, and ZooKeeper.

A cluster is the same cluster over gRPC; only its URL is another, and what a proxy reads on its wire.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import pytest

from tenure._core.hold import Holding
from tests.reference import etcd_messages
from tests.servers import Cluster

EtcdKind: TypeAlias = Literal["etcd", "etcd+grpc"]
GRPC = "etcd+grpc"
ETCD = pytest.mark.parametrize("kind", ["etcd", GRPC])
ALL = pytest.mark.parametrize("kind", ["etcd", GRPC, "zookeeper"])
BOTH = pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
"""For tests that depend on no transport."""

TXN = ("/v3/kv/txn", "/etcdserverpb.KV/Txn")
RANGE = ("/v3/kv/range", "/etcdserverpb.KV/Range")
KEEP_ALIVE = ("/v3/lease/keepalive", "/etcdserverpb.Lease/LeaseKeepAlive")
SIGN_IN = ("/v3/auth/authenticate", "/etcdserverpb.Auth/Authenticate")


def over(cluster: Cluster, kind: str) -> Cluster:
    """Return the cluster, reached over this transport."""
    if kind != GRPC:
        return cluster
    view, url = copy.copy(cluster), cluster.url

    def over_grpc(namespace: str = "", **options: object) -> str:
        return url(namespace, **options).replace("etcd://", f"{GRPC}://", 1)

    view.url = over_grpc  # type: ignore[method-assign]
    return view


def all_transports(clusters: Mapping[str, Cluster]) -> dict[str, Cluster]:
    """The run's clusters by kind, with etcd's over gRPC as one more."""
    return {**clusters, GRPC: over(clusters["etcd"], GRPC)}


def count(requests: Mapping[str | int, int], paths: tuple[str, str]) -> int:
    """Count requests to a path, over either transport."""
    return sum(requests.get(path, 0) for path in paths)


def until_renewed(hold: Holding, times: int) -> Iterator[None]:
    """Go on, a moment each, until the proof of the hold has moved on so often: a count that no slow machine spoils."""
    ends, seen = time.monotonic() + 40.0, set[float]()
    while len(seen) <= times:
        seen.add(proven_until(hold))
        assert time.monotonic() < ends, f"renewed {len(seen) - 1} times of {times}"
        yield
        time.sleep(0.02)


def wait_until_renewed(hold: Holding, times: int) -> None:
    """Wait on the caller's thread, which does nothing else meanwhile."""
    for _ in until_renewed(hold, times):
        pass


def proven_until(hold: Holding) -> float:
    """Return when its belief ends, if nothing is heard any more."""
    deadline: float = hold._lease._belief.deadline  # type: ignore[attr-defined]  # that of a store's own lease
    return deadline


def enters(method: str, path: str, body: bytes) -> bool:
    """Tell whether this request puts a ticket."""
    if path == TXN[1]:
        return any(operation.request_put.lease for operation in _txn(body).success)
    return b'"lease":' in body


def leaves(method: str, path: str, body: bytes) -> bool:
    """Tell whether this request removes a ticket."""
    if path == TXN[1]:
        return any(operation.HasField("request_delete_range") for operation in _txn(body).success)
    return b"request_delete_range" in body or path in ("/v3/kv/deleterange", "/etcdserverpb.KV/DeleteRange")


def _txn(body: bytes) -> Any:
    return etcd_messages().TxnRequest.FromString(body)
