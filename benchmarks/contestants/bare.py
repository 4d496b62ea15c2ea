"""The floor: the bare operations no recipe can do without, through the client that tenure uses.

etcd: a transaction that puts a key under a lease unless it is there and reads the line, and one that deletes the key
if it is still that very key; over tenure's own wire. As little as a transaction can be, a put and a delete with
nothing leased and nothing read, stands beside it. ZooKeeper: an ephemeral sequential node comes and goes, through
kazoo.

`Chain` is the floor of a hand-over: two processes that delete in turns what the other watches.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final, Protocol

import tenure
from benchmarks.contestants.ours import GRPC, url, without_grpc
from benchmarks.contestants.peers import kazoo_client
from benchmarks.contestants.place import AsyncPlace, Blocking, Contestant, Door, Place, Tasked, require
from tenure._backends.etcd.lines import CatchUp
from tenure._backends.etcd.requests import (
    Condition,
    CreatedAt,
    DeleteKey,
    KeyValue,
    Operation,
    PutKey,
    Range,
    Txn,
    TxnResult,
    WatchRequest,
)
from tenure._backends.etcd.wire import Wire
from tenure._core.base.signals import Signal
from tenure._core.lease import BackendContext, Ticket
from tenure._core.runtime import runtime_of

_NAMES: Final = {"etcd": "bare: two transactions", GRPC: "bare: two transactions over gRPC"}
_LEAST: Final = {"etcd": "bare: a put and a delete", GRPC: "bare: a put and a delete over gRPC"}
ON_THREADS: Final = {scheme: f"{name}, asyncio" for scheme, name in _NAMES.items()}
ZOOKEEPER: Final = "bare: create and delete"
ETCD: Final = _NAMES["etcd"]
ETCD_GRPC: Final = _NAMES[GRPC]
FLOOR: Final = {"etcd": ETCD, "zookeeper": ZOOKEEPER}
_WATCH_SECONDS: Final = 20.0


class EtcdWire:
    """Requests over the wire of a client of ours, past everything that stands above it."""

    def __init__(self, scheme: str, endpoint: str, ttl: float, stack: ExitStack) -> None:
        self._client = stack.enter_context(tenure.connect(url(scheme, endpoint), ttl=ttl))
        self._client.lock("a lease").acquire(_WATCH_SECONDS).release()
        backend: Any = runtime_of(self._client)._backend
        self._wire: Wire = backend._wire
        self._context: BackendContext = backend._context
        self.lease = int(runtime_of(self._client).lease(ttl).id, 16)

    def transaction(self, compare: tuple[Condition, ...], *success: Operation) -> int:
        """The revision it was carried out at."""
        return self.carry_out(compare, *success).revision

    def carry_out(self, compare: tuple[Condition, ...], *success: Operation) -> TxnResult:
        """Or an error: these are not to fail."""
        answer = self._wire.txn(Txn(compare, success), runtime_of(self._client).request_until())
        require(answer.succeeded)
        return answer

    def watch(self, watching: WatchRequest) -> Callable[[], None]:
        return self._wire.watch(watching)

    def departure(self, before: KeyValue, since: int, told: Signal) -> Callable[[], None]:
        """Watch for the deletion of what stood at `since`, as tenure does: one that begins late asks once."""
        ticket = Ticket("", "", before.key.decode(), before.create_revision)
        missed = CatchUp(self._wire, self._context, Range(before.key), (ticket,), told, amendments=False)
        return self.watch(WatchRequest(before.key, None, since + 1, True, told, missed))


class _Line:
    """The two requests of a lock without the lock; `leased` with what a lock's have in them."""

    def __init__(self, wire: EtcdWire, name: str, *, leased: bool) -> None:
        self._wire = wire
        self._key = key = f"bare/{name}/key".encode()
        self._absent = (CreatedAt(key, 0),)
        self._enter: tuple[Operation, ...] = (PutKey(key, key, wire.lease if leased else 0),)
        if leased:
            self._enter += (Range(f"bare/{name}/".encode(), f"bare/{name}0".encode()),)

    def enter(self) -> int:
        self._token = self._wire.transaction(self._absent, *self._enter)
        return self._token

    def leave(self) -> object:
        return self._wire.transaction((CreatedAt(self._key, self._token),), DeleteKey(self._key))


class _OnThreads:
    """The same two requests from a task, each on a worker thread: what asyncio costs a client whose calls block."""

    def __init__(self, line: _Line, workers: ThreadPoolExecutor) -> None:
        self._line = line
        self._workers = workers

    async def enter(self) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._workers, self._line.enter)

    async def leave(self) -> object:
        return await asyncio.get_running_loop().run_in_executor(self._workers, self._line.leave)


