"""A store, clients of it and the faults between them: the same words for memory, etcd and ZooKeeper."""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Callable
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from holdfast.backends import memory
from holdfast.clock import SYSTEM_CLOCK
from holdfast.names import encode
from tests.servers import Cluster, FaultProxy, etcd_counters, etcdctl, zk_four_letter, zookeeper_counters

from .faces import Face

_names = itertools.count(1)
KINDS = ("memory", "etcd", "zookeeper")


class World(Protocol):
    """One test's store. Every client has its own way to it, which can be broken alone."""

    kind: str
    face: Face
    namespace: str

    def client(self, **options: Any) -> Any:
        """A client of the face under test. Any: either face's."""

    def lose_answer(self, client: Any, verb: str, times: int = 1) -> None:
        """The next request of this verb happens, and its answer is lost."""

    def lose_request(self, client: Any, verb: str, times: int = 1) -> None:
        """The next request of this verb never arrives."""

    def cut(self, client: Any) -> None:
        """Nothing gets through any more, in either direction."""

    def heal(self, client: Any) -> None: ...

    def expire(self, hold: Any) -> None:
        """End the lease of this hold at the store, as an administrator or the TTL would."""

    def remove(self, hold: Any) -> None:
        """Delete this hold's ticket at the store, as an administrator would."""

    def tickets(self, name: str) -> list[str]:
        """What the store itself says stands in the line, in its order."""

    def left(self) -> list[str]:
        """Everything the store has under the test's namespace."""

    def leases(self) -> int:
        """How many leases (sessions) the store has; others may use it too."""

    def wrote(self, name: str) -> list[Any]: ...


