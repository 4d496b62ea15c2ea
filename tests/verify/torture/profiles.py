"""Many runs, each in a process of its own, and a table (table.py) of what they covered.

    ci      every nemesis on both stores at least once, several in each run, ten seconds each
    night   every nemesis and mixture on both stores for a minute with three seeds, then pairs drawn by lot that strike
            together

With `--keep DIR` a run whose report stands there already is not made again: a night that was broken off goes on where
it was. A run that could not be made stands in the table like any other: what is not covered is to be seen. Exit codes
as for one run, of the worst: failed, could not run, unknown, passed.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tenure.testing.history.verdicts import Outcome
from tests.processes import environment, python_module
from tests.verify.torture.command import CODES, COULD_NOT_RUN
from tests.verify.torture.nemeses import NEMESES
from tests.verify.torture.table import BACKENDS, Ran, Run, row, table
from tests.verify.torture.verdict import MIXTURES

ProfileName: TypeAlias = Literal["ci", "night"]
_ALONE: Final = frozenset({"auth", "quota", "tmpfs", "strace"})
"""What such a nemesis needs of the rig changes the run for all others."""
_IN_ONE_RUN: Final = 6
_CI_SECONDS_EACH: Final = 10.0
_CI_SECONDS_MIN: Final = 20.0
_NIGHT_SECONDS: Final = 60.0
_NIGHT_SEEDS: Final = range(1, 4)
_NIGHT_PAIRS: Final = 60
_OVERHEAD_SECONDS: Final = 300.0
_WORST_FIRST: Final = (1, COULD_NOT_RUN, 2, 0)


def run_profile(
    name: ProfileName,
    backends: Sequence[str] = BACKENDS,
    *,
    parallel: int = 1,
    keep: Path | None = None,
    into: Path | None = None,
) -> int:
    """Run it, print the table; the exit code."""
    done: list[Ran] = []
    with tempfile.TemporaryDirectory(prefix="tenure-profile-") as scratch:
        directory = Path(scratch) if keep is None else keep
        directory.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
            for ran in pool.map(lambda run: _made(run, directory, keep), runs_of(name, backends)):
                done.append(ran)
                print(row(ran), flush=True)
    print()
    print(table(done))
    if into is not None:
        into.write_text(json.dumps([ran.report for ran in done], indent=2) + "\n")
    codes = {ran.code for ran in done}
    return next(code for code in _WORST_FIRST if code in codes)


def runs_of(name: ProfileName, backends: Sequence[str] = BACKENDS) -> Iterator[Run]:
    """The runs of a profile, in their order: the stores by turns."""
    orders = [list(_of_ci(backend) if name == "ci" else _of_night(backend)) for backend in backends]
    for place in range(max(map(len, orders))):
        yield from (order[place] for order in orders if place < len(order))


def _of_ci(backend: str) -> Iterator[Run]:
    for seed, names in enumerate(in_groups(_singles(backend)), 1):
        yield Run(backend, ",".join(names), max(_CI_SECONDS_MIN, len(names) * _CI_SECONDS_EACH), seed)
    yield Run(backend, "all", 2 * _CI_SECONDS_MIN, 1)


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
    """A few to a run; those that change the rig alone."""
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


def _made(run: Run, directory: Path, keep: Path | None) -> Ran:
    """Made now, or before."""
    report = directory / f"{run.name}.json"
    if report.exists():
        return _read(run, report, "")
    words = ["--backend", run.backend, "--nemesis", run.nemesis, "--seconds", f"{run.seconds:g}"]
    words += ["--seed", str(run.seed), "--json", str(report)]
    words += [] if keep is None else ["--keep", str(keep / run.name)]
    try:
        done = subprocess.run(
            python_module("tests.verify.torture", *words),
            env=environment(),
            capture_output=True,
            text=True,
            timeout=run.seconds + _OVERHEAD_SECONDS,
            check=False,
        )
        said = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        said = f"did not come to an end within {run.seconds + _OVERHEAD_SECONDS:g} s"
    if keep is not None:
        (directory / f"{run.name}.txt").write_text(said)
    return _read(run, report, said)


def _read(run: Run, report: Path, said: str) -> Ran:
    if not report.exists():
        return Ran(run, COULD_NOT_RUN, {}, said.strip()[-500:])
    content = json.loads(report.read_text())
    return Ran(run, CODES[Outcome(content["outcome"])], content, said.strip()[-500:])
