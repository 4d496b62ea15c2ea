"""Disks that are slow, fail, or are full. After a failure the server is started again once its disk is whole."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from tenure.testing.servers import Member
from tests.verify.torture.nemeses.claims import Role, all_servers, leader_first, one_server
from tests.verify.torture.nemeses.kinds import BOTH, ENDED_EARLY, SERVERS, Backends, Touches, last
from tests.verify.torture.nemeses.machines import data_of, mend_epochs
from tests.verify.torture.nemeses.tracing import injected
from tests.verify.torture.parts import FaultLog, Need, Rig, Workers

_SYNCS = "fdatasync,fsync"
_WRITES = "fdatasync,fsync,pwrite64,fallocate"
_PIECE_BYTES = 1024 * 1024
_STRACE: frozenset[Need] = frozenset({"strace"})


class SlowDisk:
    """Every sync to disk takes 0.1 to 1 s longer, on the leader or on a majority."""

    name = "slow-disk"
    backends: Backends = BOTH
    needs: frozenset[Need] = _STRACE
    touches: Touches = SERVERS
    excuses = (ENDED_EARLY,)

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        how_many = random.choice([1, len(rig.cluster.members) // 2 + 1])
        delay = random.uniform(0.1, 1.0)
        with all_servers(rig) as members, fault_log.broken(self.name):
            with ExitStack() as stack:
                for member in leader_first(rig, members, random)[:how_many]:
                    stack.enter_context(injected(member, _SYNCS, f"delay_enter={delay * 1e6:.0f}"))
                last(seconds)
            for member in members:
                member.wait_ready()


class FailingDisk:
    """Every sync to disk of one server fails (EIO); then it is started again with its data."""

    name = "failing-disk"
    backends: Backends = BOTH
    needs: frozenset[Need] = _STRACE
    touches: Touches = SERVERS
    calls = _SYNCS
    fault = "error=EIO"

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        roles: list[Role] = ["leader", "any"]
        with one_server(rig, random, random.choice(roles)) as member, fault_log.broken(self.name):
            with _revived(member), injected(member, self.calls, self.fault):
                last(seconds)


class NoSpace(FailingDisk):
    """Writes and syncs of one server fail for want of space (ENOSPC injected, where there is no small disk to fill)."""

    name = "no-space"
    calls = _WRITES
    fault = "error=ENOSPC"


class DiskFull:
    """The disk of one server is filled to the last byte; then emptied, and the server started again with its data."""

    name = "disk-full"
    backends: Backends = BOTH
    needs: frozenset[Need] = frozenset({"tmpfs"})
    touches: Touches = SERVERS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with one_server(rig, random) as member, fault_log.broken(self.name):
            with _revived(member), _filled(data_of(member)):
                last(seconds)


@contextmanager
def _revived(member: Member) -> Iterator[None]:
    """Afterwards the server is started again, as after a repair: etcd has died of it, ZooKeeper may only limp."""
    try:
        yield
    finally:
        member.kill()
        mend_epochs(member)
        member.start()


@contextmanager
def _filled(directory: Path) -> Iterator[None]:
    ballast = directory / "ballast"
    try:
        _fill(ballast)
        yield
    finally:
        ballast.unlink(missing_ok=True)


def _fill(ballast: Path) -> None:
    """The disk is a small one of its own: see `DISK_BYTES` of the rig."""
    with ballast.open("wb", buffering=0) as file:
        for piece in (_PIECE_BYTES, 1):
            try:
                while file.write(bytes(piece)) == piece:
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
