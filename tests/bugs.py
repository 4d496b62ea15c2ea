"""`python -m tests.bugs N`: print bug N of tests/README.md, and the command that runs its tests.

    $ python -m tests.bugs 14
    Bug 14: compaction ends the watch: the wait fails and its key stays (etcd)
    tests/run tests/faults/test_known_bugs_watch.py::test_etcd_watch_from_a_compacted_revision_is_a_reason_to_look …
    python -m tests.verify.torture --backend etcd --nemesis compaction --seconds 60 --seed 1

`dN` is defect N of another library. Nothing is run. A test is found by its name, wherever it stands; a name that stands
in several files means all of them.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = (ROOT / "tests" / "README.md").read_text()
TABLES: Final = {"Known bugs": "Bug", "Defects seen in other libraries": "Defect"}
"""The headings of the two tables, and what a row of each is called."""


@dataclass(frozen=True)
class Row:
    """A bug: what happened, where, the names of its tests, and the nemeses that look for the same."""

    number: int
    what: str
    where: str
    names: list[str]
    nemeses: list[str]


def rows(page: str, heading: str) -> Iterator[Row]:
    """The rows of the table under `heading`: number, words, store, names of tests, perhaps nemeses."""
    part = re.split(rf"^#+ {heading}.*$", page, flags=re.MULTILINE)[1]
    for line in re.split(r"^#", part, flags=re.MULTILINE)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].isdigit():
            spans = [re.findall(r"`([^`]*)`", cell) for cell in cells[3:]]
            yield Row(int(cells[0]), cells[1], cells[2], spans[0], [name for cell in spans[1:] for name in cell])


@functools.cache
def places() -> Mapping[str, Sequence[str]]:
    """Pytest's ids of each test, without parameters, by the test's name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if "containers" not in path.parts:  # the same tests once more, over Docker
            for inside in _tests_in(path):
                found[inside.rpartition("::")[2]].append(f"{path.relative_to(ROOT)}::{inside}")
    return found


def _tests_in(path: Path) -> Iterator[str]:
    """The tests of a module and its classes, and those of the conformance suite that it imports with a star."""
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                yield name
            case ast.ClassDef(name=owner, body=body) if owner.startswith("Test"):
                functions = (each for each in body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
                yield from (f"{owner}::{each.name}" for each in functions if each.name.startswith("test_"))
            case ast.ImportFrom(module=str(module), names=[ast.alias(name="*")]):
                suite = ROOT / "src" / f"{module.replace('.', '/')}.py"
                yield from _tests_in(suite) if suite.is_file() else ()


def command(row: Row) -> str:
    """Command that runs the row's tests. Raises KeyError for a name that no test has."""
    known = places()
    missing = [name for name in row.names if name not in known]
    if missing:
        raise KeyError(", ".join(missing))
    return " ".join(["tests/run", *(place for name in row.names for place in known[name])])


def torture(row: Row) -> Iterator[str]:
    """Commands that break real servers in the same way for a while."""
    backend = "zookeeper" if row.where == "ZooKeeper" else "etcd"
    for nemesis in row.nemeses:
        yield f"python -m tests.verify.torture --backend {backend} --nemesis {nemesis} --seconds 60 --seed 1"


def main(arguments: Sequence[str]) -> int:
    """Print the row that was asked for; 2 for a number that no row has."""
    match [re.fullmatch(r"(d?)(\d+)", each) for each in arguments]:
        case [re.Match() as asked]:
            heading, title = list(TABLES.items())[bool(asked[1])]
            row = next((row for row in rows(PAGE, heading) if row.number == int(asked[2])), None)
            if row is not None:
                print(f"{title} {row.number}: {row.what} ({row.where})", command(row), *torture(row), sep="\n")
                return 0
    print(
        "python -m tests.bugs N, or dN for a defect of another library; tests/README.md has the numbers",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
