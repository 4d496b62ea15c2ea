"""Child processes that cannot outlive the test process, and loopback ports that stay theirs.

Promises: a child gets SIGKILL when the process that started it ends in any way, SIGKILL included (Linux,
`setpriv`). A port is free when chosen and lies below the kernel's ephemeral range, so that no outgoing connection
can take it while its server is down for a restart. Does not promise that another program binds it first: the
caller retries with new ports.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tenure.testing.servers.specs import ServerFailed

_END_SECONDS = 10.0
_SPAWN_SECONDS = 10.0
_LOG_TAIL_BYTES = 8192
_PORTS_FIRST, _PORTS_LAST = 12_000, 32_000
_PORT_TRIES_MAX = 200

# PR_SET_PDEATHSIG fires when the *thread* that forked ends, not the process. All children are therefore started by
# this one thread, which lives as long as the interpreter; a nemesis thread may restart a server and end.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="servers-spawner")

_ports_lock = threading.Lock()  # guards _ports_given
_ports_given: set[int] = set()


class PortTaken(ServerFailed):
    """The server ended because somebody else bound its port first; try again with others."""


def free_port() -> int:
    """A loopback port nobody listens on, never given out before in this process."""
    with _ports_lock:
        for _ in range(_PORT_TRIES_MAX):
            port = random.randrange(_PORTS_FIRST, _PORTS_LAST)
            if port not in _ports_given and _can_bind(port):
                _ports_given.add(port)
                return port
    raise ServerFailed(f"no free loopback port found in {_PORT_TRIES_MAX} tries")


def give_back(port: int) -> None:
    """Let a port be chosen again, once its server has ended."""
    with _ports_lock:
        _ports_given.discard(port)


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class ServerProcess:
    """A server program with its log file: a `Machine` (see cluster). Not for two threads at once."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self.command: list[str] = list(command)
        self.directory = directory
        self._log = directory / "log"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    def launch(self) -> None:
        if self._child is not None and self._child.poll() is None:
            raise ServerFailed(f"process {self._child.pid} still runs")
        self._child = _SPAWNER.submit(_spawn, self.command, self.directory, self._log).result(_SPAWN_SECONDS)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait(_END_SECONDS)

    def end(self) -> None:
        """SIGTERM, and wait until it has ended; SIGKILL where that takes too long. Does nothing to one that ended."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        os.kill(self._running().pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._running().pid, signal.SIGCONT)

    def check_alive(self) -> None:
        if self._child is None or self._child.poll() is None:
            return
        tail = self.log_tail()
        kind = PortTaken if "address already in use" in tail.lower() else ServerFailed
        raise kind(f"{Path(self.command[0]).name} ended with status {self._child.returncode}; its log:\n{tail}")

    def log_tail(self) -> str:
        if not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _LOG_TAIL_BYTES))
            return log.read().decode("utf-8", "replace")

    def log(self) -> str:
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            raise ServerFailed("there is no running process")
        return self._child


def _spawn(command: Sequence[str], directory: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [*_die_with_parent(), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,  # a Ctrl-C at the terminal is the test's business, not the servers'
        )


def _die_with_parent() -> list[str]:
    """`setpriv` execs the server in its own place, so the process id stays; preexec_fn is unsafe with threads."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
