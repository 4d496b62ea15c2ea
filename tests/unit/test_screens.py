"""What is shown: columns that fit whatever they are given, times, and strangers' text made harmless."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from tenure._admin.models import LineInfo
from tenure.cli.screens.live import Board
from tenure.cli.screens.table import Cell, Column, table
from tenure.cli.screens.words import clock_time, count, iso, other_days, plain, seconds, span

COLUMNS = (
    Column("NAME", minimum=12),
    Column("KIND", drop=2),
    Column("HOLDER", minimum=8),
    Column("TOKEN", right=True),
    Column("WAIT", drop=1, right=True),
)
ROWS = st.lists(
    st.tuples(
        st.text(max_size=60),
        st.sampled_from(["lock", "semaphore"]),
        st.text(max_size=40),
        st.just("12345"),
        st.just("-"),
    ),
    max_size=5,
)


def drawn(rows: Sequence[tuple[str, ...]], width: int | None, notes: tuple[str, ...] = ()) -> list[str]:
    cells = [[Cell(text) for text in row] for row in rows]
    text = "".join(segment.text for segment in table(COLUMNS, cells, width, notes))
    assert text.endswith("\n")
    return text[:-1].split("\n")


@given(rows=ROWS, width=st.integers(20, 200))
def test_whatever_stands_in_it_a_table_fits(rows: list[tuple[str, ...]], width: int) -> None:
    """One line a row, none wider than the terminal, nothing in it that a terminal would obey."""
    lines = drawn(rows, width)
    assert len(lines) == 1 + len(rows)
    assert max(map(cell_len, lines)) <= width
    assert all(line.isprintable() for line in lines)


@given(rows=ROWS)
def test_without_a_width_nothing_is_cut(rows: list[tuple[str, ...]]) -> None:
    """Every text is there in whole."""
    lines = drawn(rows, None)
    for line, row in zip(lines[1:], rows, strict=True):
        assert all(plain(text) in line for text in row)


def test_a_name_keeps_its_two_ends_and_columns_go_in_their_order() -> None:
    """Cut in the middle; KIND goes before WAIT, the token never."""
    rows = [("tenant_123:billing-close-of-the-month", "lock", "worker-1", "12345", "3")]
    assert drawn(rows, 80)[1] == "tenant_123:billing-close-of-the-month   lock   worker-1   12345      3"
    assert drawn(rows, 60)[1] == "tenant_123:billing-c…-the-month  lock  worker-1  12345     3"
    assert drawn(rows, 40)[0].split() == ["NAME", "HOLDER", "TOKEN", "WAIT"]
    assert drawn(rows, 30)[0].split() == ["NAME", "HOLDER", "TOKEN"]


def test_a_column_that_is_empty_throughout_is_left_out() -> None:
    """And an empty table has its heading."""
    assert drawn([("a", "", "b", "1", "2")], 80)[0].split() == ["NAME", "HOLDER", "TOKEN", "WAIT"]
    assert drawn([], 80)[0].split() == ["NAME", "KIND", "HOLDER", "TOKEN", "WAIT"]


def test_notes_stand_below_their_rows_and_are_wrapped() -> None:
    """Behind the first column, nothing lost."""
    rows = [("a", "lock", "w", "1", "-"), ("b", "lock", "w", "2", "-")]
    lines = drawn(rows, 40, ("stuck since noon and the pager would not stop", ""))
    assert lines[1].startswith("a ")
    assert lines[-1].startswith("b ")
    assert " ".join(line.strip() for line in lines[2:-1]) == "stuck since noon and the pager would not stop"
    assert all(line.startswith("       ") for line in lines[2:-1])


@given(text=st.text(alphabet="ab c", max_size=200), width=st.integers(24, 80))
def test_a_last_column_that_wraps_loses_nothing(text: str, width: int) -> None:
    """It goes on below, and no line is wider than the terminal."""
    columns = (Column("CHECK"), Column("FOUND", minimum=12, wraps=True))
    told = "".join(segment.text for segment in table(columns, [[Cell("etcd"), Cell(text)]], width))
    lines = told.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert "".join(lines[1:]).replace("etcd", "").replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("lasted", "told"),
    [
        (None, "-"),
        (-1, "0.0s"),
        (0.04, "0.0s"),
        (9.94, "9.9s"),
        (10, "10s"),
        (59.9, "59s"),
        (60, "1m 00s"),
        (3599, "59m 59s"),
        (3600, "1h 00m"),
        (86399, "23h 59m"),
        (86400, "1d 00h"),
        (1e9, "11574d 01h"),
    ],
)
def test_spans(lasted: float | None, told: str) -> None:
    """Two units at most, never rounded up to what has not come yet."""
    assert span(lasted) == told


@pytest.mark.parametrize("at", [-1.0, 1e12, math.nan, math.inf])
def test_times_that_nobody_can_mean(at: float) -> None:
    """Whatever a stranger wrote into its ticket: a dash, or null."""
    assert clock_time(at, dated=True) == clock_time(at, dated=False) == "-"
    assert iso(at) is None
    assert other_days([at]) is False
    assert span(at)
    assert json.dumps(seconds(at)) not in ("NaN", "Infinity")


def test_times_for_machines_are_in_utc() -> None:
    """ISO 8601, milliseconds, Z."""
    assert iso(0.0) == "1970-01-01T00:00:00.000Z"
    assert iso(None) is None
    assert other_days([0.0]) is True


def test_counts() -> None:
    """One, and many."""
    assert (count(1, "line"), count(0, "line"), count(10_000, "line")) == ("1 line", "0 lines", "10,000 lines")
    assert (count(1, "waits", "wait"), count(2, "waits", "wait")) == ("1 waits", "2 wait")


@pytest.mark.parametrize("width", [32, 40, 60, 80])
def test_live_table_says_what_it_shows_and_how_it_ends_however_narrow_it_is(width: int) -> None:
    """The prefix stands in its heading, and in its foot how many did not fit, and Ctrl-C."""
    board, page = Board("etcd://127.0.0.1:26390/play   bulk*"), io.StringIO()
    board.take(LineInfo(f"bulk/{number:05}", None, None, ()) for number in range(12_345))
    Console(file=page, width=width, height=12).print(board)
    heading, *_, foot = page.getvalue().splitlines()
    assert "bulk*" in heading
    assert "12,338 more" in foot
    assert "Ctrl-C" in foot
    assert max(map(cell_len, page.getvalue().splitlines())) <= width


@given(st.text())
def test_plain_text_is_one_line_that_no_terminal_obeys(text: str) -> None:
    """And what was plain stays as it is."""
    assert plain(text).isprintable()
    assert not text.isprintable() or plain(text) == text
