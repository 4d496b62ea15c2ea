"""The stores themselves: `hold.store`, next to the same request over the same client without the hold."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import tenure
from benchmarks.contestants.peers import kazoo_client
from benchmarks.contestants.place import OPEN_TTL, Door, require
from benchmarks.guards.resource import VALUE, Grounds, Operation, Resource, client_of
from benchmarks.measure import Block, blocking
from tenure._backends.etcd.requests import PutKey, Range, Txn, TxnResult
from tenure._backends.etcd.wire import Wire
from tenure._core.runtime import runtime_of
from tenure.testing.servers import etcd_counters


def etcd(grounds: Grounds, stack: ExitStack) -> Resource:
    """Bare requests go over the same client's wire."""
    client = client_of(grounds.servers, "etcd", stack)
    hold = stack.enter_context(client.lock("ledger"))
    backend: Any = runtime_of(client)._backend
    wire: Wire = backend._wire

    def transaction(asked: PutKey | Range) -> TxnResult:
        return wire.txn(Txn(success=(asked,)), runtime_of(client).request_until())

    put = blocking(lambda: transaction(PutKey(b"bare", VALUE)))
    get = blocking(lambda: require(transaction(Range(b"bare")).key_values))
    release = _etcd_release(grounds.servers.etcd.members[0].metrics_endpoint)
    return Resource(f"etcd {release}", _operations("transaction of a put", put, "transaction of a get", get, hold))


def zookeeper(grounds: Grounds, stack: ExitStack) -> Resource:
    hold = stack.enter_context(client_of(grounds.servers, "zookeeper", stack).lock("ledger"))
    client = kazoo_client(Door(grounds.servers.endpoint("zookeeper"), "bare", OPEN_TTL, stack))
    client.ensure_path("/bare")
    put, get = blocking(lambda: client.set("/bare", VALUE)), blocking(lambda: require(client.get("/bare")))
    release = ".".join(map(str, client.server_version()))
    return Resource(f"ZooKeeper {release}", _operations("kazoo set", put, "kazoo get", get, hold))


def _etcd_release(endpoint: str) -> str:
    """As it is labelled among its metrics."""
    label = next(name for name in etcd_counters(endpoint) if name.startswith("etcd_server_version"))
    return label.split('"')[1]


def _operations(put: str, bare_put: Block, get: str, bare_get: Block, hold: tenure.Hold) -> list[Operation]:
    hold.store.put("guarded", VALUE)
    guarded_put = blocking(lambda: hold.store.put("guarded", VALUE))
    guarded_get = blocking(lambda: require(hold.store.get("guarded")))
    return [
        Operation(put, bare_put, {"hold.store.put": guarded_put}),
        Operation(get, bare_get, {"hold.store.get": guarded_get}),
    ]
