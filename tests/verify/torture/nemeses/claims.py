"""Nemeses that strike at the same time don't strike the same server or the same worker.

Who wants to break one claims it for as long as it is broken. A claim waits, with a bound; who holds one claims no
second, but may claim all servers at once, so nobody waits for anybody in a ring.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Literal, TypeAlias, TypeVar

from tenure.testing.servers import Condition, Member, ServerFailed
from tests.verify.torture.parts import Rig, Worker, Workers

Role: TypeAlias = Literal["any", "leader", "follower"]
Victim = TypeVar("Victim", Member, Worker)

_CLAIM_SECONDS = 90.0
_change = threading.Condition()  # guards _claimed
_claimed: set[int] = set()


def server_name(rig: Rig, member: Member) -> str:
    """A member's place."""
    return f"server-{rig.cluster.members.index(member)}"


def servers(rig: Rig) -> list[str]:
    """The places of all members."""
    return [f"server-{n}" for n in range(len(rig.cluster.members))]


@contextmanager
def one_server(rig: Rig, random: Random, role: Role = "any") -> Iterator[Member]:
    """A member for this block only; of the role that was asked for, where that one is free."""
    with _claim(_by_role(rig, random, role), of_these=1) as [member]:
        yield member


@contextmanager
def all_servers(rig: Rig) -> Iterator[Sequence[Member]]:
    """Every member, for this block only."""
    with _claim(rig.cluster.members, of_these=len(rig.cluster.members)) as members:
        yield members


@contextmanager
def one_worker(workers: Workers, random: Random) -> Iterator[Worker]:
    """A worker for this block only: every other time one that holds something."""
    holder = workers.holder() if random.random() < 0.5 else None
    others = random.sample(list(workers.all), len(workers.all))
    with _claim([holder, *others] if holder is not None else others, of_these=1) as [worker]:
        yield worker


def wait_serving(rig: Rig) -> None:
    """Wait until every member serves that nobody else has broken. Raises ServerFailed after a bound."""
    for member in rig.cluster.members:
        with _change:
            if id(member) in _claimed:
                continue
            _claimed.add(id(member))
        try:
            member.wait_ready()
        finally:
            _release([member])


def leader_first(rig: Rig, members: Sequence[Member], random: Random) -> list[Member]:
    """The members, the leader before the others; without a quorum there is no leader, and any may be first."""
    found = random.sample(list(members), len(members))
    try:
        leader = rig.cluster.leader()
    except ServerFailed:
        return found
    return sorted(found, key=lambda member: member is not leader)


def _by_role(rig: Rig, random: Random, role: Role) -> list[Member]:
    """The members, those that run and have this role first."""
    found = random.sample(rig.cluster.members, len(rig.cluster.members))
    if role != "any":
        found = leader_first(rig, found, random)
    if role == "follower":
        found.reverse()
    return sorted(found, key=lambda member: member.condition is not Condition.RUNNING)


@contextmanager
def _claim(wanted: Sequence[Victim], *, of_these: int) -> Iterator[list[Victim]]:
    with _change:
        if not _change.wait_for(lambda: len(_free(wanted)) >= of_these, _CLAIM_SECONDS):
            raise ServerFailed(f"nothing of {wanted} was whole within {_CLAIM_SECONDS} s")
        mine = _free(wanted)[:of_these]
        _claimed.update(id(one) for one in mine)
    try:
        yield mine
    finally:
        _release(mine)


def _free(wanted: Sequence[Victim]) -> list[Victim]:
    return [one for one in wanted if id(one) not in _claimed]


def _release(mine: Sequence[object]) -> None:
    with _change:
        _claimed.difference_update(id(one) for one in mine)
        _change.notify_all()
