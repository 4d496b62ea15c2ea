"""Intervals: beliefs, pauses and faults, computed once from the events of a history.

A belief is one hold as far as its holder's record goes: from the `ok` of its acquire to the first sign of its end (its
release or its client's close is called, a check says no, a callback tells of the loss, the client died). Where the last
proof on record ran out before that sign, it ended with the proof: a holder that looks only every 50 ms did not believe
any longer than a look would have told it. Where nothing tells of an end, the last event of its client is one.

Moments are pairs (seconds, place in the history): two events of one moment are still in order.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from tenure._core.lease import Mode
from tenure.testing.history.event import OUTCOMES, Event, Kind
from tenure.testing.history.history import Call, History

Moment = tuple[float, int]
NEVER: Final[Moment] = (float("inf"), 0)
_OWN: Final = frozenset({Kind.INVOKE, Kind.CHECK, Kind.TOLD, *OUTCOMES})
_LOSSES: Final = frozenset({"lost", "demoted"})
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class BeliefInterval:
    """The interval of one hold, as far as its holder could tell."""

    ok: Event
    invoke: Event
    asked: Moment
    start: Moment
    end: Moment
    ended_by: Event | None
    """What told of the end; None where a proof ran out, or the record did."""
    proven: float | None
    """The end of the last proof on record; None where one of them does not tell."""
    evidence: tuple[tuple[Moment, Event], ...]
    """When it was said to be held: since when each of those looks was under way."""

    @property
    def exclusive(self) -> bool:
        """True where the hold excludes every other."""
        return self.ok.mode is Mode.EXCLUSIVE

    def excludes(self, other: BeliefInterval) -> bool:
        """May the two not be held together? Seats are counted instead (S6)."""
        return self.exclusive or other.exclusive


@dataclass(frozen=True, slots=True)
class Span:
    """Something that went on for a while: a pause, a fault."""

    start: Moment
    end: Moment
    event: Event


_known_beliefs: WeakKeyDictionary[History, tuple[BeliefInterval, ...]] = WeakKeyDictionary()


def beliefs(history: History) -> tuple[BeliefInterval, ...]:
    """Every hold of the history, in the order in which they were had."""
    known = _known_beliefs.get(history)
    if known is None:
        known = _known_beliefs[history] = tuple(_beliefs(history))
    return known


def _beliefs(history: History) -> Iterator[BeliefInterval]:
    invokes = {id(call.outcome): call.invoke for call in history.calls if call.outcome is not None}
    signs = _Signs(history, invokes)
    for ok in history.of(Kind.OK):
        if ok.acquired:
            yield signs.belief(ok, invokes[id(ok)])


class _Signs:
    """Every sign of a hold's life and end, by hold and by client."""

    def __init__(self, history: History, invokes: dict[int, Event]) -> None:
        self._history = history
        self._proofs: dict[tuple[str, str], list[tuple[Moment, Event]]] = defaultdict(list)
        self._ends: dict[tuple[str, str], list[tuple[Moment, Event]]] = defaultdict(list)
        self._client_ends: dict[str, list[tuple[Moment, Event]]] = defaultdict(list)
        self._last: dict[str, Moment] = {}
        for event in history:
            if event.kind in _OWN:
                self._last[event.client] = history.place(event)
            self._sort_in(event, invokes)

    def _sort_in(self, event: Event, invokes: dict[int, Event]) -> None:
        place, whose = self._history.place(event), (event.client, event.hold)
        if event.kind is Kind.CHECK:
            signs = self._proofs if event.held else self._ends
            signs[whose].append((self._history.began(event), event))
        elif event.kind is Kind.OK and event.operation == "renew":
            self._proofs[whose].append((self._history.place(invokes[id(event)]), event))
        elif (event.kind is Kind.INVOKE and event.operation == "release") or (
            event.kind is Kind.TOLD and event.operation in _LOSSES
        ):
            self._ends[whose].append((place, event))
        elif event.kind is Kind.DIED or (event.kind is Kind.INVOKE and event.operation == "close"):
            self._client_ends[event.client].append((place, event))

    def belief(self, ok: Event, invoke: Event) -> BeliefInterval:
        start, whose = self._history.place(ok), (ok.client, ok.hold)
        proofs = self._proofs.get(whose, [])
        end, ended_by = min((*self._ends_after(whose, start), (self._last[ok.client], None)), key=_moment)
        proven = _proven_until(ok, (proof for moment, proof in proofs if moment < end))
        if proven is not None and (proven, -1) < end:
            end, ended_by = max((proven, -1), start), None
        return BeliefInterval(ok, invoke, self._history.place(invoke), start, end, ended_by, proven, tuple(proofs))

    def _ends_after(self, whose: tuple[str, str], start: Moment) -> Iterator[tuple[Moment, Event | None]]:
        yield from self._ends.get(whose, ())
        ends = self._client_ends.get(whose[0], [])
        following = bisect_right(ends, start, key=_moment)
        yield from ends[following : following + 1]


def _moment(sign: tuple[Moment, Event | None]) -> Moment:
    return sign[0]


