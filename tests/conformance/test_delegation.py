"""`tenure.testing.conformance.test_delegation` on those of our own backends that have holds for others to renew."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tenure.testing.conformance.test_delegation import *  # noqa: F403

from .conftest import WORLDS
from .store_worlds import MemoryWorld, ZooKeeperWorld

ENTRUSTS = [kind for kind, world in WORLDS.items() if world.has_delegation]


@pytest.fixture(params=ENTRUSTS)
def make_world(request: pytest.FixtureRequest) -> Any:
    """A function from a face to a world, of each kind that has them."""
    return partial(WORLDS[request.param], cluster=request.getfixturevalue("singles")[request.param.partition("+")[0]])


def test_these_backends_have_them_and_the_others_say_so() -> None:
    """No backend is left out by a word that was forgotten."""
    assert ENTRUSTS == ["etcd", "etcd+grpc"]
    assert not MemoryWorld.has_delegation
    assert not ZooKeeperWorld.has_delegation
