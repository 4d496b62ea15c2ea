"""Tickets, leases and sessions that others end. The fault_log is told before, so that the truth knows whose hand."""

from __future__ import annotations

import base64
import json
import re
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tenure.testing.servers import Cluster, ServerFailed
from tests.verify.torture.nemeses.control import control, try_control
from tests.verify.torture.nemeses.kinds import BOTH, ETCD, NOTHING, STORE, ZOOKEEPER, Backends, Touches, last
from tests.verify.torture.parts import FaultLog, Need, Rig, Workers
from tests.verify.torture.rig.urls import NAMESPACE

_KEY: Final = re.compile(rf"{NAMESPACE}/.+/([0-9a-f]+)(?:-\d+)*")
_ID: Final = re.compile(r'"id":"([0-9a-f]{20})"')
_NODE: Final = re.compile(r"_c_([0-9a-f]{20})(?:-.+)?-lock-\d{10}")
_EVERY_SECONDS = 0.7
_CONNECT_SECONDS = 5.0
_SESSION_SECRET: Final = 0xB3415C00  # ZooKeeperServer.superSecret
_MULTIPLIER, _INCREMENT, _SEED_MASK = 0x5DEECE66D, 0xB, 2**48 - 1  # java.util.Random


@dataclass(frozen=True)
class _Found:
    """A ticket as an administrator sees it."""

    name: str
    ticket: str
    lease: str
    token: int


class _Removals:
    """A nemesis that removes one after another, as long as there are any."""

    name: str
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = STORE

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        end = time.monotonic() + seconds
        with fault_log.broken(self.name):
            while time.monotonic() < end:
                found = _tickets(rig.cluster)
                if found and self.remove(rig.cluster, fault_log, random.choice(found)):
                    fault_log.count(deed_of(self.name))
                last(_EVERY_SECONDS)

    def remove(self, cluster: Cluster, fault_log: FaultLog, found: _Found) -> bool:
        """Remove it and say whether that could be done. Others may have broken the servers meanwhile."""
        raise NotImplementedError


class AdminRemove(_Removals):
    """An administrator deletes the key or the node of a ticket, whoever holds it."""

    name = "admin-remove"

    def remove(self, cluster: Cluster, fault_log: FaultLog, found: _Found) -> bool:
        fault_log.removing(ticket=found.ticket)
        if cluster.kind == "etcd":  # that very ticket: by now another may stand at its key
            same = f'create("{found.name}") = "{found.token}"\n\ndel "{found.name}"\n\n\n'
            return try_control(cluster, "txn", stdin=same)
        return _delete(cluster, found.name)


class LeaseRevoke(_Removals):
    """An administrator revokes the lease of a ticket, with all that hangs on it."""

    name = "lease-revoke"
    backends: Backends = ETCD

    def remove(self, cluster: Cluster, fault_log: FaultLog, found: _Found) -> bool:
        fault_log.removing(lease=found.lease)
        return try_control(cluster, "lease", "revoke", found.lease)


class SessionKill(_Removals):
    """A client's session is closed through a second connection, with its id and its password."""

    name = "session-kill"
    backends: Backends = ZOOKEEPER

    def remove(self, cluster: Cluster, fault_log: FaultLog, found: _Found) -> bool:
        session = struct.unpack(">q", bytes.fromhex(found.lease.zfill(16)))[0]
        fault_log.removing(lease=found.lease)
        with _connected(cluster, (session, session_password(session))) as client:
            # Leaving the block closes the session. One that was over before got another id here.
            return client is not None and client.client_id[0] == session


BY_DEEDS: Final = frozenset({AdminRemove.name, LeaseRevoke.name, SessionKill.name})
"""Those whose strike is nothing without a deed: they may have looked for tickets and found none."""


def deed_of(name: str) -> str:
    """The name under which the fault log counts each removal."""
    return f"{name}: done"


def session_password(session: int) -> bytes:
    """The password that ZooKeeper gives a session: java.util.Random, sown with the id and a constant."""
    seed = ((session ^ _SESSION_SECRET) ^ _MULTIPLIER) & _SEED_MASK
    words = []
    for _ in range(4):
        seed = (seed * _MULTIPLIER + _INCREMENT) & _SEED_MASK
        words.append((seed >> 16) & 0xFFFFFFFF)
    return struct.pack("<4I", *words)


def _tickets(cluster: Cluster) -> list[_Found]:
    """The tickets of the run's namespace; none while the store can't be asked."""
    if cluster.kind == "etcd":
        try:
            listed = json.loads(control(cluster, "get", f"{NAMESPACE}/", "--prefix", "--write-out=json"))
        except ServerFailed:
            return []
        return [found for kv in listed.get("kvs", ()) if (found := _at_key(kv)) is not None]
    with _connected(cluster) as client:
        try:
            return [] if client is None else list(_nodes(client))
        except KazooException:
            return []


def _at_key(kv: dict[str, Any]) -> _Found | None:  # Any: JSON as etcdctl writes it
    name, value = (base64.b64decode(kv.get(part, "")).decode(errors="replace") for part in ("key", "value"))
    match, said = _KEY.fullmatch(name), _ID.search(value)
    return _Found(name, said[1], match[1], int(kv["create_revision"])) if match and said else None


def _nodes(client: KazooClient) -> Iterator[_Found]:
    """The lines are the children of the namespace, the tickets theirs. What goes away meanwhile is left out."""
    root = f"/{NAMESPACE}"
    for line in _children(client, root):
        for node in _children(client, f"{root}/{line}"):
            match, path = _NODE.fullmatch(node), f"{root}/{line}/{node}"
            status = client.exists(path) if match else None
            if match and status is not None:
                yield _Found(path, match[1], f"{status.ephemeralOwner & 2**64 - 1:x}", status.czxid)


def _children(client: KazooClient, path: str) -> list[str]:
    try:
        return list(client.get_children(path))
    except NoNodeError:
        return []


def _delete(cluster: Cluster, path: str) -> bool:
    with _connected(cluster) as client:
        try:
            return client is not None and bool(client.delete(path))
        except KazooException:
            return False


@contextmanager
def _connected(cluster: Cluster, session: tuple[int, bytes] | None = None) -> Iterator[KazooClient | None]:
    """A client by a way that no fault cuts, in this session or one of its own; None where nobody answers."""
    client = KazooClient(hosts=",".join(cluster.endpoints), client_id=session, timeout=_CONNECT_SECONDS)
    try:
        client.start(timeout=_CONNECT_SECONDS)
    except KazooTimeoutError:
        _close(client)
        yield None
        return
    try:
        yield client
    finally:
        _close(client)


def _close(client: KazooClient) -> None:
    client.stop()
    client.close()
