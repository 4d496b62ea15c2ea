"""Formats of times, spans of time and counts, and strangers' texts made harmless."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from rich.cells import cell_len, set_cell_size

NOTHING: Final = "-"
_CUT: Final = "…"
_TAIL_FROM: Final = 12
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_TIME_MAX: Final = (
    253_402_300_799.0  # the last second of the year 9999: what anybody writes into a ticket may be beyond
)


def plain(text: str) -> str:
    """`text` without what moves a cursor, changes a colour or breaks a line: that is shown as its escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut(text: str, room: int) -> str:
    """Cut a text to the room there is. A name's two ends tell it from others better than its beginning alone."""
    if cell_len(text) <= room:
        return text
    if room < _TAIL_FROM:
        return set_cell_size(text, room - 1).rstrip() + _CUT
    end = room // 3
    tail = text[-end:]
    while cell_len(tail) > end:
        tail = tail[1:]
    return set_cell_size(text, room - 1 - cell_len(tail)) + _CUT + tail


def span(seconds: float | None) -> str:
    """A span of time in at most two units: `4.2s`, `3m 12s`, `2h 05m`, `3d 04h`."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR:02}h"


def duration(seconds: float) -> str:
    """A short span of time: `0.25 ms`, `12 ms`, `1.5 s`."""
    if math.isinf(seconds):
        return "more"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def clock_time(at: float | None, *, dated: bool) -> str:
    """The time of day here."""
    if at is None or not 0 <= at <= _TIME_MAX:
        return NOTHING
    return time.strftime("%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S", time.localtime(at))


def other_days(times: Iterable[float | None]) -> bool:
    """True when a time is not of today: all are shown with their dates then."""
    today = time.strftime("%Y-%m-%d")
    return any(not clock_time(at, dated=True).startswith((today, NOTHING)) for at in times)


def iso(at: float | None) -> str | None:
    """The time in UTC, for machines."""
    if at is None or not 0 <= at <= _TIME_MAX:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(value: float | None) -> float | None:
    """Round to as many decimals as are worth something."""
    return None if value is None or not math.isfinite(value) else round(value, 3)


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 line`, `10,000 lines`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
