"""Columns that fit the terminal: no boxes, a quiet heading, and what does not fit is cut where it hurts least.

rich's own table takes seconds for 10,000 rows; this one measures each cell once and writes segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from tenure.cli.screens.words import cut, plain

_GAPS: Final = (3, 2)
"""Gap between columns: usually, and where it gets narrow."""
_LAST_RESORT: Final = 5
_DETAIL_WIDTH: Final = 100
_DETAIL_WIDTH_MIN: Final = 20
_WRAPPING: Final = Console(width=1, force_terminal=False)
"""A console, which Text needs to wrap; its width has no part in it."""
_HEADING: Final = Style(dim=True)
QUIET: Final = Style(dim=True)
GOOD: Final = Style(color="green")
BAD: Final = Style(color="red", bold=True)
STRONG: Final = Style(bold=True)
FRESH: Final = Style(color="cyan", bold=True)


@dataclass(frozen=True, slots=True)
class Column:
    """A column. Where it gets narrow it is cut, down to `minimum` if that is given; then the highest `drop` goes."""

    title: str
    minimum: int = 0
    drop: int = 0
    right: bool = False
    wraps: bool = False
    """The text goes on below where it does not fit; for the last column only."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A text in a column, and its style. The text may be a stranger's."""

    text: str
    style: Style | None = None


Row = Sequence[Cell]


def table(
    columns: Sequence[Column], rows: Sequence[Row], width: int | None, details: Sequence[str] = ()
) -> list[Segment]:
    """The whole table, its heading first; columns with nothing in them are left out. `width` None: nothing is cut.

    `details`, one a row, stand below it, behind the first column; as many lines as they take.
    """
    shown = [[_harmless(cell) for cell in row] for row in rows]
    used = [i for i, _ in enumerate(columns) if not shown or any(row[i].text for row in shown)]
    widths = {i: max([cell_len(columns[i].title), *(cell_len(row[i].text) for row in shown)]) for i in used}
    gap = _GAPS[0]
    if width is not None:
        widths, gap = fit(widths, columns, width)
    segments = _line([Cell(column.title, _HEADING) for column in columns], columns, widths, gap)
    indent = next(iter(widths.values()), 0) + gap
    for row, detail in zip(shown, details or [""] * len(shown), strict=True):
        for line in _wrapped(row, columns, widths):
            segments += _line(line, columns, widths, gap)
        segments += _detail(plain(detail), indent, width) if detail else []
    return segments


def fit(natural: dict[int, int], columns: Sequence[Column], width: int) -> tuple[dict[int, int], int]:
    """Fit columns to a width: the columns that there is room for, with their widths, and the gap between them."""
    for gap in _GAPS:
        if _total(natural, gap) <= width:
            return natural, gap
    kept = dict(natural)
    while True:
        wrapping = {i: columns[i].minimum for i in kept if columns[i].wraps}  # these lose nothing by it
        widths = _squeezed(_squeezed(kept, wrapping, gap, width), {i: columns[i].minimum for i in kept}, gap, width)
        last = max(kept, key=lambda i: columns[i].drop)
        if _total(widths, gap) <= width or not columns[last].drop:
            break
        del kept[last]
    return _squeezed(widths, {i: _LAST_RESORT for i in widths if columns[i].minimum}, gap, width), gap


def _squeezed(widths: dict[int, int], minimum: dict[int, int], gap: int, width: int) -> dict[int, int]:
    """Cut the columns that have a minimum, the widest in proportion to it first, until they fit or all are at it."""
    widths = dict(widths)
    while _total(widths, gap) > width:
        loose = [i for i in widths if 0 < minimum.get(i, 0) < widths[i]]
        if not loose:
            break
        widths[max(loose, key=lambda i: widths[i] / minimum[i])] -= 1
    return widths


def _total(widths: dict[int, int], gap: int) -> int:
    return sum(widths.values()) + gap * (len(widths) - 1)


def _wrapped(row: Row, columns: Sequence[Column], widths: dict[int, int]) -> list[Row]:
    """Rows for one row: several where its last column wraps."""
    last = max(widths, default=0)
    if not columns[last].wraps:
        return [row]
    texts = [line.plain.rstrip() for line in Text(row[last].text).wrap(_WRAPPING, widths[last])] or [""]
    before = [row[:last], *([[Cell("")] * last] * (len(texts) - 1))]
    return [[*cells, Cell(text, row[last].style)] for cells, text in zip(before, texts, strict=True)]


def _detail(text: str, indent: int, width: int | None) -> list[Segment]:
    room = _DETAIL_WIDTH if width is None else max(_DETAIL_WIDTH_MIN, min(_DETAIL_WIDTH, width - indent))
    lines = Text(text).wrap(_WRAPPING, room)
    return [Segment(" " * indent + line.plain.rstrip() + "\n", QUIET) for line in lines]


def _line(row: Row, columns: Sequence[Column], widths: dict[int, int], gap: int) -> list[Segment]:
    """Segments of a row, with no blanks at its end."""
    segments = []
    last = max(widths, default=0)
    for i, width in widths.items():
        text = cut(row[i].text, width)
        blanks = " " * (width - cell_len(text))
        padded = blanks + text if columns[i].right else text if i == last else text + blanks
        segments += [Segment(padded, row[i].style), Segment(" " * gap if i != last else "\n")]
    return segments


def _harmless(cell: Cell) -> Cell:
    text = plain(cell.text)
    return cell if text == cell.text else Cell(text, cell.style)
