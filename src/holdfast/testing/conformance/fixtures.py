"""The fixtures of the suite. The one it does not have, `make_world`, is the author's: it gives a function from a Face
to a World. What a world's test leaves in the store fails it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest

from holdfast.testing.conformance.faces import Face
from holdfast.testing.conformance.worlds import World, eventually, missing

MakeWorld: TypeAlias = Callable[[Face], World]


@pytest.fixture(params=["threads", "asyncio"])
def face(request: pytest.FixtureRequest) -> Face:
    """Blocking calls, or asyncio behind blocking calls."""
    return Face(request.param)


@pytest.fixture
def world(request: pytest.FixtureRequest, make_world: MakeWorld, face: Face) -> Iterator[World]:
    """A store of its own for each test, as far as the test can see; it must be empty again at the end."""
    with _world(request, face, make_world) as made:
        yield made


@pytest.fixture
def world_below(request: pytest.FixtureRequest, make_world: MakeWorld) -> Iterator[World]:
    """A store without a face in front of it that matters."""
    with _world(request, Face("threads"), make_world) as made:
        yield made


@pytest.fixture
def world_aio(request: pytest.FixtureRequest, make_world: MakeWorld) -> Iterator[World]:
    """A store whose clients are the asyncio face itself; the test closes them on its own loop."""
    with _world(request, Face("plain asyncio"), make_world) as made:
        yield made


@contextmanager
def _world(request: pytest.FixtureRequest, face: Face, make_world: MakeWorld) -> Iterator[World]:
    made = make_world(face)
    try:
        test: Any = getattr(request, "function", None)
        if unknown := missing(made, test):
            pytest.skip(f"{type(made).__name__} does not define {', '.join(unknown)}")
        yield made
    finally:
        made.close()
    # A store may take a moment: ZooKeeper removes the empty containers of a lost session in time.
    assert eventually(lambda: made.forgotten() == []), f"left in the store: {made.forgotten()}"
