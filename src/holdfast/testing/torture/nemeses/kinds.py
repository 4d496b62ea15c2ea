"""What every nemesis of this package declares, beside parts.py: which stores it is for, and what it touches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from random import Random
from typing import Literal, Protocol, TypeAlias

from holdfast.testing.torture.parts import Crew, Diary, Ground, Need

Backends: TypeAlias = Iterable[Literal["etcd", "zookeeper"]]
BOTH: Backends = ("etcd", "zookeeper")
ETCD: Backends = ("etcd",)
ZOOKEEPER: Backends = ("zookeeper",)

Thing: TypeAlias = Literal["servers", "links", "answers", "workers", "store"]
Touches: TypeAlias = frozenset[Thing]
"""What a nemesis breaks: two of a mixture don't break the same."""
SERVERS: Touches = frozenset({"servers"})
LINKS: Touches = frozenset({"links"})
ANSWERS: Touches = frozenset({"answers"})
WORKERS: Touches = frozenset({"workers"})
STORE: Touches = frozenset({"store"})


class Single(Protocol):
    """A nemesis of this package: it says what it touches."""

    name: str
    backends: Backends
    needs: frozenset[Need]
    touches: Touches

    def strike(self, ground: Ground, crew: Crew, diary: Diary, random: Random, seconds: float) -> None: ...


NOTHING: frozenset[Need] = frozenset()
NAMESPACES: frozenset[Need] = frozenset({"namespaces"})
PROXIES: frozenset[Need] = frozenset({"proxies"})

ENDED_EARLY: Mapping[str, str] = dict.fromkeys(
    ("etcd:S1", "etcd:S2", "etcd:S6", "etcd:S7", "etcd:S11"),
    "etcd before 3.4.31 and 3.5.13 ends leases early when a leader stalls and goes on (etcd issue 15247)",
)
"""The `spares` of a nemesis that makes servers stall: properties that it breaks by itself, and why."""


def last(seconds: float) -> None:
    """Let a fault last. Here time is what a fault is made of, not something to wait for."""
    time.sleep(max(0.0, seconds))