class Promised:
    """The beliefs, as far as anything was promised of them.

    Nothing is from the moment on in which others took the ticket or its lease away: an administrator, or a store that
    ended a lease before the time that it had promised. Until the news of that comes they are believed in, by design.
    """

    def __init__(self, history: History) -> None:
        self._tickets: dict[str, Moment] = {}  # by id: when others removed it
        self._leases: dict[str, Moment] = {}
        for event in history.of(Kind.TRUTH):
            if event.cause in ("admin", "early"):
                taken, name = (
                    (self._leases, event.lease) if event.operation == "lease_ended" else (self._tickets, event.hold)
                )
                taken[name] = min(history.began(event), taken.get(name, NEVER))
        known = beliefs(history)
        promised = [self._cut(belief) for belief in known]
        self.by_resource: dict[str, list[BeliefInterval]] = by_resource(promised, lambda belief: belief.ok.resource)
        deposed = sum(one is not other for one, other in zip(known, promised, strict=True))
        self.counts: dict[str, int] = {"deposed by others": deposed} if deposed else {}

    def _cut(self, belief: BeliefInterval) -> BeliefInterval:
        ok = belief.ok
        taken = min(self._tickets.get(ok.hold, NEVER), self._leases.get(ok.lease, NEVER) if ok.lease else NEVER)
        if taken == NEVER:
            return belief
        evidence = tuple((moment, look) for moment, look in belief.evidence if moment < taken)
        end = max(belief.start, min(belief.end, taken))
        return dataclasses.replace(belief, end=end, evidence=evidence)


def _proven_until(ok: Event, proofs: Iterable[Event]) -> float | None:
    """The end of the last proof on record. None where one of them does not tell: then nothing ran out."""
    last = ok
    latest = ok.deadline
    for last in proofs:
        if last.deadline is not None:
            latest = last.deadline if latest is None else max(latest, last.deadline)
    return None if last.deadline is None else latest


class Standstills:
    """The intervals in which the whole machine stood still."""

    def __init__(self, history: History) -> None:
        self.stretches: list[tuple[float, float]] = merged(
            (event.earliest, event.at) for event in history.of(Kind.STILL)
        )

    def after(self, start: float, seconds: float) -> float:
        """The time at which the machine has run for so long since `start`."""
        until = start + seconds
        for begun, ended in self.stretches:
            if begun >= until:
                break
            until += max(0.0, ended - max(begun, start))
        return until


def merged(stretches: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same moments in stretches that do not touch, in their order."""
    found: list[tuple[float, float]] = []
    for begun, ended in sorted(stretches):
        if found and begun <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        else:
            found.append((begun, ended))
    return found


class PauseIntervals:
    """The intervals in which each client stood still."""

    def __init__(self, history: History) -> None:
        self._of: dict[str, list[Span]] = defaultdict(list)
        self._standstills = Standstills(history).stretches
        for span in spans(history, Kind.PAUSED, Kind.RESUMED):
            self._of[span.event.client].append(span)

    def cover(self, client: str, moment: Moment) -> bool:
        """True where `client` stood still at `moment`, while others may have gone on."""
        known = self._of.get(client, [])
        index = bisect_right(known, moment, key=lambda span: span.start) - 1
        return index >= 0 and moment < known[index].end

    def seconds(self, client: str, start: float, end: float) -> float:
        """The seconds of this stretch in which `client` stood still, by itself or with the whole machine."""
        own = [(span.start[0], span.end[0]) for span in self._of.get(client, [])]
        known = merged([*own, *self._standstills])
        return sum(max(0.0, min(end, ended) - max(start, begun)) for begun, ended in known)


def spans(history: History, begin: Kind, end: Kind) -> tuple[Span, ...]:
    """Intervals between events of two kinds, by client and operation, in the order of their beginnings; without an end
    they last for ever.
    """
    found: list[Span] = []
    going_on: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event in history.of(begin, end):
        place, key = history.place(event), (event.client, event.operation)
        if event.kind is begin:
            going_on[key].append(len(found))
            found.append(Span(place, NEVER, event))
        else:
            for index in going_on.pop(key, ()):
                found[index] = Span(found[index].start, place, found[index].event)
    return tuple(found)


def by_resource(things: Iterable[Value], resource: Callable[[Value], str]) -> dict[str, list[Value]]:
    """Sorted out by line; within one, in the order given."""
    sorted_out: dict[str, list[Value]] = defaultdict(list)
    for thing in things:
        sorted_out[resource(thing)].append(thing)
    return dict(sorted_out)


def beliefs_by_resource(history: History) -> dict[str, list[BeliefInterval]]:
    """The beliefs of each line, in the order in which they were had."""
    return by_resource(beliefs(history), lambda belief: belief.ok.resource)


def waits(history: History) -> dict[str, list[Call]]:
    """The acquires of each line that could wait, in the order of their invoke."""
    waiting = (call for call in history.calls if call.invoke.operation in ("acquire", "campaign"))
    return by_resource(waiting, lambda call: call.invoke.resource)
