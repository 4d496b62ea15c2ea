"""Durations that were measured: quantiles, and how they are distributed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_BOUNDS: Final = tuple(
    milliseconds / 1000
    for milliseconds in (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
)


class Samples:
    """Durations in seconds. One thread adds; reading is for after."""

    def __init__(self) -> None:
        self._seconds: list[float] = []

    def add(self, seconds: float) -> None:
        """One more; none is below zero, whatever the clock's grain."""
        self._seconds.append(max(0.0, seconds))

    def __len__(self) -> int:
        return len(self._seconds)

    @property
    def worst(self) -> float:
        """The longest; 0.0 where there is none."""
        return max(self._seconds, default=0.0)

    def quantile(self, share: float) -> float:
        """What so large a share of them did not exceed; the longest where there are too few to say."""
        ordered = sorted(self._seconds)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0

    def distribution(self) -> Sequence[tuple[float, int]]:
        """Upper bounds and how many fell between one and the next, from the first that has any to the last."""
        counts = [0] * (len(_BOUNDS) + 1)
        for seconds in self._seconds:
            counts[next((i for i, bound in enumerate(_BOUNDS) if seconds <= bound), len(_BOUNDS))] += 1
        used = [i for i, count in enumerate(counts) if count]
        return list(zip((*_BOUNDS, math.inf), counts, strict=True))[used[0] : used[-1] + 1] if used else []
