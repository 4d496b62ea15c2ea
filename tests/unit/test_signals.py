"""Signal: set once, heard by everybody, exactly once each."""

from __future__ import annotations

import signal as signals
import threading

import pytest

from tenure._core.base.signals import Signal
from tests.unit.rig import Background


def test_signal_once_set_stays_set_and_calls_each_callback_once() -> None:
    """A second `set` does nothing."""
    signal, heard = Signal(), list[str]()
    signal.add_callback(lambda: heard.append("a"))
    signal.add_callback(lambda: heard.append("b"))
    assert not signal.is_set()
    signal.set()
    signal.set()
    assert signal.is_set()
    assert sorted(heard) == ["a", "b"]


def test_callback_added_after_set_runs_at_once() -> None:
    """Whoever comes late is not left waiting."""
    signal, heard = Signal(), list[int]()
    signal.set()
    signal.add_callback(lambda: heard.append(1))
    assert heard == [1]


def test_callback_added_while_another_thread_sets_runs_exactly_once() -> None:
    """No callback is missed or run twice, however adding and setting interleave."""
    for _ in range(300):
        signal, heard, gate = Signal(), list[int](), threading.Barrier(2)

        def set_it(signal: Signal = signal, gate: threading.Barrier = gate) -> None:
            gate.wait()
            signal.set()

        setting = Background(set_it)
        gate.wait()
        for number in range(5):
            signal.add_callback(lambda number=number, heard=heard: heard.append(number))  # type: ignore[misc]  # binds now
        setting.result()
        assert sorted(heard) == [0, 1, 2, 3, 4]


def test_callback_that_sets_adds_and_closes_breaks_nothing() -> None:
    """Callbacks run in the setting thread, which may come back in."""
    signal, heard = Signal(), list[str]()
    signal.on_close(lambda: heard.append("closed"))

    def come_back() -> None:
        signal.set()
        signal.add_callback(lambda: heard.append("added"))
        signal.close()

    signal.add_callback(come_back)
    signal.set()
    assert heard == ["added", "closed"]


def test_wait_tells_whether_it_was_set() -> None:
    """A wait of no length asks; a set signal answers at once."""
    signal = Signal()
    assert signal.wait(0.0) is False
    waiting = Background(lambda: signal.wait(None))
    signal.set()
    assert waiting.result() is True
    assert signal.wait(0.0) is True


def test_close_gives_back_once() -> None:
    """Law 12: the watch behind it is given back, once, set or not."""
    for was_set in (True, False):
        signal, closed = Signal(), list[int]()
        signal.on_close(lambda closed=closed: closed.append(1))  # type: ignore[misc]  # binds now
        if was_set:
            signal.set()
        assert closed == []
        signal.close()
        signal.close()
        assert closed == [1]


def test_close_of_a_signal_with_nothing_behind_it_is_harmless() -> None:
    """Not every signal is a watch."""
    Signal().close()


class Struck(Exception):
    """What the handler raises."""


def test_wait_that_is_interrupted_leaves_nothing_behind() -> None:
    """A signal handler that raises out of a wait takes its callback with it: a long-lived signal does not grow."""

    def strike(number: int, frame: object) -> None:
        raise Struck

    signal, before = Signal(), signals.signal(signals.SIGALRM, strike)
    try:
        signals.setitimer(signals.ITIMER_REAL, 0.05)
        with pytest.raises(Struck):
            signal.wait(60.0)
    finally:
        signals.setitimer(signals.ITIMER_REAL, 0.0)
        signals.signal(signals.SIGALRM, before)
    assert signal._callbacks == []
