"""The pulse of the machine a run is on: when nothing ran at all, neither the workers nor who watches them.

A thread that wants to wake every few milliseconds, and writes down each time that it came late by far: what the machine
takes from everybody is no fault of the library's. What takes the time of one process only is not seen, unless it is
this one's.
"""

from __future__ import annotations

import threading
from typing import Final

from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import Records

_TICK_SECONDS: Final = 0.02
STOOD_SECONDS_MIN: Final = 0.3
"""What is shorter is a busy machine, and within every bound."""


class Pulse:
    """Records `still` events while it is open: close it before the history is read. Thread-safe."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._guard = threading.Lock()  # guards the two below
        self._last = records.now()
        self._stood = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="torture-pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def stood(self) -> float:
        """The seconds for which the machine stood still so far."""
        self.beat()
        with self._guard:
            return self._stood

    def beat(self) -> None:
        """Look at the clock, and record a standstill where the last beat was too long ago."""
        with self._guard:
            last, self._last = self._last, self._records.now()
            if self._last - last > STOOD_SECONDS_MIN:
                self._stood += self._last - last
                self._records.record(Event(self._last, "", Kind.STILL, since=last))

    def close(self) -> None:
        """End the recording. Idempotent."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self.beat()

    def _run(self) -> None:
        while not self._ended.wait(_TICK_SECONDS):
            self.beat()
