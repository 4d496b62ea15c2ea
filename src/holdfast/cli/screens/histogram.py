"""Durations as small histograms of text."""

from __future__ import annotations

import math
from typing import Final

from rich.segment import Segment

from holdfast.cli.screens.table import QUIET, STRONG
from holdfast.cli.tuning.samples import Samples

_BAR: Final = "█"
_BAR_NARROW: Final = 10
_BAR_WIDE: Final = 60
_TAKEN: Final = 24  # by what stands around the bars


def duration(seconds: float) -> str:
    """A short one: `0.25 ms`, `12 ms`, `1.5 s`."""
    if math.isinf(seconds):
        return "more"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def histogram(title: str, samples: Samples, width: int) -> list[Segment]:
    """A heading with the quantiles, then a bar for each span; each that has any at all shows."""
    told = ", ".join(f"{name} {duration(value)}" for name, value in quantiles(samples).items())
    segments = [
        Segment(title, STRONG),
        Segment.line(),
        Segment(f"  {len(samples):,} times: {told}", QUIET),
        Segment.line(),
    ]
    spans = samples.distribution()
    longest = max((count for _, count in spans), default=0)
    room = min(_BAR_WIDE, max(_BAR_NARROW, width - _TAKEN))
    for bound, count in spans:
        bar = _BAR * (max(1, round(count / longest * room)) if count else 0)
        limit = "more" if math.isinf(bound) else f"to {duration(bound)}"
        segments += [Segment(f"{limit:>11}  "), Segment(f"{bar} " if bar else ""), Segment(f"{count:,}", QUIET)]
        segments.append(Segment.line())
    return segments


def quantiles(samples: Samples) -> dict[str, float]:
    """By the names they have on the screen."""
    return {
        "p50": samples.quantile(0.5),
        "p90": samples.quantile(0.9),
        "p99": samples.quantile(0.99),
        "worst": samples.worst,
    }
