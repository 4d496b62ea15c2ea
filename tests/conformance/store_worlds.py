"""The worlds of our own backends: how each is reached, broken, and asked what it has."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tenure._backends import memory
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.limits import NAME_BYTES_MAX
from tenure._core.base.validation import encode
from tenure._core.runtime import runtime_of
from tenure.testing.conformance import Face, StoreWorld, eventually, inner
from tests.conformance.services import RunningService
from tests.reference import etcd_messages
from tests.servers import Cluster, FaultProxy, etcd_counters, etcdctl, zk_four_letter, zookeeper_counters

__all__ = [
    "KINDS",
    "SERVED",
    "Admin",
    "EtcdGrpcWorld",
    "EtcdWorld",
    "MemoryWorld",
    "ServiceOnEtcdWorld",
    "ServiceOnZooKeeperWorld",
    "StoreWorld",
    "ZooKeeperWorld",
    "eventually",
    "inner",
]

_names = itertools.count(1)
KINDS = ("memory", "etcd", "etcd+grpc", "zookeeper")
SERVED = ("http+etcd", "http+zookeeper")
"""Through `tenure serve`."""


class MemoryWorld(StoreWorld):
    """memory://, on the real clock."""

    kind = "memory"

    def __init__(self, face: Face) -> None:
        super().__init__(face)
        name = f"world-{next(_names)}"
        self.url = f"memory://{name}"
        self.store = memory.store(name, SYSTEM_CLOCK)

    def lose_answer(self, client: Any, verb: str, times: int = 1) -> None:
        self._faults(client).lose_answer(verb, times)

    def lose_request(self, client: Any, verb: str, times: int = 1) -> None:
        self._faults(client).lose_request(verb, times)

    def forget(self, client: Any) -> None:
        self._faults(client).forget()

    def cut(self, client: Any) -> None:
        self._faults(client).cut_off = True

    def heal(self, client: Any) -> None:
        backend: Any = runtime_of(inner(client))._backend  # memory's
        backend.heal()

    def reset(self, client: Any) -> None:
        self.cut(client)
        self.heal(client)

    def expire(self, hold: Any) -> None:
        self.store.expire(hold.lease_id)

    def delete(self, name: str, ticket: str) -> None:
        self.store.leave(f"{self.namespace}/{encode(name)}", ticket, None)

    def tickets(self, name: str) -> list[str]:
        return [t.id for t in self.store.lines.get(f"{self.namespace}/{encode(name)}", ())]

    def left(self) -> list[str]:
        return [*self.store.lines, *(path for path in self.store.notes if path.startswith(f"{self.namespace}/"))]

    def leases(self) -> int:
        return len(self.store.leases)

    def work(self) -> dict[str, float]:
        return dict(self.store.requests)

    def arrive_late(self, lease: Any, ticket: Any, value: str) -> None:
        self.store.amend(lease._line(ticket.resource), ticket, value)

    def _faults(self, client: Any) -> memory.MemoryFaults:
        backend: Any = runtime_of(inner(client))._backend  # memory's
        faults: memory.MemoryFaults = backend.faults
        return faults


class ServerWorld(StoreWorld):
    """The common part of etcd and ZooKeeper: a proxy per client."""

    kind: str

    def __init__(self, face: Face, cluster: Cluster) -> None:
        super().__init__(face)
        self.cluster = cluster
        self._proxies: dict[int, FaultProxy] = {}

    def client(self, **options: Any) -> Any:
        proxy = self.way()
        extra = {"tick": 0.2} if self.kind == "zookeeper" else {}
        url = f"{self.kind}://{proxy.endpoint}/{self.namespace}"
        client = self.face.connect(url, **(extra | options))
        self._proxies[id(client)] = proxy
        self.clients.append(client)
        return client

    def way(self) -> FaultProxy:
        """A new client's way to the server."""
        return FaultProxy(self.cluster.endpoints[0], self.kind)  # type: ignore[arg-type]  # one of the kinds

    def proxy(self, client: Any) -> FaultProxy:
        return self._proxies[id(client)]

    def lose_answer(self, client: Any, verb: str, times: int = 1) -> None:
        self.proxy(client).lose_answer(self.match(verb), times)

    def lose_request(self, client: Any, verb: str, times: int = 1) -> None:
        self.proxy(client).lose_request(self.match(verb), times)

    def match(self, verb: str) -> Any:
        raise NotImplementedError

    def forget(self, client: Any) -> None:
        self.proxy(client).forget()

    def cut(self, client: Any) -> None:
        self.proxy(client).blackhole()

    def heal(self, client: Any) -> None:
        self.proxy(client).heal()

    def reset(self, client: Any) -> None:
        self.proxy(client).reset()

    def delay(self, client: Any, seconds: float) -> None:
        self.proxy(client).delay(to_server=seconds)

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
    "remove": lambda path, body: path == "/v3/kv/txn" and b"request_delete_range" in body and b"request_put" in body,
    "look": lambda path, body: path == "/v3/kv/range" and b"max_create_revision" in body,
    "commit": lambda path, body: path == "/v3/kv/txn" and b'"MOD"' in body and b"ignore_lease" not in body,
    "touch": lambda path, body: path == "/v3/kv/txn" and b"ignore_value" in body,
}


