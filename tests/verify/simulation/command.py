"""`python -m tests.verify.simulation --seeds N`: many runs, or one once more.

Exit codes: 0 passed, 1 something was wrong, or too little went on to say.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from typing import Final

from tests.verify.simulation.plan import Mode, plan
from tests.verify.simulation.run import Result, simulate
from tests.verify.simulation.shrink import shrink
from tests.verify.simulation.totals import Totals

_COLLECT_EVERY: Final = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, metavar="N", help="how many; default 2000")
    parser.add_argument("--from", type=int, default=0, metavar="S", dest="first", help="the first seed; default 0")
    parser.add_argument("--mode", choices=[*(mode.value for mode in Mode), "both"], default="both")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this one seed and print what happens")
    parser.add_argument("--shrink", action="store_true", help="make what fails small, and print that")
    asked = parser.parse_args(arguments)
    modes = tuple(Mode) if asked.mode == "both" else (Mode(asked.mode),)
    if asked.replay is not None:
        return _replay(asked.replay, modes, smaller=asked.shrink)
    totals = run(range(asked.first, asked.first + asked.seeds), modes)
    print(totals)
    if asked.shrink and totals.failed:
        _print_shrunk(totals.failed[0])
    return 0 if totals.verdict == "passed" else 1


def run(seeds: Sequence[int], modes: Sequence[Mode]) -> Totals:
    """Every seed in every mode."""
    totals = Totals()
    for number, seed in enumerate(seeds, 1):
        for mode in modes:
            totals.add(simulate(seed, mode, traced=False))
        if number % _COLLECT_EVERY == 0:
            gc.collect()  # stacks and their frames are cycles
    return totals


def _replay(seed: int, modes: Sequence[Mode], *, smaller: bool) -> int:
    wrong = 0
    for mode in modes:
        result = simulate(seed, mode)
        wrong += bool(result.violation)
        if smaller and result.violation:
            _print_shrunk(result)
        else:
            _print(result)
    return 1 if wrong else 0


def _print_shrunk(failed: Result) -> None:
    found = shrink(plan(failed.plan.seed, failed.plan.mode))
    if found is None:
        print(f"seed {failed.plan.seed} fails no more by itself: what runs before it matters. Please report this.")
        return
    clients, actors, sections, faults = found.plan.size
    print(f"\nsmallest found in {found.runs} runs (salt {found.salt}):", end=" ")
    print(f"{clients} clients, {actors} actors, {sections} sections, {faults} faults")
    _print(found.result)


def _print(result: Result) -> None:
    print(result.plan)
    print("\n".join(result.trace))
    print(result.violation or "nothing was wrong")
