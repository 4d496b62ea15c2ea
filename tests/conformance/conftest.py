"""`world`: every backend on both faces. `worlds` with faults, one proxy per client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .faces import Face
from .worlds import KINDS, EtcdWorld, MemoryWorld, ZooKeeperWorld, eventually


@pytest.fixture(params=["threads", "asyncio"])
def face(request: pytest.FixtureRequest) -> Face:
    """Blocking calls, or asyncio behind blocking calls."""
    return Face(request.param)


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, face: Face) -> Iterator[Any]:
    """A store of its own for each test, as far as the test can see; it must be empty again at the end."""
    made: Any
    if request.param == "memory":
        made = MemoryWorld(face)
    else:
        singles = request.getfixturevalue("singles")
        made = (EtcdWorld if request.param == "etcd" else ZooKeeperWorld)(face, singles[request.param])
    yield made
    made.close()
    # A ZooKeeper session that was lost could not tidy up: the server removes its empty containers in time.
    assert eventually(lambda: made.left() == []), f"left in the store: {made.left()}"
