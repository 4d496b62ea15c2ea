"""Who runs: one uncontended acquire and release, each as its library's manual shows it.

A contestant gets the servers and a stack that closes what it opens, and answers with its block of cycles. Clients,
connections, leases and lock objects are made before the clock starts; only the cycle is timed.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import holdfast
from benchmarks.measure import Block, blocking, tasked
from tests.servers import Cluster

TTL_SECONDS: Final = 3600
"""etcd3gw and tooz leave a lease behind with every cycle. Expiring during the run, they would burden everybody's."""


@dataclass(frozen=True)
class Servers:
    """One etcd and one ZooKeeper, for all contestants."""

    etcd: Cluster
    zookeeper: Cluster

    def of(self, store: str) -> Cluster:
        return self.etcd if store == "etcd" else self.zookeeper


Contestant: TypeAlias = Callable[[Servers, ExitStack], Block]
Recipe: TypeAlias = Callable[[holdfast.Client], holdfast.Lock | holdfast.Semaphore]


class OldStyleLock(Protocol):
    """What kazoo, tooz and etcd3gw have in common."""

    def acquire(self) -> Any: ...
    def release(self) -> Any: ...


def holdfast_blocking(store: str, recipe: Recipe) -> Contestant:
    def contestant(servers: Servers, stack: ExitStack) -> Block:
        lock = recipe(stack.enter_context(holdfast.connect(servers.of(store).url("bench"))))
        return blocking(lambda: lock.acquire().release())

    return contestant


def holdfast_asyncio(store: str) -> Contestant:
    def contestant(servers: Servers, stack: ExitStack) -> Block:
        runner = stack.enter_context(asyncio.Runner())
        client = holdfast.aio.connect(servers.of(store).url("bench"))
        stack.callback(lambda: runner.run(client.close()))
        lock = client.lock("aio")

        async def cycle() -> None:
            hold = await lock.acquire()
            await hold.release()

        return tasked(runner, cycle)

    return contestant


def two_bare_transactions(servers: Servers, stack: ExitStack) -> Block:
    """The floor under any lock on etcd: put if absent, delete if present, over holdfast's own wire."""
    client = stack.enter_context(holdfast.connect(servers.etcd.url("bench")))
    client.lock("lease").acquire().release()
    backend: Any = client._house._backend
    key = base64.b64encode(b"bench/bare").decode()
    absent = {"target": "CREATE", "result": "EQUAL", "key": key, "create_revision": "0"}
    present = {"target": "CREATE", "result": "GREATER", "key": key, "create_revision": "0"}
    put = {"compare": [absent], "success": [{"request_put": {"key": key, "value": key}}]}
    delete = {"compare": [present], "success": [{"request_delete_range": {"key": key}}]}

    def cycle() -> None:
        until = client._house.request_until()
        require(backend._wire.txn(put, until).succeeded and backend._wire.txn(delete, until).succeeded)

    return blocking(cycle)


def create_and_delete(servers: Servers, stack: ExitStack) -> Block:
    """The floor under any lock on ZooKeeper: an ephemeral sequential node comes and goes, through kazoo."""
    client = kazoo_client(servers, stack)
    client.ensure_path("/bare")
    return blocking(lambda: client.delete(client.create("/bare/node-", b"", ephemeral=True, sequence=True)))


def etcd3gw_lock(servers: Servers, stack: ExitStack) -> Block:
    from etcd3gw.client import Etcd3Client

    host, _, port = servers.etcd.endpoints[0].rpartition(":")
    client = Etcd3Client(host, int(port))
    stack.callback(client.session.close)
    return _old_style(client.lock("etcd3gw", ttl=TTL_SECONDS))


def tooz_etcd(servers: Servers, stack: ExitStack) -> Block:
    return _tooz(f"etcd3+http://{servers.etcd.endpoints[0]}?timeout={TTL_SECONDS}", stack)


def tooz_zookeeper(servers: Servers, stack: ExitStack) -> Block:
    return _tooz(f"zookeeper://{servers.zookeeper.endpoints[0]}", stack)


def kazoo_lock(servers: Servers, stack: ExitStack) -> Block:
    return _old_style(kazoo_client(servers, stack).Lock("/kazoo/lock"))


def kazoo_semaphore(servers: Servers, stack: ExitStack) -> Block:
    return _old_style(kazoo_client(servers, stack).Semaphore("/kazoo/semaphore", max_leases=3))


def _old_style(lock: OldStyleLock) -> Block:
    def cycle() -> None:
        require(lock.acquire())
        lock.release()

    return blocking(cycle)


def _tooz(url: str, stack: ExitStack) -> Block:
    from tooz import coordination

    coordinator = coordination.get_coordinator(url, b"bench")
    coordinator.start()
    stack.callback(coordinator.stop)
    return _old_style(coordinator.get_lock(b"tooz"))


def kazoo_client(servers: Servers, stack: ExitStack) -> Any:  # Any: kazoo has no types
    from kazoo.client import KazooClient

    client = KazooClient(servers.zookeeper.endpoints[0])
    client.start()
    stack.callback(client.close)
    stack.callback(client.stop)
    return client


def require(done: object) -> None:
    """What is timed must have been done: an uncontended lock was acquired, a row was written."""
    if not done:
        raise RuntimeError("it was not acquired or not written: what was timed is not a cycle")


LOCK: Final = "holdfast lock"
LOCK_ASYNCIO: Final = "holdfast lock, asyncio"
BARE: Final = {"etcd": "bare: two transactions", "zookeeper": "bare: create and delete"}

_OURS: Final[dict[str, Recipe]] = {
    LOCK: lambda client: client.lock("lock"),
    "holdfast semaphore": lambda client: client.semaphore("semaphore", limit=3),
    "holdfast rwlock, read": lambda client: client.rwlock("rwlock").read(),
    "holdfast election": lambda client: client.election("election", value="10.0.0.7:8080").campaign(),
}
_PEERS: Final[dict[str, dict[str, Contestant]]] = {
    "etcd": {"etcd3gw Lock": etcd3gw_lock, "tooz etcd lock": tooz_etcd},
    "zookeeper": {"kazoo Lock": kazoo_lock, "kazoo Semaphore": kazoo_semaphore, "tooz zookeeper lock": tooz_zookeeper},
}
_BARE: Final[dict[str, Contestant]] = {"etcd": two_bare_transactions, "zookeeper": create_and_delete}


def field(store: str) -> dict[str, Contestant]:
    """All contestants on one store, by name."""
    ours = {name: holdfast_blocking(store, recipe) for name, recipe in _OURS.items()}
    return {BARE[store]: _BARE[store], **ours, LOCK_ASYNCIO: holdfast_asyncio(store), **_PEERS[store]}


def recipes() -> dict[str, Recipe]:
    """holdfast's own, for counting at the server."""
    return dict(_OURS)
