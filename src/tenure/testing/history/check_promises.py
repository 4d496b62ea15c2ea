"""Safety: what must never be seen, whatever was broken meanwhile. Each checker is a function of the history alone.

    S1  no belief after a successor's: once a younger hold that excludes it was had, no look says "held". Pauses are
        no excuse: the first look after a SIGCONT has to say no. Where nobody looked, nothing is seen.
    S2  no overlap of holds that exclude each other, as long as they were believed. An overlap that began while the
        older holder stood still is counted apart: it could not tell, and only a fence can help.
    S3  tokens grow in real time, no two holds have the same, and they are the store's own.
    S4  every hold was true: the store had its ticket, under its owner and lease, and its turn had come.
    S5  the fenced store went back to no older token, took what it had to, lost no update and invented none.
    S6  a semaphore's believed weights never exceeded its limit, nor the least of the limits in use.
    S7  at most one leader believed in itself; callbacks came as (elected, demoted)*; observers never went back.
    S8  every removal of a held ticket was its holder's, its lease's or an administrator's; `release` told the truth.
    S9  no ticket that nobody holds had its turn for longer than its lease may last; a closed client left nothing.
    S11 a lease that the store had ended was not believed in (administrators excepted: nothing is promised there).

Who was deposed by others (an administrator, a store that broke its word) may believe on until the news comes: S1, S2,
S6, S7 and S10 ask nothing of such a belief from that moment on, and count it apart.

S10, linearizability, is in check_linearizability. Near-linear all of them: sorted once, then swept.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tenure._core.lease import Mode
from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import History
from tenure.testing.history.intervals import (
    BeliefInterval,
    Moment,
    PauseIntervals,
    Promised,
    beliefs,
    beliefs_by_resource,
)
from tenure.testing.history.verdicts import Verdict, Violation, judged


def s1(history: History) -> Verdict:
    """No belief after a successor. Zero tolerance."""
    promised = Promised(history)
    looks = len(history.of(Kind.CHECK)) + sum(event.operation == "renew" for event in history.of(Kind.OK))
    found = itertools.chain.from_iterable(map(_believed_too_long, promised.by_resource.values()))
    unknown = _without_holds(history) or ("" if looks else "nobody looked at a hold: there is no check in it")
    counts = {"holds": len(beliefs(history)), "looks": looks, **promised.counts}
    return judged("S1", found, counts, unknown=unknown)


def _believed_too_long(line: Sequence[BeliefInterval]) -> Iterator[Violation]:
    everybody, alone = _Youngest(line), _Youngest([b for b in line if b.exclusive])
    for belief in line:
        rivals = everybody if belief.exclusive else alone
        for moment, look in belief.evidence:
            rival = rivals.before(moment)
            if rival is not None and rival.ok.rank > belief.ok.rank:
                yield Violation(
                    f"{look.client} believed in {look.resource!r} at {moment[0]:.6f} with token {belief.ok.token}, "
                    f"{moment[0] - rival.ok.at:.6f} s after {rival.ok.client} had it with token {rival.ok.token}",
                    (belief.ok, rival.ok, look),
                )


class _Youngest:
    """The hold with the highest token had before a moment."""

    def __init__(self, line: Sequence[BeliefInterval]) -> None:
        self._starts = [belief.start for belief in line]
        self._best = list(itertools.accumulate(line, _younger))

    def before(self, moment: Moment) -> BeliefInterval | None:
        index = bisect_left(self._starts, moment) - 1
        return self._best[index] if index >= 0 else None


def _younger(one: BeliefInterval, other: BeliefInterval) -> BeliefInterval:
    return other if other.ok.rank > one.ok.rank else one


def s2(history: History) -> Verdict:
    """No overlapping holds."""
    promised = Promised(history)
    overlaps = list(itertools.chain.from_iterable(map(_overlaps, promised.by_resource.values())))
    pauses = PauseIntervals(history)
    excused = [(old, new) for old, new in overlaps if pauses.cover(old.ok.client, new.start)]
    found = (_overlap(old, new) for old, new in overlaps if not pauses.cover(old.ok.client, new.start))
    counts = {"holds": len(beliefs(history)), "pause overlaps": len(excused), **promised.counts}
    return judged("S2", found, counts, unknown=_without_holds(history))


def _overlaps(line: Sequence[BeliefInterval]) -> Iterator[tuple[BeliefInterval, BeliefInterval]]:
    """Pairs that exclude each other and were believed together, the older first."""
    standing: dict[bool, list[BeliefInterval]] = {True: [], False: []}  # by whether they are exclusive
    for new in line:
        for exclusive in (True, False):
            standing[exclusive] = [old for old in standing[exclusive] if new.start < old.end]
        yield from ((old, new) for old in standing[True])
        if new.exclusive:
            yield from ((old, new) for old in standing[False])
        standing[new.exclusive].append(new)


def _overlap(old: BeliefInterval, new: BeliefInterval) -> Violation:
    signs = () if old.ended_by is None else (old.ended_by,)
    return Violation(
        f"{new.ok.client} had {new.ok.resource!r} with token {new.ok.token} while {old.ok.client} still believed in "
        f"token {old.ok.token}, for {min(old.end[0], new.end[0]) - new.start[0]:.6f} s",
        (old.ok, new.ok, *signs),
    )


def s3(history: History) -> Verdict:
    """Tokens grow, are unique, and are the store's."""
    lines = beliefs_by_resource(history).values()
    found = itertools.chain(
        itertools.chain.from_iterable(map(_tokens_back, lines)),
        itertools.chain.from_iterable(map(_tokens_twice, lines)),
        _tokens_made_up(history),
    )
    return judged("S3", found, {"holds": len(beliefs(history))}, unknown=_without_holds(history))