class EtcdWorld(ServerWorld):
    """etcd through its gateway."""

    kind = "etcd"
    ttl_min = 1.0
    has_delegation = True

    def match(self, verb: str) -> Any:
        matches = _ETCD_VERBS[verb]
        return lambda method, path, body: matches(path, body)

    def expire(self, hold: Any) -> None:
        etcdctl(self.cluster, "lease", "revoke", hold.lease_id)

    def delete(self, name: str, ticket: str) -> None:
        etcdctl(self.cluster, "del", ticket)

    def remove(self, hold: Any) -> None:
        for key in self.tickets(hold.resource):
            if hold.id in etcdctl(self.cluster, "get", "--print-value-only", key).stdout:
                self.delete(hold.resource, key)

    def tickets(self, name: str) -> list[str]:
        from tenure._backends.etcd.codec import line_prefix

        return self._keys(line_prefix(self.namespace, name).decode(), "--sort-by=CREATE")

    def left(self) -> list[str]:
        return self._keys(self.namespace + "/")

    def leases(self) -> int:
        lines = etcdctl(self.cluster, "lease", "list").stdout.splitlines()
        return len(lines) - 1

    def work(self) -> dict[str, float]:
        counters = etcd_counters(self.cluster.members[0].metrics_endpoint)
        wanted = ("started:Txn", "started:Range", "started:DeleteRange", "sent:Watch", "received:Watch")
        return {name: counters.get(name, 0.0) for name in wanted}

    def arrive_late(self, lease: Any, ticket: Any, value: str) -> None:
        from tenure._backends.etcd import codec, guarded_keys

        amending = guarded_keys.amending(ticket, codec.amended_value(ticket, value))
        lease._wire.txn(amending, SYSTEM_CLOCK.now() + 5.0)

    def _keys(self, prefix: str, *flags: str) -> list[str]:
        found = etcdctl(self.cluster, "get", "--prefix", "--keys-only", *flags, prefix).stdout
        return [line for line in found.splitlines() if line]


def _txn(body: bytes) -> Any:
    """The requests of a transaction, as protobuf's own runtime reads it."""
    return etcd_messages().TxnRequest.FromString(body)


def _range_up_to(body: bytes) -> bool:
    """True where it asks for a line up to a ticket. Probes ask for something else."""
    return bool(etcd_messages().RangeRequest.FromString(body).max_create_revision)


_GRPC_VERBS: dict[str, Callable[[Any], bool]] = {
    "enter": lambda txn: any(op.request_put.lease for op in txn.success),
    "amend": lambda txn: any(op.request_put.ignore_lease and not op.request_put.ignore_value for op in txn.success),
    "leave": lambda txn: any(op.HasField("request_delete_range") for op in txn.success),
    "remove": lambda txn: (
        any(op.HasField("request_delete_range") for op in txn.success)
        and any(op.HasField("request_put") for op in txn.success)
    ),
    "commit": lambda txn: (
        any(c.HasField("mod_revision") for c in txn.compare)
        and not any(op.request_put.ignore_lease for op in txn.success)
    ),
    "touch": lambda txn: any(op.request_put.ignore_value for op in txn.success),
}


class EtcdGrpcWorld(EtcdWorld):
    """etcd through gRPC: the same server, the same facts."""

    kind = "etcd+grpc"

    def match(self, verb: str) -> Any:
        if verb in ("grant", "renew"):
            wanted = "LeaseGrant" if verb == "grant" else "LeaseKeepAlive"
            return lambda method, path, message: path == f"/etcdserverpb.Lease/{wanted}"
        if verb == "look":
            return lambda method, path, message: path == "/etcdserverpb.KV/Range" and _range_up_to(message)
        matches = _GRPC_VERBS[verb]
        return lambda method, path, message: path == "/etcdserverpb.KV/Txn" and matches(_txn(message))


_SYNC, _PING = 9, 11
_OPCODES = {"enter": 15, "leave": 2, "look": 8, "renew": _SYNC, "amend": 5, "touch": 5, "commit": 14, "remove": 14}


