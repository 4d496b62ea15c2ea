"""`python -m tests.verify.traces --seeds N --stores URL URL …`: many traces at several stores.

Exit codes: 0 all stores behave like the memory store, 1 one does not, 3 nothing could be compared (a wrong call, or a
store that does not answer).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final, NoReturn

from tenure._core.base.clock import SYSTEM_CLOCK
from tenure.errors import TenureError
from tenure.events import logger
from tests.verify.traces.compare import Difference, compare
from tests.verify.traces.plan import LENGTH, trace
from tests.verify.traces.shrink import shrink
from tests.verify.traces.stores import MEMORY, Store, open_store

UNPLAYED: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what was asked for; the exit code."""
    parser = _Parser(prog="python -m tests.verify.traces", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, metavar="N", help="how many; default 50")
    parser.add_argument("--from", type=int, default=0, metavar="S", dest="first", help="the first seed; default 0")
    parser.add_argument("--length", type=int, default=LENGTH, metavar="N", help=f"commands each; default {LENGTH}")
    parser.add_argument("--stores", nargs="+", required=True, metavar="URL", help="compared with memory://, each")
    asked = parser.parse_args(arguments)
    seeds = range(asked.first, asked.first + asked.seeds)
    if not seeds:
        parser.error("without a seed nothing is compared")
    try:
        with contextlib.ExitStack() as opened:
            opened.callback(setattr, logger, "disabled", logger.disabled)
            logger.disabled = True  # of lost connections and leases there is no end here
            memory, *stores = [opened.enter_context(contextlib.closing(open_store(u))) for u in (MEMORY, *asked.stores)]
            differences = [found for store in stores for found in _compared(seeds, asked.length, memory, store)]
    except TenureError as error:
        print(f"nothing could be compared: {error}", file=sys.stderr)
        return UNPLAYED
    return 1 if differences else 0


def _compared(seeds: Sequence[int], length: int, memory: Store, store: Store) -> list[Difference]:
    """Each seed at both; told as it is found, the first one made small."""
    began = SYSTEM_CLOCK.now()
    commands, freedoms, lost, signals, found = Counter[str](), Counter[str](), Counter[str](), 0, list[Difference]()
    for seed in seeds:
        comparison = compare(trace(seed, length), memory, store)
        commands.update(comparison.commands)
        freedoms.update(comparison.freedoms)
        lost.update(comparison.lost)
        signals += comparison.signals
        if comparison.difference is not None:
            found.append(comparison.difference)
            first = len(found) == 1
            print(_small(comparison.difference, memory, store) if first else f"seed {seed} differs too")
    seconds = SYSTEM_CLOCK.now() - began
    print(f"{store.name}: {len(seeds)} seeds, {commands.total()} commands in {seconds:.0f} s: {len(found)} differ")
    print(f"  commands:       {_listed(commands)}\n  signals:        {signals}\n  lost:           {_listed(lost)}")
    print(f"  freedoms taken: {_listed(freedoms)}")
    return found


def _small(found: Difference, memory: Store, store: Store) -> str:
    smallest = shrink(found, lambda shorter: compare(shorter, memory, store).difference)
    return f"{smallest}\n(made small: {len(smallest.trace.commands)} of {len(found.trace.commands)} commands)"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common() if count) or "none"


class _Parser(argparse.ArgumentParser):
    """A wrong call exits with UNPLAYED: argparse's own 2 means nothing here."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        super().exit(UNPLAYED if status else 0, message)
