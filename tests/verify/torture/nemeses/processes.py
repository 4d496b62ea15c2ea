"""Processes that die or stand still: workers and servers. What stood goes on, what died is started again."""

from __future__ import annotations

from random import Random

from tenure.testing.servers import Condition
from tests.verify.torture.nemeses.claims import Role, one_server, one_worker
from tests.verify.torture.nemeses.kinds import BOTH, ENDED_EARLY, NOTHING, SERVERS, WORKERS, Backends, Touches, last
from tests.verify.torture.parts import FaultLog, Need, Rig, Workers


class Kill:
    """A worker is killed with SIGKILL, and another takes its place a while later."""

    name = "kill"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = WORKERS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with one_worker(workers, random) as worker:
            fault_log.count(self.name)
            worker.kill()
            try:
                last(random.uniform(0.1, 1.0) * seconds)
            finally:
                worker.replace()


class Stop:
    """A worker stands still (SIGSTOP) for a while, longer or shorter than its time to live."""

    name = "stop"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = WORKERS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with one_worker(workers, random) as worker:
            fault_log.count(self.name)
            worker.stop()
            try:
                last(random.uniform(0.2, 1.0) * seconds)
            finally:
                worker.resume()


class KillServer:
    """A server is killed with SIGKILL and started again with its data."""

    name = "kill-server"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = SERVERS
    role: Role = "any"

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with one_server(rig, random, self.role) as member, fault_log.broken(self.name):
            try:
                member.kill()
                last(seconds)
            finally:
                if member.condition is Condition.KILLED:
                    member.start()


class KillLeader(KillServer):
    """The leader is killed with SIGKILL and started again with its data."""

    name = "kill-leader"
    role: Role = "leader"


class StopServer:
    """A server stands still (SIGSTOP): its kernel still takes what is sent to it, nobody answers."""

    name = "stop-server"
    backends: Backends = BOTH
    needs: frozenset[Need] = NOTHING
    touches: Touches = SERVERS
    role: Role = "any"
    excuses = (ENDED_EARLY,)

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with one_server(rig, random, self.role) as member, fault_log.broken(self.name):
            try:
                member.pause()
                last(seconds)
            finally:
                member.resume()
            member.wait_ready()


class StopLeader(StopServer):
    """The leader stands still (SIGSTOP), and wakes up to find another in its place."""

    name = "stop-leader"
    role: Role = "leader"
