"""What a part hands to the report: sections, floors, plots, and who could not take part.

A part knows what it measured and how to show it; the report knows none of the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.measure import Spread


@dataclass(frozen=True)
class Section:
    """A heading and the lines of Markdown under it."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Floor:
    """One figure that tenure must reach: what was found, and whether it is within its bound.

    `found` is None where it could not be measured; `shown` says why, and the floor counts as neither met nor missed.
    """

    figure: str
    bound: float
    found: float | None
    shown: str
    headline: bool = False
    """Does it stand in the short report, too?"""

    @property
    def missed(self) -> bool:
        return self.found is not None and self.found > self.bound


def at_most(figure: str, bound: float, found: Spread | float, *, headline: bool = False) -> Floor:
    """A floor that was measured. Of a spread, the median counts."""
    if isinstance(found, Spread):
        return Floor(figure, bound, found.median, f"{found}", headline)
    return Floor(figure, bound, found, f"{found:.3g}" if found < 1000 else f"{found:.0f}", headline)


def unmeasured(figure: str, bound: float, why: str, *, headline: bool = False) -> Floor:
    """A floor that could not be measured this time."""
    return Floor(figure, bound, None, f"not measured: {why}", headline)


@dataclass(frozen=True)
class Findings:
    """All of one part. `plots` are SVG documents by file name, `absent` sentences by contestant."""

    sections: Sequence[Section] = ()
    floors: Sequence[Floor] = ()
    plots: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


def together(parts: Iterable[Findings]) -> Findings:
    """Several as one, in their order."""
    parts = list(parts)
    return Findings(
        [section for part in parts for section in part.sections],
        [floor for part in parts for floor in part.floors],
        {name: plot for part in parts for name, plot in part.plots.items()},
        {name: why for part in parts for name, why in part.absent.items()},
    )
