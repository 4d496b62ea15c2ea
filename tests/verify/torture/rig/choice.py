"""Choice of the rig for a run, and what a machine must have for it. Servers elect within a second."""

from __future__ import annotations

import os
import shutil
from functools import lru_cache
from pathlib import Path

from tenure.testing.servers import EtcdSpec, ZooKeeperSpec
from tenure.testing.servers.specs import Kind, Spec
from tests.verify.torture.parts import Need, Rig
from tests.verify.torture.rig.loopback import LoopbackRig
from tests.verify.torture.rig.namespaces import NamespacesRig, can_lay_out
from tests.verify.torture.rig.shell import RigMissing

SIZE = 3
LOGIN = ("root", "torture")
TOKEN_SECONDS = 4
QUOTA_BYTES = 24 * 1024 * 1024
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_WANTED: frozenset[Need] = frozenset({"proxies", "tmpfs", "auth", "quota"})
"""Set up only where they are asked for: they cost something, or change what is tested."""


def make_rig(backend: Kind, *, clients: int = 4, needs: frozenset[Need] = frozenset(), seed: int = 0) -> Rig:
    """Three servers that serve, and the places of clients: in namespaces where this machine can, else on loopback.

    Raises RigMissing where `needs` can't be met, ServersMissing or ServerFailed where the servers don't come up.
    """
    able = possible(backend)
    missing = sorted(needs - able)
    if missing:
        raise RigMissing("; ".join(f"{need}: {_why_not(need, backend)}" for need in missing))
    has = (able - _WANTED) | needs
    if "namespaces" in able:
        return NamespacesRig(_spec(backend, needs), clients=clients, needs=needs, has=has, seed=seed)
    return LoopbackRig(_spec(backend, needs), clients=clients, has=has | {"proxies"}, seed=seed)


def possible(backend: Kind) -> frozenset[Need]:
    """Every need that a rig on this machine can meet."""
    found: set[Need] = {"proxies", backend}
    if backend == "etcd":
        found |= {"auth", "quota"}
    if os.geteuid() == 0:
        found |= {"root", "tmpfs"}
        found |= set() if _no_namespaces() else {"namespaces"}
    if _can_trace():
        found.add("strace")
    return frozenset(found)


@lru_cache(maxsize=1)
def _no_namespaces() -> str:
    """Why there can be none; "" where there can. Found out by making one."""
    return can_lay_out() if os.geteuid() == 0 else "network namespaces take root"


def _can_trace() -> bool:
    """Without root a process may trace another that is not its child only where Yama lets it."""
    allowed = os.geteuid() == 0 or not _YAMA.exists() or _YAMA.read_text("ascii").strip() == "0"
    return allowed and shutil.which("strace") is not None


def _why_not(need: Need, backend: Kind) -> str:
    match need:
        case "namespaces":
            return _no_namespaces()
        case "strace":
            return "strace is not installed, or may not trace another process here"
        case "root" | "tmpfs":
            return "takes root"
        case _:
            return f"not with {backend}"


def _spec(backend: Kind, needs: frozenset[Need]) -> Spec:
    if backend == "zookeeper":
        return ZooKeeperSpec(size=SIZE, tick_ms=200)
    return EtcdSpec(
        size=SIZE,
        heartbeat_ms=60,
        election_ms=300,
        auth=LOGIN if "auth" in needs else None,
        auth_token_ttl_seconds=TOKEN_SECONDS if "auth" in needs else 300,
        quota_bytes=QUOTA_BYTES if "quota" in needs else None,
        # A sign-in otherwise takes 50 ms of the processors that three servers and all clients share here.
        extra_args=("--bcrypt-cost=4",) if "auth" in needs else (),
    )
