"""The crew: the workers as processes, each with its history and its stderr. None of them outlives the run.

A worker that is stopped, resumed or killed is stamped in the diary as event.py's table wants it: paused after it stood,
resumed before it goes on, died once it is gone. A worker that ends by itself is noticed by `check_running`.
"""

from __future__ import annotations

import dataclasses
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.testing.event import Kind
from holdfast.testing.torture.diary import RunDiary
from holdfast.testing.torture.parts import Ground, Worker
from holdfast.testing.torture.tail import Tail
from holdfast.testing.torture.worker.plan import Plan

END_SECONDS: Final = 25.0
_STANDS_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.002
_STDERR_TAIL_BYTES: Final = 4096


class WorkerFailed(Exception):
    """A worker ended by itself, or did not when it was told to. The message has what it said."""


class Spawner:
    """Starts processes that the kernel kills when this one ends (Linux, `setpriv`).

    From one thread that lives as long as the run: the kernel's promise is tied to the thread that started a process,
    and a nemesis' thread may start a worker and end.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torture-spawner")
        setpriv = shutil.which("setpriv")
        self._tie = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []

    def start(self, prefix: Sequence[str], module: str, *arguments: str, errors: Path) -> subprocess.Popen[bytes]:
        """`python -m module` behind `prefix`, with pipes for input and output."""
        command = [*prefix, *self._tie, sys.executable, "-m", module, *arguments]

        def spawn() -> subprocess.Popen[bytes]:
            with errors.open("ab") as stderr:
                return subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
                )

        return self._thread.submit(spawn).result()

    def close(self) -> None:
        """End the thread. Every process has to have ended before."""
        self._thread.shutdown()


class Member:
    """The `Worker` of parts.py. Thread-safe."""

    def __init__(self, make: Plan, place: str, ground: Ground, diary: RunDiary, spawner: Spawner) -> None:
        self.place = place
        self.name = make.name
        self.histories: list[Path] = []
        self._plan = make
        self._ground = ground
        self._diary = diary
        self._spawner = spawner
        self._guard = threading.RLock()  # guards everything below
        self._lives = 0
        self._paused = False
        self._killed = False
        self._start(self._plan)

    def _start(self, plan: Plan) -> None:
        self._errors = Path(plan.history).with_suffix(".stderr")
        module = "holdfast.testing.torture.worker"
        self._process = self._spawner.start(self._ground.command(self.place), module, str(plan), errors=self._errors)
        self.name = plan.name
        self.histories.append(Path(plan.history))
        self._tail = Tail(Path(plan.history))
        self._paused = self._killed = False

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Does it live, and was not stopped or killed?"""
        return not self._paused and not self._killed and self._process.poll() is None

    def wait_ready(self) -> None:
        """Until it is at work. Raises WorkerFailed."""
        if self._process.stdout is None or not self._process.stdout.readline():
            self._process.wait(END_SECONDS)
            raise self._failed("did not come up")

    def stop(self) -> None:
        """SIGSTOP, stamped in the diary once it stands."""
        with self._guard:
            if self._paused or self._killed:
                return
            self._process.send_signal(signal.SIGSTOP)
            wait_until_it_stands(self.pid)
            self._paused = True
            self._diary.write(Kind.PAUSED, self.name)

    def resume(self) -> None:
        """SIGCONT, stamped before."""
        with self._guard:
            if self._paused and not self._killed:
                self._diary.write(Kind.RESUMED, self.name)
                self._process.send_signal(signal.SIGCONT)
            self._paused = False

    def kill(self) -> None:
        """SIGKILL, stamped once it is gone."""
        with self._guard:
            if self._killed:
                return
            self._killed = True
            self._process.kill()
            self._process.wait(END_SECONDS)
            self._close_pipes()
            self._diary.write(Kind.DIED, self.name)
            if self._paused:
                self._paused = False
                self._diary.write(Kind.RESUMED, self.name)

    def replace(self) -> None:
        """After a kill: a new process at this place, a new client with a new name."""
        with self._guard:
            if not self._killed:
                return
            self._lives += 1
            name = f"{self._plan.name}-{self._lives}"
            history = Path(self._plan.history).with_name(f"{name}.jsonl")
            seed = f"{self._plan.seed} {self._lives}"
            self._start(dataclasses.replace(self._plan, name=name, history=str(history), seed=seed))
        self.wait_ready()

    def order(self, words: str) -> None:
        """A line on its standard input. One that is gone hears nothing."""
        with self._guard, suppress(BrokenPipeError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.write(words.encode() + b"\n")
                self._process.stdin.flush()

    def held_at(self) -> float:
        """When its records last showed that it held something; 0.0 where it holds nothing."""
        return self._tail.held_at()

    def check_running(self) -> None:
        """Raise WorkerFailed where it ended by itself."""
        with self._guard:
            if not self._killed and self._process.poll() is not None:
                raise self._failed("ended by itself")

    def tell_to_end(self) -> None:
        """SIGTERM. It goes on first, where it was stopped."""
        self.resume()
        if not self._killed:
            self._process.send_signal(signal.SIGTERM)

    def wait_ended(self, until: float) -> None:
        """Raises WorkerFailed where it did not end in good order."""
        if self._killed:
            return
        try:
            code = self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(END_SECONDS)
            self._diary.write(Kind.DIED, self.name)
            raise self._failed(f"did not end within {END_SECONDS:g} s of SIGTERM") from None
        finally:
            self._close_pipes()
        if code:
            raise self._failed("ended badly")

    def end_at_once(self) -> None:
        """Whatever it does. Not a fault of the run."""
        with self._guard:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait(END_SECONDS)
            self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _failed(self, what: str) -> WorkerFailed:
        told = self._errors.read_bytes()[-_STDERR_TAIL_BYTES:].decode("utf-8", "replace")
        return WorkerFailed(f"worker {self.name} {what} (status {self._process.returncode}): {told.strip()}")


class RunCrew:
    """The `Crew` of parts.py."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.workers: Sequence[Worker] = self.members

    def holder(self) -> Member | None:
        """A worker that held something a moment ago: of those, the one that was seen to last."""
        seen = [(member.held_at(), member) for member in self.members if member.running]
        at, last = max(seen, key=lambda pair: pair[0], default=(0.0, None))
        return last if at else None

    def check_running(self) -> None:
        """Raises WorkerFailed where one ended by itself."""
        for member in self.members:
            member.check_running()

    def end(self) -> list[str]:
        """SIGTERM to all, and wait; what went wrong."""
        for member in self.members:
            member.tell_to_end()
        until = time.monotonic() + END_SECONDS
        wrong = []
        for member in self.members:
            try:
                member.wait_ended(until)
            except WorkerFailed as error:
                wrong.append(str(error))
        return wrong

    def close(self) -> None:
        """Whoever still runs is killed."""
        for member in self.members:
            member.end_at_once()


def wait_until_it_stands(pid: int) -> None:
    """Until every thread of it is stopped, as the kernel sees it."""
    until = time.monotonic() + _STANDS_SECONDS
    while time.monotonic() < until:
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended meanwhile: look again
            tasks = Path(f"/proc/{pid}/task")
            states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()]
            if all(state in ("T", "t", "Z", "X") for state in states):
                return
        time.sleep(_LOOK_SECONDS)
    raise WorkerFailed(f"process {pid} did not stand still within {_STANDS_SECONDS:g} s of SIGSTOP")