def _tokens_back(line: Sequence[BeliefInterval]) -> Iterator[Violation]:
    """Holds asked for after another was had, with a lower token."""
    done: list[tuple[Moment, int]] = []
    youngest: BeliefInterval | None = None
    for index, belief in sorted(enumerate(line), key=lambda pair: pair[1].asked):
        while done and done[0][0] < belief.asked:
            ended = line[heapq.heappop(done)[1]]
            youngest = ended if youngest is None else _younger(youngest, ended)
        if youngest is not None and belief.ok.rank < youngest.ok.rank:
            yield Violation(
                f"{belief.ok.client} asked for {belief.ok.resource!r} after token {youngest.ok.token} was out, and got "
                f"the older token {belief.ok.token}",
                (youngest.ok, belief.invoke, belief.ok),
            )
        heapq.heappush(done, (belief.start, index))


def _tokens_twice(line: Sequence[BeliefInterval]) -> Iterator[Violation]:
    seen: dict[tuple[int, int], BeliefInterval] = {}
    for belief in line:
        first = seen.setdefault(belief.ok.rank, belief)
        if first.ok.hold != belief.ok.hold:
            yield Violation(
                f"token {belief.ok.token} of {belief.ok.resource!r} was handed out twice, to {first.ok.client} and to "
                f"{belief.ok.client}",
                (first.ok, belief.ok),
            )


def _tokens_made_up(history: History) -> Iterator[Violation]:
    real: dict[str, list[Event]] = {}
    for event in history.of(Kind.TRUTH):
        if event.operation == "created" and event.token is not None:
            real.setdefault(event.hold, []).append(event)
    for belief in beliefs(history):
        known = real.get(belief.ok.hold, [])
        if known and belief.ok.rank not in {created.rank for created in known}:
            created = known[0]
            yield Violation(
                f"{belief.ok.client} has token {belief.ok.token} of {belief.ok.resource!r}, and the store says "
                f"{created.token}",
                (created, belief.ok),
            )


def s6(history: History) -> Verdict:
    """A semaphore's weights stay within its limit."""
    promised = Promised(history)
    seats = {
        resource: seats
        for resource, line in promised.by_resource.items()
        if (seats := [belief for belief in line if belief.ok.mode is Mode.SEAT])
    }
    pauses = PauseIntervals(history)
    over = [one for line in seats.values() for one in _too_many_seats(line, pauses)]
    counts = {
        "holds": sum(map(len, seats.values())),
        "pause overlaps": sum(violation is None for violation in over),
        **promised.counts,
    }
    unknown = "" if seats else "nobody held a seat"
    return judged("S6", (violation for violation in over if violation is not None), counts, unknown=unknown)


