"""Comparison of one trace at the memory store and at another one, step by step.

`compare` plays both, takes away what a freedom allows, numbers what is left and finds the first step that differs. The
memory store is played first: it says which signals have to come, and the other one is waited for.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tenure._core.lease import Reach
from tests.verify.traces import commands as c
from tests.verify.traces.answers import Answer, Outcome, numbered
from tests.verify.traces.early_signals import EARLY
from tests.verify.traces.freedom import FREEDOMS, Pair
from tests.verify.traces.player import Player
from tests.verify.traces.stores import Store
from tests.verify.traces.watching import Watched, Watching


@dataclass(frozen=True, slots=True)
class Difference:
    """The step at which two stores part. `str()` is the trace up to there with both outcomes."""

    trace: c.Trace
    store: str
    step: int
    what: str
    outcomes: tuple[tuple[str, str], ...]

    @property
    def command(self) -> c.Command | None:
        """The one that differs; None where it shows at the end only."""
        return self.trace.commands[self.step] if self.step < len(self.trace.commands) else None

    def __str__(self) -> str:
        lines = [f"seed {self.trace.seed}: memory and {self.store} differ in {self.what} at step {self.step}"]
        for step, (ours, theirs) in enumerate(self.outcomes):
            lines.append(f"{step:3} {self.trace.commands[step] if step < len(self.trace.commands) else 'the end'}")
            lines += (
                [f"      {ours}"] if step < self.step else [f"      memory: {ours}", f"      {self.store}: {theirs}"]
            )
        return "\n".join(lines)


@dataclass(slots=True)
class Comparison:
    """The comparison of one trace: what was met on the way, and the first difference, if any."""

    commands: Counter[str] = field(default_factory=Counter)
    """Those that had something to do, each with what came of it."""
    signals: int = 0
    """How many had to be set."""
    lost: Counter[str] = field(default_factory=Counter)
    """Of which verbs requests or answers were lost on the way to the store."""
    freedoms: Counter[str] = field(default_factory=Counter)
    """Which were taken: where answers differed, and a freedom made them equal in part."""
    difference: Difference | None = None


def compare(trace: c.Trace, memory: Store, store: Store) -> Comparison:
    """Play `trace` at both."""
    comparison = Comparison()
    ours, _ = _played(trace, memory, None, Counter())
    theirs, watching = _played(trace, store, ours, comparison.lost)
    pairs = list(_reduced(trace, store.kind, ours, theirs, comparison.freedoms))
    left = numbered([pair.ours for pair in pairs]), numbered([pair.theirs for pair in pairs])
    shown = numbered([outcome.answer for outcome in ours]), numbered([outcome.answer for outcome in theirs])
    for step, outcomes in enumerate(zip(ours, theirs, strict=True)):
        if outcomes[0].answer.kind != "nothing to do" and step < len(trace.commands):
            comparison.commands[_met(trace.commands[step], outcomes[0].answer)] += 1
            comparison.signals += len(outcomes[0].fired)
        what = _differs(left[0][step], left[1][step], *outcomes)
        if step == len(trace.commands) and not what:
            what = _unexplained(outcomes[1].fired, store.kind, watching, ours, comparison.freedoms)
        if what:
            descriptions = tuple(
                (_described(ours[at], shown[0][at]), _described(theirs[at], shown[1][at])) for at in range(step + 1)
            )
            comparison.difference = Difference(trace, store.kind, step, what, descriptions)
            break
    return comparison


def _played(
    trace: c.Trace, store: Store, reference: Sequence[Outcome] | None, lost: Counter[str]
) -> tuple[list[Outcome], Watching]:
    place = store.place()
    try:
        player = Player(place)
        return player.play(trace, reference), player.watching
    finally:
        lost.update(place.lost)
        place.close()


def _met(command: c.Command, answer: Answer) -> str:
    came = answer.values[0] if answer.values and isinstance(answer.values[0], bool | str) else ""
    known = answer.kind in ("stood", "committed", "raised")
    return f"{c.verb(command)} {came}" if known else c.verb(command)


def _differs(ours: Answer, theirs: Answer, our: Outcome, their: Outcome) -> str:
    if ours != theirs:
        return f"the answer ({ours}, {theirs})" if len(f"{ours}{theirs}") < 200 else "the answer"
    if set(our.fired) - set(their.fired) and our.answer.kind != "settled":
        return f"signals: {', '.join(sorted(set(our.fired) - set(their.fired)))} not set"
    if our.ends != their.ends:
        return "what was told of the leases' ends"
    return "the leases' states" if our.leases != their.leases else ""


def _described(outcome: Outcome, answer: Answer) -> str:
    return str(Outcome(answer, outcome.fired, outcome.ends, outcome.leases))


# What freedoms leave.


def _reduced(
    trace: c.Trace, kind: str, ours: Sequence[Outcome], theirs: Sequence[Outcome], taken: Counter[str]
) -> Iterator[Pair]:
    ended: set[str] = set()
    reaches = {command.ticket: command.reach for command in trace.commands if isinstance(command, c.EnterCommand)}
    for step, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        command = trace.commands[step] if step < len(trace.commands) else None
        lease = getattr(command, "lease", "")
        pair = Pair(command, lease in ended, _reach(command, reaches), our.answer, their.answer)
        for freedom in FREEDOMS:
            if kind in freedom.stores:
                before, pair = pair, freedom.leave(pair)
                taken[freedom.name] += pair != before and _unlike(before)
        if isinstance(command, c.Close | c.Revoke):
            ended.add(lease)
        yield pair


def _reach(command: c.Command | None, reaches: dict[str, Reach]) -> Reach | None:
    match command:
        case c.LookCommand() | c.EnterCommand():
            return command.reach
        case c.Again():
            return reaches.get(command.ticket)
    return None


def _unlike(pair: Pair) -> bool:
    return numbered([pair.ours]) != numbered([pair.theirs])


# Signals that did not have to be set.


def _unexplained(
    early: Sequence[str], kind: str, watching: Watching, ours: Sequence[Outcome], taken: Counter[str]
) -> str:
    for name in early:
        watched = watching.all[name]
        reason = _reason(watched, kind, ours)
        if not reason:
            return f"signals: {name} set for nothing"
        taken[reason] += 1
    return ""


def _reason(watched: Watched, kind: str, ours: Sequence[Outcome]) -> str:
    places = (watched.command.resource, watched.client)
    happened = [[change for change in outcome.changes if change.where in places] for outcome in ours]
    before = list(itertools.chain.from_iterable(happened[: watched.since + 1]))
    since = list(itertools.chain.from_iterable(happened[watched.since + 1 :]))
    fitting = (early.name for early in EARLY if kind in early.stores and early.explains(watched, before, since))
    return next(fitting, "")
