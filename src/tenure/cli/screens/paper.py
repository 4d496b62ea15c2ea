"""Writing to standard output: to a terminal that somebody looks at, to a pipe, or as JSON.

At a terminal there are columns and a little colour. In a pipe there is one record a line, its fields parted by tabs,
nothing cut and no escape code. JSON is one document; an array has one element a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from tenure.cli.screens.words import NOTHING, plain

_SENTENCE: Final = Style(dim=True)


def at_terminal() -> bool:
    """True when standard output is a terminal."""
    return sys.stdout.isatty()


def console() -> Console:
    """A console of rich for standard output: it knows of NO_COLOR and of terminals that can do little."""
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def show(segments: Sequence[Segment]) -> None:
    """Write segments to the terminal as they are: they were made for its width, or are to be cut nowhere."""
    console().print(Segments(segments), end="", no_wrap=True, crop=False, overflow="ignore")


def room(wide: bool) -> int | None:
    """Width that a table may have; None: any width."""
    return None if wide else console().width


def say(text: str, *, apart: bool = False) -> None:
    """Print a quiet sentence at a terminal; `apart`: a blank line before it. Nothing goes into a pipe."""
    if at_terminal():
        console().print(("\n" if apart else "") + plain(text), style=_SENTENCE)


def sentences(*lines: str) -> None:
    """Print sentences for people, one a line, here or through a pipe."""
    for line in lines:
        if at_terminal():
            console().print(plain(line))
        else:
            print(plain(line))


def fields(*values: object, now: bool = False) -> None:
    """Print a record into a pipe; `now`: its reader shall see it at once."""
    print("\t".join(NOTHING if value in (None, "") else plain(str(value)) for value in values), flush=now)


def json_document(value: object) -> None:
    """Print a JSON document."""
    print(_dumped(value, indent=2))


def json_line(value: object) -> None:
    """Print a JSON object on a line of its own, at once."""
    print(_dumped(value), flush=True)


def json_array(values: Iterable[object]) -> None:
    """Print a JSON array as its elements come."""
    separator = "["
    for value in values:
        print(f"{separator}\n{_dumped(value)}", end="")
        separator = ","
    print("[]" if separator == "[" else "\n]")


def _dumped(value: object, indent: int | None = None) -> str:
    """Dump JSON that people can read, too; in ASCII where it would move a cursor or can't be encoded."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.replace("\n", "").isprintable() and (sys.stdout.encoding or "").lower().replace("-", "") == "utf8":
        return text
    return json.dumps(value, indent=indent)
