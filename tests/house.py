"""How the code reads, as figures: `python -m tests.house` prints them, tests/unit/test_house.py holds their bounds."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "src" / "tenure"
CORE: Final = PACKAGE / "_core"
_FORMER_NAME: Final = "hold" + "fast"  # in two parts, or this file would be the last that has it
_SMALL_LINES: Final = 80
_LINES_MAX: Final = 42_870
"""41,000 are aimed at: the greenlets of the event loop go when asyncio needs no worker threads."""
_TWINS: Final = {PACKAGE / "_client.py", PACKAGE / "aio.py"}
_OPENERS: Final = re.compile(
    r"(?:what|who|whom|whose|whoever|whatever|whichever|where|wherever|which|that|those|these|this|of|its|it|his|their|they"
    r"|one|ones|nobody|nothing|nowhere|somebody|anybody|everybody|so|as|there|here|both|all|some|such|how|why|when)\b",
    re.IGNORECASE,
)


class Figure(NamedTuple):
    """One row of the table."""

    what: str
    value: float
    lowest: float
    highest: float

    @property
    def holds(self) -> bool:
        """Whether the value is within its bounds."""
        return self.lowest <= self.value <= self.highest


def figures() -> list[Figure]:
    """All of them, as the code stands."""
    files = sorted(PACKAGE.rglob("*.py"))
    texts = {path: path.read_text() for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    modules = [text for path, text in texts.items() if path.name not in ("__init__.py", "__main__.py")]
    small = sum(text.count("\n") < _SMALL_LINES for text in modules)
    documented = [docstring for tree in trees.values() for docstring in _docstrings(tree)]
    odd = sum(bool(_OPENERS.match(docstring)) for docstring in documented)
    return [
        Figure("the former name, in any file of the tree", _former_names(), 0, 0),
        Figure("public modules and packages at the top level", len(public_modules()), 1, 16),
        Figure("Python lines in the wheel", sum(text.count("\n") for text in texts.values()), 1, _LINES_MAX),
        Figure("modules under 80 lines, packages' own pages aside, %", 100 * small / len(modules), 0, 15),
        Figure("class names in more than one file, twins aside", len(doubled_classes(trees)), 0, 12),
        Figure("docstrings that open with a pronoun or its like, %", 100 * odd / len(documented), 0, 3),
        Figure("comments per 100 lines of code in the core", _comments(texts), 8, 15),
    ]


def public_modules() -> list[str]:
    """What stands beside `__init__.py` under a name without an underscore."""
    found = [path.stem for path in PACKAGE.glob("[!_]*.py")]
    return sorted(found + [path.parent.name for path in PACKAGE.glob("[!_]*/__init__.py")])


def doubled_classes(trees: dict[Path, ast.Module]) -> dict[str, list[Path]]:
    """Classes by name where more than one file has one of that name; the two faces count as one file."""
    where: dict[str, set[Path]] = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                where[node.name.lstrip("_")].add(min(_TWINS) if path in _TWINS else path)
    return {name: sorted(paths) for name, paths in where.items() if len(paths) > 1}


def odd_docstrings() -> Iterator[tuple[Path, str]]:
    """Docstrings that open with a pronoun or its like: file and first line."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for docstring in _docstrings(ast.parse(path.read_text())):
            if _OPENERS.match(docstring):
                yield path.relative_to(PACKAGE), docstring.splitlines()[0]


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring


def _former_names() -> int:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    paths = [ROOT / name for name in tracked.split("\0") if name]
    inside = sum(path.read_bytes().lower().count(_FORMER_NAME.encode()) for path in paths if path.is_file())
    return inside + sum(_FORMER_NAME in name.lower() for name in tracked.split("\0"))


def _comments(texts: dict[Path, str]) -> float:
    """`#` comments for 100 lines with code on them, in the core: docstrings and blank lines are no code."""
    comments = code = 0
    for path, text in texts.items():
        if not path.is_relative_to(CORE):
            continue
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comments += 1
            elif token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.OP):
                lines.add(token.start[0])
        code += len(lines)
    return 100 * comments / code


def main() -> None:
    """Print the table."""
    for figure in figures():
        bounds = (
            f"{figure.lowest:g} to {figure.highest:g}" if figure.lowest != figure.highest else f"{figure.highest:g}"
        )
        print(f"{figure.what:<52} {figure.value:>9.1f}   {bounds:<14} {'' if figure.holds else 'MISSED'}")


if __name__ == "__main__":
    main()
