"""Helper threads: what they say of themselves."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import CodeType, FrameType
from typing import Any

import pytest

from tenure import HoldState
from tenure._core.base.limits import WORKERS_MAX
from tenure._core.base.threads import Helpers
from tenure._core.runtime import runtime_of
from tenure.errors import (
    ClientClosed,
    LeaseLost,
    StoreUnavailable,
)
from tests.unit.fakes import Interrupted
from tests.unit.rig import PATIENCE_SECONDS, Background, Rig, reached

HANG_SECONDS = 30.0


def test_helpers_are_crowded_while_there_is_more_to_do_than_threads() -> None:
    """Whoever finds them so has to see to its own deadline: nobody may begin its work in time."""
    helpers, go_on = Helpers("test-helpers", 2), threading.Event()
    try:
        assert helpers.crowded is False
        told = []
        for crowded in (False, False, True, True):
            told.append(helpers.submit(lambda: go_on.wait(20)))
            assert helpers.crowded is crowded
        go_on.set()
        assert [future.result(20) for future in told] == [True] * 4
        assert helpers.crowded is False
    finally:
        go_on.set()
        helpers.close(20)


def test_work_that_no_thread_could_be_started_for_is_never_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was told so has given it up: a ticket that is entered after all would be nobody's."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    helpers, ran = Helpers("test-helpers", 1), list[str]()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(StoreUnavailable):
                helpers.submit(lambda: ran.append("refused"))
        helpers.submit(lambda: ran.append("taken")).result(20)
        assert ran == ["taken"]
        assert helpers.crowded is False
    finally:
        helpers.close(20)


@pytest.fixture
def helpers() -> Iterator[Helpers]:
    """One helper thread; what it was given is finished when the test is over."""
    made = Helpers("test-helper", 1)
    yield made
    made.close(PATIENCE_SECONDS)


def helper_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("test-helper")]


def test_helpers_start_no_thread_before_there_is_work() -> None:
    """A client that never needs a helper costs no thread."""
    idle = Helpers("test-helper", WORKERS_MAX)
    assert helper_threads() == []
    idle.close(PATIENCE_SECONDS)


def test_helpers_with_more_work_than_threads_stay_within_their_bound() -> None:
    """Law 10: threads don't grow with the work; all of them work at one time, and all work is done."""
    helpers = Helpers("test-helper", 3)
    busy, gate = threading.Barrier(4), threading.Event()

    def work(number: int) -> int:
        if number < 3:
            busy.wait(PATIENCE_SECONDS)
        reached(gate)
        return number

    futures = [helpers.submit(lambda number=number: work(number)) for number in range(20)]  # type: ignore[misc]  # binds now
    busy.wait(PATIENCE_SECONDS)
    threads = helper_threads()
    gate.set()
    assert [future.result(PATIENCE_SECONDS) for future in futures] == list(range(20))
    assert len(threads) == 3
    assert all(thread.daemon for thread in threads)
    assert len(helper_threads()) == 3
    helpers.close(PATIENCE_SECONDS)
    assert helper_threads() == []


def test_one_helper_carries_out_in_the_order_submitted(helpers: Helpers) -> None:
    """Callbacks are told in order because one thread tells them."""
    done: list[int] = []
    futures = [helpers.submit(lambda number=number: done.append(number)) for number in range(200)]  # type: ignore[misc]  # binds now
    for future in futures:
        future.result(PATIENCE_SECONDS)
    assert done == list(range(200))


@pytest.mark.parametrize("error", [ValueError("x"), LeaseLost("y"), SystemExit(3), Interrupted()])
def test_error_of_work_is_carried_over_and_the_helper_goes_on(helpers: Helpers, error: BaseException) -> None:
    """Whoever waits gets the very error; no error ends the thread."""

    def fail() -> None:
        raise error

    failed = helpers.submit(fail)
    assert failed.exception(PATIENCE_SECONDS) is error
    assert helpers.submit(lambda: "next").result(PATIENCE_SECONDS) == "next"


def test_submit_after_close_raises_client_closed(helpers: Helpers) -> None:
    """What comes too late is refused, not dropped; closing again is harmless."""
    ran: list[int] = []
    helpers.submit(lambda: None).result(PATIENCE_SECONDS)
    helpers.close(PATIENCE_SECONDS)
    helpers.close(PATIENCE_SECONDS)
    with pytest.raises(ClientClosed):
        helpers.submit(lambda: ran.append(1))
    assert ran == []


def test_close_finishes_what_was_taken_and_waits_for_it(helpers: Helpers) -> None:
    """Law 16: work that was accepted is carried out, and its threads have ended when close returns."""
    gate = threading.Event()
    done: list[int] = []
    helpers.submit(lambda: reached(gate))
    for number in range(20):
        helpers.submit(lambda number=number: done.append(number))  # type: ignore[misc]  # binds now
    closing = Background(lambda: helpers.close(PATIENCE_SECONDS))
    assert not closing.joined(0.05)
    gate.set()
    closing.result()
    assert done == list(range(20))
    assert helper_threads() == []


