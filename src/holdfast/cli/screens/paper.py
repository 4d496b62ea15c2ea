"""Where it is written: a terminal that somebody looks at, a pipe, or JSON.

At a terminal there are columns and a little colour. In a pipe there is one record a line, its fields parted by tabs,
nothing cut and no escape code. JSON is one document; an array has one element a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import click
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from holdfast.cli.screens.words import NOTHING, plain

Command = TypeVar("Command", bound=Callable[..., object])
_SENTENCE: Final = Style(dim=True)


def json_option(command: Command) -> Command:
    """`--json`, as `as_json`."""
    option: Callable[[Command], Command] = click.option(
        "--json", "as_json", is_flag=True, help="Print JSON: tokens as strings, times in UTC, spans in seconds."
    )
    return option(command)


def wide_option(command: Command) -> Command:
    """`--wide`."""
    option: Callable[[Command], Command] = click.option(
        "-w", "--wide", is_flag=True, help="Cut nothing, however narrow the terminal is."
    )
    return option(command)


def at_terminal() -> bool:
    """Does somebody look at standard output?"""
    return sys.stdout.isatty()


def console() -> Console:
    """rich's, for standard output: it knows of NO_COLOR and of terminals that can do little."""
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def show(segments: Sequence[Segment]) -> None:
    """Write them to the terminal as they are: who made them has looked at its width, or was told not to."""
    console().print(Segments(segments), end="", no_wrap=True, crop=False, overflow="ignore")


def room(wide: bool) -> int | None:
    """How wide a table may be; None: as wide as it likes."""
    return None if wide else console().width


def say(text: str, *, apart: bool = False) -> None:
    """A quiet sentence of our own to somebody who looks; `apart`: a blank line before it. Nothing into a pipe."""
    if at_terminal():
        console().print(("\n" if apart else "") + plain(text), style=_SENTENCE)


def sentences(*lines: str) -> None:
    """For people, one a line, here or through a pipe."""
    for line in lines:
        if at_terminal():
            console().print(plain(line))
        else:
            print(plain(line))


def fields(*values: object, now: bool = False) -> None:
    """One record into a pipe; `now`: whoever reads it shall see it at once."""
    print("\t".join(NOTHING if value in (None, "") else plain(str(value)) for value in values), flush=now)


def json_document(value: object) -> None:
    """One JSON document."""
    print(_dumped(value, indent=2))


def json_line(value: object) -> None:
    """One JSON object on a line of its own, at once."""
    print(_dumped(value), flush=True)


def json_array(values: Iterable[object]) -> None:
    """One JSON array, written as its elements come."""
    mark = "["
    for value in values:
        print(f"{mark}\n{_dumped(value)}", end="")
        mark = ","
    print("[]" if mark == "[" else "\n]")


def _dumped(value: object, indent: int | None = None) -> str:
    """JSON that people can read, too; where it would move a cursor or can't be encoded, in ASCII."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.replace("\n", "").isprintable() and (sys.stdout.encoding or "").lower().replace("-", "") == "utf8":
        return text
    return json.dumps(value, indent=indent)
