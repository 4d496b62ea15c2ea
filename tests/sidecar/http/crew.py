"""Who takes part when `holdfast serve` is broken: its replicas and the owners behind HTTP, all of them processes."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from holdfast.testing import Event, History, Kind, monotonic
from holdfast.testing.servers.processes import free_port, give_back
from holdfast.testing.torture.crew import Spawner, wait_until_it_stands
from holdfast.testing.torture.diary import RunDiary
from holdfast.testing.torture.tail import Tail
from tests.sidecar.http.owner import WAIT_SECONDS, Plan
from tests.sidecar.http.program import Service, serving

END_SECONDS: Final = 30.0
_HOLDER_SECONDS: Final = 20.0
_AWAITED_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.005


class Replica:
    """One service, which is started again at the same address after it was killed."""

    def __init__(self, url: str, directory: Path, undo: ExitStack) -> None:
        self._url = url
        self._directory = directory
        self._undo = undo
        self._port = free_port()
        undo.callback(give_back, self._port)
        self._service = self._start()

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._port}"

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._service.process.kill()
        self._service.ended()

    def start(self) -> None:
        """After a kill; it listens when this returns."""
        self._service = self._start()

    def stop(self) -> None:
        """SIGSTOP, and wait until it stands."""
        self._service.process.send_signal(signal.SIGSTOP)
        wait_until_it_stands(self._service.process.pid)

    def resume(self) -> None:
        """SIGCONT."""
        self._service.process.send_signal(signal.SIGCONT)

    def _start(self) -> Service:
        return self._undo.enter_context(serving(self._url, self._directory, "--listen", str(self._port)))


class Member:
    """One owner, and whoever takes its place after a kill: a new process with a new name."""

    def __init__(self, plan: Plan, diary: RunDiary, spawner: Spawner) -> None:
        self._plan = plan
        self._diary = diary
        self._spawner = spawner
        self._lives = 0
        self._start(plan)

    def stop(self) -> None:
        """SIGSTOP, told once it stands."""
        self._process.send_signal(signal.SIGSTOP)
        wait_until_it_stands(self._process.pid)
        self._diary.write(Kind.PAUSED, self._now.name)

    def resume(self) -> None:
        """SIGCONT, told before."""
        self._diary.write(Kind.RESUMED, self._now.name)
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, told once it is gone. It was stopped before."""
        self.end_at_once()
        self._diary.write(Kind.DIED, self._now.name)
        self._diary.write(Kind.RESUMED, self._now.name)

    def replace(self) -> None:
        """After a kill."""
        self._lives += 1
        name = f"{self._plan.name}-{self._lives}"
        history = str(Path(self._plan.history).with_name(f"{name}.jsonl"))
        self._start(dataclasses.replace(self._plan, name=name, history=history, seed=f"{self._plan.seed} {name}"))
        self.wait_ready()

    def wait_ready(self) -> None:
        """Until it is at work."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", self._said()

    def held_at(self) -> float:
        """When its history last showed that it holds something; 0.0 where it does not."""
        return self._tail.held_at()

    def waits_for(self, resource: str) -> bool:
        """Did it ask for that just now?"""
        last = self._history()[-1]
        asks = last.kind is Kind.INVOKE and last.operation == "acquire" and last.resource == resource
        return asks and monotonic() - last.at < WAIT_SECONDS / 2

    def took(self, resource: str, since: float) -> bool:
        """Did it come to hold that since then?"""
        return any(event.acquired and event.resource == resource and event.at > since for event in self._history())

    @property
    def took_last(self) -> str:
        """What it came to hold last."""
        return next(event.resource for event in reversed(self._history()) if event.acquired)

    def end(self) -> None:
        """Let it finish what it is about. One that ended before, or badly, fails the test."""
        assert self._process.poll() is None, f"{self._now.name} ended by itself: {self._said()}"
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(END_SECONDS) == 0, self._said()
        self.end_at_once()

    def end_at_once(self) -> None:
        """Whatever it does."""
        self._process.kill()
        self._process.wait(END_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _start(self, plan: Plan) -> None:
        self._now = plan
        self._errors = Path(plan.history).with_suffix(".stderr")
        self._process = self._spawner.start((), "tests.sidecar.http.owner", str(plan), errors=self._errors)
        self._tail = Tail(Path(plan.history))

    def _history(self) -> tuple[Event, ...]:
        return History.read(self._now.history)[:]

    def _said(self) -> str:
        return self._errors.read_text(errors="replace")


def stopped_holder(members: Sequence[Member]) -> Member:
    """One that holds what another one waits for, as it stands still now."""
    give_up = time.monotonic() + _HOLDER_SECONDS
    while time.monotonic() < give_up:
        seen = max(members, key=Member.held_at)
        if seen.held_at():
            seen.stop()
            if seen.held_at() and _is_awaited(seen.took_last, members):
                return seen
            seen.resume()
        time.sleep(_LOOK_SECONDS)
    raise AssertionError(f"nobody held what others waited for, for {_HOLDER_SECONDS:g} s")


def _is_awaited(resource: str, members: Sequence[Member]) -> bool:
    give_up = time.monotonic() + _AWAITED_SECONDS
    while time.monotonic() < give_up:
        if any(member.waits_for(resource) for member in members):
            return True
    return False
