"""A table that lives: the lines below a prefix as they are, drawn anew after every change and every second.

It has the terminal's other screen for itself, and gives it back however it ends. What changed is marked for a moment,
and what ended stays for one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment, Segments

from tenure._admin.models import LineInfo
from tenure.cli.screens.lines import LINES, line_row, tally
from tenure.cli.screens.table import BAD, FRESH, QUIET, STRONG, table
from tenure.cli.screens.words import count, cut, plain, span

_MARKED_SECONDS: Final = 3.0
_WAY_OUT: Final = "   Ctrl-C ends"
_OTHER_LINES: Final = 5  # the heading, the foot, the lines between them and the table, its own heading


class Board:
    """The table's contents: the last snapshot, recent changes, and since when the store is silent. Drawn by rich."""

    def __init__(self, title: str) -> None:
        self._title = plain(title)
        self._lines: dict[str, LineInfo] | None = None
        self._changed: dict[str, float] = {}  # by name: when; gone lines stay for a moment
        self._taken = 0.0
        self._silent_since: float | None = None

    def take(self, lines: Iterable[LineInfo]) -> None:
        """Take in the lines as they are now."""
        now, before = time.monotonic(), self._lines
        self._lines, self._taken, self._silent_since = {line.name: line for line in lines}, now, None
        if before is not None:
            names = before.keys() | self._lines.keys()
            self._changed |= {name: now for name in names if _differ(before.get(name), self._lines.get(name))}

    def silent(self, *, is_silent: bool) -> None:
        """Take in whether the store answers."""
        if not is_silent:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        now = time.monotonic()
        self._changed = {name: at for name, at in self._changed.items() if now - at <= _MARKED_SECONDS}
        yield Segments(self._heading(options.max_width, now))
        if self._lines is None:
            yield Segments([Segment.line(), Segment("waiting for the store's first answer", QUIET)])
            return
        room = max(1, options.size.height - _OTHER_LINES)
        yield Segments([Segment.line(), *self._table(options.max_width, room, now)])
        yield Segments([Segment.line(), Segment(self._foot(room, options.max_width), QUIET)])

    def _heading(self, width: int, now: float) -> list[Segment]:
        clock = time.strftime("%H:%M:%S")
        if self._silent_since is not None:
            text, style = f"the store has not answered for {span(now - self._silent_since)}", BAD
        else:
            text, style = clock, QUIET
        title = cut(self._title, max(1, width - len(text) - 3))
        blanks = " " * max(1, width - cell_len(title) - len(text))
        return [Segment(title, STRONG), Segment(blanks), Segment(text[:width], style), Segment.line()]

    def _table(self, width: int, room: int, now: float) -> list[Segment]:
        rows = []
        for name in sorted(self._present.keys() | self._changed.keys())[:room]:
            line = self._present.get(name)
            if line is None:
                rows.append(line_row(LineInfo(name, None, None, ()), QUIET))
            else:
                rows.append(line_row(line, FRESH if name in self._changed else STRONG, now - self._taken))
        return table(LINES, rows, width)

    def _foot(self, room: int, width: int) -> str:
        """The foot, as long as there is room: the count of lines not seen goes last, and the way out stays."""
        text = tally(list(self._present.values()))
        unseen = len(self._present.keys() | self._changed.keys()) - room
        feet: tuple[str, ...] = (text, count(len(self._present), "line"))
        if unseen > 0:
            more = f"{count(unseen, 'more does', 'more do')} not fit"
            feet = (f"{text}; {more} here", more, f"{unseen:,} more")
        return next((foot for foot in feet if len(foot + _WAY_OUT) <= width), "") + _WAY_OUT

    @property
    def _present(self) -> dict[str, LineInfo]:
        return self._lines or {}


def _differ(one: LineInfo | None, other: LineInfo | None) -> bool:
    return one is None or other is None or state(one) != state(other)


def state(line: LineInfo) -> Sequence[object]:
    """The part of a line that counts as its change: tokens and values."""
    return [(ticket.token, ticket.value) for ticket in line.tickets]
