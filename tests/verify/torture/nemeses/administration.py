"""Acts of an administrator on the store: compaction, defragmentation, the alarm of a full quota, other logins."""

from __future__ import annotations

import subprocess
import time
from random import Random

from tenure.testing.servers import Cluster, ServerFailed, etcdctl_popen
from tests.verify.torture.nemeses.control import defragment, insist, revision, try_control
from tests.verify.torture.nemeses.kinds import ETCD, NOTHING, SERVERS, STORE, Backends, Touches, last
from tests.verify.torture.parts import FaultLog, Need, Rig, Workers

_COMPACT_EVERY_SECONDS = 0.1
_BALLAST = "ballast/"
_BALLAST_BYTES = 1024 * 1024
_BALLAST_PIECES_MAX = 64
_FED_SECONDS = 10.0


class Compaction:
    """The store forgets its history ten times a second, and all members are defragmented."""

    name = "compaction"
    backends: Backends = ETCD
    needs: frozenset[Need] = NOTHING
    touches: Touches = STORE

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        end = time.monotonic() + seconds
        with fault_log.broken(self.name):
            while time.monotonic() < end:
                if try_control(rig.cluster, "compaction", str(revision(rig.cluster))):
                    fault_log.count("compacted")
                last(_COMPACT_EVERY_SECONDS)
            defragment(rig.cluster)


class Quota:
    """The store is full: its alarm refuses every write but deletions, until it is emptied and the alarm disarmed."""

    name = "quota"
    backends: Backends = ETCD
    needs: frozenset[Need] = frozenset({"quota"})
    touches: Touches = SERVERS | STORE

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        with fault_log.broken(self.name):
            try:
                _fill(rig.cluster)
                last(seconds)
            finally:
                insist(rig.cluster, "del", _BALLAST, "--prefix")
                try_control(rig.cluster, "compaction", str(revision(rig.cluster)))  # others may compact, too
                defragment(rig.cluster)
                insist(rig.cluster, "alarm", "disarm")


class AuthExpiry:
    """Every login ends at once, each time the user's password is set anew; and idle ones after some seconds."""

    name = "auth-expiry"
    backends: Backends = ETCD
    needs: frozenset[Need] = frozenset({"auth"})
    touches: Touches = STORE

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        user, password = rig.cluster.auth or ("", "")
        end = time.monotonic() + seconds
        with fault_log.broken(self.name):
            while time.monotonic() < end:
                # To the same word: etcd throws away the user's tokens all the same.
                if not _fed(rig.cluster, f"{password}\n", "user", "passwd", user, "--interactive=false"):
                    fault_log.count("logins ended")
                last(random.uniform(0.1, seconds / 2))


def _fill(cluster: Cluster) -> None:
    """Fill the store until it refuses, with values too long for a command line.

    Raises ServerFailed where it takes them all.
    """
    for piece in range(_BALLAST_PIECES_MAX):
        complaint = _fed(cluster, "x" * _BALLAST_BYTES, "put", f"{_BALLAST}{piece}")
        if "space exceeded" in complaint:
            return
    raise ServerFailed(f"the store took {_BALLAST_PIECES_MAX} pieces of ballast, and was not full: {complaint}")


def _fed(cluster: Cluster, text: str, *args: str) -> str:
    """Feed etcdctl this text and return its complaint; "" where all was well."""
    with etcdctl_popen(cluster, *args) as process:
        try:
            complaint = process.communicate(text, _FED_SECONDS)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            return "took too long"
        return complaint or ("" if process.returncode == 0 else f"status {process.returncode}")
