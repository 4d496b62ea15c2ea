"""Events that a worker writes down: one line for each, in a file of its own that survives SIGKILL.

Stamps are CLOCK_MONOTONIC, which all processes of a machine share. An attempt is written down as SENT before
anything is sent. It is OK on a positive answer only, FAIL only when it certainly did not happen, INFO otherwise; an
attempt without an end (its worker was killed) is INFO too.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

REFUSALS: Final = ("StaleToken", "LeaseLost", "FenceMismatch")
"""The errors by which a guard refuses."""


class What(StrEnum):
    """The kinds of events, a word for each."""

    READY = "ready"
    GRANTED = "granted"
    UNGRANTED = "ungranted"
    READ = "read"
    UNREAD = "unread"
    STOPPING = "stopping"
    RESUMED = "resumed"
    SENT = "sent"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"
    LEAVING = "leaving"
    LEFT = "left"


ENDS: Final = (What.OK, What.FAIL, What.INFO)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of `worker` at `at_ns`, under its token."""

    at_ns: int
    worker: str
    what: What
    token: int = 0
    element: str = ""
    count: int = 0
    told: str = ""
    """The class of the error, where there was one."""
    lease: str = ""
    """Of GRANTED: what the nemesis needs to depose this holder."""


class EventFile:
    """The file of one worker's events. Each line is one `os.write`, so the file never holds a part of one for long."""

    def __init__(self, directory: Path, worker: str) -> None:
        self._worker = worker
        self._file = os.open(event_path(directory, worker), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: What, **more: Any) -> None:
        """Stamp it and write it. Any: the other fields of Event."""
        event = Event(time.clock_gettime_ns(time.CLOCK_MONOTONIC), self._worker, what, **more)
        told = {name: value for name, value in asdict(event).items() if value or name in ("at_ns", "worker", "what")}
        os.write(self._file, json.dumps(told).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


class Tail:
    """Reads such a file while it grows. It need not exist yet."""

    def __init__(self, directory: Path, worker: str) -> None:
        self._path = event_path(directory, worker)
        self._read_bytes = 0

    def new(self) -> list[Event]:
        """The events since the last call."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read_bytes)
                whole = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        if not whole:
            return []
        self._read_bytes += len(whole) + 1
        return [_event(line) for line in whole.split(b"\n")]


def event_path(directory: Path, worker: str) -> Path:
    """The event file of `worker`."""
    return directory / f"{worker}.events"


def _event(line: bytes) -> Event:
    told = json.loads(line)
    return Event(**{**told, "what": What(told["what"])})
