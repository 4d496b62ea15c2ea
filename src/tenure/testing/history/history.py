"""Histories: written by recorders while things go wrong, read by the checkers afterwards.

`Recorder(path)` appends one line per event with one `write`: nothing is buffered, so a SIGKILL costs at most the event
that was not made yet. One file per process; all stamps are of CLOCK_MONOTONIC, which is one clock for all processes of
a machine (outside time namespaces), so that events of several files are in one exact order. `MemoryRecorder(now)` keeps
them in memory, on whatever clock the simulation has.

A `History` is the events of one run in that order, and nothing else; it can't be changed. Events of the same moment
keep the order in which they were recorded (or of their files): in virtual time that order is the truth.

What is not promised: an order between machines (their clocks differ); survival of a power cut (nothing is synced).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol, overload

from tenure.errors import UsageError
from tenure.testing.history.event import ACQUIRES, OUTCOMES, Event, Kind, from_line, to_line

__all__ = [
    "ACQUIRES",
    "OUTCOMES",
    "Call",
    "Event",
    "History",
    "Kind",
    "MemoryRecorder",
    "Recorder",
    "Records",
    "UnreadableHistory",
    "monotonic",
]

_NANOSECONDS: Final = 1e9


class UnreadableHistory(UsageError):
    """A file is no history, or not all of it. The message names file and line."""


def monotonic() -> float:
    """Seconds of CLOCK_MONOTONIC: one clock for all processes of this machine."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) / _NANOSECONDS


class Records(Protocol):
    """A destination of events: a file (`Recorder`) or memory (`MemoryRecorder`). Any thread may record."""

    @property
    def now(self) -> Callable[[], float]:
        """The clock of all stamps."""

    def record(self, event: Event) -> None:
        """Add an event. It is in the history when this returns."""


class Recorder:
    """Appends events to a file of its own, each with one write of one line. Thread-safe without a lock."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises FileExistsError: a history is never written over, nor continued by another process."""
        self.path: Path = Path(path)
        self.now: Callable[[], float] = monotonic
        # O_APPEND: the kernel puts each write at the end, whoever else is writing at this moment
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def record(self, event: Event) -> None:
        """Add an event. Raises OSError where it could not be written whole (disk full) or the file is closed."""
        line = to_line(event)
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(f"{self.path}: only {written} of {len(line)} bytes of an event were written")

    def close(self) -> None:
        """Give back the file. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MemoryRecorder:
    """Keeps events in memory, stamped by a clock of your own: `MemoryRecorder(virtual_clock.now)`."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self.now = now
        self._events: list[Event] = []

    def record(self, event: Event) -> None:
        """Add an event."""
        self._events.append(event)

    def history(self) -> History:
        """The history recorded so far."""
        return History(tuple(self._events))


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a client: its invoke and, where it came back, its outcome."""

    invoke: Event
    outcome: Event | None = None

    @property
    def ended(self) -> float:
        """The time at which the call came back; infinity where it never did."""
        return float("inf") if self.outcome is None else self.outcome.at

    @property
    def ok(self) -> bool:
        """True where the call ended well."""
        return self.outcome is not None and self.outcome.kind is Kind.OK


class History:
    """The events of one run in the order of their stamps. Immutable; a sequence, with look-ups."""

    def __init__(self, events: Iterable[Event] = (), *, torn: Iterable[str] = ()) -> None:
        self._events = tuple(sorted(events, key=_stamp))  # stable: what is of one moment stays as it was recorded
        self.torn: tuple[str, ...] = tuple(torn)
        """Files whose last line was cut off: their process was killed while it wrote."""

    @classmethod
    def read(cls, *paths: str | os.PathLike[str]) -> History:
        """The events of all files together. Raises UnreadableHistory, with file and line; OSError.

        A last line without an end that is no event is left out, and its file named in `torn`.
        """
        events: list[Event] = []
        torn: list[str] = []
        for path in paths:
            found, is_torn = _read_file(Path(path))
            events += found
            torn += [str(path)] * is_torn
        return cls(events, torn=torn)

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, index: int | slice) -> Event | tuple[Event, ...]:
        return self._events[index]

    def of(self, *kinds: Kind) -> tuple[Event, ...]:
        """The events of these kinds, in order."""
        if len(kinds) == 1:
            return self._by_kind.get(kinds[0], ())
        return tuple(event for event in self._events if event.kind in kinds)

    def where(self, wanted: Callable[[Event], bool]) -> History:
        """The history of only those events."""
        return History(filter(wanted, self._events), torn=self.torn)

    @property
    def start(self) -> float:
        """The time of the first event; 0.0 where there is none."""
        return self._events[0].at if self._events else 0.0

    @property
    def end(self) -> float:
        """The time of the last event; 0.0 where there is none."""
        return self._events[-1].at if self._events else 0.0

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """All clients that called something, sorted."""
        return tuple(sorted({event.client for event in self.of(Kind.INVOKE)}))

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Every name in it, sorted."""
        return tuple(sorted({event.resource for event in self._events if event.resource}))

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Every call in the order of its invoke, with its outcome. Raises UnreadableHistory on an outcome of none.

        A number that is invoked again (by a process started anew under the old name) leaves the first call open.
        """
        open_calls: dict[tuple[str, int | None], int] = {}
        calls: list[Call] = []
        for event in self.of(Kind.INVOKE, *OUTCOMES):
            key = event.client, event.call
            if event.kind is Kind.INVOKE:
                open_calls[key] = len(calls)
                calls.append(Call(event))
            else:
                index = open_calls.pop(key, None)
                if index is None:
                    raise UnreadableHistory(f"{event} (call {event.call}): no such call was invoked")
                calls[index] = Call(calls[index].invoke, event)
        return tuple(calls)

    @cached_property
    def positions(self) -> dict[int, int]:
        """The place of each event, by its `id()`, which orders two events of one moment."""
        return {id(event): index for index, event in enumerate(self._events)}

    def place(self, event: Event) -> tuple[float, int]:
        """The event's moment, comparable with all others of this history, those of the same second included."""
        return event.at, self.positions[id(event)]

    def began(self, event: Event) -> tuple[float, int]:
        """The same for its earliest moment: of a check the one before it asked."""
        return self.place(event) if event.earliest == event.at else (event.earliest, -1)

    @cached_property
    def _by_kind(self) -> dict[Kind, tuple[Event, ...]]:
        sorted_out: dict[Kind, list[Event]] = {}
        for event in self._events:
            sorted_out.setdefault(event.kind, []).append(event)
        return {kind: tuple(events) for kind, events in sorted_out.items()}

    def __repr__(self) -> str:
        return f"<tenure.testing.History of {len(self)} events in {self.end - self.start:.3f} s>"


def _stamp(event: Event) -> float:
    return event.at


def _read_file(path: Path) -> tuple[list[Event], bool]:
    """The events of one file, and whether its last line was cut off."""
    lines = path.read_bytes().split(b"\n")
    events = []
    for number, line in enumerate(lines, 1):
        try:
            if line or number < len(lines):
                events.append(from_line(line))
        except ValueError as error:
            if number == len(lines):
                return events, True
            raise UnreadableHistory(f"{path}:{number}: {error}: {line[:80]!r}") from error
    return events, False
