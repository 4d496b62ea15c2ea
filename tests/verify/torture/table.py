"""Tables of what many runs covered and found, in Markdown: a line for each run as it ends, one for each nemesis at the
end.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from tests.verify.torture.verdict import MIXTURES

BACKENDS: Final = ("etcd", "zookeeper")
_COLUMNS: Final = {
    "store": "---",
    "nemesis": "---",
    "seeds": "---:",
    "seconds": "---:",
    "grants": "---:",
    "hand-overs": "---:",
    "faults": "---",
    "stale writes refused": "---:",
    "longest standstill": "---:",
    "outcome": "---",
}


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a profile."""

    backend: str
    nemesis: str
    seconds: float
    seed: int

    @property
    def name(self) -> str:
        """The name of the run's files."""
        return f"{self.backend}-{self.nemesis.replace(',', '_')[:80]}-{self.seed}"


@dataclass(frozen=True, slots=True)
class Ran:
    """The outcome of one run of a profile."""

    run: Run
    code: int
    report: dict[str, Any]
    """Its report as JSON; empty where it could not run."""
    said: str
    """The end of what it printed."""


def table(done: Sequence[Ran]) -> str:
    """The table of what was covered, in Markdown, one line for all seeds of a nemesis; and of what was not."""
    lines = [
        f"{', '.join(_versions(done))}; {datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "",
        _line(_COLUMNS),
        f"|{'|'.join(_COLUMNS.values())}|",
    ]
    in_order = sorted(done, key=_place)
    lines += [_summed(list(runs)) for _, runs in groupby(in_order, key=_place)]
    by_store = {backend: [ran for ran in done if ran.run.backend == backend] for backend in BACKENDS}
    lines += [_total(backend, runs) for backend, runs in by_store.items() if runs]
    struck = {(ran.run.backend, fault) for ran in done for fault in ran.report.get("faults", {})}
    for backend in BACKENDS:
        runs = [ran.run for ran in done if ran.run.backend == backend]
        wanted = {name for run in runs for name in run.nemesis.replace("+", ",").split(",")}
        absent = sorted(name for name in wanted - MIXTURES if (backend, name) not in struck)
        if absent:
            lines.append(f"\nasked for on {backend} and never struck: {', '.join(absent)}")
    return "\n".join(lines)


def _place(ran: Ran) -> tuple[str, str]:
    return ran.run.backend, ran.run.nemesis


def _versions(done: Sequence[Ran]) -> list[str]:
    reports = [ran.report for ran in done if ran.report]
    return sorted({one["servers"] for one in reports} | {f"tenure {one['tenure']}" for one in reports})


def _summed(runs: Sequence[Ran]) -> str:
    seeds = ", ".join(str(ran.run.seed) for ran in runs)
    outcomes = Counter(_outcome(ran) for ran in runs)
    outcome = "; ".join(what if count == len(runs) else f"{count} × {what}" for what, count in outcomes.items())
    return _line([runs[0].run.backend, runs[0].run.nemesis, seeds, *_figures(runs), outcome])


def _total(backend: str, runs: Sequence[Ran]) -> str:
    outcomes = Counter(ran.report.get("outcome", "could not run") for ran in runs)
    outcome = ", ".join(f"{count} {what}" for what, count in outcomes.items())
    seconds, grants, hand_overs, _, refused, standstill = _figures(runs)
    faults = str(sum(sum(ran.report.get("faults", {}).values()) for ran in runs))
    sums = [seconds, grants, hand_overs, faults, refused, standstill]
    return _line([f"**{backend}**", "all", f"{len(runs)} runs", *sums, outcome])


def _figures(runs: Sequence[Ran]) -> list[str]:
    reports = [ran.report for ran in runs if ran.report]
    faults = sum((Counter(one["faults"]) for one in reports), Counter[str]())
    standstill = max((max(one["without_progress_seconds"].values()) for one in reports), default=0.0)
    return [
        f"{sum(ran.run.seconds for ran in runs):g}",
        *(str(sum(one[what] for one in reports)) for what in ("grants", "hand_overs")),
        ", ".join(f"{name} {count}" for name, count in sorted(faults.items())),
        str(sum(one["stale_writes_refused"] for one in reports)),
        f"{standstill:.1f} s",
    ]


def row(ran: Ran) -> str:
    """The line of one run once it is over."""
    return _line([ran.run.backend, ran.run.nemesis, str(ran.run.seed), *_figures([ran]), _outcome(ran)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _outcome(ran: Ran) -> str:
    report = ran.report
    if not report:
        return f"could not run: {' '.join(ran.said.splitlines()[-1:])}"
    wrong = [
        f"{name} {verdict['violations'] or verdict['outcome']}"
        for name, verdict in report["verdicts"].items()
        if verdict["outcome"] != "passed"
    ]
    reasons = {verdict.get("reason", ""): None for verdict in report["verdicts"].values()}  # each once
    said = [*report["broke"], *report["doubts"], *filter(None, reasons)]
    notes = [what.splitlines()[-1][:120] for what in said]
    return f"{report['outcome']}" + (f" ({'; '.join(wrong + notes)})" if wrong or notes else "")
