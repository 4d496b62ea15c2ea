"""`tenure run` and `tenure elect` under way, in pipes or from a shell at a terminal, and what runs under them."""

from __future__ import annotations

import ctypes
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tenure.cli.supervise.watchdog import descendants, send
from tests.cli.program import PATIENCE_SECONDS, PROGRAM, Terminal, environment, set_size

STUBBORN = "trap '' TERM INT HUP; echo up; while :; do sleep 0.1; done"
"""A shell script that no signal but SIGKILL ends."""
COUNTING = """
import os, signal, sys, time
came = []
for each in sys.argv[1:]:
    signal.signal(int(each), lambda number, frame: came.append(number))
print("up", flush=True)
until = time.monotonic() + 60
while not came and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.7)
print(*came, flush=True)
sys.exit(40 + len(came))
"""
"""Ends 0.7 s after the first of the signals in its arguments, with 40 and how many came."""


_PIDFD_SEND_SIGNAL = 424
_SI_QUEUE = -1


def python(code: str, *arguments: object) -> tuple[str, ...]:
    """A CMD."""
    return (sys.executable, "-I", "-S", "-c", code, *map(str, arguments))


def shell(script: str) -> tuple[str, ...]:
    """A CMD."""
    return ("sh", "-c", script)


def now() -> float:
    """The clock of deadlines."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def signal_from_outside(pid: int, number: int) -> None:
    """Send a signal as from outside of the PID namespace, as the runtime of a container does: without a sender."""
    siginfo = struct.pack("@3i4x2i", number, 0, _SI_QUEUE, 0, 0).ljust(128, b"\0")
    pidfd = os.pidfd_open(pid)
    try:
        sent = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_SEND_SIGNAL, pidfd, int(number), siginfo, 0)
    finally:
        os.close(pidfd)
    if sent != 0:
        raise OSError(ctypes.get_errno(), "pidfd_send_signal")


class Started:
    """The program, started with pipes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._read = b""

    @property
    def pid(self) -> int:
        """Process id of tenure."""
        return self.process.pid

    @property
    def watchdog(self) -> int:
        """Process id of tenure's only child."""
        return descendants(self.pid)[0]

    def line(self) -> str:
        """The next line that CMD writes; "" at the end."""
        assert self.process.stdout is not None
        pipe = self.process.stdout.fileno()  # read past Popen's own buffer, which select does not see
        while b"\n" not in self._read:
            ready, _, _ = select.select([pipe], [], [], PATIENCE_SECONDS)
            assert ready, "CMD writes nothing"
            got = os.read(pipe, 4096)
            if not got:
                return ""
            self._read += got
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()

    def up(self, lines: int = 1) -> Family:
        """Wait until CMD has said so (and its children, too); CMD and what it started."""
        for _ in range(lines):
            said = self.line()
            assert said == "up", (said, self.process.poll() is not None and self.process.communicate())
        return Family(descendants(self.watchdog))

    def end(self) -> tuple[int, str, str]:
        """Code, output and complaints, when it has ended."""
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert "Traceback" not in err, err
        return self.process.returncode, self._read.decode() + out, err

    def signal(self, number: int) -> None:
        """Send a signal to tenure."""
        self.process.send_signal(number)


class Family:
    """Processes, to be seen dead."""

    def __init__(self, pids: list[int]) -> None:
        assert pids
        self.pids = pids
        self._watched: list[int] = []
        for pid in pids:
            with suppress(ProcessLookupError):  # a shell's `sleep 0.1` may have ended
                self._watched.append(os.pidfd_open(pid))

    def dead_at(self) -> float:
        """Wait until the last one has ended; the clock then."""
        for each in self._watched:
            ended, _, _ = select.select([each], [], [], PATIENCE_SECONDS)
            os.close(each)
            assert ended, f"one of {self.pids} lives on"
        return now()


@contextmanager
def started(
    *arguments: str, url: str, prepare: Callable[[], None] | None = None, program: Sequence[str] = PROGRAM
) -> Iterator[Started]:
    """The program in pipes; ended at the end."""
    process = subprocess.Popen(
        [*program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=1,
        text=True,
        env=environment({"TENURE_URL": url}),
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509  # it only sets what signals do
    )
    try:
        yield Started(process)
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


@contextmanager
def bash(url: str) -> Iterator[Terminal]:
    """A shell with job control at a terminal; `tenure` is a function of it."""
    ours, theirs = pty.openpty()
    set_size(ours, 200, 24)
    process = subprocess.Popen(
        ["setsid", "-c", "bash", "--norc", "--noprofile", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment({"TENURE_URL": url, "PS1": "$ ", "PYTHON": sys.executable, "TERM": "dumb"}),
    )
    os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        terminal.type('tenure() { "$PYTHON" -m tenure.cli "$@"; }; echo rea""dy\n')
        terminal.read_until("ready\n")
        yield terminal
    finally:
        for pid in descendants(process.pid):
            send(pid, signal.SIGKILL)
        process.kill()
        process.wait()
        os.close(ours)
