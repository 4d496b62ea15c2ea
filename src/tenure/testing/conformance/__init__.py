"""tenure.testing.conformance: one suite for all backends, over both faces. The author of a backend runs it.

In `conftest.py`, with `from tenure.testing.conformance import *` for the fixtures:

    class ToyWorld(StoreWorld):
        url = "toy://127.0.0.1:7000"            # how to connect; `client` adds a namespace of the test's own
        def expire(self, hold): ...             # how to break it, and what it says itself: see store_world
        def delete(self, name, ticket): ...
        def tickets(self, name): ...
        def left(self): ...

    @pytest.fixture                             # with params where the store comes in several kinds
    def make_world():
        return ToyWorld

and in `test_conformance.py`: `from tenure.testing.conformance.suite import *`. That is all.

In reading order:

    store_world      what a backend's author gives: a store, clients of it, and how to break what lies between; and
                     the fixtures `world` on both faces, `world_below` for the verbs, `world_aio` for asyncio itself
    faces            the asyncio face behind blocking calls, so that each test is written once
    suite            all the tests below
    test_laws        the laws of the Lease protocol, as holders see them
    test_verbs       the verbs of a Lease
    test_recipes     locks, semaphores, read/write locks and elections
    test_guarded     guarded keys
    test_lock_delay  the delay after a lost hold
    test_aio         asyncio itself
    test_operating   what operators see and do
    test_delegation  holds that others renew

Leases need not have what operators need: a world that says `for_operators = False` skips test_operating. Backends need
not have holds that others renew: a world whose backend has them says `has_delegation = True`, for test_delegation.

A test that needs a fault which the world does not know is skipped with a word on what to define. Nothing else
is ever skipped: a backend that passes without a skip keeps every law that memory, etcd and ZooKeeper are held
to. What the suite does not do: kill servers, change leaders, fill disks.
"""

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "store_world",
            "test_laws",
            "test_verbs",
            "test_recipes",
            "test_guarded",
            "test_lock_delay",
            "test_aio",
            "test_operating",
            "test_delegation",
        )
    )
)

from tenure.testing.conformance.faces import Face  # noqa: E402  # its asserts are rewritten from here on
from tenure.testing.conformance.store_world import (  # noqa: E402
    StoreWorld,
    eventually,
    face,
    inner,
    world,
    world_aio,
    world_below,
)

__all__ = ["Face", "StoreWorld", "eventually", "face", "inner", "world", "world_aio", "world_below"]
