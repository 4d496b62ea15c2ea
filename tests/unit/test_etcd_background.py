"""Background tasks of a client that closes: worked off within a bound, and the rest is logged once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tenure._backends.etcd.delegated.background import Background
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.signals import Signal
from tenure._core.base.threads import Helpers
from tenure._core.lease import BackendContext
from tenure.errors import StoreRefused, StoreUnavailable
from tenure.events import Hub

TTL = 60.0


@pytest.fixture
def workers() -> Iterator[Helpers]:
    """One thread."""
    helpers = Helpers("test-background", 1)
    yield helpers
    helpers.close(10.0)


@pytest.fixture
def background(workers: Helpers) -> Background:
    return Background(BackendContext(SYSTEM_CLOCK, Hub(SYSTEM_CLOCK.now), workers))


class Standstill:
    """A task that stands still until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, until: float) -> None:
        self.begun.set()
        assert self.may_end.wait(20.0)


def soon(seconds: float) -> float:
    return SYSTEM_CLOCK.now() + seconds


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "TTLs end them" in record.getMessage()]


def test_everything_is_done_once_though_no_worker_comes_free(
    background: Background, workers: Helpers, caplog: pytest.LogCaptureFixture
) -> None:
    """By the thread that closes; the workers find nothing to do behind it."""
    hindrance, done = Standstill(), list[int]()
    workers.submit(lambda: hindrance(0.0))
    for number in range(1000):
        background.until_done(lambda _, number=number: done.append(number), TTL)  # type: ignore[misc]  # binds now
    background.finish(soon(20.0))
    assert done == list(range(1000))
    assert background.open == 0
    hindrance.may_end.set()
    workers.close(10.0)
    assert len(done) == 1000
    assert warnings(caplog) == []


def test_task_that_a_worker_is_at_is_waited_for(background: Background, caplog: pytest.LogCaptureFixture) -> None:
    """It is done by nobody else meanwhile."""
    task = Standstill()
    calls: list[float] = []

    def counted(until: float) -> None:
        calls.append(until)
        task(until)

    background.until_done(counted, TTL)
    assert task.begun.wait(20.0)
    for _ in range(10):
        background.until_done(lambda _: None, TTL)
    threading.Timer(0.2, task.may_end.set).start()
    background.finish(soon(20.0))
    assert task.may_end.is_set()
    assert len(calls) == 1
    assert background.open == 0
    assert warnings(caplog) == []


def test_what_is_left_at_the_end_is_told_once_and_done_by_nobody_later(
    background: Background, workers: Helpers, caplog: pytest.LogCaptureFixture
) -> None:
    """The bound holds with a store that is silent to each: none is given more time than that."""
    given: list[float] = []

    def silent(until: float) -> None:
        given.append(until)
        SYSTEM_CLOCK.wait(Signal(), until)
        raise StoreUnavailable("no answer")

    hindrance = Standstill()
    workers.submit(lambda: hindrance(0.0))
    for _ in range(50):
        background.until_done(silent, TTL)
    began, until = time.monotonic(), soon(0.3)
    background.finish(until)
    assert time.monotonic() - began >= 0.25
    assert max(given) <= until
    (told,) = warnings(caplog)
    assert "closed: 50." in told
    tried = len(given)
    assert tried < 50
    hindrance.may_end.set()
    background.until_done(silent, TTL)
    workers.close(10.0)
    assert len(given) == tried
    assert background.open == 0


def test_task_that_fails_at_once_costs_the_others_nothing(
    background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried, also one that waits for its next try; the end does not wait for another."""
    tries: list[str] = []

    def refused(until: float) -> None:
        tries.append("refused")
        raise StoreRefused("no")

    background.until_done(refused, TTL)
    done: list[float] = []
    for _ in range(10):
        background.until_done(done.append, TTL)
    background.finish(soon(20.0))
    assert len(done) == 10
    assert len(tries) >= 1
    (told,) = warnings(caplog)
    assert "closed: 1." in told


def test_interrupted_end_leaves_what_it_was_at_to_be_done(background: Background, workers: Helpers) -> None:
    """A KeyboardInterrupt comes through, and the task is nobody's."""
    hindrance, interrupts = Standstill(), [KeyboardInterrupt()]

    def work(until: float) -> None:
        if interrupts:
            raise interrupts.pop()

    workers.submit(lambda: hindrance(0.0))
    background.until_done(work, TTL)
    with pytest.raises(KeyboardInterrupt):
        background.finish(soon(20.0))
    assert background.open == 1
    background.finish(soon(20.0))
    assert background.open == 0
    hindrance.may_end.set()
