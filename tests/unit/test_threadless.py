"""A process that may start no more threads for a moment: what nobody awaits is done once there is one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tenure import HoldState
from tenure._backends.etcd.delegated.background import Background
from tenure._backends.etcd.requests import Life
from tenure._backends.etcd.ticket_keys import KeyAudit
from tenure._core.base.clock import VirtualClock
from tenure._core.base.limits import TICKET_WATCH_AFTER
from tenure._core.lease import BackendContext, LeaseState
from tenure.events import Hub
from tests.conformance.store_worlds import eventually
from tests.unit.fakes import TTL, ThreadlessWorkers
from tests.unit.rig import Rig, reached


def short_of_threads(clock: VirtualClock) -> BackendContext:
    return BackendContext(clock, Hub(clock.now), ThreadlessWorkers(3))


@contextmanager
def no_thread(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[list[str]]:
    """None of this name can be started; which were to be."""
    start, refused = threading.Thread.start, list[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(name):
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        yield refused


def advancing(rig: Rig, what: Callable[[], bool]) -> Callable[[], bool]:
    """Time goes on until it is true."""

    def look() -> bool:
        rig.clock.advance(0.1)
        return what()

    return look


def test_callback_that_finds_no_thread_is_called_later(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 15: a loss reaches the callback, late rather than never; and the release is not the worse for it."""
    hold, heard, told = rig.client().lock("a").acquire(), list[HoldState](), threading.Event()
    hold.on_change(heard.append)
    hold.on_change(lambda _: told.set())
    with no_thread(monkeypatch, "tenure-callback") as refused:
        assert hold.release() is True
        assert refused
    rig.clock.advance(2.0)
    reached(told)
    assert heard == [HoldState.RELEASED]


def test_hold_whose_look_at_its_own_ticket_finds_no_thread_looks_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 15: the removal by an administrator was heard of, and must not be forgotten for want of a thread."""
    hold = rig.client().lock("a").acquire()
    rig.clock.advance(TICKET_WATCH_AFTER + 0.1)
    with no_thread(monkeypatch, "tenure-background") as refused:
        (line,) = rig.store.lines
        rig.store.leave(line, rig.store.lines[line][0].id, None)
        rig.clock.advance(0.1)
        assert refused
    assert eventually(advancing(rig, lambda: hold.state is HoldState.LOST))


def test_chore_that_finds_no_thread_is_done_later() -> None:
    """Law 7: what is owed to the store is not dropped, and whoever asked for it hears of no failure."""
    clock, done = VirtualClock(), list[float]()
    background = Background(short_of_threads(clock))
    background.until_done(done.append, TTL)
    assert background.open == 1
    clock.advance(TTL)
    assert len(done) == 1
    assert background.open == 0


def test_chore_for_which_there_is_never_a_thread_is_given_up_after_its_ttl() -> None:
    """By then the store has ended what nobody renewed."""
    clock = VirtualClock()
    background = Background(BackendContext(clock, Hub(clock.now), ThreadlessWorkers(10_000)))
    background.until_done(lambda _: None, TTL)
    clock.advance(10 * TTL)
    assert background.open == 0


def test_audit_whose_look_finds_no_thread_goes_on() -> None:
    """Law 7: it goes on for as long as the lease lives."""
    clock, looks = VirtualClock(), list[int]()

    class Wire:
        def life(self, lease: int, until: float, *, keys: bool) -> Life:
            looks.append(lease)
            return Life(TTL, ())

    wire: Any = Wire()
    places: Any = None  # none is asked for
    audit = KeyAudit(wire, places, lambda: LeaseState.HELD, short_of_threads(clock))
    audit.doubt(7, TTL)
    clock.advance(10 * TTL)
    assert len(looks) > 3
