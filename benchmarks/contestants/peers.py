"""The peers in Python, each as its manual shows it, and `etcdctl lock`.

A peer is imported when it is opened, so that one that is not installed is absent and nothing else.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import logging
import os
import subprocess
from collections.abc import Callable
from typing import Any, Final

from benchmarks.contestants.place import SEATS, Blocking, Contestant, Door, Place, require
from tenure.testing.servers.control import find_etcd
from tenure.testing.servers.specs import ServersMissing

TOOZ_ETCD, ETCD3GW = "tooz etcd lock", "etcd3gw Lock"
KAZOO_LOCK, KAZOO_SEMAPHORE, KAZOO_ELECTION = "kazoo Lock", "kazoo Semaphore", "kazoo Election"
_CTL_SECONDS: Final = 60
_numbers: Final = itertools.count()


class _Old:
    """What kazoo, tooz, etcd3gw and the two of Redis have in common."""

    def __init__(self, lock: Any) -> None:  # Any: none of them has types that the others share
        self._lock = lock

    def enter(self) -> None:
        require(self._lock.acquire())

    def leave(self) -> object:
        return self._lock.release()


def kazoo_client(door: Door) -> Any:  # Any: kazoo has no types
    from kazoo.client import KazooClient

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # it tells of every connection that a fault takes away
    client = KazooClient(door.endpoint, timeout=door.ttl)
    client.start()
    door.stack.callback(client.close)
    door.stack.callback(client.stop)
    return client


def _kazoo(make: Callable[[Any, str], Any]) -> Callable[[Door], Callable[[], Place]]:
    def opener(door: Door) -> Callable[[], Place]:
        client = kazoo_client(door)
        return lambda: _Old(make(client, f"/kazoo/{door.name}"))

    return opener


class _KazooElection:
    """Its `run` acquires a lock and calls; this is what it does, without the call in between."""

    def __init__(self, election: Any) -> None:
        self._election = election

    def enter(self) -> None:
        require(self._election.lock.acquire())

    def leave(self) -> object:
        return self._election.lock.release()


def _kazoo_election(door: Door) -> Callable[[], Place]:
    client = kazoo_client(door)
    return lambda: _KazooElection(client.Election(f"/kazoo/{door.name}"))


def _etcd3gw(door: Door) -> Callable[[], Place]:
    from etcd3gw.client import Etcd3Client

    host, _, port = door.endpoint.rpartition(":")

    def place() -> Place:
        client = Etcd3Client(host, int(port))
        door.stack.callback(client.session.close)
        return _Old(client.lock(door.name, ttl=int(door.ttl)))

    return place


def _tooz(scheme: str, seconds: str) -> Callable[[Door], Callable[[], Place]]:
    """A coordinator for each contender: its members are what excludes one another. It keeps its lock alive itself."""

    def opener(door: Door) -> Callable[[], Place]:
        from tooz import coordination

        def place() -> Place:
            url = f"{scheme}://{door.endpoint}?timeout={door.ttl:g}{seconds}"
            coordinator = coordination.get_coordinator(url, f"bench-{os.getpid()}-{next(_numbers)}".encode())
            coordinator.start(start_heart=scheme.startswith("etcd"))
            door.stack.callback(coordinator.stop)
            return _Old(coordinator.get_lock(door.name.encode()))

        return place

    return opener


def _redis_client(door: Door) -> Any:
    import redis

    host, _, port = door.endpoint.rpartition(":")
    client = redis.Redis(host, int(port))
    door.stack.callback(client.close)
    return client


def _redis_py(door: Door) -> Callable[[], Place]:
    client = _redis_client(door)
    return lambda: _Old(client.lock(f"redis-py-{door.name}", timeout=door.ttl))


def _python_redis_lock(door: Door) -> Callable[[], Place]:
    client = _redis_client(door)
    redis_lock: Any = importlib.import_module("redis_lock")  # Any: it has no types
    return lambda: _Old(redis_lock.Lock(client, f"redis-lock-{door.name}", expire=int(door.ttl)))


class _Etcdctl:
    """`etcdctl lock NAME true`: a process that connects, locks, runs a command, unlocks and ends."""

    def __init__(self, door: Door) -> None:
        program = str(find_etcd("etcdctl"))
        self._command = [program, f"--endpoints={door.endpoint}", "lock", f"ctl-{door.name}", "true"]
        self._environment = {**os.environ, "ETCDCTL_API": "3"}

    def enter(self) -> None:
        subprocess.run(
            self._command, check=True, env=self._environment, stdout=subprocess.DEVNULL, timeout=_CTL_SECONDS
        )

    def leave(self) -> None:
        """It has left already."""


@functools.cache
def _without_etcdctl() -> str | None:
    try:
        find_etcd("etcdctl")
    except ServersMissing as missing:
        return str(missing)
    return None


ALL: Final[list[Contestant]] = [
    Blocking(ETCD3GW, "etcd", _etcd3gw, contends=False, package="etcd3gw"),  # it can't wait: acquire answers at once
    Blocking(TOOZ_ETCD, "etcd", _tooz("etcd3+http", ""), leads=True, package="tooz"),
    Blocking("etcdctl lock", "etcd", lambda door: lambda: _Etcdctl(door), contends=False, missing=_without_etcdctl),
    Blocking(KAZOO_LOCK, "zookeeper", _kazoo(lambda client, path: client.Lock(path))),
    Blocking(
        KAZOO_SEMAPHORE,
        "zookeeper",
        _kazoo(lambda client, path: client.Semaphore(path, max_leases=SEATS)),
        recipe="semaphore",
    ),
    Blocking(KAZOO_ELECTION, "zookeeper", _kazoo_election, "election", contends=False, leads=True),
    Blocking(
        "kazoo ReadLock",
        "zookeeper",
        _kazoo(lambda client, path: client.ReadLock(path)),
        recipe="rwlock, read",
        contends=False,
    ),
    Blocking("tooz ZooKeeper lock", "zookeeper", _tooz("zookeeper", ""), contends=False, package="tooz"),
    Blocking("redis-py Lock", "redis", _redis_py, package="redis"),
    Blocking("python-redis-lock", "redis", _python_redis_lock, package="redis_lock"),
]
