"""S10: some order of all acquires and releases, within their calls, could come from a perfect line.

The search of Wing and Gong with Lowe's memory, per line. The model's state is who holds and the highest token out.
An acquire that is ok takes place when nobody it excludes holds (for seats: when its weight fits) and with a token above
all before; a release that is ok removes what is held; one that said "gone already" comes when it is not held any more.
A hold that was never given up in so many words may end by itself, unseen, from the end of its belief on.

An acquire that is `info` may have happened and ended unseen. Taking it in could only forbid what leaving it out allows,
so it is left out.

For small histories: the search stops when its budget is spent, and says "unknown". It also says so, instead of failed,
where a client stood still: there S2 tells what is an overlap of a pause. Looks are S1's business, not this one's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tenure._core.lease import Mode
from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import Call, History
from tenure.testing.history.intervals import NEVER, BeliefInterval, Moment, Promised, by_resource
from tenure.testing.history.verdicts import Verdict, Violation, judged

BUDGET: Final = 200_000
"""Configurations looked at per line before the answer is "unknown"."""


def s10(history: History, budget: int = BUDGET) -> Verdict:
    """Linearizability, line by line."""
    lines = Promised(history).by_resource
    releases = by_resource(_releases(history), lambda call: call.invoke.resource)
    searches = {
        resource: _Search(history, line, releases.get(resource, []), budget) for resource, line in lines.items()
    }
    results = {resource: search.run() for resource, search in searches.items()}
    counts = {
        "calls": sum(len(s.calls) for s in searches.values()),
        "looked at": sum(s.spent for s in searches.values()),
    }
    found = [searches[resource].stuck() for resource, fine in results.items() if fine is False]
    if found and history.of(Kind.PAUSED):
        return judged("S10", (), counts, unknown="no order was found, and a client stood still: see S2")
    spent = any(fine is None for fine in results.values())
    return judged(
        "S10", found, counts, unknown="its budget was spent" if spent else "" if lines else "nobody held anything"
    )


def _releases(history: History) -> Iterator[Call]:
    """The ones with an answer."""
    for call in history.calls:
        outcome = call.outcome
        if call.invoke.operation == "release" and outcome is not None and outcome.kind is not Kind.INFO:
            yield call


@dataclass(frozen=True, slots=True)
class _AnsweredCall:
    """An answered call: between the two moments it took effect."""

    start: Moment
    end: Moment
    answer: Event
    holder: int
    """Which belief it began or ended."""


@dataclass(frozen=True, slots=True)
class _Configuration:
    """Some calls have taken effect: all before `first`, and those whose bits are set counted from there."""

    first: int
    done: int
    holders: frozenset[int]
    token: tuple[int, int]


class _Search:
    """The search over one line."""

    def __init__(self, history: History, line: Sequence[BeliefInterval], releases: Sequence[Call], budget: int) -> None:
        numbers = {belief.ok.hold: index for index, belief in enumerate(line)}
        self._line = line
        self._budget = budget
        self.calls = sorted(_calls(history, line, releases, numbers), key=lambda call: call.start)
        self.spent = 0
        self._furthest = _Configuration(0, 0, frozenset(), (-1, -1))

    def run(self) -> bool | None:
        """True: an order was found. False: there is none. None: the budget was spent first."""
        waiting = [self._furthest]
        seen = {self._furthest}
        while waiting:
            here = waiting.pop()
            if here.first == len(self.calls):
                return True
            self.spent += 1
            if self.spent > self._budget:
                return None
            self._furthest = max(self._furthest, here, key=_depth)
            following = [step for step in self._steps(here) if step not in seen]
            seen.update(following)
            waiting.extend(reversed(following))
        return False

    def stuck(self) -> Violation:
        """The calls at which no search came any further."""
        here = self._furthest
        standing = [self._line[number].ok for number in sorted(here.holders)]
        following = [call.answer for _, call in self._possible(here)[0]]
        resource = self._line[0].ok.resource
        return Violation(
            f"no order of the calls on {resource!r} explains what they were told; none gets further than "
            f"{_depth(here)} of {len(self.calls)} calls, with these standing and these to come:",
            (*standing, *following),
        )

    def _steps(self, here: _Configuration) -> Iterator[_Configuration]:
        possible, before = self._possible(here)
        for index, call in possible:
            step = self._take(here, index, call)
            if step is not None:
                yield step
        for number in here.holders:
            if self._line[number].end < before:
                yield _Configuration(here.first, here.done, here.holders - {number}, here.token)

    def _possible(self, here: _Configuration) -> tuple[list[tuple[int, _AnsweredCall]], Moment]:
        """The calls that may take effect next, and the moment before which that has to be."""
        before, found = NEVER, []  # sorted by their starts: what comes after the earliest end can't be next
        for index in range(here.first, len(self.calls)):
            call = self.calls[index]
            if call.start > before:
                break
            if not here.done >> (index - here.first) & 1:
                found.append((index, call))
                before = min(before, call.end)
        return found, before

    def _take(self, here: _Configuration, index: int, call: _AnsweredCall) -> _Configuration | None:
        """The state after this call; None where a perfect line would not have answered so."""
        holders, token = here.holders, here.token
        if _ends(call.answer):
            if (call.holder in holders) is not (call.answer.kind is Kind.OK):
                return None
            holders = holders - {call.holder}
        else:
            if call.answer.rank <= token or not self._admits(holders, call.answer):
                return None
            holders, token = holders | {call.holder}, call.answer.rank
        first, done = here.first, here.done | 1 << (index - here.first)
        while done & 1:
            first, done = first + 1, done >> 1
        return _Configuration(first, done, holders, token)

    def _admits(self, holders: frozenset[int], ok: Event) -> bool:
        others = [self._line[number].ok for number in holders]
        if ok.mode is Mode.EXCLUSIVE or any(other.mode is Mode.EXCLUSIVE for other in others):
            return not others
        return ok.mode is Mode.READ or sum(other.weight for other in others) + ok.weight <= ok.limit


def _calls(
    history: History, line: Sequence[BeliefInterval], releases: Sequence[Call], numbers: dict[str, int]
) -> Iterator[_AnsweredCall]:
    for number, belief in enumerate(line):
        yield _AnsweredCall(belief.asked, belief.start, belief.ok, number)
    for call in releases:
        if call.outcome is not None and call.invoke.hold in numbers:
            start, end = history.place(call.invoke), history.place(call.outcome)
            yield _AnsweredCall(start, end, call.outcome, numbers[call.invoke.hold])


def _ends(answer: Event) -> bool:
    return answer.operation == "release"


def _depth(here: _Configuration) -> int:
    return here.first + here.done.bit_count()