def _too_many_seats(line: Sequence[BeliefInterval], pauses: PauseIntervals) -> Iterator[Violation | None]:
    """The violation for each time a seat was had with too many; None where it is only because others stood still."""
    ends: list[tuple[Moment, int]] = []
    limits: Counter[int] = Counter()
    weight = 0
    for index, new in enumerate(line):
        while ends and ends[0][0] <= new.start:
            gone = line[heapq.heappop(ends)[1]].ok
            weight -= gone.weight
            limits[gone.limit] -= 1
            limits += Counter()  # drops what is at zero
        heapq.heappush(ends, (new.end, index))
        weight += new.ok.weight
        limits[new.ok.limit] += 1
        if weight > min(limits):
            yield _overfull(new, [line[i] for _, i in ends], min(limits), pauses)


def _overfull(
    new: BeliefInterval, seated: Sequence[BeliefInterval], limit: int, pauses: PauseIntervals
) -> Violation | None:
    awake = [belief.ok for belief in seated if not pauses.cover(belief.ok.client, new.start)]
    weight = sum(ok.weight for ok in awake)
    if weight <= limit:
        return None
    return Violation(
        f"{weight} seats of {new.ok.resource!r} were believed in at {new.start[0]:.6f}, and its limit is {limit}",
        tuple(sorted(awake, key=lambda ok: ok.at)),
    )


def s7(history: History) -> Verdict:
    """At most one leader, and orderly callbacks."""
    reigns = [belief for belief in beliefs(history) if belief.ok.operation == "campaign"]
    callbacks = [
        event for event in history.of(Kind.TOLD) if event.operation in _GRAMMAR or event.operation == "observed"
    ]
    elections = {belief.ok.resource for belief in reigns}
    found = itertools.chain(
        itertools.chain.from_iterable(_two_leaders(history, elections)),
        _out_of_order(callbacks),
        _observers_back(callbacks),
    )
    unknown = "" if reigns or callbacks else "there was no election"
    return judged("S7", found, {"reigns": len(reigns), "callbacks": len(callbacks)}, unknown=unknown)


def _two_leaders(history: History, elections: Iterable[str]) -> Iterator[Iterable[Violation]]:
    pauses, promised = PauseIntervals(history), Promised(history)
    for election in elections:
        line = promised.by_resource[election]
        yield _believed_too_long(line)
        yield _tokens_back(line)
        yield _tokens_twice(line)
        yield (_overlap(old, new) for old, new in _overlaps(line) if not pauses.cover(old.ok.client, new.start))


_GRAMMAR: Final = {"elected": ("", "demoted"), "demoted": ("elected",), "stopped": ("", "elected", "demoted")}
"""After which callback each may come; "" is none yet."""


def _out_of_order(callbacks: Iterable[Event]) -> Iterator[Violation]:
    last: dict[tuple[str, str], Event] = {}
    for event in callbacks:
        if event.operation not in _GRAMMAR:
            continue
        before = last.get((event.client, event.resource))
        after = "" if before is None else before.operation
        if after not in _GRAMMAR[event.operation]:
            yield Violation(
                f"{event.client} was told {event.operation!r} of {event.resource!r} after {after or 'nothing'!r}",
                (event,) if before is None else (before, event),
            )
        last[event.client, event.resource] = event


def _observers_back(callbacks: Iterable[Event]) -> Iterator[Violation]:
    youngest: dict[tuple[str, str], Event] = {}
    for event in callbacks:
        if event.operation != "observed" or event.token is None:
            continue
        known = youngest.setdefault((event.client, event.resource), event)
        if event.rank < known.rank:
            yield Violation(
                f"{event.client} saw the leader of token {event.token} after that of token {known.token}",
                (known, event),
            )
        youngest[event.client, event.resource] = max(known, event, key=lambda e: e.rank)


def _without_holds(history: History) -> str:
    return "" if beliefs(history) else "nobody held anything"
