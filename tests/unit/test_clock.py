"""Both clocks: deadlines are readings, timers only announce."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from tenure._core.base.clock import SYSTEM_CLOCK, SystemClock, VirtualClock
from tenure._core.base.signals import Signal
from tests.unit.rig import PATIENCE_SECONDS, Background, reached

FOREVER = 3600.0

CLOCKS = [pytest.param(SystemClock, id="system"), pytest.param(VirtualClock, id="virtual")]


def test_virtual_clock_moves_only_when_told() -> None:
    """Nothing in a test waits for real time."""
    clock = VirtualClock(5.0)
    time.monotonic()
    assert clock.now() == 5.0
    clock.advance(2.5)
    assert clock.now() == 7.5


def test_virtual_clock_runs_what_falls_due_in_order_each_at_its_own_time() -> None:
    """A timer sees the time it was due, whatever the order it was made in."""
    clock, ran = VirtualClock(0.0), list[tuple[str, float]]()
    for name, due in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("a2", 1.0), ("late", 9.0)):
        clock.schedule(due, lambda name=name: ran.append((name, clock.now())))  # type: ignore[misc]  # binds now
    clock.advance(5.0)
    assert ran == [("a", 1.0), ("a2", 1.0), ("b", 2.0), ("c", 3.0)]
    assert clock.now() == 5.0


def test_virtual_clock_runs_timers_made_by_timers_within_the_same_advance() -> None:
    """A heartbeat that schedules the next one beats all the way."""
    clock, beats = VirtualClock(0.0), list[float]()

    def beat() -> None:
        beats.append(clock.now())
        clock.schedule(clock.now() + 1.0, beat)

    clock.schedule(1.0, beat)
    clock.advance(4.5)
    assert beats == [1.0, 2.0, 3.0, 4.0]


def test_virtual_clock_runs_what_is_overdue_when_scheduled() -> None:
    """A time that has come already is now."""
    clock, ran = VirtualClock(10.0), list[int]()
    clock.schedule(9.0, lambda: ran.append(1))
    assert ran == [1]


def test_system_clock_runs_timers_in_order_on_its_own_thread() -> None:
    """Timers of one process share one daemon thread."""
    clock, done = SystemClock(), threading.Event()
    ran: list[tuple[int, str, bool]] = []

    def note(number: int) -> Callable[[], None]:
        return lambda: ran.append((number, threading.current_thread().name, threading.current_thread().daemon))

    now = clock.now()
    clock.schedule(now + 0.03, done.set)
    clock.schedule(now + 0.02, note(2))
    clock.schedule(now + 0.01, note(1))
    reached(done)
    assert ran == [(1, "tenure-timers", True), (2, "tenure-timers", True)]


def test_system_clock_wakes_for_a_timer_earlier_than_the_one_it_waits_for() -> None:
    """A short timer made after a long one is not kept waiting."""
    clock, done = SystemClock(), threading.Event()
    far = clock.schedule(clock.now() + 3600.0, lambda: None)
    clock.schedule(clock.now() + 0.01, done.set)
    reached(done)
    far.cancel()


def test_system_clock_timer_thread_ends_when_nothing_is_left_to_do() -> None:
    """An idle process has no timer thread; the next timer starts another."""
    clock = SystemClock()
    for _ in range(3):
        on = list[threading.Thread]()
        ran = threading.Event()

        def run(on: list[threading.Thread] = on, ran: threading.Event = ran) -> None:
            on.append(threading.current_thread())
            ran.set()

        clock.schedule(clock.now(), run)
        reached(ran)
        on[0].join(PATIENCE_SECONDS)
        assert not on[0].is_alive()


def test_system_clock_does_not_start_a_thread_per_timer() -> None:
    """Law 10: threads don't grow with the number of timers."""
    clock = SystemClock()
    timers = [clock.schedule(clock.now() + 3600.0, lambda: None) for _ in range(200)]
    mine = clock._thread
    assert mine is not None
    assert mine.is_alive()
    for timer in timers:
        timer.cancel()
    clock.schedule(clock.now(), lambda: None)  # wakes the thread, which finds only cancelled ones
    mine.join(PATIENCE_SECONDS)
    assert not mine.is_alive()


