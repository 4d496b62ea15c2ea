"""Quiet times: when nothing is broken, and who waits and holds meanwhile. Liveness is judged by them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Generic, TypeVar

from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import History
from tenure.testing.history.intervals import beliefs_by_resource, spans, waits

Thing = TypeVar("Thing")
Stretch = tuple[float, float]


def longest_ttl(history: History) -> float | None:
    """The longest time to live on record; None where there is none."""
    return max((event.ttl for event in history if event.ttl is not None), default=None)


def broken(history: History) -> list[Stretch]:
    """The stretches in which anything was broken or a client died."""
    pauses = [(span.start[0], span.end[0]) for span in spans(history, Kind.PAUSED, Kind.RESUMED)]
    return [*faulty(history), *pauses, *((event.at, event.at) for event in history.of(Kind.DIED))]


def faulty(history: History) -> list[Stretch]:
    """The stretches in which anything but a client was broken."""
    return [(span.start[0], span.end[0]) for span in spans(history, Kind.FAULT, Kind.HEALED)]


class Calm:
    """The stretches in which nothing is broken, nor has been for `settle` seconds."""

    def __init__(self, broken: Iterable[Stretch], settle: float = 0.0) -> None:
        self._merged: list[list[float]] = []
        for start, end in sorted(broken):
            if self._merged and start <= self._merged[-1][1]:
                self._merged[-1][1] = max(self._merged[-1][1], end + settle)
            else:
                self._merged.append([start, end + settle])

    def since(self, start: float, until: float) -> float:
        """The time from which it was calm until `until`, at `start` the earliest."""
        index = bisect_right(self._merged, until, key=_first) - 1
        return start if index < 0 else max(start, min(self._merged[index][1], until))

    def throughout(self, start: float, end: float) -> bool:
        """True where it is calm from `start` to `end`."""
        index = bisect_right(self._merged, end, key=_first) - 1
        return index < 0 or self._merged[index][1] <= start

    def first(self, start: float, seconds: float) -> float:
        """The first moment from `start` on after which it stays calm for so long."""
        for begun, ended in self._merged[max(0, bisect_right(self._merged, start, key=_first) - 1) :]:
            if begun > start + seconds:
                break
            start = max(start, ended)
        return start


def _first(stretch: list[float]) -> float:
    return stretch[0]


class LineStates:
    """The waiters and holders of each line at any moment, found in logarithmic time."""

    def __init__(self, history: History) -> None:
        deaths = {event.client: event.at for event in history.of(Kind.DIED)}
        self._waits = {
            resource: _Latest(
                [(c.invoke.at, min(c.ended, deaths.get(c.invoke.client, c.ended)), c.invoke) for c in calls]
            )
            for resource, calls in waits(history).items()
        }
        self._holds = {
            resource: _Latest([(b.start[0], b.end[0], b) for b in line])
            for resource, line in beliefs_by_resource(history).items()
        }

    def waiter(self, resource: str, start: float, end: float) -> Event | None:
        """A client that waited alive from `start` to `end`."""
        waits = self._waits.get(resource)
        longest = None if waits is None else waits.at(start)
        return longest[1] if longest is not None and longest[0] >= end else None

    def waited(self, resource: str, start: float) -> bool:
        """True where a client waited at that moment."""
        waits = self._waits.get(resource)
        longest = None if waits is None else waits.at(start)
        return longest is not None and longest[0] > start

    def came(self, resource: str, start: float, end: float) -> bool:
        """True where a client came to hold it between the two."""
        holds = self._holds.get(resource)
        return holds is not None and holds.began_between(start, end)

    def anybody(self, resource: str, start: float, end: float) -> bool:
        """True where a client held it between the two, or came to."""
        holds = self._holds.get(resource)
        if holds is None:
            return False
        longest = holds.at(start)
        return (longest is not None and longest[0] > start) or holds.began_between(start, end)


class _Latest(Generic[Thing]):
    """Stretches in the order of their beginnings; of all that began so far, the one that ends last."""

    def __init__(self, stretches: Iterable[tuple[float, float, Thing]]) -> None:
        in_order = sorted(stretches, key=lambda stretch: stretch[0])
        self._starts = [start for start, _, _ in in_order]
        self._latest: list[tuple[float, float, Thing]] = list(accumulate(in_order, _later))

    def at(self, moment: float) -> tuple[float, Thing] | None:
        """The interval that ends last among those begun by then, and its end."""
        index = bisect_right(self._starts, moment) - 1
        return None if index < 0 else self._latest[index][1:]

    def began_between(self, start: float, end: float) -> bool:
        return bisect_right(self._starts, start) < bisect_right(self._starts, end)


def _later(one: tuple[float, float, Thing], other: tuple[float, float, Thing]) -> tuple[float, float, Thing]:
    return other if other[1] > one[1] else one