class ZooKeeperWorld(ServerWorld):
    """ZooKeeper. Nothing arrives late: a session's requests are carried out in order, and none after it has moved."""

    kind = "zookeeper"
    repeats_enter = False  # names carry a sequence
    leave_checks_token = False  # a node's name is what can't repeat
    ttl_min = 0.4
    refuses_long_leases = "maxSessionTimeout"
    tells_time_left = False

    def match(self, verb: str) -> Any:
        wanted = _OPCODES[verb]
        return lambda opcode, frame: opcode == wanted

    def expire(self, hold: Any) -> None:
        """Close the session from a second connection that claims it, as a duplicate client would."""
        leases = [lease for client in self.clients for lease in runtime_of(inner(client))._leases.values()]
        lease: Any = next(lease for lease in leases if lease.id == hold.lease_id)
        session = lease._connection._client.client_id
        thief = KazooClient(self.cluster.endpoints[0], client_id=session, timeout=4.0)
        thief.start()
        thief.stop()
        thief.close()

    def delete(self, name: str, ticket: str) -> None:
        with self._admin() as zk:
            zk.delete(f"{self._line(name)}/{ticket}")

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

    def work(self) -> dict[str, float]:
        counters = zookeeper_counters(self.cluster.members[0].metrics_endpoint)
        beats = self.beats()
        return {name: counters[name] - beats for name in ("zk_packets_received", "zk_packets_sent")}

    def beats(self) -> int:
        """The requests that clients send because time passes.

        All syncs are left out: a look counts by what it asks after its sync.
        """
        return sum(proxy.requests[_SYNC] + proxy.requests[_PING] for proxy in self._proxies.values())

    def _line(self, name: str) -> str:
        from tenure._backends.zookeeper.codec import line_path

        return line_path(self.namespace, name)

    def _admin(self) -> Admin:
        return Admin(self.cluster.endpoints[0])


class _ThroughService(ServerWorld):
    """The addition of the thin client: a service, shared by the run, between the client and the store.

    The faults are those of the way to the service; what the store says is asked of the store. All that the service has
    there stands below a namespace of its own, and the test's own namespace is with what its names begin.
    """

    repeats_enter = True  # the service knows the tickets of its clients
    writes_records = False

    def __init__(self, face: Face, cluster: Cluster, service: RunningService) -> None:
        super().__init__(face, cluster)
        self.service = service
        self.name_bytes_max = NAME_BYTES_MAX - len(f"{self.namespace}/")

    def client(self, **options: Any) -> Any:
        proxy = FaultProxy(self.service.endpoint, "etcd")  # HTTP/1.1, too
        client = self.face.connect(f"http://{proxy.endpoint}/{self.namespace}", **options)
        self._proxies[id(client)] = proxy
        self.clients.append(client)
        return client

    def match(self, verb: str) -> Any:
        path = {"grant": "/v1/leases", "remove": "/v1/operate/remove"}.get(verb)
        if path is not None:
            return lambda method, asked, body: asked == path
        return lambda method, asked, body: asked.startswith("/v1/leases/") and asked.endswith(f"/{verb}")

    def arrive_late(self, lease: Any, ticket: Any, value: str) -> None:
        body = {"ticketId": ticket.id, "token": str(ticket.token), "value": value, "order": 1}
        lease._calls.ask_once(f"{lease._path}/amend", body, SYSTEM_CLOCK.now() + 5.0)

    def own(self, places: list[str]) -> list[str]:
        """The keys of the test's own."""
        return [place for place in places if f"/{encode(self.namespace + '/')}" in place]


class ServiceOnEtcdWorld(_ThroughService, EtcdWorld):
    """`tenure serve` on etcd."""

    has_delegation = False

    def match(self, verb: str) -> Any:
        return _ThroughService.match(self, verb)

    def tickets(self, name: str) -> list[str]:
        from tenure._backends.etcd.codec import line_prefix

        prefix = line_prefix(self.service.namespace, f"{self.namespace}/{name}").decode()
        return self._keys(prefix, "--sort-by=CREATE")

    def left(self) -> list[str]:
        return self.own(self._keys(f"{self.service.namespace}/"))


class ServiceOnZooKeeperWorld(_ThroughService, ZooKeeperWorld):
    """`tenure serve` on ZooKeeper."""

    repeats_enter = True
    refuses_long_leases = "does not grant"

    def match(self, verb: str) -> Any:
        return _ThroughService.match(self, verb)

    def expire(self, hold: Any) -> None:
        thief = KazooClient(self.cluster.endpoints[0], client_id=self.service.session(hold.lease_id), timeout=4.0)
        thief.start()
        thief.stop()
        thief.close()

    def left(self) -> list[str]:
        with self._admin() as zk:
            return self.own(_tree(zk, f"/{self.service.namespace}"))

    def beats(self) -> int:
        return self.service.syncs()

    def _line(self, name: str) -> str:
        from tenure._backends.zookeeper.codec import line_path

        return line_path(self.service.namespace, f"{self.namespace}/{name}")


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