class WatchedClock(SystemClock):
    """Counts how often its thread asks whether a timer is due, as it does whenever it wakes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def now(self) -> float:
        if threading.current_thread().name == "tenure-timers":
            self.asked += 1
        return super().now()


def test_system_clock_does_not_wake_for_each_timer_that_was_cancelled() -> None:
    """Every hold has a timer that most cancel before it falls due: a busy lock must not keep a second thread busy."""
    clock, done = WatchedClock(), threading.Event()
    beat = clock.schedule(clock.now() + 3600.0, lambda: None)
    began = clock.now()
    for _ in range(300):
        clock.schedule(clock.now() + 0.1, lambda: None).cancel()
        time.sleep(0.0005)  # the time a short hold takes
    took = clock.now() - began
    clock.schedule(clock.now() + 0.01, done.set)
    reached(done)
    assert clock.asked <= 2 * (took / 0.1 + 1) + 4  # sent to sleep and woken once per 0.1 s, not once per timer
    beat.cancel()


@pytest.mark.parametrize("make", CLOCKS)
def test_cancelled_timer_never_runs_and_cancelling_again_is_harmless(make: Callable[[], SystemClock]) -> None:
    """`cancel` is idempotent, and frees what the callback held at once."""
    clock, done, ran = make(), threading.Event(), list[int]()
    timer = clock.schedule(clock.now() + 0.5, lambda: ran.append(1))  # not before it is cancelled
    timer.cancel()
    timer.cancel()
    clock.schedule(clock.now() + 0.51, done.set)
    if isinstance(clock, VirtualClock):
        clock.advance(1.0)
    reached(done)
    assert ran == []
    assert timer.run is None


@pytest.mark.parametrize("make", CLOCKS)
def test_timer_that_raises_is_logged_and_the_others_run(
    make: Callable[[], SystemClock], caplog: pytest.LogCaptureFixture
) -> None:
    """One lease's failing timer takes no other lease's with it."""
    clock, done = make(), threading.Event()

    def fail() -> None:
        raise ValueError("told by the test")

    with caplog.at_level(logging.ERROR, "tenure.clock"):
        clock.schedule(clock.now() + 0.01, fail)
        clock.schedule(clock.now() + 0.02, done.set)
        if isinstance(clock, VirtualClock):
            clock.advance(1.0)
        reached(done)
    assert "told by the test" in caplog.text


def test_virtual_wait_ends_with_its_signal_or_with_its_time() -> None:
    """True when woken, False when the deadline came."""
    clock, signal = VirtualClock(), Signal()
    timed_out = Background(lambda: clock.wait(Signal(), clock.now() + 5.0))
    woken = Background(lambda: clock.wait(signal, clock.now() + 50.0))
    clock.advance(5.0)
    assert timed_out.result() is False
    signal.set()
    assert woken.result() is True
    assert clock.wait(signal, None) is True


def test_system_wait_ends_with_its_signal_or_with_its_time() -> None:
    """True when woken, False when the deadline came; a deadline in the past is over at once."""
    clock, signal = SystemClock(), Signal()
    woken = Background(lambda: clock.wait(signal, None))
    signal.set()
    assert woken.result() is True
    before = clock.now()
    assert clock.wait(Signal(), before + 0.02) is False
    assert clock.now() >= before + 0.02
    assert clock.wait(Signal(), before - 5.0) is False
    assert clock.wait(signal, before - 5.0) is True


def test_system_wait_takes_a_deadline_beyond_what_threads_can_wait() -> None:
    """An absurdly patient caller is served, not refused by the platform's limit."""
    clock, signal = SystemClock(), Signal()
    patient = Background(lambda: clock.wait(signal, 1e300))
    signal.set()
    assert patient.result() is True
    clock.schedule(1e300, lambda: None).cancel()


def test_system_clock_never_goes_back() -> None:
    """Deadlines are compared with later readings."""
    readings = [SYSTEM_CLOCK.now() for _ in range(1000)]
    assert readings == sorted(readings)


def test_cancelled_timers_behind_a_live_one_do_not_pile_up() -> None:
    """Ten thousand short holds behind one long wait leave no ten thousand timers behind."""
    clock, swept = SystemClock(), threading.Event()
    live = clock.schedule(clock.now() + FOREVER / 2, lambda: None)
    for _ in range(10_000):
        clock.schedule(clock.now() + FOREVER, lambda: None).cancel()
    clock.schedule(clock.now(), swept.set)
    reached(swept)
    left = len(clock._timers)
    live.cancel()
    clock.schedule(clock.now(), lambda: None)  # wakes the clock's thread, which finds only cancelled ones and ends
    assert left < 5_000
