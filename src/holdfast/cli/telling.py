"""What a command says besides what it shows: a line on standard error, for people or, by --log-json, for machines."""

from __future__ import annotations

import contextlib
import logging
import sys

from holdfast.jsonlog import JSONFormatter

_LIBRARY = logging.getLogger("holdfast")


def tell(line: str, level: int = logging.INFO) -> None:
    """One line, if anybody is there to read it, without what could move a terminal's cursor."""
    plain = " ".join("".join(character if character.isprintable() else " " for character in line).split())
    if any(isinstance(handler.formatter, JSONFormatter) for handler in _LIBRARY.handlers):
        _LIBRARY.getChild("cli").log(level, "%s", plain)  # among the library's own, which are read by machines
        return
    with contextlib.suppress(OSError, ValueError):
        print(f"holdfast: {plain}", file=sys.stderr, flush=True)
