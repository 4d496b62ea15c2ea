"""A file of JSON, replaced at once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from tenure import Hold
from tenure.fencing.file import FileGuard
from tests.fencing.torture.check import Contents, Entry
from tests.fencing.torture.events import What

from . import end_of_ours

_EMPTY: Final[dict[str, Any]] = {"count": 0, "elements": [], "journal": []}  # Any: what JSON has
_GUARD_SECONDS: Final = 20.0  # longer than anybody is stopped in the middle of a replace


class FileResource:
    """A file whose content is kept from the read until the write, as a program does that edits a file."""

    def __init__(self, address: str, *, guarded: bool) -> None:
        self._path = address
        self._guard = FileGuard(address, timeout=_GUARD_SECONDS) if guarded else None
        self._found = _EMPTY

    def read(self, hold: Hold) -> int:
        found = Path(self._path).read_bytes() if self._guard is None else self._guard.read(hold.fence)
        self._found = json.loads(found or b"")
        count: int = self._found["count"]
        return count

    def write(self, hold: Hold, count: int, element: str) -> None:
        elements = [*self._found["elements"], element]
        journal = [*self._found["journal"], [count, hold.token, element]]
        data = json.dumps({"count": count, "elements": elements, "journal": journal}).encode()
        if self._guard is None:
            _replace(self._path, data)
        else:
            self._guard.replace(hold.fence, data)

    def turn_over(self) -> None:
        self._found = _EMPTY

    def end_of(self, error: Exception) -> What | None:
        return What.INFO if isinstance(error, OSError) and not end_of_ours(error) else end_of_ours(error)

    def close(self) -> None:
        """Do nothing: nothing is open."""


class FileTarget:
    """The file, in a directory that the test removes."""

    def __init__(self, address: str) -> None:
        self.address = address
        _replace(address, json.dumps(_EMPTY).encode())

    def contents(self) -> Contents:
        found = json.loads(Path(self.address).read_bytes())
        return Contents(found["count"], frozenset(found["elements"]), tuple(Entry(*line) for line in found["journal"]))

    def close(self) -> None:
        """Do nothing: the file goes with its directory."""


def _replace(path: str, data: bytes) -> None:
    """Replace the file at once, but unguarded."""
    new = f"{path}.{os.getpid()}"
    Path(new).write_bytes(data)
    os.rename(new, path)
