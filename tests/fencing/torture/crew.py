"""The workers as processes, each with its event file and its stderr. None of them outlives the test process."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from .events import Event, Tail, What
from .worker import Plan

ROOT: Final = Path(__file__).parents[3]
_READY_SECONDS: Final = 30.0
_END_SECONDS: Final = 20.0
_TICK_SECONDS: Final = 0.01
_TAIL_BYTES: Final = 4096


class Unexpected(Exception):
    """A worker ended by itself, or did not when it was told to."""


def launch(module: str, *arguments: str, errors: Path, descriptors: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """`python -m module`, tied to this process: the kernel kills it with us, whatever ends us (Linux, `setpriv`)."""
    setpriv = shutil.which("setpriv")
    tie = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
    with errors.open("ab") as stderr:
        return subprocess.Popen(
            [*tie, sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            pass_fds=descriptors,
            start_new_session=True,
        )


def tail_of(path: Path) -> str:
    """The end of what a child said."""
    return path.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace") if path.exists() else ""


class Member:
    """One worker: its process, and what is known of it from its events."""

    def __init__(self, plan: Plan) -> None:
        self.name = plan.name
        self.errors = Path(plan.directory) / f"{plan.name}.stderr"
        self.events: list[Event] = []
        self.frozen_until: float | None = None
        """When the nemesis will let it go on, where it stopped it."""
        self._tail = Tail(Path(plan.directory), plan.name)
        self._granted: Event | None = None
        self._process = launch("tests.fencing.torture.worker", str(plan), errors=self.errors)

    @property
    def last(self) -> What | None:
        return self.events[-1].what if self.events else None

    @property
    def granted(self) -> Event | None:
        """The grant that it works under, whatever became of its lease."""
        return self._granted

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def news(self) -> list[Event]:
        """What it has written down since the last call."""
        news = self._tail.new()
        self.events += news
        for event in news:
            if event.what is What.GRANTED:
                self._granted = event
            elif event.what is What.LEAVING:
                self._granted = None
        return news

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(_END_SECONDS)

    def ended(self, until: float) -> int:
        """Its exit status. Raises Unexpected."""
        try:
            return self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Unexpected(f"{self.name} did not end when it was told to, after {self.last}") from None

    def check_running(self) -> None:
        """Raise Unexpected where it ended by itself."""
        if not self.running:
            raise Unexpected(f"{self.name} ended by itself ({self._process.returncode}):\n{tail_of(self.errors)}")


class Crew:
    """The living and the dead. Closing it kills what still runs."""

    def __init__(self, plan: Plan, size: int) -> None:
        self._plan = plan
        self._started = 0
        self._unheard: list[Event] = []  # while we waited for somebody else's
        self.dead: list[Member] = []
        self.living: list[Member] = []
        for _ in range(size):
            self.start_one()

    def start_one(self) -> Member:
        name = f"w{self._started}"
        self._started += 1
        member = Member(replace(self._plan, name=name, seed=f"{self._plan.seed}-{name}"))
        self.living.append(member)
        return member

    def kill(self, member: Member) -> None:
        member.kill()
        self.living.remove(member)
        self.dead.append(member)

    def news(self) -> list[Event]:
        """What all of them have written down since the last call. Raises Unexpected where one ended by itself."""
        self._listen()
        news, self._unheard = self._unheard, []
        return news

    def events(self) -> list[Event]:
        """Everything."""
        for member in self._all():
            member.news()
        return [event for member in self._all() for event in member.events]

    def wait_ready(self) -> None:
        """Until all have begun. Raises Unexpected."""
        give_up = time.monotonic() + _READY_SECONDS
        while not all(member.events for member in self.living):
            if time.monotonic() > give_up:
                raise Unexpected(f"not ready in time: {[m.name for m in self.living if not m.events]}")
            time.sleep(_TICK_SECONDS)
            self._listen()

    def end(self) -> None:
        """Let all of them finish their turns. Raises Unexpected."""
        self.wait_ready()  # before it has set its handler, a signal would be its end
        for member in self.living:
            member.send(signal.SIGTERM)
        until = time.monotonic() + _END_SECONDS
        while any(member.running for member in self.living) and time.monotonic() < until:
            for member in self.living:  # again and again: one may have told that it stops before it does
                member.send(signal.SIGCONT)
            time.sleep(_TICK_SECONDS)
        for member in self.living:
            if status := member.ended(until):
                raise Unexpected(f"{member.name} ended with {status}:\n{tail_of(member.errors)}")

    def close(self) -> None:
        """Idempotent."""
        for member in self.living:
            if member.running:
                member.kill()

    def _listen(self) -> None:
        for member in self.living:
            member.check_running()
        self._unheard += [event for member in self._all() for event in member.news()]

    def _all(self) -> Iterator[Member]:
        yield from self.dead
        yield from self.living
