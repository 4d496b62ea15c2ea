"""What users import: complete, sorted, documented; and the error tree as it is drawn."""

from __future__ import annotations

import inspect
import re
import types
from typing import Any

import pytest

import tenure
from tenure import _client, aio, errors
from tenure.errors import TenureError

ERRORS = {
    name: value for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, TenureError)
}


def test_all_is_complete_and_sorted() -> None:
    """`__all__` names every public thing of the package, in order, and nothing else."""
    public = {
        name
        for name, value in vars(tenure).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert set(tenure.__all__) == public | {"aio"}
    assert tenure.__all__ == sorted(tenure.__all__, key=lambda n: (n.islower(), n))
    assert len(set(tenure.__all__)) == len(tenure.__all__)


def test_every_error_class_is_exported() -> None:
    """Whoever may see an error can catch it by its public name."""
    assert set(ERRORS) <= set(tenure.__all__)
    assert all(getattr(tenure, name) is value for name, value in ERRORS.items())


def public_members(value: type) -> list[tuple[str, Any]]:
    return [
        (f"{value.__name__}.{name}", member)
        for name, member in inspect.getmembers(value)
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, property))
        and getattr(getattr(member, "fget", member), "__module__", "").startswith("tenure")
    ]


def documented() -> list[Any]:
    things: list[tuple[str, Any]] = []
    for face in (tenure, aio):
        for name in tenure.__all__:
            if hasattr(face, name):
                value = getattr(face, name)
                things.append((f"{face.__name__}.{name}", value))
                if inspect.isclass(value):
                    things.extend((f"{face.__name__}.{n}", m) for n, m in public_members(value))
    things.extend((f"Loss.{n}", m) for face in (_client, aio) for n, m in public_members(face.Loss))
    return [pytest.param(value, id=name) for name, value in things]


@pytest.mark.parametrize("value", documented())
def test_public_name_has_a_docstring(value: object) -> None:
    """Every public name says in a sentence what it is."""
    assert (getattr(value, "__doc__", None) or "").strip()


def drawn_tree() -> dict[str, str | None]:
    """The tree of errors.py's docstring: each class and the one it hangs from."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^ {4}([│ ├└─]*)([A-Z]\w+)", line)
        if found is None:
            continue
        depth = len(found.group(1)) // 4
        path = [*path[:depth], found.group(2)]
        parents[found.group(2)] = path[depth - 1] if depth else None
    return parents


def test_every_error_is_drawn_in_the_tree_where_it_hangs() -> None:
    """The picture in errors.py is the tree, branch by branch."""
    real = {
        name: next((b.__name__ for b in value.__bases__ if issubclass(b, TenureError)), None)
        for name, value in ERRORS.items()
    }
    assert drawn_tree() == real


@pytest.mark.parametrize(("name", "also"), [("UsageError", "ValueError"), ("AcquireTimeout", "TimeoutError")])
def test_builtin_base_is_drawn_and_real(name: str, also: str) -> None:
    """Whoever catches the built-in error catches ours, and the picture says so."""
    assert f"{name} ({also})" in (errors.__doc__ or "")
    assert also in {b.__name__ for b in ERRORS[name].__mro__}


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_error_answers_what_happened_and_whether_to_retry(name: str) -> None:
    """Did it happen, and may I do it again: every error answers both."""
    error = ERRORS[name]("told by the test")
    assert error.happened in ("no", "unknown")
    assert isinstance(error.retry, bool)
    assert str(error) == "told by the test"


def test_answers_of_each_error_are_as_promised() -> None:
    """A change of an answer is a change of the contract: it has to be made here too."""
    assert {n for n, e in ERRORS.items() if e.happened == "unknown"} == {"LeaseLost", "StoreUnavailable"}
    assert {n for n, e in ERRORS.items() if e.retry} == {
        "AcquireTimeout",
        "GuardBusy",
        "LeaseLost",
        "StoreUnavailable",
    }


def test_errors_that_retry_mends_are_no_usage_errors() -> None:
    """Whose bug is it: a usage error is never worth a retry and never happened."""
    for error in ERRORS.values():
        if issubclass(error, errors.UsageError):
            assert (error.happened, error.retry) == ("no", False)
