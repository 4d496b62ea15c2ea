"""The table of known bugs in tests/README.md is whole: every bug has a row, and every row names tests that exist.

What a row's tests show is for its reader to judge; this holds that `python -m tests.bugs` finds them, and that pytest
itself collects what it finds.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bugs import PAGE, ROOT, TABLES, command, main, places, rows
from tests.verify.torture.nemeses import NEMESES

COUNTS = {"Known bugs": 50, "Defects seen in other libraries": 17}
"""Number of rows under each heading."""


def what_is_wrong(page: str, collected: frozenset[str]) -> list[str]:
    """Faults of the page, a sentence each."""
    wrong: list[str] = []
    for heading, count in COUNTS.items():
        table = list(rows(page, heading))
        numbers = [row.number for row in table]
        wrong += [f"{heading}: {n} has {numbers.count(n)} rows" for n in range(1, count + 1) if numbers.count(n) != 1]
        for row in table:
            where = f"{heading} {row.number}"
            if not row.names:
                wrong.append(f"{where}: it names no test")
            wrong += [
                f"{where}: there is no test {name}"
                for name in row.names
                if not places().get(name) or not collected.issuperset(places()[name])
            ]
            wrong += [f"{where}: there is no nemesis {each}" for each in row.nemeses if each not in NEMESES]
    return wrong


@pytest.fixture(scope="module")
def collected() -> frozenset[str]:
    """The ids, without parameters, that pytest finds in the files where the named tests stand."""
    named = (name for heading in TABLES for row in rows(PAGE, heading) for name in row.names)
    files = {place.partition("::")[0] for name in named for place in places().get(name, ())}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *sorted(files)],
        cwd=ROOT, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return frozenset(line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line)


def test_table_of_bugs_is_whole(collected: frozenset[str]) -> None:
    """Every number has its row, and every test and nemesis that a row names exists."""
    assert list(COUNTS) == list(TABLES)
    assert what_is_wrong(PAGE, collected) == []


def test_page_keeps_a_place_for_the_figures() -> None:
    """The night profile's table has its heading."""
    assert "\n## Torture: figures\n" in Path(ROOT / "tests" / "figures.md").read_text()


@pytest.mark.parametrize(
    ("pattern", "instead", "expected"),
    [
        (r"^\| 14 \|.*\n", "", "Known bugs: 14 has 0 rows"),
        (r"^(\| )17( \|.*kazoo does this well)", r"\g<1>16\2", "other libraries: 16 has 2 rows"),
        (r"`test_candidate", "`test_candidates", "Known bugs 1: there is no test test_candidates_whose"),
        (r"`test_etcd_out_of_space`", "", "50: it names no test"),
        (r"`quota`", "`quotas`", "50: there is no nemesis quotas"),
    ],
)
def test_table_with_a_fault_is_not_whole(collected: frozenset[str], pattern: str, instead: str, expected: str) -> None:
    """The check can fail: each kind of fault is found, and reported with its row."""
    page, times = re.subn(pattern, instead, PAGE, count=1, flags=re.MULTILINE)
    assert times == 1
    wrong = what_is_wrong(page, collected)
    assert any(expected in each for each in wrong), wrong


def test_command_of_a_bug_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """A number gets what happened, what runs the tests, and what looks for the same at length."""
    assert main(["50"]) == 0
    title, tests, torture = capsys.readouterr().out.splitlines()
    assert title == "Bug 50: out of space: renewals succeed, writes fail (etcd)"
    assert tests == "tests/run tests/faults/test_bad_days.py::test_etcd_out_of_space"
    assert torture == "python -m tests.verify.torture --backend etcd --nemesis quota --seconds 60 --seed 1"
    assert main(["d17"]) == 0
    assert capsys.readouterr().out.startswith("Defect 17: ")


@pytest.mark.parametrize("words", [[], ["51"], ["d18"], ["x"], ["1", "2"]])
def test_number_that_no_bug_has_is_refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """The sentence says where the numbers are."""
    assert main(words) == 2
    assert "tests/README.md" in capsys.readouterr().err


def test_command_names_each_place_of_a_test() -> None:
    """A name that two guards' tests share means both."""
    row = next(row for row in rows(PAGE, "Known bugs") if row.number == 33)
    assert {"tests/fencing/test_redis.py", "tests/fencing/test_file.py"} <= {
        place.partition("::")[0] for place in command(row).split()[1:]
    }
