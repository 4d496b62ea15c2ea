"""Why a store may set a signal that did not have to be set: all reasons, one by one, each with its law.

wait_change says that a signal `may be set early and for nothing`. But what wakes many for the change of one breaks law
10, and a reason that nobody knows is a bug: so only the reasons that a store is known to have are let pass, each where
the trace shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tenure._core.base.limits import WATCHED_SINGLY_MAX
from tests.verify.traces.answers import Change
from tests.verify.traces.watching import Watched

ETCD: Final = frozenset({"etcd"})
ZOOKEEPER: Final = frozenset({"zookeeper"})


Changes: TypeAlias = Sequence[Change]


@dataclass(frozen=True, slots=True)
class Early:
    """A reason for which a store sets a signal that did not have to be set."""

    name: str
    stores: frozenset[str]
    law: str
    explains: Callable[[Watched, Changes, Changes], bool]
    """Given the watch and what happened before its line was read and since: to the line, and losses of its client's."""


def _broken(watched: Watched, before: Changes, since: Changes) -> bool:
    return any(change.kind == "loss" for change in (*before, *since))


def _by_its_line(watched: Watched) -> bool:
    return len(watched.tickets) > WATCHED_SINGLY_MAX


def _another_departure(watched: Watched, before: Changes, since: Changes) -> bool:
    return _by_its_line(watched) and any(change.kind == "departure" for change in since)


def _anything_in_the_range(watched: Watched, before: Changes, since: Changes) -> bool:
    return _by_its_line(watched) and watched.command.amendments and any(change.kind != "loss" for change in since)


def _amended_unasked(watched: Watched, before: Changes, since: Changes) -> bool:
    counts = before if watched.command.amendments else (*before, *since)
    return any(change.kind == "amendment" and change.ticket in watched.tickets for change in counts)


def _another_child(watched: Watched, before: Changes, since: Changes) -> bool:
    moves = ("arrival", "departure")
    return _by_its_line(watched) and any(change.kind in moves for change in (*before, *since))


EARLY: Final = (
    Early(
        "a watch that broke",
        frozenset({"etcd", "zookeeper"}),
        "wait_change: `it is also set when … the watch behind it does`. What is lost is lost with its connection, and "
        "law 11 makes everybody look.",
        _broken,
    ),
    Early(
        "another's departure",
        ETCD,
        "wait_change: `it may be set early and for nothing`. One watch on the line's range stands for many tickets.",
        _another_departure,
    ),
    Early(
        "anything in the range",
        ETCD,
        "The same, where amendments were asked for: the range then tells of every put.",
        _anything_in_the_range,
    ),
    Early(
        "amended unasked",
        ZOOKEEPER,
        "The same. ZooKeeper's watch of a node tells of its data too, asked or not. It is shared by all who wait "
        "for the node, and who knew the ticket by an older version may hear of an amendment from before.",
        _amended_unasked,
    ),
    Early(
        "another child",
        ZOOKEEPER,
        "The same. One watch on the line's node stands for many tickets, and tells of each that comes or goes.",
        _another_child,
    ),
)
