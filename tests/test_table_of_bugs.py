"""The table of known bugs in tests/README.md is whole: every bug has a row, and every row names tests that exist.

What a row's tests show is for its reader to judge; this holds that they are found where the table says, by asking
pytest itself what it collects.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.testing.torture.nemeses import NEMESES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "tests" / "README.md").read_text()
TABLES = {"Known bugs": 50, "Defects seen in other libraries": 17}
"""Under which heading, and how many."""


@dataclass(frozen=True)
class Row:
    """One bug: the names it shows, the nemesis it names, and what its command runs."""

    number: int
    names: list[str]
    nemeses: list[str]
    ids: list[str]


def rows(page: str, heading: str) -> Iterator[Row]:
    """The rows of the table under `heading`: number, words, store, names, perhaps a nemesis, command."""
    part = re.split(rf"^#+ {heading}.*$", page, flags=re.MULTILINE)[1]
    for line in re.split(r"^#", part, flags=re.MULTILINE)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not cells[0].isdigit():
            continue
        spans = [re.findall(r"`([^`]*)`", cell) for cell in cells[3:]]
        command = spans[-1][0] if spans[-1] else ""
        torture = [name for cell in spans[1:-1] for name in cell]
        yield Row(int(cells[0]), spans[0], torture, command.removeprefix("tests/run ").split())


def what_is_wrong(page: str, collected: Collection[str]) -> list[str]:
    """In words, one for each thing that is."""
    wrong: list[str] = []
    for heading, count in TABLES.items():
        table = list(rows(page, heading))
        numbers = [row.number for row in table]
        wrong += [f"{heading}: {n} has {numbers.count(n)} rows" for n in range(1, count + 1) if numbers.count(n) != 1]
        for row in table:
            where = f"{heading} {row.number}"
            if not row.ids:
                wrong.append(f"{where}: its command runs no test")
            if [each.rpartition("::")[2] for each in row.ids] != row.names:
                wrong.append(f"{where}: its command runs other tests than it names")
            wrong += [f"{where}: there is no test {each}" for each in row.ids if each not in collected]
            wrong += [f"{where}: there is no nemesis {each}" for each in row.nemeses if each not in NEMESES]
    return wrong


def collect(files: Collection[str]) -> set[str]:
    """The ids that pytest finds in `files`, without their parameters."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *sorted(files)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """What the files that the table names hold; a file that is not there holds nothing."""
    files = {each.partition("::")[0] for heading in TABLES for row in rows(PAGE, heading) for each in row.ids}
    return collect({file for file in files if (ROOT / file).is_file()})


def test_table_of_bugs_is_whole(collected: set[str]) -> None:
    """Every number has its row, every test that is named exists, and every command runs what its row names."""
    assert what_is_wrong(PAGE, collected) == []


def test_page_keeps_a_place_for_the_figures() -> None:
    """Where the night profile writes its table."""
    assert "\n## Torture: figures\n" in PAGE


@pytest.mark.parametrize(
    ("pattern", "instead", "told"),
    [
        (r"^\| 14 \|.*\n", "", "Known bugs: 14 has 0 rows"),
        (r"^(\| )17( \|.*kazoo does this well)", r"\g<1>16\2", "other libraries: 16 has 2 rows"),
        (r"(tests/run tests/faults/test_\w+\.py::test_)candidate", r"\1candidates", "there is no test"),
        (r"tests/run tests/unit/test_belief\.py", "tests/run tests/unit/test_beliefs.py", "there is no test"),
        (r"`test_etcd_out_of_space`", "`test_etcd_out_of_time`", "50: its command runs other tests than it names"),
        (r"`tests/run [^`]*test_etcd_out_of_space`", "", "50: its command runs no test"),
        (r"`quota`", "`quotas`", "50: there is no nemesis quotas"),
    ],
)
def test_table_with_a_fault_is_not_whole(collected: set[str], pattern: str, instead: str, told: str) -> None:
    """The check can fail: each kind of fault is found, and told with its row."""
    page, times = re.subn(pattern, instead, PAGE, count=1, flags=re.MULTILINE)
    assert times == 1
    wrong = what_is_wrong(page, collected)
    assert any(told in each for each in wrong), wrong
