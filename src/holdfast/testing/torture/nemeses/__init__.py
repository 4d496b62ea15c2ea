"""Nemeses: each breaks one kind of thing, lets it last, mends it, and waits until the servers serve again.

By what they break:

    processes.py        workers and servers that are killed or stand still
    network.py          links that are cut, both ways
    links.py            links that carry one way only, refuse, swallow, or lose
    wire.py             single requests and answers, by proxies
    disk.py             disks that are slow, fail, or are full (tracing.py: by strace)
    upheaval.py         leaders that don't stay, restarts, members replaced
    administration.py   compaction, quota, logins
    removals.py         tickets, leases and sessions that somebody else ends
    clients.py          what a worker does to itself by order: stalls, clocks, forks, cancelled calls
    mixed.py            one of a family, or several at a time

catalogue.py lists them. What they share: kinds.py (what each declares), claims.py (no two strike the same server or
worker), control.py (etcdctl), machines.py (a server's data). A new one is a class with `name`, `backends`, `needs`,
`touches` and `strike`, a docstring of one line, and a place in the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.testing.servers.specs import Kind
from holdfast.testing.torture.ground import possible
from holdfast.testing.torture.nemeses.catalogue import SINGLES
from holdfast.testing.torture.nemeses.kinds import Single
from holdfast.testing.torture.nemeses.mixed import All, Partition, PartitionOneWay
from holdfast.testing.torture.parts import Need, Nemesis

__all__ = ["NEMESES", "UnknownNemesis", "make", "needs_of"]

_KINDS: Final[tuple[type[Single], ...]] = (*SINGLES, Partition, PartitionOneWay, All)
NEMESES: Final[Mapping[str, type[Nemesis]]] = {kind.name: kind for kind in _KINDS}
"""Every nemesis by the name that the command line calls it."""

_NOT_ASKED_FOR: Final[frozenset[Need]] = frozenset({"auth", "quota"})  # by mixtures: they change what every client does


class UnknownNemesis(ValueError):
    """No nemesis has this name, or none for this store."""


def make(names: Iterable[str], backend: Kind) -> list[Nemesis]:
    """One of each, for one run. Raises UnknownNemesis."""
    return [_find(name, backend)() for name in names]


def needs_of(names: Iterable[str], backend: Kind) -> frozenset[Need]:
    """What the ground of a run with these nemeses has to be asked for. Raises UnknownNemesis.

    `all` asks for what this machine has of everything that any nemesis needs.
    """
    kinds = [_find(name, backend) for name in names]
    needs = frozenset[Need]().union(*(kind.needs for kind in kinds))
    if All in kinds:
        any_needs = frozenset[Need]().union(*(kind.needs for kind in SINGLES))
        needs |= (any_needs & possible(backend)) - _NOT_ASKED_FOR
    return needs


def _find(name: str, backend: Kind) -> type[Nemesis]:
    kind = NEMESES.get(name)
    if kind is None:
        raise UnknownNemesis(f"no nemesis is called {name!r}; there are {', '.join(NEMESES)}")
    if backend not in kind.backends:
        raise UnknownNemesis(f"{name} is not for {backend}")
    return kind
