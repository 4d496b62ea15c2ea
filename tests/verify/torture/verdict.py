"""Verdict on a run: its properties, whether it showed enough, and the one outcome of it all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from tenure.testing.history.check_liveness import LivenessBounds
from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import History
from tenure.testing.history.intervals import BeliefInterval, beliefs, beliefs_by_resource
from tenure.testing.history.report import PROPERTIES, Report, check_history
from tenure.testing.history.verdicts import Outcome, Verdict
from tests.verify.torture.nemeses import NEMESES
from tests.verify.torture.nemeses.kinds import Excuse
from tests.verify.torture.nemeses.removals import BY_DEEDS, deed_of
from tests.verify.torture.observers.truth import GROUNDED, Truth
from tests.verify.torture.parts import Nemesis

if TYPE_CHECKING:
    from tests.verify.torture.run import Trial

MIXTURES: Final = frozenset({"partition", "partition-one-way", "all"})
"""Nemeses that choose among others, and are counted under their names."""
GRANTS_PER_SECOND_MIN: Final = 2.0
HAND_OVERS_MIN: Final = 3
_TAKE_OVER: Final = {"etcd": 4.5, "zookeeper": 4.0}
_ON_OCCASION: Final = frozenset({"S11", "L1", "L4", "L5"})
"""Left out where nothing of their kind happened: no death, no lease that ended under a holder, no outage."""
_OF_TIME: Final = frozenset({"L1", "L2", "L3", "L4", "L5"})
"""The properties that bound a time. On a machine too slow for a calm run's grants they say nothing of the library."""
_ASKED: Final = tuple(name for name in PROPERTIES if name != "S10")


def take_over(backend: Literal["etcd", "zookeeper"]) -> float:
    """The seconds, beyond the time to live, until another client has what a dead one held.

    etcd: an election, half a second for the expiry tick, three for a revocation that failed and is tried again.
    ZooKeeper: an election among three JVMs, and the session's bucket of ticks.
    """
    return _TAKE_OVER[backend]


