"""The terminal. Plain and complete where it is a pipe or a file; with colours, and a line that lives, where somebody
looks. Plain ASCII of our own, so that no terminal stumbles."""

from __future__ import annotations

import os
import shutil
import textwrap
import time
from collections.abc import Iterable
from enum import Enum
from typing import Final, TextIO

_WIDTH_MAX: Final = 110
_WHEN: Final = 10
_WHO: Final = 7
_COLOURS: Final = ("1", "36", "35", "34", "33", "96")
_ERASE_LINE: Final = "\r\x1b[2K"


class Tone(Enum):
    """How a line is meant; the value is its ANSI code."""

    PLAIN = ""
    QUIET = "2"
    GOOD = "1;32"
    BAD = "1;31"


class Screen:
    """Tells the story line by line, each with the seconds since the start."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started = time.monotonic()
        terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colours = terminal and "NO_COLOR" not in os.environ
        self._lives = terminal
        self._status_shown = False
        self._colour_of: dict[str, str] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def heading(self, title: str, text: str) -> None:
        """The start of a scene: what is about to happen, and why."""
        self._print("")
        self._print(self._paint(title, "1"))
        for line in textwrap.wrap(text, self._width() - 2):
            self._print("  " + line)
        self._print("")

    def say(self, who: str, text: str, tone: Tone = Tone.PLAIN) -> None:
        """One thing that happened, and to whom."""
        when = f"{self.elapsed:{_WHEN - 4}.2f} s  "
        first, *more = textwrap.wrap(text, self._width() - _WHEN - _WHO) or [""]
        name = self._paint(who.ljust(_WHO), self._colour_for(who))
        self._print(self._paint(when, "2") + name + self._paint(first, tone.value))
        for line in more:
            self._print(" " * (_WHEN + _WHO) + self._paint(line, tone.value))

    def status(self, text: str) -> None:
        """What is being waited for, in a line that the next one replaces. Not shown in a pipe."""
        if not self._lives:
            return
        clipped = (" " * _WHEN + text)[: self._width() - 1]
        self._stream.write(_ERASE_LINE + self._paint(clipped, "33"))
        self._stream.flush()
        self._status_shown = True

    def table(self, title: str, rows: Iterable[tuple[str, str, str]]) -> None:
        """What was measured: a name, a figure, a meaning each."""
        known = list(rows)
        names = max((len(name) for name, _, _ in known), default=0) + 3
        figures = max((len(figure) for _, figure, _ in known), default=0) + 3
        self._print("")
        self._print(self._paint(title, "1"))
        for name, figure, meaning in known:
            self._print("  " + name.ljust(names) + self._paint(figure.ljust(figures), "1") + meaning)

    def verdict(self, text: str, tone: Tone) -> None:
        """The last line."""
        self._print("")
        self._print(self._paint(text, tone.value))

    def clear(self) -> None:
        """Take the living line away."""
        if self._status_shown:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()
            self._status_shown = False

    def _print(self, text: str) -> None:
        self.clear()
        print(text.rstrip(), file=self._stream, flush=True)

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours and code else text

    def _colour_for(self, who: str) -> str:
        if who not in self._colour_of:
            self._colour_of[who] = _COLOURS[len(self._colour_of) % len(_COLOURS)]
        return self._colour_of[who]

    def _width(self) -> int:
        return min(shutil.get_terminal_size((100, 24)).columns, _WIDTH_MAX)
