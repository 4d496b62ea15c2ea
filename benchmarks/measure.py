"""Interleaved measuring: short blocks of every contestant in turn, in an order shuffled anew each round.

An absolute time says more about the machine and its other tenants than about a library. What is compared is a
round's median with another median of the same round, taken within seconds of each other; what is reported is the
median of those ratios over all rounds, and how far they spread.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Seconds: TypeAlias = float
Block: TypeAlias = Callable[[Seconds], list[Seconds]]
"""Run cycles for about so long; how long each one took."""

_COLD_CYCLES: Final = 3
"""The first cycles of a block find cold caches and sleeping threads, and are left out."""


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    rounds: int
    block_seconds: Seconds


@dataclass(frozen=True)
class Spread:
    """A value and the middle half of what it came from."""

    median: float
    low: float
    high: float


class Results:
    """The samples of every contestant, by round."""

    def __init__(self, rounds: Mapping[str, list[list[Seconds]]]) -> None:
        self._rounds = rounds

    @property
    def by_speed(self) -> list[str]:
        """The contestants' names, the fastest first."""
        return sorted(self._rounds, key=self.median)

    def median(self, name: str) -> Seconds:
        return statistics.median(self._all(name))

    def p99(self, name: str) -> Seconds:
        return statistics.quantiles(self._all(name), n=100)[98]

    def ratio(self, name: str, to: str) -> Spread:
        """Median and quartiles of the per-round ratios of medians."""
        pairs = zip(self._rounds[name], self._rounds[to], strict=True)
        ratios = [statistics.median(mine) / statistics.median(theirs) for mine, theirs in pairs]
        low, median, high = statistics.quantiles(ratios, n=4)
        return Spread(median, low, high)

    def _all(self, name: str) -> list[Seconds]:
        return [sample for block in self._rounds[name] for sample in block]


def blocking(cycle: Callable[[], object]) -> Block:
    """Blocks of a cycle that runs in the calling thread."""

    def block(seconds: Seconds) -> list[Seconds]:
        samples: list[Seconds] = []
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until or len(samples) <= _COLD_CYCLES:
            cycle()
            samples.append(time.perf_counter() - began)
        return samples[_COLD_CYCLES:]

    return block


def tasked(runner: asyncio.Runner, cycle: Callable[[], Awaitable[object]]) -> Block:
    """Blocks of a cycle that runs in one task. The event loop sleeps between blocks."""

    async def block(seconds: Seconds) -> list[Seconds]:
        samples: list[Seconds] = []
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until or len(samples) <= _COLD_CYCLES:
            await cycle()
            samples.append(time.perf_counter() - began)
        return samples[_COLD_CYCLES:]

    return lambda seconds: runner.run(block(seconds))


def interleave(
    blocks: Mapping[str, Block], plan: Plan, shuffler: random.Random, tell: Callable[[str], None]
) -> Results:
    """Every contestant once per round. A round before the first is thrown away: connections, leases, caches."""
    rounds: dict[str, list[list[Seconds]]] = {name: [] for name in blocks}
    order = list(blocks)
    for name in order:
        blocks[name](plan.block_seconds)
    for number in range(plan.rounds):
        shuffler.shuffle(order)
        for name in order:
            rounds[name].append(blocks[name](plan.block_seconds))
        tell(f"round {number + 1} of {plan.rounds}")
    return Results(rounds)
