"""The list of mutants is not stale: each is one text of one file, becomes another, and names tests that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.mutants import MUTANTS, Mutant, Stale, applied
from tests.verify.mutants.mutant import PACKAGE

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_text_of_mutant_is_found_once_and_becomes_other_code(mutant: Mutant) -> None:
    """Where the code was changed, the list has to follow; and a fault has to be Python still."""
    assert applied(mutant, ROOT) != (ROOT / PACKAGE / mutant.path).read_text()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_tests_of_mutant_are_there_and_need_no_server(mutant: Mutant) -> None:
    """A file of tests/unit, or a test in it by its name."""
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert file.startswith("tests/unit/")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text() or not name


def test_names_of_mutants_are_different() -> None:
    """Each is one fault in one place."""
    assert len({(mutant.path, mutant.name) for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.path, mutant.text, mutant.becomes) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("text", ["not in there", "import"])
def test_mutant_whose_text_is_not_there_once_is_stale(text: str) -> None:
    """A list that nobody keeps would say that all is well."""
    with pytest.raises(Stale, match="has to be there once"):
        applied(MUTANTS[0]._replace(text=text), ROOT)
