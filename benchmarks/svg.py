"""Two kinds of plot as SVG text, without a plotting library: lines over a logarithmic axis, and bars.

The background is left out and every colour is of middle lightness, so that they can be read on white and on black: an
SVG that a README shows can't know which it is on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 220, 44, 48
_BAR_HEIGHT, _BAR_LEFT, _BAR_RIGHT = 22, 250, 130
_INK: Final = "#7d8590"
_COLOURS: Final = ("#2f81f7", "#d9730d", "#2da44e", "#a371f7", "#e5534b", "#1b9aaa", "#b08800", "#d6409f", "#8c959f")
_DASHES: Final = ("none", "6 3")
_TICKS_MAX: Final = 6


@dataclass(frozen=True)
class Lines:
    """Series of points, by name. Where both axes are times or counts over decades, `log_y`."""

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    log_x: bool = True
    log_y: bool = False


def lines(chart: Lines) -> str:
    """An SVG document: a line for each series, with its name beside its end."""
    points = [point for series in chart.series.values() for point in series]
    across = _Axis.over([x for x, _ in points], _LEFT, _WIDTH - _RIGHT, log=chart.log_x, zero=False)
    upward = _Axis.over([y for _, y in points], _HEIGHT - _BOTTOM, _TOP, log=chart.log_y, zero=not chart.log_y)
    body = [
        _text(_LEFT, 22, chart.title, size=15, weight="bold"),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, chart.x_label, anchor="middle"),
        _text(_LEFT, _TOP - 8, chart.y_label, size=11),
        *_grid(across, _few(sorted({x for x, _ in points})) or across.ticks(), upward),
    ]
    for number, (name, series) in enumerate(chart.series.items()):
        body += _series(number, name, [(across.place(x), upward.place(y)) for x, y in series])
    return _document(_HEIGHT, body)


def bars(title: str, values: Mapping[str, float], *, unit: str, mark: float | None = None) -> str:
    """An SVG document: one bar for each value, from above; `mark` draws a line across all."""
    height = _TOP + _BAR_HEIGHT * len(values) + 16
    across = _Axis(0.0, max([*values.values(), mark or 0.0]) or 1.0, _BAR_LEFT, _WIDTH - _BAR_RIGHT, log=False)
    body = [_text(12, 22, title, size=15, weight="bold")]
    for number, (name, value) in enumerate(values.items()):
        y, colour = _TOP + _BAR_HEIGHT * number, _COLOURS[0 if name.startswith("tenure") else -1]
        width = across.place(value) - _BAR_LEFT
        body.append(f'<rect x="{_BAR_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT - 6}" fill="{colour}"/>')
        body.append(_text(_BAR_LEFT - 8, y + 13, name, anchor="end"))
        body.append(_text(_BAR_LEFT + width + 6, y + 13, f"{value:.3g} {unit}"))
    if mark is not None:
        at = across.place(mark)
        body.append(_stroke(at, _TOP - 6, at, height - 12, dash="4 3"))
    return _document(height, body)


@dataclass(frozen=True)
class _Axis:
    """Where a value stands on the page."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, *, log: bool, zero: bool) -> _Axis:
        low, high = (min(values), max(values)) if values else (1.0, 10.0)
        if log:
            low, high = max(low, 1e-9), max(high, 1e-9)
            return cls(low, high if high > low else low * 10, start, end, log)
        low, high = (min(0.0, low) if zero else low), high * 1.05
        return cls(low, high if high > low else low + 1, start, end, log)

    def place(self, value: float) -> float:
        if self.log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values within the axis, a few."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            steps = (1, 3) if last - first <= _TICKS_MAX // 2 else (1,)
            found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        else:
            rough = (self.high - self.low) / _TICKS_MAX
            scale = 10.0 ** math.floor(math.log10(rough))
            step = next(s * scale for s in (1, 2, 5, 10) if s * scale >= rough)
            found = [step * n for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [tick for tick in found if self.low * 0.999 <= tick <= self.high * 1.001]


def _few(values: list[float]) -> list[float]:
    """Few enough to be ticks themselves: what was measured is then what stands at the axis."""
    return values if len(values) <= _TICKS_MAX else []


def _grid(across: _Axis, ticks: Sequence[float], upward: _Axis) -> Iterator[str]:
    for x in ticks:
        at = across.place(x)
        yield _stroke(at, upward.start, at, upward.end, opacity=0.25)
        yield _text(at, upward.start + 16, f"{x:g}", anchor="middle", size=11)
    for y in upward.ticks():
        at = upward.place(y)
        yield _stroke(across.start, at, across.end, at, opacity=0.25)
        yield _text(across.start - 6, at + 4, f"{y:g}", anchor="end", size=11)


def _series(number: int, name: str, points: Sequence[tuple[float, float]]) -> Iterator[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    dash = _DASHES[number // len(_COLOURS) % len(_DASHES)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
    if len(points) <= 12:
        for x, y in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
    key_x, key_y = _WIDTH - _RIGHT + 14, _TOP + 6 + number * 18
    yield f'<rect x="{key_x}" y="{key_y}" width="12" height="4" fill="{colour}"/>'
    yield _text(key_x + 18, key_y + 6, name, size=11)


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, weight: str = "normal") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
    return f'<text {place} fill="{_INK}">{escape(text)}</text>'


def _stroke(x1: float, y1: float, x2: float, y2: float, *, opacity: float = 1.0, dash: str = "none") -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{_INK}" stroke-opacity="{opacity}" stroke-dasharray="{dash}"/>'


def _document(height: int, body: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return "\n".join([f'{head} font-family="system-ui, sans-serif">', *body, "</svg>", ""])
