"""A trace that differs made small: whatever can be left out while a command of the same kind still differs, is.

Delta debugging on the commands: everything behind the difference first, then ever smaller parts of what stands before
it. A trace means something with any command left out, so each smaller one is simply played again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from tests.verify.traces.commands import Command, Trace
from tests.verify.traces.compare import Difference

RUNS_MAX: Final = 200
Judge: TypeAlias = Callable[[Trace], Difference | None]


def shrink(found: Difference, judge: Judge, runs_max: int = RUNS_MAX) -> Difference:
    """The smallest difference of the same kind that `judge` finds in at most `runs_max` playings."""
    best, runs = found, 0
    size = max(1, found.step // 2)
    while size:
        smaller = None
        for commands in _without_parts(best, size):
            if runs >= runs_max:
                return best
            runs += 1
            smaller = _same(best, judge(dataclasses.replace(best.trace, commands=commands)))
            if smaller is not None:
                break
        if smaller is None:
            size //= 2
        else:
            best, size = smaller, min(size, max(1, smaller.step // 2))
    return best


def _without_parts(found: Difference, size: int) -> Iterator[tuple[Command, ...]]:
    """The commands up to the difference with `size` of them left out, the latest first."""
    commands = found.trace.commands[: found.step + 1]
    for end in range(len(commands), 0, -size):
        yield commands[: max(0, end - size)] + commands[end:]


def _same(best: Difference, other: Difference | None) -> Difference | None:
    """`other`, where it is the same kind of difference."""
    if other is None or type(other.command) is not type(best.command):
        return None
    return other
