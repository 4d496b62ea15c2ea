"""Verdicts of a checker: passed, failed with its violations, or unknown with the reason.

"Unknown" is said where the history holds too little to judge by: no ground truth, no traffic, a budget spent. It is
never a pass. At most VIOLATIONS_MAX violations are kept; how many there were is in the counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tenure.testing.history.event import Event

VIOLATIONS_MAX: Final = 100


class Outcome(Enum):
    """The outcome of a property. The worst of several is the furthest down."""

    PASSED = "passed"
    UNKNOWN = "unknown"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Violation:
    """A break of a property: a sentence for people, and the events it rests on."""

    sentence: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return "\n".join((self.sentence, *(f"    {event}" for event in self.events)))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of one checker."""

    name: str
    """Of the property: S1 … L6."""
    outcome: Outcome
    violations: tuple[Violation, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """How much was looked at; `violations` is how many there were, kept or not."""
    reason: str = ""
    """Why it is unknown."""

    @property
    def passed(self) -> bool:
        """True where the property held, and there was enough to say so."""
        return self.outcome is Outcome.PASSED

    @property
    def failed(self) -> bool:
        """True where the property was broken."""
        return self.outcome is Outcome.FAILED

    def __str__(self) -> str:
        told = ", ".join(f"{count} {what}" for what, count in self.counts.items())
        return f"{self.name} {self.outcome.value}: {self.reason or told}"


def judged(name: str, found: Iterable[Violation], counts: Mapping[str, int], *, unknown: str = "") -> Verdict:
    """A verdict from what was found. `unknown` is why nothing found would not mean much; "" where it does."""
    kept: list[Violation] = []
    total = 0
    for violation in found:
        total += 1
        if len(kept) < VIOLATIONS_MAX:
            kept.append(violation)
    counts = {**counts, "violations": total}
    if total:
        return Verdict(name, Outcome.FAILED, tuple(kept), counts)
    return Verdict(name, Outcome.UNKNOWN if unknown else Outcome.PASSED, (), counts, unknown)
