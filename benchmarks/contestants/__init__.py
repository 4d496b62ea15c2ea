"""Who takes part: `everybody()`, and `named(name)` finds one again in another process.

place.py       what a contestant is: something to enter and to leave, in this process or in a program of its own
ours.py        tenure on each store and face
peers.py       tooz, kazoo, etcd3gw, redis-py, python-redis-lock, etcdctl
programs.py    Go's and Curator's, built from harness/ where the tools are there
bare.py        the floor: the operations no recipe can do without
crowded.py     the floor of a hand-over among many who want one
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from benchmarks.contestants import bare, crowded, ours, peers, programs
from benchmarks.contestants.place import Contestant

STORE_NAMES: Final = {"etcd": "etcd", "zookeeper": "ZooKeeper", "redis": "Redis", "memory": "memory"}


def everybody() -> Iterable[Contestant]:
    """All there are, present or not."""
    yield from bare.ALL
    yield from crowded.ALL
    yield from ours.ALL
    yield from peers.ALL
    yield from programs.ALL


def named(name: str) -> Contestant:
    """The one of that name. Raises KeyError."""
    return {contestant.name: contestant for contestant in everybody()}[name]
