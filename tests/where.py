"""`python -m tests.where [WORD]`: where is the test of …? Modules, and the test files that import or name them.

    $ python -m tests.where reaper
    tenure._core.reaper    tests/testing/seeded_bugs.py tests/unit/test_layers.py tests/unit/test_reaper.py

Without a WORD: a table, folders and the test files that name most of what is in them; `--write` puts it into
CONTRIBUTING.md, between its marks. A module that no test names is tested through what imports it: the faces
(tests/conformance), the command (tests/cli), the service (tests/service).
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "CONTRIBUTING.md"
FROM_HERE: Final = "<!-- python -m tests.where --write: from here -->"
TO_HERE: Final = "<!-- to here -->"
SHOWN: Final = 4
"""How many test files the table names for a folder."""


def modules() -> list[str]:
    """The product's modules and packages, by dotted name."""
    paths = sorted((ROOT / "src").rglob("*.py"))
    return [".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__") for path in paths]


def named_in(source: str) -> Iterator[str]:
    """Dotted names that a file imports, or writes in a string."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield module
                yield from (f"{module}.{each.name}" for each in names)
            case ast.Constant(value=str(text)):
                yield from re.findall(r"\btenure(?:\.\w+)+", text)


def tests_of() -> Mapping[str, Sequence[str]]:
    """The test files of each module that any of them names; `tenure` itself is left out, which nearly all import."""
    known = set(modules()) - {"tenure"}
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path == Path(__file__):
            continue
        for module in sorted(known.intersection(named_in(path.read_text()))):
            found[module].append(str(path.relative_to(ROOT)))
    return found


def table() -> Iterator[str]:
    """Packages, and the test files that name most of what is in them and least of what is not; in Markdown."""
    breadth: Counter[str] = Counter()
    named: dict[str, Counter[str]] = defaultdict(Counter)
    for module, files in tests_of().items():
        breadth.update(files)
        named[_package(module)].update(file for file in files if "/test_" in file)
    yield "| the code | its tests |"
    yield "|---|---|"
    for package, counts in sorted(named.items()):
        best = sorted(counts, key=lambda file: -(counts[file] ** 2) / breadth[file])[:SHOWN]
        yield f"| `{package.removeprefix('tenure.')}` | {' '.join(f'`{file}`' for file in sorted(best))} |"


def _package(module: str) -> str:
    """The folder that a module stands in, two levels below `tenure` at most; or itself, at the top level."""
    parts = module.split(".")
    while len(parts) > 2 and not (ROOT / "src" / Path(*parts)).is_dir():
        parts.pop()
    return ".".join(parts[:3])


def main(arguments: Sequence[str]) -> int:
    """Print what was asked for; 1 where no module has the word in its name."""
    if not arguments:
        print(*table(), sep="\n")
        return 0
    if arguments[0] == "--write":
        before, _, rest = PAGE.read_text().partition(FROM_HERE)
        after = rest.partition(TO_HERE)[2]
        PAGE.write_text("\n".join((f"{before}{FROM_HERE}\n", *table(), f"\n{TO_HERE}{after}")))
        return 0
    found = tests_of()
    asked = [module for module in modules() if arguments[0] in module]
    for module in asked:
        print(f"{module}    {' '.join(found.get(module, ['(through what imports it)']))}")
    return 0 if asked else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
