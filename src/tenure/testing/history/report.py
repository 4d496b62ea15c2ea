"""Report of all checkers over one history, and their verdicts as a table for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from tenure.errors import InvalidOption
from tenure.testing.history.check_fencing import s5
from tenure.testing.history.check_linearizability import s10
from tenure.testing.history.check_liveness import STANDARD, LivenessBounds, l1, l2, l3, l4, l5, l6
from tenure.testing.history.check_promises import s1, s2, s3, s6, s7
from tenure.testing.history.check_truth import s4, s8, s9, s11
from tenure.testing.history.event import Kind
from tenure.testing.history.history import History
from tenure.testing.history.intervals import beliefs
from tenure.testing.history.verdicts import Outcome, Verdict

_SHOWN_MAX: Final = 5
_SMALL: Final = 300
_MEANING: Final = {
    "S1": "no belief after a successor's",
    "S2": "no overlapping holds",
    "S3": "tokens grow and are unique",
    "S4": "every hold was true at the store",
    "S5": "the fence held, no update was lost",
    "S6": "never more seats than the limit",
    "S7": "at most one leader",
    "S8": "releases hit their own ticket",
    "S9": "no silent ownership",
    "S10": "linearizable",
    "S11": "no belief in an ended lease",
    "L1": "take-over after a death",
    "L2": "no lost wake-up",
    "L3": "calls come back in time",
    "L4": "belief ends on time",
    "L5": "everybody recovers",
    "L6": "nothing is left behind",
}
_SAFETY: Final[Mapping[str, Callable[[History], Verdict]]] = {
    "S1": s1,
    "S2": s2,
    "S3": s3,
    "S4": s4,
    "S5": s5,
    "S6": s6,
    "S7": s7,
    "S8": s8,
    "S9": s9,
    "S10": s10,
    "S11": s11,
}
_LIVENESS: Final[Mapping[str, Callable[[History, LivenessBounds], Verdict]]] = {
    "L1": l1,
    "L2": l2,
    "L3": l3,
    "L4": l4,
    "L5": l5,
    "L6": l6,
}
SAFETY: Final = tuple(_SAFETY)
LIVENESS: Final = tuple(_LIVENESS)
PROPERTIES: Final = (*SAFETY, *LIVENESS)


@dataclass(frozen=True, slots=True)
class Report:
    """The verdicts on one history, and which properties were not asked for."""

    verdicts: tuple[Verdict, ...]
    left_out: tuple[str, ...] = ()
    torn: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """FAILED if any property is; else UNKNOWN if any is, or if nothing was asked for; else PASSED."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        for worst in (Outcome.FAILED, Outcome.UNKNOWN):
            if worst in outcomes:
                return worst
        return Outcome.PASSED if outcomes else Outcome.UNKNOWN

    def __getitem__(self, name: str) -> Verdict:
        """The verdict on one property. Raises KeyError where it was not asked for."""
        for verdict in self.verdicts:
            if verdict.name == name:
                return verdict
        raise KeyError(name)

    def __str__(self) -> str:
        lines = [_row(verdict) for verdict in self.verdicts]
        lines += [f"not asked for: {', '.join(self.left_out)}"] if self.left_out else []
        lines += [f"cut off in its last line: {path}" for path in self.torn]
        for verdict in self.verdicts:
            for violation in verdict.violations[:_SHOWN_MAX]:
                lines += ["", f"{verdict.name}: {violation}"]
        return "\n".join((*lines, "", self.outcome.value))


def check_history(
    history: History, properties: Iterable[str] | None = None, *, bounds: LivenessBounds = STANDARD
) -> Report:
    """Judge a history by the properties named, or by those it has anything to say about (`applicable`).

    What is named and can't be judged is unknown, and so is the whole. Raises InvalidOption for a name that is none.
    """
    asked = applicable(history) if properties is None else tuple(dict.fromkeys(properties))
    unknown = [name for name in asked if name not in PROPERTIES]
    if unknown:
        raise InvalidOption(f"no property is called {unknown[0]!r}; they are {', '.join(PROPERTIES)}")
    checkers: dict[str, Callable[[History], Verdict]] = {**_SAFETY}
    checkers |= {name: partial(_bounded, check, bounds) for name, check in _LIVENESS.items()}
    left_out = tuple(name for name in PROPERTIES if name not in asked)
    return Report(tuple(checkers[name](history) for name in asked), left_out, history.torn)


def _bounded(check: Callable[[History, LivenessBounds], Verdict], bounds: LivenessBounds, history: History) -> Verdict:
    return check(history, bounds)


def applicable(history: History) -> tuple[str, ...]:
    """The properties this history was recorded for, as far as its events show. S1, S2 and S3 always are.

    A run that was to record the store's truth and did not is not told from one that was not to: name the properties.
    """
    holds = beliefs(history)
    truth = {event.operation for event in history.of(Kind.TRUTH)}
    told = {event.operation for event in history.of(Kind.TOLD)}
    broken = history.of(Kind.FAULT, Kind.PAUSED, Kind.DIED)
    shown = {
        "S4": "created" in truth,
        "S5": bool(history.of(Kind.STORE)),
        "S6": any(belief.ok.mode.value == "seat" for belief in holds),
        "S7": any(b.ok.operation == "campaign" for b in holds) or bool(told & {"elected", "demoted", "observed"}),
        "S8": "removed" in truth,
        "S9": "created" in truth and any(event.ttl is not None for event in history),
        "S10": len(holds) <= _SMALL and not broken,
        "S11": "lease_ended" in truth,
    }
    return tuple(name for name in SAFETY if shown.get(name, True))


def _row(verdict: Verdict) -> str:
    told = ", ".join(f"{count} {what}" for what, count in verdict.counts.items())
    reason = f"{verdict.reason} ({told})" if verdict.reason else told
    return f"{verdict.name:4} {verdict.outcome.value:8} {_MEANING[verdict.name]:36} {reason}"
