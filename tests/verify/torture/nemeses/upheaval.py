"""The cluster as a whole: leaders that don't stay, members that are restarted or replaced, everything off and on."""

from __future__ import annotations

import time
from random import Random

from tenure.testing.servers import Condition, Member, ServerFailed
from tests.verify.torture.nemeses.claims import all_servers, leader_first
from tests.verify.torture.nemeses.control import await_applied, etcdctl_json, insist, statuses, try_control
from tests.verify.torture.nemeses.kinds import BOTH, LINKS, NOTHING, SERVERS, Backends, Touches, last
from tests.verify.torture.nemeses.machines import process_of, wipe
from tests.verify.torture.parts import FaultLog, Need, Rig, Workers

_MOVE_EVERY_SECONDS = 0.5
_BACK_AT_WORK_SECONDS = 6.0
"""etcd elects, and gives every lease its whole time once more, before anybody has what a lost client held."""


class Churn:
    """The leader changes faster than leases end: moved by its administrator, or killed where it can't be moved."""

    name = "churn"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = SERVERS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        change = _move_leader if rig.cluster.kind == "etcd" else _kill_leader
        end = time.monotonic() + seconds
        with all_servers(rig) as members, fault_log.broken(self.name):
            while time.monotonic() < end:
                change(rig, random)
                last(_MOVE_EVERY_SECONDS)
            for member in members:
                member.wait_ready()


class RollingRestart:
    """Every server is killed and started again, one after the other."""

    name = "rolling-restart"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = SERVERS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with all_servers(rig) as members, fault_log.broken(self.name):
            for member in random.sample(list(members), len(members)):
                member.kill()
                last(random.uniform(0.0, seconds / len(members)))
                member.start()
            for member in members:
                member.wait_ready()


class FullStop:
    """The servers are all killed, and started again together; then there is time to find back to work."""

    name = "full-stop"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = SERVERS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with all_servers(rig) as members, fault_log.broken(self.name):
            try:
                for member in members:
                    member.kill()
                last(seconds)
            finally:
                rig.cluster.start_all()
        last(_BACK_AT_WORK_SECONDS)


class ReplaceMember:
    """A follower loses its disk and comes back empty; in etcd as a new member. Not together with broken links.

    ZooKeeper is built for disks that stay: its other two servers must keep what is known, so they are left alone. And
    as its logs are what the truth is read from, it is always the same server that loses them.
    """

    name = "replace-member"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = SERVERS | LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        replace = _replace_in_etcd if rig.cluster.kind == "etcd" else _wipe_in_zookeeper
        with all_servers(rig) as members, fault_log.broken(self.name):
            for member in members:
                member.wait_ready()
            replace(rig, leader_first(rig, members, random), seconds)
            for member in members:
                member.wait_ready()


def _move_leader(rig: Rig, random: Random) -> None:
    """Move the leadership to another member.

    Does nothing while no leader is known, or when it has just changed by itself.
    """
    try:
        found = statuses(rig.cluster)
    except ServerFailed:
        return
    leaders = {status["leader"] for member in found if (status := member["Status"]).get("leader")}
    others = [number for member in found if (number := member["Status"]["header"]["member_id"]) not in leaders]
    if leaders and others:
        try_control(rig.cluster, "move-leader", f"{random.choice(others):x}")


def _kill_leader(rig: Rig, random: Random) -> None:
    leader = rig.cluster.leader()
    try:
        leader.kill()
        rig.cluster.leader()
    finally:
        leader.start()


def _replace_in_etcd(rig: Rig, leader_first: list[Member], seconds: float) -> None:
    member, cluster = leader_first[-1], rig.cluster
    process = process_of(member)
    name, peer = _option(process.command, "--name="), _option(process.command, "--initial-advertise-peer-urls=")
    number = next(m["ID"] for m in etcdctl_json(cluster, "member", "list")["members"] if m.get("name") == name)
    member.kill()
    try:
        insist(cluster, "member", "remove", f"{number:x}")
        wipe(member)
        last(seconds)
    finally:
        if not any(peer in m["peerURLs"] for m in etcdctl_json(cluster, "member", "list")["members"]):
            insist(cluster, "member", "add", name, f"--peer-urls={peer}")
        await_applied(cluster)  # or it would ask one that does not know of it yet, and end
        process.command = [
            word.replace("--initial-cluster-state=new", "--initial-cluster-state=existing") for word in process.command
        ]
        member.start()


def _wipe_in_zookeeper(rig: Rig, leader_first: list[Member], seconds: float) -> None:
    member = rig.cluster.members[-1]
    member.kill()
    try:
        rig.cluster.leader()  # the others have what was committed, and one of them leads
        wipe(member, keep=frozenset({"myid"}))
        last(seconds)
    finally:
        if member.condition is Condition.KILLED:
            member.start()


def _option(command: list[str], name: str) -> str:
    return next(word.removeprefix(name) for word in command if word.startswith(name))
