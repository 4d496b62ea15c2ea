"""Nemeses: each breaks one kind of thing, lets it last, mends it, and waits until the servers serve again.

In reading order, first what they share:

    kinds           what each nemesis declares
    claims          no two strike the same server or worker
    control         etcdctl
    machines        a server's data
    tracing         slow and failing system calls, by strace

Then the nemeses, by what they break:

    processes       workers and servers that are killed or stand still
    network         links that are cut, both ways
    links           links that carry one way only, refuse, swallow, or lose
    wire            single requests and answers, by proxies
    disk            disks that are slow, fail, or are full
    upheaval        leaders that don't stay, restarts, members replaced
    administration  compaction, quota, logins
    removals        tickets, leases and sessions that somebody else ends
    clients         what a worker does to itself by order: stalls, clocks, forks, cancelled calls
    mixed           one of a family, or several at a time
    catalogue       all of them

A new one is a class with `name`, `backends`, `needs`, `touches` and `strike`, a docstring of one line, and a line in
the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tenure.testing.servers.specs import Kind
from tests.verify.torture.nemeses.catalogue import SINGLES
from tests.verify.torture.nemeses.kinds import Single
from tests.verify.torture.nemeses.mixed import All, Partition, PartitionOneWay
from tests.verify.torture.parts import Need, Nemesis
from tests.verify.torture.rig import possible

__all__ = ["NEMESES", "UnknownNemesis", "make", "needs_of"]

_KINDS: Final[tuple[type[Single], ...]] = (*SINGLES, Partition, PartitionOneWay, All)
NEMESES: Final[Mapping[str, type[Nemesis]]] = {kind.name: kind for kind in _KINDS}
"""Every nemesis by the name that the command line calls it."""

_NOT_ASKED_FOR: Final[frozenset[Need]] = frozenset({"auth", "quota"})  # by mixtures: they change what every client does


class UnknownNemesis(ValueError):
    """A name that no nemesis has, or none for this store."""


def make(names: Iterable[str], backend: Kind) -> list[Nemesis]:
    """Make one of each, for one run. Raises UnknownNemesis."""
    return [_find(name, backend)() for name in names]


def needs_of(names: Iterable[str], backend: Kind) -> frozenset[Need]:
    """The needs that the rig of a run with these nemeses has to meet. Raises UnknownNemesis.

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
