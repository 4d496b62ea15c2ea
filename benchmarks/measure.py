"""Interleaved measuring: short blocks of every contestant in turn, in an order shuffled anew each round.

An absolute time says more about the machine and its other tenants than about a library. What is compared is a
round's median with another median of the same round, taken within seconds of each other; what is reported is the
median of those ratios over all rounds, and how far they spread.
"""

from __future__ import annotations

import asyncio
import random
import resource
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

Seconds: TypeAlias = float
_COLD_CYCLES: Final = 3
"""The first cycles of a block find cold caches and sleeping threads, and are left out."""


@dataclass(frozen=True)
class Samples:
    """One block: how long each cycle took, and what processor time a cycle took of its client, on all threads."""

    seconds: Sequence[Seconds]
    cpu_seconds_each: Seconds


Block: TypeAlias = Callable[[Seconds], Samples]
"""Run cycles for about so long."""


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

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles. Of a single value, that value."""
    if len(values) < 2:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def ratios(mine: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Of each round's value to the other's of the same round."""
    return spread([a / b for a, b in zip(mine, theirs, strict=True)])


class Results:
    """The samples of every contestant, by round."""

    def __init__(self, rounds: Mapping[str, Sequence[Samples]]) -> None:
        self._rounds = rounds

    def __contains__(self, name: str) -> bool:
        return name in self._rounds

    @property
    def by_speed(self) -> list[str]:
        """The contestants' names, the fastest first."""
        return sorted(self._rounds, key=self.median)

    def median(self, name: str) -> Seconds:
        return statistics.median(self._all(name))

    def p99(self, name: str) -> Seconds:
        return percentile(self._all(name), 99)

    def cpu_each(self, name: str) -> Seconds:
        return statistics.median(block.cpu_seconds_each for block in self._rounds[name])

    def ratio(self, name: str, to: str) -> Spread:
        """Median and quartiles of the per-round ratios of medians."""
        return ratios(*([statistics.median(b.seconds) for b in self._rounds[who]] for who in (name, to)))

    def _all(self, name: str) -> list[Seconds]:
        return [sample for block in self._rounds[name] for sample in block.seconds]


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many of a hundred do not exceed."""
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def blocking(cycle: Callable[[], object]) -> Block:
    """Blocks of a cycle that runs in the calling thread."""

    def block(seconds: Seconds) -> Samples:
        samples: list[Seconds] = []
        worked, until = cpu_seconds(), time.perf_counter() + seconds
        while (began := time.perf_counter()) < until or len(samples) <= _COLD_CYCLES:
            cycle()
            samples.append(time.perf_counter() - began)
        return _warm(samples, worked)

    return block


def tasked(runner: asyncio.Runner, cycle: Callable[[], Awaitable[object]]) -> Block:
    """Blocks of a cycle that runs in one task. The event loop sleeps between blocks."""

    async def block(seconds: Seconds) -> Samples:
        samples: list[Seconds] = []
        worked, until = cpu_seconds(), time.perf_counter() + seconds
        while (began := time.perf_counter()) < until or len(samples) <= _COLD_CYCLES:
            await cycle()
            samples.append(time.perf_counter() - began)
        return _warm(samples, worked)

    return lambda seconds: runner.run(block(seconds))


def opened(connect_and_acquire: Callable[[ExitStack], object]) -> Block:
    """Blocks of what is done anew each time and closed again off the clock: the first acquire after connect."""

    def block(seconds: Seconds) -> Samples:
        samples: list[Seconds] = []
        worked, until = cpu_seconds(), time.perf_counter() + seconds
        while time.perf_counter() < until or not samples:
            with ExitStack() as stack:
                began = time.perf_counter()
                connect_and_acquire(stack)
                samples.append(time.perf_counter() - began)
        return Samples(samples, (cpu_seconds() - worked) / len(samples))

    return block


def cpu_seconds() -> Seconds:
    """Of this process, all threads, and of children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _warm(samples: list[Seconds], worked: Seconds) -> Samples:
    return Samples(samples[_COLD_CYCLES:], (cpu_seconds() - worked) / len(samples))


def interleave(
    blocks: Mapping[str, Block], plan: Plan, shuffler: random.Random, tell: Callable[[str], None]
) -> Results:
    """Every contestant once per round. A round before the first is thrown away: connections, leases, caches."""
    rounds: dict[str, list[Samples]] = {name: [] for name in blocks}
    order = list(blocks)
    for name in order:
        blocks[name](plan.block_seconds)
    for number in range(plan.rounds):
        shuffler.shuffle(order)
        for name in order:
            rounds[name].append(blocks[name](plan.block_seconds))
        tell(f"round {number + 1} of {plan.rounds}")
    return Results(rounds)
