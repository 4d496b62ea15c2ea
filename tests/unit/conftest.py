"""Fixtures of the unit tests, and the rule that no test leaves a thread behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.unit.rig import PATIENCE_SECONDS, Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def no_thread_left_behind() -> Iterator[None]:
    """A thread of tenure or of a test that outlives the test fails it; the timers' thread is the process's."""
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and t.name.startswith(("tenure-", "test-"))]
    for thread in left:
        if thread.name != "tenure-timers":
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), f"{thread.name} outlived the test"
