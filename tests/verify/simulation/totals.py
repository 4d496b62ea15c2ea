"""Totals of many runs: what they covered, and what may be said of them: passed, failed, or unknown where too little
went on.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.verify.simulation.run import Result

HAND_OVERS_MIN: Final = 3
"""Per run on average. Where less changes hands, little was tested."""
SHOWN_MAX: Final = 10


@dataclass(slots=True)
class Totals:
    """The sum of runs."""

    runs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    hand_overs: Counter[str] = field(default_factory=Counter)
    setbacks: int = 0
    risen: int = 0
    virtual_seconds: float = 0.0
    steps: int = 0
    failed: list[Result] = field(default_factory=list)
    _began: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.process_time()))

    def add(self, result: Result) -> None:
        self.runs += 1
        self.outcomes.update(result.outcomes)
        self.faults.update(result.faults)
        self.hand_overs.update(result.hand_overs)
        self.setbacks += result.setbacks
        self.risen += result.risen
        self.virtual_seconds += result.seconds
        self.steps += result.steps
        if result.violation:
            self.failed.append(result)

    @property
    def verdict(self) -> str:
        """passed, failed, or unknown: without enough hand-overs nothing was shown."""
        if self.failed:
            return "failed"
        return "passed" if self.runs and self.hand_overs.total() >= HAND_OVERS_MIN * self.runs else "unknown"

    def __str__(self) -> str:
        real, busy = time.monotonic() - self._began[0], time.process_time() - self._began[1]
        lines = [
            f"{self.runs} runs in {real:.1f} s, {60 * self.runs / max(real, 1e-9):,.0f} a minute "
            f"({60 * self.runs / max(busy, 1e-9):,.0f} a minute of this core's time)",
            f"{self.virtual_seconds:,.0f} virtual seconds, {self.steps:,} steps",
            f"hand-overs: {_listed(self.hand_overs)}",
            f"operations: {_listed(self.outcomes)}",
            f"faults:     {_listed(self.faults)}",
            f"known:      {self.setbacks} values put back by a late amend, "
            f"{self.risen} tickets brought back by a late enter",
            f"violations: {len(self.failed)}",
        ]
        lines += [f"  seed {r.plan.seed}, {r.plan.mode.value}: {r.violation}" for r in self.failed[:SHOWN_MAX]]
        return "\n".join([*lines, self.verdict])


def _listed(counts: Counter[str]) -> str:
    return f"{counts.total():,} (" + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) + ")"
