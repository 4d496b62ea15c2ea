"""The maps are true: each package's docstring names each of its modules, in reading order."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tenure

ROOT = Path(tenure.__file__).parent
VERIFY = Path(__file__).parent.parent / "verify"
PACKAGES = sorted(path.parent for root in (ROOT, VERIFY) for path in root.rglob("__init__.py"))


def modules_of(package: Path) -> set[str]:
    """The names of what is inside: modules and packages."""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def named(docstring: str) -> list[str]:
    """What the indented lines of a map begin with: several names may share a line, with commas or without."""
    found: list[str] = []
    for line in docstring.splitlines():
        if match := re.match(r" {4}((?:[\w.]+/?,? )*[\w.]+/?)(?: {2,}|$)", line):
            found += [name.removesuffix(".py").removesuffix("/") for name in re.split(r",? ", match.group(1))]
    return found


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: "/".join(path.parts[-2:]))
def test_docstring_of_package_names_each_of_its_modules_once(package: Path) -> None:
    """Whoever opens a folder is told what is in it, and is told nothing that is not."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    modules = modules_of(package)
    names = [name for name in named(docstring) if name in modules or "/" in name]
    assert sorted(names) == sorted(modules)
