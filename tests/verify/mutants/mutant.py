"""A mutant: one text of one file replaced by another, and the tests that have to notice."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = Path("src/tenure")


class Stale(Exception):
    """A mutant whose text is not in its file, or there more than once: the code has moved on from under the list."""


class Mutant(NamedTuple):
    """A fault by name. `tests` are arguments of pytest: files, or tests by name."""

    name: str
    path: str
    """The file, below src/tenure."""
    text: str
    becomes: str
    tests: tuple[str, ...]


def mutants_of(path: str, tests: tuple[str, ...], *faults: tuple[str, str, str]) -> tuple[Mutant, ...]:
    """Mutants of one file that the same tests find: name, text, what it becomes."""
    return tuple(Mutant(name, path, text, becomes, tests) for name, text, becomes in faults)


def applied(mutant: Mutant, tree: Path) -> str:
    """The mutated source of its file in `tree`. Raises Stale, or SyntaxError where it is no Python any more."""
    file = tree / PACKAGE / mutant.path
    source = file.read_text()
    if (times := source.count(mutant.text)) != 1:
        raise Stale(f"{mutant.name!r}: its text is {times} times in {PACKAGE / mutant.path}, and has to be there once")
    mutated = source.replace(mutant.text, mutant.becomes)
    compile(mutated, str(file), "exec")
    return mutated
