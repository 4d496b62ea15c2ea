"""holdfast.testing.conformance: one suite for all backends, over both faces. Whoever writes a backend runs it.

In `conftest.py`, with `from holdfast.testing.conformance import *` for the fixtures:

    class ToyWorld(World):
        url = "toy://127.0.0.1:7000"            # how to connect; `client` adds a namespace of the test's own
        def expire(self, hold): ...             # how to break it, and what it says itself: see worlds.py
        def delete(self, name, ticket): ...
        def tickets(self, name): ...
        def left(self): ...

    @pytest.fixture                             # with params where the store comes in several kinds
    def make_world():
        return ToyWorld

and in `test_conformance.py`: `from holdfast.testing.conformance.suite import *`. That is all.

In reading order:

    worlds.py     what a backend's author gives: a store, clients of it, and how to break what lies between
    faces.py      the asyncio face behind blocking calls, so that each test is written once
    fixtures.py   `world` on both faces, `world_below` for the verbs, `world_aio` for asyncio itself
    suite.py      all the tests; a module per subject: test_laws, test_verbs, test_recipes, test_guarded,
                  test_lock_delay, test_aio, test_operating, test_entrusting

Leases need not have what operators need (`operating`): a world that says `for_operators = False` skips test_operating.
Backends need not have holds that others renew (`entrusting`): one that has says `entrusts = True` to test_entrusting.

A test that needs a fault which the world does not know is skipped with a word on what to define. Nothing else
is ever skipped: a backend that passes without a skip keeps every law that memory, etcd and ZooKeeper are held
to. What the suite does not do: kill servers, change leaders, fill disks.
"""

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "fixtures",
            "test_laws",
            "test_verbs",
            "test_recipes",
            "test_guarded",
            "test_lock_delay",
            "test_aio",
            "test_operating",
            "test_entrusting",
        )
    )
)

from holdfast.testing.conformance.faces import Face  # noqa: E402  # its asserts are rewritten from here on
from holdfast.testing.conformance.fixtures import face, world, world_aio, world_below  # noqa: E402
from holdfast.testing.conformance.worlds import World, eventually, inner  # noqa: E402

__all__ = ["Face", "World", "eventually", "face", "inner", "world", "world_aio", "world_below"]
