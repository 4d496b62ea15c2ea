"""Tail of a history that a process goes on writing: whether the process holds something."""

from __future__ import annotations

import threading
from pathlib import Path

from tenure.testing.history.event import Event, Kind, from_line

_ENDS = frozenset({"release", "lost"})


class Tail:
    """The tail of one history, as far as it is written. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()  # guards everything below
        self._read_bytes = 0
        self._holds: dict[str, float] = {}

    def held_at(self) -> float:
        """The time of the last sign that it holds something that it has not given up or lost since; 0.0 for nothing."""
        with self._guard:
            for event in self._news():
                self._note(event)
            return max(self._holds.values(), default=0.0)

    def _note(self, event: Event) -> None:
        if event.acquired or (event.kind is Kind.CHECK and event.held):
            self._holds[event.hold] = event.at
        elif event.kind is Kind.CHECK or event.operation in _ENDS:
            self._holds.pop(event.hold, None)
        elif event.operation == "close":
            self._holds.clear()

    def _news(self) -> list[Event]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return []
        self._read_bytes += len(whole) + 1
        return [from_line(line) for line in whole.split(b"\n")]