@dataclass(frozen=True, slots=True)
class Phases:
    """The beginning of each part of the run, on the recorders' clock."""

    begun: float
    broken: float
    mended: float
    settled: float

    def spans(self) -> dict[str, tuple[float, float]]:
        """The phases by name: from when to when."""
        return {
            "before": (self.begun, self.broken),
            "during": (self.broken, self.mended),
            "after": (self.mended, self.settled),
        }


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of a run, with all that is known of it."""

    trial: Trial
    history: History
    phases: Phases
    faults: Mapping[str, int]
    report: Report
    broke: tuple[str, ...]
    doubts: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        """FAILED by a property or a worker; else UNKNOWN by a property or a doubt; else PASSED."""
        if self.broke or self.report.outcome is Outcome.FAILED:
            return Outcome.FAILED
        if self.doubts:
            return Outcome.UNKNOWN
        return self.report.outcome


def judge(
    trial: Trial,
    history: History,
    truth: Truth,
    phases: Phases,
    faults: Mapping[str, int],
    broke: tuple[str, ...],
    doubts: tuple[str, ...],
    *,
    version: str,
) -> Judgement:
    """Judge by every property that has something to say about a run like this, on servers of this version."""
    bounds = LivenessBounds(
        take_over=take_over(trial.backend),
        holds_per_second=GRANTS_PER_SECOND_MIN,
        hand_overs=HAND_OVERS_MIN,
        call=1.0,
        wake=2.0,
        demote=1.0,
    )
    struck = tuple(_struck(trial, faults))
    if not any(_excuses(nemesis) for nemesis in struck):
        history = History(map(_unexcused, history), torn=history.torn)
    report = check_history(history, _ASKED, bounds=bounds)
    judged = [_excused(_grounded(verdict, truth), trial, struck, version) for verdict in report.verdicts]
    slow = tuple(too_slow(history, phases))
    judged = [_timeless(verdict) for verdict in judged] if slow else judged
    asked = tuple(verdict for verdict in judged if not _nothing_happened(verdict))
    left_out = tuple(verdict.name for verdict in judged if _nothing_happened(verdict))
    report = dataclasses.replace(report, verdicts=asked, left_out=left_out)
    doubts = (*doubts, *slow, *too_little(trial, history, phases, faults))
    return Judgement(trial, history, phases, faults, report, broke, doubts)


def _grounded(verdict: Verdict, truth: Truth) -> Verdict:
    """Make unknown, whatever it says, a verdict that rests on a truth with gaps."""
    if not truth.missing or verdict.name not in GROUNDED:
        return verdict
    return dataclasses.replace(verdict, outcome=Outcome.UNKNOWN, reason=f"the truth has gaps: {truth.missing}")


def _unexcused(event: Event) -> Event:
    """Servers that were not made to stall have no reason to break a promise: it is the client that is looked at."""
    return dataclasses.replace(event, cause="") if event.cause == "early" else event


def _struck(trial: Trial, faults: Iterable[str]) -> Iterator[Nemesis | type[Nemesis]]:
    """The nemeses that had a part in it. The choices of a mixture stand among the faults."""
    for group in trial.nemeses:
        yield from group
    yield from (NEMESES[name] for name in faults if name in NEMESES)


def _excuses(nemesis: Nemesis | type[Nemesis]) -> Sequence[Excuse]:
    """The properties that this nemesis breaks by itself, and so says nothing about the library by."""
    excuses: Sequence[Excuse] = getattr(nemesis, "excuses", ())
    return excuses


def _excused(verdict: Verdict, trial: Trial, struck: Iterable[Nemesis | type[Nemesis]], version: str) -> Verdict:
    for nemesis in struck:
        for excuse in _excuses(nemesis):
            if verdict.failed and verdict.name in excuse.properties and excuse.on(trial.backend, version):
                return dataclasses.replace(verdict, outcome=Outcome.UNKNOWN, reason=f"{nemesis.name}: {excuse.reason}")
    return verdict


def _nothing_happened(verdict: Verdict) -> bool:
    looked_at = sum(count for what, count in verdict.counts.items() if what != "violations")
    return verdict.name in _ON_OCCASION and verdict.outcome is Outcome.UNKNOWN and not looked_at


def _timeless(verdict: Verdict) -> Verdict:
    """A bound that was missed on a machine too slow to keep it in a calm moment."""
    if not verdict.failed or verdict.name not in _OF_TIME:
        return verdict
    reason = "the machine was too slow for it before anything was broken"
    return dataclasses.replace(verdict, outcome=Outcome.UNKNOWN, reason=reason)


def too_slow(history: History, phases: Phases) -> Iterator[str]:
    """Why a missed bound may be the machine's fault."""
    start, end = phases.spans()["before"]
    before = sum(start <= belief.ok.at < end for belief in beliefs(history))
    if before < GRANTS_PER_SECOND_MIN * (end - start):
        yield f"only {before} grants in {end - start:.1f} s before anything was broken"


def too_little(trial: Trial, history: History, phases: Phases, faults: Mapping[str, int]) -> Iterator[str]:
    """Why the run shows too little to pass."""
    during = len(list(hand_overs(history, *phases.spans()["during"])))
    if during < HAND_OVERS_MIN:
        yield f"only {during} hand-overs while things were broken"
    asked = {nemesis.name for group in trial.nemeses for nemesis in group}
    if asked and not faults:
        yield "nothing was broken: no fault was injected"
    elif absent := sorted(asked - faults.keys() - MIXTURES):
        yield f"never struck: {', '.join(absent)}; give it more seconds"
    if idle := sorted(name for name in asked & faults.keys() if name in BY_DEEDS and not faults.get(deed_of(name))):
        yield f"removed nothing: {', '.join(idle)}"


def hand_overs(history: History, start: float, end: float) -> Iterator[tuple[BeliefInterval, BeliefInterval]]:
    """Holds that followed one of another client."""
    for line in beliefs_by_resource(history).values():
        for one, other in pairwise(line):
            if one.ok.client != other.ok.client and start <= other.ok.at < end:
                yield one, other


def stale_writes_refused(history: History) -> int:
    """The number of writes that the fence kept out."""
    return sum(event.accepted is False for event in history.of(Kind.STORE))