class _Node:
    def __init__(self, client: Any, parent: str) -> None:
        self._client = client
        self._path = f"{parent}/node-"

    def enter(self) -> None:
        self._node = self._client.create(self._path, b"", ephemeral=True, sequence=True)

    def leave(self) -> object:
        return self._client.delete(self._node)


def _etcd(scheme: str, *, leased: bool) -> Callable[[Door], Callable[[], Place]]:
    def opener(door: Door) -> Callable[[], Place]:
        wire = EtcdWire(scheme, door.endpoint, door.ttl, door.stack)
        return lambda: _Line(wire, door.name, leased=leased)

    return opener


def _etcd_on_threads(scheme: str) -> Callable[[Door], Callable[[], AsyncPlace]]:
    def opener(door: Door) -> Callable[[], AsyncPlace]:
        wire = EtcdWire(scheme, door.endpoint, door.ttl, door.stack)
        workers = door.stack.enter_context(ThreadPoolExecutor(1))
        return lambda: _OnThreads(_Line(wire, door.name, leased=True), workers)

    return opener


def _zookeeper(door: Door) -> Callable[[], Place]:
    client = kazoo_client(door)
    client.ensure_path(f"/bare/{door.name}")
    return lambda: _Node(client, f"/bare/{door.name}")


def _all() -> list[Contestant]:
    found: list[Contestant] = []
    for scheme, missing in (("etcd", lambda: None), (GRPC, without_grpc)):
        found += [
            Blocking(_NAMES[scheme], "etcd", _etcd(scheme, leased=True), "bare", contends=False, missing=missing),
            Blocking(_LEAST[scheme], "etcd", _etcd(scheme, leased=False), "bare", contends=False, missing=missing),
            Tasked(ON_THREADS[scheme], "etcd", _etcd_on_threads(scheme), "bare", contends=False, missing=missing),
        ]
    return [*found, Blocking(ZOOKEEPER, "zookeeper", _zookeeper, "bare", contends=False)]


ALL: Final = _all()


class Chain(Protocol):
    """Keys `0…` of one round, that two processes watch and delete."""

    def lay(self, count: int) -> int:
        """Make them all; from which revision to watch."""

    def watch(self, number: int, since: int) -> Callable[[], None]:
        """Watch for the deletion of one; the returned function waits until it was told."""

    def cut(self, number: int, since: int) -> None:
        """Delete one, if it is still what was made."""


class EtcdChain:
    """Over tenure's own wire: a conditional delete, and its watch."""

    def __init__(self, scheme: str, door: Door) -> None:
        self._wire = EtcdWire(scheme, door.endpoint, door.ttl, door.stack)
        self._prefix = f"chain/{door.name}"

    def lay(self, count: int) -> int:
        return self._wire.transaction((), *(PutKey(self._key(number), b"") for number in range(count)))

    def watch(self, number: int, since: int) -> Callable[[], None]:
        signal = Signal()
        stop = self._wire.watch(WatchRequest(self._key(number), None, since + 1, True, signal))

        def wait() -> None:
            require(signal.wait(_WATCH_SECONDS))
            stop()

        return wait

    def cut(self, number: int, since: int) -> None:
        self._wire.transaction((CreatedAt(self._key(number), since),), DeleteKey(self._key(number)))

    def _key(self, number: int) -> bytes:
        return f"{self._prefix}/{number}".encode()


class ZooKeeperChain:
    """Through kazoo: a delete of the version that was made, and the event of a watch."""

    def __init__(self, door: Door) -> None:
        self._client = kazoo_client(door)
        self._prefix = f"/chain/{door.name}"

    def lay(self, count: int) -> int:
        self._client.ensure_path(self._prefix)
        for request in [self._client.create_async(self._key(number), b"") for number in range(count)]:
            request.get(timeout=_WATCH_SECONDS)
        return 0

    def watch(self, number: int, since: int) -> Callable[[], None]:
        told = threading.Event()
        require(self._client.exists(self._key(number), watch=lambda event: told.set()))
        return lambda: require(told.wait(_WATCH_SECONDS))

    def cut(self, number: int, since: int) -> None:
        self._client.delete(self._key(number), version=0)

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{number}"


def chain(scheme: str, door: Door) -> Chain:
    return ZooKeeperChain(door) if scheme == "zookeeper" else EtcdChain(scheme, door)
