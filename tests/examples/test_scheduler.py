"""docs/examples/scheduler.py, three processes on ZooKeeper: every job once and in order, whoever is told to end."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from typing import Final

import pytest

import tenure
from tests.processes import ROOT, WorkerProcess
from tests.servers import Cluster

TTL: Final = 10.0
JOB: Final = 'echo "begins $1" >"$0/said"; read word <"$0/gate"; echo "ends $1" >"$0/said"'
"""What a job does: it ends when the test lets it."""


class Schedulers:
    """Processes of the scheduler, their jobs, and an operator who looks at their line."""

    def __init__(self, client: tenure.Client, folder: Path, undo: ExitStack) -> None:
        self._client, self._folder, self._undo = client, folder, undo
        self._said, self._gate = (self._pipe(name) for name in ("said", "gate"))

    def start(self, name: str) -> WorkerProcess:
        """A process that stands in line, or leads."""
        command = [sys.executable, str(ROOT / "docs/examples/scheduler.py"), "0", "sh", "-c", JOB, str(self._folder)]
        process = WorkerProcess(command, log=self._folder / name, name=name)
        self._undo.callback(process.close)
        return process

    def wait_in_line(self, count: int) -> None:
        """Wait until that many processes stand in the line."""
        for lines in self._client.operator().watch("scheduler"):
            if sum(len(line.tickets) for line in lines) == count:
                return

    def job(self) -> str:
        """What the jobs say next."""
        return self._said.readline().decode().strip()

    def end_job(self) -> str:
        """Let a job end; what it says at its end."""
        self._gate.write(b"\n")
        return self.job()

    def _pipe(self, name: str) -> FileIO:
        os.mkfifo(self._folder / name)
        return self._undo.enter_context(FileIO(self._folder / name, "r+"))


def token_of(leader: WorkerProcess) -> int:
    """The token with which it leads, once it does."""
    said = re.fullmatch(r"leads with token (\d+)", leader.line().decode())
    assert said
    return int(said[1])


@pytest.fixture
def schedulers(
    request: pytest.FixtureRequest, singles: dict[str, Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Schedulers]:
    """A namespace of the test's own."""
    ttl = getattr(request, "param", TTL)
    url = singles["zookeeper"].url(f"scheduler-{uuid.uuid4().hex}", ttl=ttl, tick=0.2)
    monkeypatch.setenv("TENURE_URL", url)
    with tenure.connect() as client, ExitStack() as undo:
        yield Schedulers(client, tmp_path, undo)


def drain(process: WorkerProcess) -> None:
    """SIGTERM, and wait until it was heard."""
    process.signal(signal.SIGTERM)
    assert process.line() == b"drains"


def test_drained_leader_ends_its_job_and_hands_over_at_once(schedulers: Schedulers) -> None:
    """No job is begun twice, left out, or run beside another; who only waited ends without having led."""
    first = schedulers.start("first")
    token = token_of(first)
    assert schedulers.job() == "begins 1"
    second = schedulers.start("second")
    schedulers.wait_in_line(2)
    third = schedulers.start("third")
    schedulers.wait_in_line(3)
    assert schedulers.end_job() == "ends 1"
    assert schedulers.job() == "begins 2"

    drain(third)
    assert third.wait() == 0
    drain(first)
    assert schedulers.end_job() == "ends 2"
    ended = time.monotonic()
    assert token_of(second) > token
    assert time.monotonic() - ended < TTL / 2
    assert schedulers.job() == "begins 3"
    assert first.wait() == 0

    drain(second)
    assert schedulers.end_job() == "ends 3"
    assert second.wait() == 0
    schedulers.wait_in_line(0)


@pytest.mark.parametrize("schedulers", [2.0], indirect=True)
def test_leader_that_stood_still_runs_nothing_again_and_stands_in_line_again(schedulers: Schedulers) -> None:
    """Its job was written down: the next leader goes on with the one after it."""
    first = schedulers.start("first")
    token_of(first)
    assert schedulers.job() == "begins 1"
    first.stop()
    assert schedulers.end_job() == "ends 1"
    second = schedulers.start("second")
    token = token_of(second)
    assert schedulers.job() == "begins 2"

    first.resume()
    schedulers.wait_in_line(2)
    drain(second)
    assert schedulers.end_job() == "ends 2"
    assert token_of(first) > token
    assert schedulers.job() == "begins 3"
    drain(first)
    assert schedulers.end_job() == "ends 3"
    assert [process.wait() for process in (first, second)] == [0, 0]
