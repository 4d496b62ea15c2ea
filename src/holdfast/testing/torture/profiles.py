"""Many runs, each in a process of its own, and a table of what they covered.

    ci      every nemesis on both stores, a few in each run, about half a minute each
    night   every nemesis on both stores for a minute with ten seeds, pairs drawn by lot at the same time, and mixtures

A run that could not be made stands in the table like any other: what is not covered is to be seen. Exit codes as for
one run, of the worst: failed, could not run, unknown, passed.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from holdfast.testing.torture.nemeses import NEMESES
from holdfast.testing.torture.verdict import MIXTURES

ProfileName: TypeAlias = Literal["ci", "night"]
_BACKENDS: Final = ("etcd", "zookeeper")
_ALONE: Final = frozenset({"auth", "quota", "tmpfs", "strace"})
"""What such a nemesis needs of the ground changes the run for all others."""
_IN_ONE_RUN: Final = 4
_CI_SECONDS_EACH: Final = 12.0
_NIGHT_SECONDS: Final = 60.0
_NIGHT_SEEDS: Final = range(1, 11)
_NIGHT_PAIRS: Final = 60
_OVERHEAD_SECONDS: Final = 300.0
_WORST_FIRST: Final = (1, 3, 2, 0)
_COULD_NOT_RUN: Final = 3


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a profile."""

    backend: str
    nemesis: str
    seconds: float
    seed: int

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.backend}-{self.nemesis.replace(',', '_')[:80]}-{self.seed}"


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of it."""

    run: Run
    code: int
    told: dict[str, Any]
    """Its report as JSON; empty where it could not run."""
    said: str
    """The end of what it printed."""
    took_seconds: float


def run_profile(name: ProfileName, *, parallel: int = 1, keep: Path | None = None, into: Path | None = None) -> int:
    """Run it, print the table; the exit code."""
    runs = list(runs_of(name))
    with tempfile.TemporaryDirectory(prefix="holdfast-profile-") as scratch:
        directory = Path(scratch) if keep is None else keep
        directory.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
            done = []
            for ran in pool.map(lambda run: _carried_out(run, directory, keep), runs):
                done.append(ran)
                print(row(ran), flush=True)
    print()
    print(table(done))
    if into is not None:
        into.write_text(json.dumps([ran.told for ran in done], indent=2) + "\n")
    codes = {ran.code for ran in done}
    return next(code for code in _WORST_FIRST if code in codes)


def runs_of(name: ProfileName) -> Iterator[Run]:
    """The runs of a profile, in their order."""
    for backend in _BACKENDS:
        yield from _of_ci(backend) if name == "ci" else _of_night(backend)


def _of_ci(backend: str) -> Iterator[Run]:
    for seed, names in enumerate(in_groups(_singles(backend)), 1):
        yield Run(backend, ",".join(names), max(2, len(names)) * _CI_SECONDS_EACH, seed)
    yield Run(backend, "all", 2 * _CI_SECONDS_EACH, 1)


def _of_night(backend: str) -> Iterator[Run]:
    for seed in _NIGHT_SEEDS:
        for name in [*_singles(backend), *sorted(MIXTURES)]:
            yield Run(backend, name, _NIGHT_SECONDS, seed)
    pairs = list(combinations(_singles(backend), 2))
    for seed, pair in enumerate(random.Random(backend).sample(pairs, min(_NIGHT_PAIRS, len(pairs))), 1):
        yield Run(backend, "+".join(pair), _NIGHT_SECONDS, seed)


def _singles(backend: str) -> list[str]:
    return [name for name, kind in NEMESES.items() if backend in tuple(kind.backends) and name not in MIXTURES]


def in_groups(names: Iterable[str]) -> Iterator[list[str]]:
    """A few to a run; those that change the ground alone."""
    group: list[str] = []
    for name in names:
        if NEMESES[name].needs & _ALONE:
            yield [name]
            continue
        group.append(name)
        if len(group) == _IN_ONE_RUN:
            yield group
            group = []
    if group:
        yield group


def _carried_out(run: Run, directory: Path, keep: Path | None) -> Ran:
    report = directory / f"{run.name}.json"
    words = ["--backend", run.backend, "--nemesis", run.nemesis, "--seconds", f"{run.seconds:g}"]
    words += ["--seed", str(run.seed), "--json", str(report)]
    words += [] if keep is None else ["--keep", str(keep / run.name)]
    begun = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.testing.torture", *words],
            capture_output=True,
            text=True,
            timeout=run.seconds + _OVERHEAD_SECONDS,
            check=False,
        )
        code, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        code, said = _COULD_NOT_RUN, f"did not come to an end within {run.seconds + _OVERHEAD_SECONDS:g} s"
    told = json.loads(report.read_text()) if report.exists() else {}
    if keep is not None:
        (directory / f"{run.name}.txt").write_text(said)
    return Ran(run, code if told else _COULD_NOT_RUN, told, said.strip()[-500:], time.monotonic() - begun)


def table(done: Sequence[Ran]) -> str:
    """What was covered, in Markdown, and what was not."""
    lines = [
        "| store | nemesis | seed | seconds | grants | hand-overs | faults | refused | outcome |",
        "|---|---|---:|---:|---:|---:|---|---:|---|",
        *map(row, done),
    ]
    struck = {(ran.run.backend, fault) for ran in done for fault in ran.told.get("faults", {})}
    for backend in _BACKENDS:
        runs = [ran.run for ran in done if ran.run.backend == backend]
        wanted = {name for run in runs for name in run.nemesis.replace("+", ",").split(",")}
        absent = sorted(name for name in wanted - MIXTURES if (backend, name) not in struck)
        if absent:
            lines.append(f"\nasked for on {backend} and never struck: {', '.join(absent)}")
    return "\n".join(lines)


def row(ran: Ran) -> str:
    """One line of it."""
    told = ran.told
    cells = [ran.run.backend, ran.run.nemesis, str(ran.run.seed), f"{ran.run.seconds:g}"]
    if not told:
        return "| " + " | ".join([*cells, "", "", "", "", f"could not run: {ran.said.splitlines()[-1:]}"]) + " |"
    faults = ", ".join(f"{name} {count}" for name, count in told["faults"].items())
    cells += [str(told["grants"]), str(told["hand_overs"]), faults, str(told["stale_writes_refused"]), _outcome(told)]
    return "| " + " | ".join(cells) + " |"


def _outcome(told: dict[str, Any]) -> str:
    wrong = [
        f"{name} {verdict['violations'] or verdict['outcome']}"
        for name, verdict in told["verdicts"].items()
        if verdict["outcome"] != "passed"
    ]
    notes = [what.splitlines()[-1][:120] for what in (*told["broke"], *told["doubts"])]
    return f"{told['outcome']}" + (f" ({'; '.join(wrong + notes)})" if wrong or notes else "")
