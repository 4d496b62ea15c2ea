"""Declarations of every nemesis of this package, beside parts: the stores it is for, and what it touches."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, Protocol, TypeAlias

from tests.verify.torture.parts import FaultLog, Need, Rig, Workers

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

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None: ...


NOTHING: frozenset[Need] = frozenset()
NAMESPACES: frozenset[Need] = frozenset({"namespaces"})
PROXIES: frozenset[Need] = frozenset({"proxies"})


@dataclass(frozen=True, slots=True)
class Excuse:
    """Properties that a nemesis breaks by itself on servers with a defect of their own: no word on us."""

    backend: str
    properties: frozenset[str]
    reason: str
    mended: Sequence[tuple[int, ...]]
    """The versions that have it no more: the first of each line of releases, oldest first."""

    def on(self, backend: str, version: str) -> bool:
        """True where this server has the defect.

        A server of unknown version has not: what fails there is to be looked at.
        """
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
        if backend != self.backend or not numbers:
            return False
        first = next((mended for mended in self.mended if mended[:2] == numbers[:2]), self.mended[-1])
        return numbers < first


ENDED_EARLY: Final = Excuse(
    "etcd",
    frozenset({"S1", "S2", "S6", "S7", "S11"}),
    "etcd before 3.4.31 and 3.5.13 ends leases early when a leader stalls and goes on (etcd issue 15247)",
    ((3, 4, 31), (3, 5, 13)),
)
"""Of a nemesis that makes servers stall."""


def last(seconds: float) -> None:
    """Let a fault last. Here time is what a fault is made of, not something to wait for."""
    time.sleep(max(0.0, seconds))
