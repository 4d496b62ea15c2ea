"""The workers as processes, each with its event file and its stderr. None of them outlives the test process."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.processes import ProcessFailed, WorkerProcess, python_module

from .events import Event, Tail, What
from .worker import Plan

_READY_SECONDS: Final = 30.0
_END_SECONDS: Final = 20.0
_TICK_SECONDS: Final = 0.01


class FencedWorker:
    """A worker: its process, and what is known of it from its events."""

    def __init__(self, plan: Plan) -> None:
        self.name = plan.name
        self.events: list[Event] = []
        self.frozen_until: float | None = None
        """When the nemesis will let it go on, where it stopped it."""
        self._tail = Tail(Path(plan.directory), plan.name)
        self._granted: Event | None = None
        self._process = WorkerProcess(
            python_module("tests.fencing.torture.worker", str(plan)),
            log=Path(plan.directory) / f"{plan.name}.stderr",
            name=plan.name,
            speaks=False,
        )

    @property
    def last(self) -> What | None:
        return self.events[-1].what if self.events else None

    @property
    def granted(self) -> Event | None:
        """The grant that it works under, whatever became of its lease."""
        return self._granted

    @property
    def running(self) -> bool:
        return self._process.status is None

    def news(self) -> list[Event]:
        """The events that it has written down since the last call."""
        news = self._tail.new()
        self.events += news
        for event in news:
            if event.what is What.GRANTED:
                self._granted = event
            elif event.what is What.LEAVING:
                self._granted = None
        return news

    def send(self, number: signal.Signals) -> None:
        self._process.signal(number)

    def kill(self) -> None:
        self._process.kill()

    def wait_ended(self, until: float) -> None:
        """Wait for its end in good order. Raises ProcessFailed."""
        if self._process.wait(until - time.monotonic()):
            raise self._process.failed(f"ended badly, after {self.last}")

    def check_running(self) -> None:
        """Raise ProcessFailed where it ended by itself."""
        if not self.running:
            raise self._process.failed("ended by itself")


class FencedWorkers:
    """The living and the dead. Closing it kills what still runs."""

    def __init__(self, plan: Plan, size: int) -> None:
        self._plan = plan
        self._started = 0
        self._unheard: list[Event] = []  # while we waited for somebody else's
        self.dead: list[FencedWorker] = []
        self.living: list[FencedWorker] = []
        for _ in range(size):
            self.start_one()

    def start_one(self) -> FencedWorker:
        name = f"w{self._started}"
        self._started += 1
        member = FencedWorker(replace(self._plan, name=name, seed=f"{self._plan.seed}-{name}"))
        self.living.append(member)
        return member

    def kill(self, member: FencedWorker) -> None:
        member.kill()
        self.living.remove(member)
        self.dead.append(member)

    def news(self) -> list[Event]:
        """The events that all of them have written down since the last call.

        Raises ProcessFailed where one ended by itself.
        """
        self._listen()
        news, self._unheard = self._unheard, []
        return news

    def events(self) -> list[Event]:
        """The events of all workers, the dead ones' too."""
        for member in self._all():
            member.news()
        return [event for member in self._all() for event in member.events]

    def wait_ready(self) -> None:
        """Wait until all have begun. Raises ProcessFailed."""
        give_up = time.monotonic() + _READY_SECONDS
        while not all(member.events for member in self.living):
            if time.monotonic() > give_up:
                raise ProcessFailed(f"not ready in time: {[m.name for m in self.living if not m.events]}")
            time.sleep(_TICK_SECONDS)
            self._listen()

    def end(self) -> None:
        """Let all of them finish their turns. Raises ProcessFailed."""
        self.wait_ready()  # before it has set its handler, a signal would be its end
        for member in self.living:
            member.send(signal.SIGTERM)
        until = time.monotonic() + _END_SECONDS
        while any(member.running for member in self.living) and time.monotonic() < until:
            for member in self.living:  # again and again: one may have told that it stops before it does
                member.send(signal.SIGCONT)
            time.sleep(_TICK_SECONDS)
        for member in self.living:
            member.wait_ended(until)

    def close(self) -> None:
        """Idempotent."""
        for member in self.living:
            if member.running:
                member.kill()

    def _listen(self) -> None:
        for member in self.living:
            member.check_running()
        self._unheard += [event for member in self._all() for event in member.news()]

    def _all(self) -> Iterator[FencedWorker]:
        yield from self.dead
        yield from self.living
