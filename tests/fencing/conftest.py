"""`rivals`: two programs that want one name, on every store; the first can be deposed without noticing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

import tenure
from tenure.testing.conformance.faces import Face
from tests.conformance.store_worlds import KINDS, EtcdWorld, MemoryWorld, ZooKeeperWorld, eventually

Recipe: TypeAlias = Callable[[Any], Any]


class Rivals:
    """`first` holds the name. After `depose()` it still thinks so (it was stopped), and the second holds it."""

    def __init__(self, world: Any, recipe: Recipe) -> None:
        self._world = world
        self._first, self._second = world.client(owner="first", ttl=60), world.client(owner="second", ttl=60)
        self._recipe = recipe
        self.first: tenure.Hold = recipe(self._first).acquire(timeout=10)

    def depose(self) -> tenure.Hold:
        """The store ends the first one's lease while it hears nothing; the second acquires."""
        self._world.cut(self._first)
        self._world.expire(self.first)
        second: tenure.Hold = self._recipe(self._second).acquire(timeout=20)
        return second

    def resume(self) -> None:
        """The first one is connected again."""
        self._world.heal(self._first)


@pytest.fixture(params=[kind for kind in KINDS if kind != "etcd+grpc"])  # a guard does not see the transport
def world(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A store of its own for each test, with faults; it must be empty again at the end."""
    face = Face("threads")
    made: Any
    if request.param == "memory":
        made = MemoryWorld(face)
    else:
        singles = request.getfixturevalue("singles")
        made = (EtcdWorld if request.param == "etcd" else ZooKeeperWorld)(face, singles[request.param])
    yield made
    made.close()
    assert eventually(lambda: made.left() == []), f"left in the store: {made.left()}"


@pytest.fixture
def rivals(world: Any) -> Rivals:
    """Two programs that want the lock "ledger"."""
    return Rivals(world, lambda client: client.lock("ledger"))
