"""`make_world`: every backend of our own. The rest of the fixtures are the suite's."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdfast.testing.conformance import *  # noqa: F403

from .worlds import KINDS, EtcdWorld, MemoryWorld, ZooKeeperWorld


@pytest.fixture(params=KINDS)
def make_world(request: pytest.FixtureRequest) -> Any:
    """From a face to a world of each kind."""
    if request.param == "memory":
        return MemoryWorld
    singles = request.getfixturevalue("singles")
    return partial(EtcdWorld if request.param == "etcd" else ZooKeeperWorld, cluster=singles[request.param])
