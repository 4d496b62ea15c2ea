"""The report as Markdown: what it was run on, the floors, every part's sections, and who was absent.

Into a file that has the marks for it, a report is written between them; any other is written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.findings import Findings, Floor

FROM_HERE: Final = "<!-- python -m benchmarks writes from here -->"
TO_HERE: Final = "<!-- to here -->"
_SHORT_PLOTS: Final = ("cycles-", "hand-over-")


def as_markdown(found: Findings, about: Sequence[str], *, plots_from: str | None = None, depth: int = 1) -> str:
    """The whole report, under a heading of that depth.

    `plots_from` is where its plots lie as seen from it; without, it shows none.
    """
    mark = "#" * (depth + 1)
    sections = [_section("#" * depth, "Benchmarks", [f"- {line}" for line in about])]
    if found.floors:
        sections.append(_section(mark, "Floors", _floors(found.floors)))
    if plots_from is not None and found.plots:
        sections.append(_section(mark, "Plots", [_plot(plots_from, name) for name in found.plots]))
    sections += [_section(mark, section.title, section.lines) for section in found.sections]
    if found.absent:
        sections.append(_section(mark, "Absent", list(_absent(found.absent))))
    return "\n".join(sections)


def in_short(found: Findings, about: Sequence[str], *, plots_from: str | None = None) -> str:
    """The floors that count most, and the plots that go with them."""
    lines = [*_floors([floor for floor in found.floors if floor.headline]), "", f"Measured on: {'; '.join(about)}."]
    if plots_from is not None:
        lines += ["", *(_plot(plots_from, name) for name in found.plots if name.startswith(_SHORT_PLOTS))]
    return "\n".join([*lines, ""])


def has_marks(path: Path) -> bool:
    """Is there a place in that file for a report?"""
    return path.exists() and FROM_HERE in path.read_text("utf-8")


def put_between_marks(path: Path, report: str) -> None:
    """Write the report into its place. Raises ValueError where the second mark is missing."""
    before, _, rest = path.read_text("utf-8").partition(FROM_HERE)
    _, found, after = rest.partition(TO_HERE)
    if not found:
        raise ValueError(f"{path} has {FROM_HERE!r}, but not {TO_HERE!r} after it: nothing was written")
    path.write_text(f"{before}{FROM_HERE}\n\n{report}\n{TO_HERE}{after}", encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


def milliseconds(seconds: float) -> str:
    """A duration for a cell: of three digits, as small ones and large ones stand in one column."""
    return f"{seconds * 1000:.3g}" if seconds < 1 else f"{seconds * 1000:.0f}"


def _floors(floors: Sequence[Floor]) -> list[str]:
    rows = [(floor.figure, f"≤ {floor.bound:g}", floor.shown, _verdict(floor)) for floor in floors]
    return table(("figure", "bound", "found", ""), rows)


def _verdict(floor: Floor) -> str:
    if floor.found is None:
        return "–"
    return "**MISSED**" if floor.missed else "met"


def _plot(directory: str, name: str) -> str:
    return f"![{name.removesuffix('.svg')}]({directory}/{name})"


def _absent(absent: Mapping[str, str]) -> Iterator[str]:
    """Who is absent for the same reason stands in one line."""
    for why in sorted(set(absent.values())):
        names = [name for name, reason in absent.items() if reason == why]
        yield f"- {', '.join(sorted(names))}: {why}"


def _section(mark: str, title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"{mark} {title}", "", *lines, ""])