def test_close_waits_for_all_blocked_threads_together_as_long_as_told() -> None:
    """One bound for the call, however many threads do not come back."""
    helpers, gate = Helpers("test-helper", 8), threading.Event()
    futures = [helpers.submit(lambda: reached(gate)) for _ in range(8)]
    started = time.monotonic()
    closing = Background(lambda: helpers.close(0.5))
    try:
        closing.result()
        took = time.monotonic() - started
    finally:
        gate.set()
    for future in futures:
        future.result(PATIENCE_SECONDS)
    assert 0.4 < took < 2.0


def test_close_by_a_helper_itself_does_not_wait_for_itself(helpers: Helpers) -> None:
    """A callback may close its client."""
    assert helpers.submit(lambda: helpers.close(PATIENCE_SECONDS)).result(PATIENCE_SECONDS / 2) is None


def test_cancelled_work_is_skipped(helpers: Helpers) -> None:
    """A task cancelled before its request was begun sends none."""
    gate = threading.Event()
    ran: list[str] = []
    helpers.submit(lambda: reached(gate))
    cancelled = helpers.submit(lambda: ran.append("cancelled"))
    last = helpers.submit(lambda: ran.append("last"))
    assert cancelled.cancel()
    gate.set()
    last.result(PATIENCE_SECONDS)
    assert ran == ["last"]


class Thing:
    """Something a work refers to."""


def test_idle_helper_keeps_nothing_of_its_last_work_alive(helpers: Helpers) -> None:
    """A client or hold that a work referred to can be collected while the thread waits for more."""
    thing, gone = Thing(), threading.Event()
    weakref.finalize(thing, gone.set)
    helpers.submit(lambda thing=thing: None).result(PATIENCE_SECONDS)  # type: ignore[misc]  # binds now
    del thing
    reached(gone)


def interrupted_at_line(number: int, code: CodeType, handle: Callable[[], object], call: Callable[[], object]) -> bool:
    """Make `call`, with `handle` before the `number`th line it runs of `code`, where a signal handler may run.

    False when it did not run that many.
    """
    lines = itertools.count()
    handled: list[int] = []

    def at_line(_frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and next(lines) == number:
            handled.append(number)
            handle()  # not traced itself: nothing is, within a trace function
        return at_line

    def at_call(frame: FrameType, _event: str, _: object) -> Any:
        return at_line if frame.f_code is code else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return bool(handled)


@pytest.mark.timeout(HANG_SECONDS, method="signal")
@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize("maximum", [1, 4])
def test_submit_in_a_signal_handler_before_any_line_of_submit_does_not_hang(maximum: int, is_warm: bool) -> None:
    """Law 16: the main thread's own lock is never in its signal handler's way, and no work of either is dropped."""
    for number in itertools.count():
        helpers, futures = Helpers("test-helper", maximum), list[Future[str]]()
        if is_warm:
            helpers.submit(lambda: None).result(PATIENCE_SECONDS)
        submit = Helpers.submit.__code__
        interrupted = interrupted_at_line(
            number,
            submit,
            lambda helpers=helpers, futures=futures: futures.append(helpers.submit(lambda: "handler")),  # type: ignore[misc]  # binds now
            lambda helpers=helpers, futures=futures: futures.append(helpers.submit(lambda: "main")),  # type: ignore[misc]  # binds now
        )
        told = [future.result(PATIENCE_SECONDS) for future in futures]
        helpers.close(PATIENCE_SECONDS)
        if not interrupted:
            break
        assert told == ["handler", "main"]
    assert number > 5


@pytest.mark.timeout(HANG_SECONDS, method="signal")
def test_hold_with_a_callback_released_by_a_signal_handler_inside_submit_does_not_hang(rig: Rig) -> None:
    """Law 16: SIGTERM's handler may release what somebody listens to, while the main thread hands work over."""
    client = rig.client()
    heard: list[HoldState] = []
    holds = [client.lock(str(number)).acquire() for number in range(100)]
    for hold in holds:
        hold.on_change(heard.append)
    held, inside = list(holds), list[int]()

    def handle(_signal: int, _frame: object) -> None:
        if inside or not held:
            return  # one handler at a time, as a program that blocks the signal in its handler has it
        inside.append(1)
        held.pop().release()
        inside.pop()

    give_up = time.monotonic() + PATIENCE_SECONDS
    before = signal.signal(signal.SIGVTALRM, handle)  # not SIGALRM, which bounds the tests themselves
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005, 0.0005)
        while held and time.monotonic() < give_up:
            for _ in range(100):
                last = runtime_of(client)._callbacks.submit(lambda: None)
            last.result(PATIENCE_SECONDS)  # a bound on the queue
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
    client.close()
    assert heard == [HoldState.RELEASED] * len(holds)
    assert rig.tickets == 0
