"""The two faces say the same: same names, same parameters, `await` where the other blocks."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import pytest

from tenure import _client, aio

CLASSES = ["Client", "Election", "Hold", "Lock", "Loss", "Operator", "RWLock", "Semaphore", "Store"]

CONTEXT = {"__enter__": "__aenter__", "__exit__": "__aexit__"}
"""The deliberate difference in names: `with` here, `async with` there."""

AWAITED = {
    "Client.close",
    "Client.__exit__",
    "Client.__enter__",
    "Election.leader",
    "Election.run",
    "Hold.__enter__",
    "Hold.__exit__",
    "Hold.amend",
    "Hold.release",
    "Hold.renew",
    "Lock.__enter__",
    "Lock.__exit__",
    "Lock.acquire",
    "Lock.try_acquire",
    "Loss.wait",
    "Operator.audit",
    "Operator.force_release",
    "Operator.history",
    "Operator.line",
    "Operator.page",
    "Operator.why",
    "Semaphore.__enter__",
    "Semaphore.__exit__",
    "Semaphore.acquire",
    "Semaphore.try_acquire",
    "Store.commit",
    "Store.delete",
    "Store.get",
    "Store.put",
}
"""What talks to the store or waits: a coroutine there, blocking here."""

DIFFERENT_PARAMETERS: set[str] = set()


def own_public(cls: type) -> dict[str, Any]:
    wanted = {"__init__", "__repr__", *CONTEXT, *CONTEXT.values()}
    return {n: m for n, m in inspect.getmembers(cls) if (not n.startswith("_") or n in wanted) and not _other(m)}


def _other(member: Any) -> bool:
    """Inherited from object, or there to refuse the `with` of the other face."""
    return getattr(member, "__objclass__", None) is object or getattr(member, "__name__", "") == "refuse"


def pairs() -> list[Any]:
    return [
        pytest.param(name, member, id=f"{name}.{member}")
        for name in CLASSES
        for member in own_public(getattr(_client, name))
        if member not in CONTEXT.values()
    ]


def test_both_faces_have_the_same_classes_and_functions() -> None:
    """What can be imported from one face can be imported from the other."""

    def made_here(module: Any) -> set[str]:
        made = {n: v for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__}
        return {n for n, v in made.items() if not n.startswith("_") and not isinstance(v, TypeVar)}

    assert made_here(_client) == made_here(aio) == {*CLASSES, "assert_held", "connect"}


@pytest.mark.parametrize("name", CLASSES)
def test_class_has_the_same_members_on_both_faces(name: str) -> None:
    """No method of one face is missing from the other."""
    here = {CONTEXT.get(n, n) for n in own_public(getattr(_client, name))}
    there = set(own_public(getattr(aio, name)))
    assert here == there


def shape(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_connect_takes_the_same_on_both_faces() -> None:
    """One way to say where the store is."""
    assert shape(_client.connect) == shape(aio.connect)
    assert (_client.connect.__doc__, aio.connect.__doc__) == (_client.connect.__doc__,) * 2


@pytest.mark.parametrize(("name", "member"), pairs())
def test_member_takes_the_same_parameters_on_both_faces(name: str, member: str) -> None:
    """Names, kinds and defaults: moving from one face to the other is adding `await`."""
    here = inspect.getattr_static(getattr(_client, name), member)
    there = inspect.getattr_static(getattr(aio, name), CONTEXT.get(member, member))
    assert isinstance(here, property) == isinstance(there, property)
    if isinstance(here, property):
        return
    if f"{name}.{member}" in DIFFERENT_PARAMETERS:
        assert shape(here) != shape(there)
        return
    assert shape(here) == shape(there)


@pytest.mark.parametrize(("name", "member"), pairs())
def test_member_is_awaited_there_exactly_where_it_blocks_here(name: str, member: str) -> None:
    """What talks to the store is a coroutine there; what only makes or reads is plain on both."""
    here = inspect.getattr_static(getattr(_client, name), member)
    there = inspect.getattr_static(getattr(aio, name), CONTEXT.get(member, member))
    assert not inspect.iscoroutinefunction(here)
    awaited = inspect.iscoroutinefunction(there) or getattr(there, "__annotations__", {}).get("return") == "_Acquiring"
    assert awaited == (f"{name}.{member}" in AWAITED)
    assert inspect.isgeneratorfunction(here) == inspect.isasyncgenfunction(there)


def test_awaited_names_exist() -> None:
    """The list of differences has no entry that is none."""
    assert all(hasattr(getattr(_client, n.split(".")[0]), n.split(".")[1]) for n in AWAITED | DIFFERENT_PARAMETERS)


@pytest.mark.parametrize(("name", "member"), pairs())
def test_public_docstrings_promise_the_same(name: str, member: str) -> None:
    """Both faces say `Raises` about the same errors."""
    if member.startswith("_") or f"{name}.{member}" == "Election.run":
        return  # run: `lead` is cancelled there and must look for itself here
    here = inspect.getdoc(getattr(getattr(_client, name), member)) or ""
    there = inspect.getdoc(getattr(getattr(aio, name), member)) or ""

    def promised(doc: str) -> str:
        return doc.partition("Raises")[2]

    assert promised(here) == promised(there)
