"""Worker processes of tests and benchmarks: started, listened to, sent orders, and ended by their process ids.

    with WorkerProcess(python_module("tests.verify.torture.worker", plan), log=path) as process:
        process.line(seconds=60.0)      # what it says, with a bound on the wait
        process.send("stall 0.7")       # an order
        process.stop(); process.resume(); process.kill()

A worker may be started from any directory: its PYTHONPATH names this repository. A worker that is `tied` is killed by
the kernel when the thread that started it ends, however that happens (Linux, `setpriv`); `Spawner` is a thread which
lives as long as its owner wants. Every error carries the end of what the process wrote to stderr.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
READY_SECONDS: Final = 60.0
END_SECONDS: Final = 25.0
_STOPPED_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.002
_TAIL_BYTES: Final = 4096


class ProcessFailed(Exception):
    """A process ended by itself, stayed silent, or did not end when it was told to. The message has its stderr."""


class WorkerProcess:
    """One process with pipes for its input and its output, and a file for its stderr. For one thread at a time."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        prefix: Sequence[str] = (),
        log: Path,
        name: str = "",
        directory: Path | None = None,
        descriptors: Sequence[int] = (),
        speaks: bool = True,
        tied: bool = True,
    ) -> None:
        """Start `command` behind `prefix`, words that run it elsewhere (`ip netns exec …`).

        One that does not `speak` has no input, and its output goes to `log` as its stderr does. A `tied`
        process has a session of its own, so that Ctrl-C does not reach it.
        """
        self.name = name or " ".join(command)
        self._log = log
        self._unread = b""
        pipe = subprocess.PIPE if speaks else None
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*prefix, *(_tie() if tied else []), *command],
                cwd=directory,
                env=environment(),
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or stderr,
                stderr=stderr,
                pass_fds=descriptors,
                start_new_session=tied,
            )

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs or stands still."""
        return self._process.poll()

    def line(self, seconds: float = READY_SECONDS) -> bytes:
        """The next line of its output, without its end. Raises ProcessFailed at the end of output, or after `seconds`.

        Bounded however the bytes arrive. What came after the line waits for the next call.
        """
        stdout, until = self._process.stdout, time.monotonic() + seconds
        if stdout is None:
            raise ValueError(f"{self.name} was started without pipes")
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        while b"\n" not in self._unread:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise self.failed(f"said nothing within {seconds:g} s")
            piece = os.read(stdout.fileno(), 1 << 16)
            if not piece:
                self.wait()
                raise self.failed("ended by itself")
            self._unread += piece
        line, self._unread = self._unread.split(b"\n", 1)
        return line

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait for the line `ready`. Raises ProcessFailed for any other, and where none comes."""
        line = self.line(seconds)
        if line != b"ready":
            raise self.failed(f"said {line[:200]!r} instead of ready")

    def send(self, words: str) -> bool:
        """Write one line to its input; False where nobody reads there any more."""
        stdin = self._process.stdin
        try:
            if stdin is None or stdin.closed:
                return False
            stdin.write(words.encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def end_input(self) -> None:
        """Close its input, which many programs take as the order to end."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. Without effect on a process that has ended."""
        self._process.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP, and wait until all its threads stand still. Raises ProcessFailed."""
        self.signal(signal.SIGSTOP)
        wait_until_stopped(self.pid)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Idempotent."""
        self._process.kill()
        self._process.wait(END_SECONDS)

    def wait(self, seconds: float = END_SECONDS) -> int:
        """Wait for its end and return its exit status. Raises ProcessFailed, after SIGKILL, where it does not end."""
        try:
            return self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failed("did not end when it was told to") from None

    def close(self) -> None:
        """Kill it if it still runs, and close its pipes. Idempotent."""
        self.kill()
        self.end_input()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def failed(self, what: str) -> ProcessFailed:
        """The error that says `what` went wrong, with the end of its stderr."""
        return ProcessFailed(f"{self.name} {what} (status {self._process.returncode}): {tail_of(self._log)}")


class Spawner:
    """A thread that starts processes for other threads, which may end before these processes do.

    Needed because the kernel's promise to kill a `tied` process belongs to the thread that started it.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")

    def start(self, command: Sequence[str], *, prefix: Sequence[str] = (), log: Path, name: str = "") -> WorkerProcess:
        """Start a tied process. Thread-safe."""
        return self._thread.submit(WorkerProcess, command, prefix=prefix, log=log, name=name).result()

    def close(self) -> None:
        """End the thread. Every process has to have ended before."""
        self._thread.shutdown()


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this repository with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def environment() -> dict[str, str]:
    """This process's environment, with this repository on PYTHONPATH: `tests.…` is found from any directory."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def tail_of(log: Path) -> str:
    """The last lines that a process wrote to its log; empty where there is none."""
    return log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").strip() if log.exists() else ""


def wait_until_stopped(pid: int) -> None:
    """Wait until every thread of a process stands still, as the kernel sees it. Raises ProcessFailed."""
    until = time.monotonic() + _STOPPED_SECONDS
    while time.monotonic() < until:
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended meanwhile: look again
            tasks = Path(f"/proc/{pid}/task")
            states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()]
            if all(state in ("T", "t", "Z", "X") for state in states):
                return
        time.sleep(_LOOK_SECONDS)
    raise ProcessFailed(f"process {pid} did not stand still within {_STOPPED_SECONDS:g} s of SIGSTOP")


def _tie() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
