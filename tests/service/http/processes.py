"""Processes that take part when `tenure serve` is broken: its replicas, and owners behind HTTP."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tenure.testing import Event, History, Kind, monotonic
from tenure.testing.servers.processes import free_port, give_back
from tests.processes import Spawner, python_module, wait_until_stopped
from tests.service.http.owner import WAIT_SECONDS, Plan
from tests.service.http.program import Service, serving
from tests.verify.torture.fault_log import RunFaultLog
from tests.verify.torture.tail import Tail

END_SECONDS: Final = 30.0
_HOLDER_SECONDS: Final = 20.0
_AWAITED_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.005


class Replica:
    """A service, which is started again at the same address after it was killed."""

    def __init__(self, url: str, directory: Path, undo: ExitStack) -> None:
        self._url = url
        self._directory = directory
        self._undo = undo
        self._port = free_port()
        undo.callback(give_back, self._port)
        self._service = self._start()

    @property
    def endpoint(self) -> str:
        """The address at which it listens."""
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
        wait_until_stopped(self._service.process.pid)

    def resume(self) -> None:
        """SIGCONT."""
        self._service.process.send_signal(signal.SIGCONT)

    def _start(self) -> Service:
        return self._undo.enter_context(serving(self._url, self._directory, "--listen", str(self._port)))


class Member:
    """An owner and its successors: after a kill a new process with a new name."""

    def __init__(self, plan: Plan, diary: RunFaultLog, spawner: Spawner) -> None:
        self._plan = plan
        self._diary = diary
        self._spawner = spawner
        self._lives = 0
        self._start(plan)

    def stop(self) -> None:
        """SIGSTOP, told once it stands."""
        self._process.stop()
        self._diary.write(Kind.PAUSED, self._now.name)

    def resume(self) -> None:
        """SIGCONT, in the history before it is sent."""
        self._diary.write(Kind.RESUMED, self._now.name)
        self._process.resume()

    def kill(self) -> None:
        """SIGKILL to a stopped owner, in the history once it is gone."""
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
        self._process.wait_ready()

    def held_at(self) -> float:
        """The time at which its history last showed a hold; 0.0 where it holds nothing."""
        return self._tail.held_at()

    def waits_for(self, resource: str) -> bool:
        """Say whether it asked for that name just now."""
        last = self._history()[-1]
        asks = last.kind is Kind.INVOKE and last.operation == "acquire" and last.resource == resource
        return asks and monotonic() - last.at < WAIT_SECONDS / 2

    def took(self, resource: str, since: float) -> bool:
        """Say whether it got that name since then."""
        return any(event.acquired and event.resource == resource and event.at > since for event in self._history())

    @property
    def took_last(self) -> str:
        """Return the name that it got last."""
        return next(event.resource for event in reversed(self._history()) if event.acquired)

    def end(self) -> None:
        """Let it finish what it is about. One that ended before, or badly, fails the test."""
        assert self._process.status is None, f"{self._now.name} ended by itself: {self._said()}"
        self._process.signal(signal.SIGTERM)
        assert self._process.wait(END_SECONDS) == 0, self._said()
        self.end_at_once()

    def end_at_once(self) -> None:
        """Whatever it does."""
        self._process.close()

    def _start(self, plan: Plan) -> None:
        self._now = plan
        self._errors = Path(plan.history).with_suffix(".stderr")
        self._process = self._spawner.start(python_module("tests.service.http.owner", str(plan)), log=self._errors)
        self._tail = Tail(Path(plan.history))

    def _history(self) -> tuple[Event, ...]:
        return History.read(self._now.history)[:]

    def _said(self) -> str:
        return self._errors.read_text(errors="replace")


def stopped_holder(members: Sequence[Member]) -> Member:
    """Return an owner that holds what another one waits for, stopped in that state."""
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
