"""The floor of a hand-over in a crowd: turns with nothing but what hands them over, through the client tenure uses.

Whoever wants a turn puts a key at the end of the line and waits for the notification that the one before it was
deleted; that is taken for the turn. It stands among as many others as tenure does, who do the same: whoever has had
a turn comes again at once, and that work shares the machine with the hand-over. What tenure does beyond it is what a
lock has to: it looks, before it says that it holds (a notification proves nothing), and knows until when.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from benchmarks.contestants.bare import EtcdWire
from benchmarks.contestants.ours import GRPC, without_grpc
from benchmarks.contestants.peers import kazoo_client
from benchmarks.contestants.place import Blocking, Contestant, Door, Place, require
from tenure._backends.etcd.requests import CreatedAt, DeleteKey, PutKey, Range
from tenure._core.base.signals import Signal

HAND_OVER: Final = "hand-over"
"""As a recipe: it has a turn, but not a lock."""
NAMES: Final = {
    "etcd": "floor in a crowd",
    GRPC: "floor in a crowd, over gRPC",
    "zookeeper": "floor in a crowd, on ZooKeeper",
}
_WAIT_SECONDS: Final = 60.0
_numbers = itertools.count()


class _EtcdTurns:
    """One contender. Its key is its own, and comes and goes."""

    def __init__(self, wire: EtcdWire, name: str) -> None:
        self._wire = wire
        self._key = f"crowd/{name}/{os.getpid()}-{next(_numbers)}".encode()
        self._line = Range(f"crowd/{name}/".encode(), f"crowd/{name}0".encode(), 2, newest_first=True)

    def enter(self) -> int:
        put = PutKey(self._key, b"", self._wire.lease)
        answer = self._wire.carry_out((CreatedAt(self._key, 0),), put, self._line)
        self._token = answer.revision
        for before in answer.key_values:
            if before.key != self._key:
                told = Signal()
                stop = self._wire.departure(before, answer.revision, told)
                require(told.wait(_WAIT_SECONDS))
                stop()
        return self._token

    def leave(self) -> None:
        self._wire.carry_out((CreatedAt(self._key, self._token),), DeleteKey(self._key))


class _ZooKeeperTurns:
    """The same with a node. ZooKeeper has no transaction that reads: it is listed in the same exchange."""

    def __init__(self, client: Any, parent: str) -> None:  # Any: kazoo has no types
        self._client = client
        self._parent = parent

    def enter(self) -> None:
        created = self._client.create_async(f"{self._parent}/node-", b"", ephemeral=True, sequence=True)
        listed = self._client.get_children_async(self._parent)
        self._node = created.get(timeout=_WAIT_SECONDS)
        mine = self._node.rpartition("/")[2]
        before = max((name for name in listed.get(timeout=_WAIT_SECONDS) if name < mine), default=None)
        told = threading.Event()
        if before is not None and self._client.exists(f"{self._parent}/{before}", watch=lambda event: told.set()):
            require(told.wait(_WAIT_SECONDS))

    def leave(self) -> None:
        self._client.delete(self._node)


def _etcd(scheme: str) -> Callable[[Door], Callable[[], Place]]:
    def opener(door: Door) -> Callable[[], Place]:
        wire = EtcdWire(scheme, door.endpoint, door.ttl, door.stack)
        return lambda: _EtcdTurns(wire, door.name)

    return opener


def _zookeeper(door: Door) -> Callable[[], Place]:
    client, parent = kazoo_client(door), f"/crowd/{door.name}"
    client.ensure_path(parent)
    return lambda: _ZooKeeperTurns(client, parent)


ALL: Final[list[Contestant]] = [
    Blocking(NAMES["etcd"], "etcd", _etcd("etcd"), HAND_OVER),
    Blocking(NAMES[GRPC], "etcd", _etcd(GRPC), HAND_OVER, missing=without_grpc),
    Blocking(NAMES["zookeeper"], "zookeeper", _zookeeper, HAND_OVER),
]