def eventually(what: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Does it come true in time? For things whose moment only the store knows."""
    give_up = time.monotonic() + seconds
    while not what():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)
    return True


class MemoryWorld:
    """memory://, on the real clock. Its faults hit all clients of the store but are undone one by one."""

    kind = "memory"

    def __init__(self, face: Face) -> None:
        self.face = face
        self._name = f"world-{next(_names)}"
        self.namespace = "ns"
        self.store = memory.store(self._name, SYSTEM_CLOCK)
        self._clients: list[Any] = []

    def client(self, **options: Any) -> Any:
        client = self.face.connect(f"memory://{self._name}/{self.namespace}", **options)
        self._clients.append(client)
        return client

    def lose_answer(self, client: Any, verb: str, times: int = 1) -> None:
        self._faults(client).lose_answer(verb, times)

    def lose_request(self, client: Any, verb: str, times: int = 1) -> None:
        self._faults(client).lose_request(verb, times)

    def cut(self, client: Any) -> None:
        self._faults(client).cut_off = True

    def heal(self, client: Any) -> None:
        inner(client)._house._backend.heal()

    def expire(self, hold: Any) -> None:
        self.store.expire(hold.lease_id)

    def remove(self, hold: Any) -> None:
        self.store.leave(f"{self.namespace}/{encode(hold.resource)}", hold.id, hold.token)

    def tickets(self, name: str) -> list[str]:
        return [t.id for t in self.store.lines.get(f"{self.namespace}/{encode(name)}", ())]

    def left(self) -> list[str]:
        return list(self.store.lines)

    def leases(self) -> int:
        return len(self.store.leases)

    def _faults(self, client: Any) -> memory.MemoryFaults:
        faults: memory.MemoryFaults = inner(client)._house._backend.faults
        return faults

    def close(self) -> None:
        for client in self._clients:
            self.heal(client)
        self.face.close()


class ServerWorld:
    """What etcd and ZooKeeper have in common: a proxy per client."""

    kind: str

    def __init__(self, face: Face, cluster: Cluster) -> None:
        self.face = face
        self.cluster = cluster
        self.namespace = f"test-{next(_names)}-{time.monotonic_ns():x}"
        self._proxies: dict[int, FaultProxy] = {}

    def client(self, **options: Any) -> Any:
        proxy = FaultProxy(self.cluster.endpoints[0], self.kind)  # type: ignore[arg-type]  # one of the two kinds
        extra = {"tick": 0.2} if self.kind == "zookeeper" else {}
        url = f"{self.kind}://{proxy.endpoint}/{self.namespace}"
        client = self.face.connect(url, **(extra | options))
        self._proxies[id(client)] = proxy
        return client

    def proxy(self, client: Any) -> FaultProxy:
        return self._proxies[id(client)]

    def lose_answer(self, client: Any, verb: str, times: int = 1) -> None:
        self.proxy(client).lose_answer(self.match(verb), times)

    def lose_request(self, client: Any, verb: str, times: int = 1) -> None:
        self.proxy(client).lose_request(self.match(verb), times)

    def match(self, verb: str) -> Any:
        raise NotImplementedError

    def cut(self, client: Any) -> None:
        self.proxy(client).blackhole()

    def heal(self, client: Any) -> None:
        self.proxy(client).heal()

    def close(self) -> None:
        try:
            for proxy in self._proxies.values():
                proxy.heal()
            self.face.close()
        finally:
            for proxy in self._proxies.values():
                proxy.close()


_ETCD_VERBS: dict[str, Callable[[str, bytes], bool]] = {
    "grant": lambda path, _: path == "/v3/lease/grant",
    "renew": lambda path, _: path == "/v3/lease/keepalive",
    "enter": lambda path, body: path == "/v3/kv/txn" and b'"lease":' in body,
    "amend": lambda path, body: path == "/v3/kv/txn" and b"ignore_lease" in body and b"ignore_value" not in body,
    "leave": lambda path, body: path == "/v3/kv/txn" and b"request_delete_range" in body,
    "look": lambda path, body: path == "/v3/kv/txn" and b"max_create_revision" in body,
    "commit": lambda path, body: path == "/v3/kv/txn" and b'"MOD"' in body and b"ignore_lease" not in body,
    "touch": lambda path, body: path == "/v3/kv/txn" and b"ignore_value" in body,
}


class EtcdWorld(ServerWorld):
    """etcd through its gateway."""

    kind = "etcd"

    def match(self, verb: str) -> Any:
        matches = _ETCD_VERBS[verb]
        return lambda method, path, body: matches(path, body)

    def expire(self, hold: Any) -> None:
        etcdctl(self.cluster, "lease", "revoke", hold.lease_id)

    def remove(self, hold: Any) -> None:
        keys = [key for key in self.tickets(hold.resource) if hold.id in key]
        etcdctl(self.cluster, "del", *keys)

    def tickets(self, name: str) -> list[str]:
        from holdfast.backends.etcd.codec import line_prefix

        return self._keys(line_prefix(self.namespace, name).decode(), "--sort-by=CREATE")

    def left(self) -> list[str]:
        return self._keys(self.namespace + "/")

    def leases(self) -> int:
        lines = etcdctl(self.cluster, "lease", "list").stdout.splitlines()
        return len(lines) - 1

    def _keys(self, prefix: str, *flags: str) -> list[str]:
        found = etcdctl(self.cluster, "get", "--prefix", "--keys-only", *flags, prefix).stdout
        return [line for line in found.splitlines() if line]


_OPCODES = {"enter": 15, "leave": 2, "look": 8, "renew": 9, "amend": 5, "touch": 5, "commit": 14}


class ZooKeeperWorld(ServerWorld):
    """ZooKeeper."""

    kind = "zookeeper"

    def match(self, verb: str) -> Any:
        wanted = _OPCODES[verb]
        return lambda opcode, frame: opcode == wanted

    def expire(self, hold: Any) -> None:
        """Close the session from a second connection that claims it, as a duplicate client would."""
        house = inner(hold)._house
        lease = next(lease for lease in house._leases.values() if lease.id == hold.lease_id)
        session = lease._connection._client.client_id
        thief = KazooClient(self.cluster.endpoints[0], client_id=session, timeout=4.0)
        thief.start()
        thief.stop()
        thief.close()

    def remove(self, hold: Any) -> None:
        with self._admin() as zk:
            path = self._line(hold.resource)
            for child in zk.get_children(path):
                if hold.id in child:
                    zk.delete(f"{path}/{child}")

    def tickets(self, name: str) -> list[str]:
        with self._admin() as zk:
            path = self._line(name)
            children: list[str] = zk.get_children(path) if zk.exists(path) else []
            return sorted(children, key=lambda child: child[-10:])

    def left(self) -> list[str]:
        with self._admin() as zk:
            return _tree(zk, f"/{self.namespace}")

    def leases(self) -> int:
        return zk_four_letter(self.cluster.members[0].metrics_endpoint, "cons").count("sid=")

    def _line(self, name: str) -> str:
        from holdfast.backends.zookeeper.codec import line_path

        return line_path(self.namespace, name)

    def _admin(self) -> Admin:
        return Admin(self.cluster.endpoints[0])


class Admin:
    """An administrator's own session."""

    def __init__(self, endpoint: str) -> None:
        self._zk = KazooClient(endpoint, timeout=10.0)

    def __enter__(self) -> Any:  # Any: kazoo has no types
        self._zk.start()
        return self._zk

    def __exit__(self, *_: object) -> None:
        self._zk.stop()
        self._zk.close()


def _tree(zk: Any, path: str) -> list[str]:
    try:
        children = zk.get_children(path)
    except NoNodeError:
        return []
    return [path, *(node for child in children for node in _tree(zk, f"{path}/{child}"))]


def inner(thing: Any) -> Any:
    """The face's own object, for tests that must look below it."""
    return getattr(thing, "_inner", thing)


def server_work(world: Any) -> dict[str, float]:
    """Requests and watch messages the server counted."""
    member = world.cluster.members[0]
    if world.kind == "etcd":
        counters = etcd_counters(member.metrics_endpoint)
        wanted = ("started:Txn", "started:Range", "started:DeleteRange", "sent:Watch", "received:Watch")
        return {name: counters.get(name, 0.0) for name in wanted}
    counters = zookeeper_counters(member.metrics_endpoint)
    return {name: counters[name] for name in ("zk_packets_received", "zk_packets_sent")}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
