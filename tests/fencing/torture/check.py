"""Checks of a run: pure functions of what the workers wrote down and what the resource holds.

`violations` names every broken promise, `too_little` everything for which a run proves nothing, `figures` counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from .events import ENDS, REFUSALS, Event, What

GRANTS_LEAST: Final = 15
HANDOVERS_LEAST: Final = 5
REFUSALS_LEAST: Final = 3
STOPS_LEAST: Final = 2
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """An accepted write, in the resource's own journal."""

    count: int
    token: int
    element: str


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of the resource at the end. `journal` is in the resource's own order."""

    count: int
    elements: frozenset[str]
    journal: tuple[Entry, ...]


class Deed(StrEnum):
    """A deed of the nemesis to a worker."""

    STOP = "stop"
    DEPOSE = "depose"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write, as its worker knows it."""

    element: str
    token: int
    sent_ns: int
    end: What = What.INFO
    told: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a run: how much happened."""

    grants: int
    handovers: int
    ok: int
    unknown: int
    refused_reads: int
    refused_writes: int
    self_stops: int
    window_hits: int
    stops: int
    deposed: int
    kills: int
    lost: int
    lost_percent: float

    def __str__(self) -> str:
        return (
            f"grants {self.grants}, hand-overs {self.handovers}, writes {self.ok} (unknown {self.unknown}), refused "
            f"reads {self.refused_reads} and writes {self.refused_writes}, stops in the window {self.self_stops} (hits "
            f"{self.window_hits}), nemesis: stops {self.stops}, deposed {self.deposed}, kills {self.kills}; "
            f"lost {self.lost} ({self.lost_percent:.0f} %)"
        )


def violations(events: Iterable[Event], contents: Contents) -> list[str]:
    """Every promise of a guard that was broken; [] where all were kept."""
    told = sorted(events, key=lambda event: event.at_ns)
    attempts = attempts_of(told)
    return [
        *counter_off(attempts.values(), contents),
        *elements_off(attempts, contents),
        *tokens_back(contents.journal),
        *based_on_old_reads(contents),
        *accepted_after_a_younger_read(told, attempts, contents.journal),
    ]


def too_little(seen: Figures) -> list[str]:
    """Why a run without violations would prove nothing."""
    wanted = (
        ("grants", seen.grants, GRANTS_LEAST),
        ("hand-overs", seen.handovers, HANDOVERS_LEAST),
        ("refused writes or hit windows", max(seen.refused_writes, seen.window_hits), REFUSALS_LEAST),
        ("stops by the nemesis", seen.stops, STOPS_LEAST),
    )
    return [f"only {found} {what}, wanted {minimum}" for what, found, minimum in wanted if found < minimum]


def attempts_of(events: Iterable[Event]) -> dict[str, Attempt]:
    """The writes by their elements. `events` are in order, at least those of each worker."""
    attempts: dict[str, Attempt] = {}
    for event in events:
        if event.what is What.SENT:
            attempts[event.element] = Attempt(event.element, event.token, event.at_ns)
        elif event.what in ENDS:
            attempts[event.element] = replace(attempts[event.element], end=event.what, told=event.told)
    return attempts


# The promises.


def counter_off(attempts: Iterable[Attempt], contents: Contents) -> Iterator[str]:
    """No increment is lost, none counts twice: ok <= final <= ok + unknown."""
    ends = Counter(attempt.end for attempt in attempts)
    minimum, maximum = ends[What.OK], ends[What.OK] + ends[What.INFO]
    if not minimum <= contents.count <= maximum:
        yield f"the counter stands at {contents.count}; {minimum} increments succeeded, {maximum - minimum} are unknown"


def elements_off(attempts: dict[str, Attempt], contents: Contents) -> Iterator[str]:
    """Elements missing though they were added, or there though never tried or refused; in the journal as in the set."""
    added = {element for element, attempt in attempts.items() if attempt.end is What.OK}
    refused = {element for element, attempt in attempts.items() if attempt.end is What.FAIL}
    journalled = frozenset(entry.element for entry in contents.journal)
    for where, there in (("set", contents.elements), ("journal", journalled)):
        yield from _named(f"added, and not in the {where}", added - there)
        yield from _named(f"in the {where}, and never tried", there - attempts.keys())
        yield from _named(f"in the {where}, and its writer was told that it failed", there & refused)


def tokens_back(journal: Sequence[Entry]) -> Iterator[str]:
    """Accepted tokens below one before them, in the resource's own order."""
    for one, next_one in pairwise(journal):
        if next_one.token < one.token:
            yield f"{next_one} was accepted after {one}"


def based_on_old_reads(contents: Contents) -> Iterator[str]:
    """Every increment was based on the last accepted write: the journal counts 1, 2, 3, …, and so does the counter."""
    for expected, entry in enumerate(contents.journal, 1):
        if entry.count != expected:
            yield f"{entry} is accepted write number {expected}: it was based on an older read"
            return  # all that follow are off as well
    if len(contents.journal) != contents.count:
        yield f"the counter stands at {contents.count} after {len(contents.journal)} accepted writes"


def accepted_after_a_younger_read(
    events: Iterable[Event], attempts: dict[str, Attempt], journal: Sequence[Entry]
) -> Iterator[str]:
    """Reads register: once a younger holder has read, no write of an older one is accepted."""
    accepted = {entry.element for entry in journal}
    youngest_read = 0
    for event in events:
        if event.what is What.READ:
            youngest_read = max(youngest_read, event.token)
        elif event.what is What.SENT and event.element in accepted and event.token < youngest_read:
            yield f"{attempts[event.element]} was accepted, and token {youngest_read} had read before it was sent"


# The figures.


def figures(events: Iterable[Event], contents: Contents, deeds: Sequence[Deed]) -> Figures:
    """Count what happened."""
    told = sorted(events, key=lambda event: event.at_ns)
    whats = Counter(event.what for event in told)
    deeds_done = Counter(deeds)
    attempts = attempts_of(told).values()
    ok = sum(attempt.end is What.OK for attempt in attempts)
    lost = max(0, ok - contents.count)
    return Figures(
        grants=whats[What.GRANTED],
        handovers=sum(one.token != next_one.token for one, next_one in pairwise(contents.journal)),
        ok=ok,
        unknown=sum(attempt.end is What.INFO for attempt in attempts),
        refused_reads=sum(event.what is What.UNREAD and event.told in REFUSALS for event in told),
        refused_writes=sum(attempt.told in REFUSALS for attempt in attempts),
        self_stops=whats[What.STOPPING],
        window_hits=_window_hits(told),
        stops=deeds_done[Deed.STOP],
        deposed=deeds_done[Deed.DEPOSE],
        kills=deeds_done[Deed.KILL],
        lost=lost,
        lost_percent=100.0 * lost / ok if ok else 0.0,
    )


def _window_hits(events: Iterable[Event]) -> int:
    """The number of times that a younger holder had read or written when a worker resumed between the two."""
    hits, youngest = 0, 0
    for event in events:
        if event.what in (What.READ, What.OK):
            youngest = max(youngest, event.token)
        elif event.what is What.RESUMED:
            hits += youngest > event.token
    return hits


def _named(what: str, elements: Iterable[str]) -> Iterator[str]:
    found = sorted(elements)
    if found:
        yield f"{len(found)} {what}: {', '.join(found[:_NAMED_MAX])}"
