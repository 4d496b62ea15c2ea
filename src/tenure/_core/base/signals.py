"""Signal: a one-shot event that threads, tasks and callbacks can all wait for.

It wakes; it never decides. Whoever wakes looks again.

Not `threading.Event`: that holds a lock which is not re-entrant for a moment in `set` and in `wait`, and a
signal handler that closes a client may come at just that moment. Here nobody holds anything: who waits
registers first and looks at the flag second, who sets does it the other way round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_HANDLERS_WAIT_SECONDS: Final = 0.2
"""For how long the main thread may keep a signal handler waiting. Python runs handlers there, between two steps; a
signal that comes just before the thread falls asleep, or to another thread, does not wake it."""


class Signal:
    """Set once, stays set. Callbacks run in the setting thread and must not block."""

    __slots__ = ("__weakref__", "_callbacks", "_is_set", "_on_close")

    def __init__(self) -> None:
        self._is_set = False
        self._callbacks: list[Callable[[], None]] = []
        self._on_close: Callable[[], None] | None = None

    def set(self) -> None:
        """Wake everybody. A second call does nothing."""
        self._is_set = True
        # pop() is atomic, so a callback added meanwhile runs exactly once, here or in add_callback
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback()

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None) -> bool:
        """Block for at most `timeout` seconds of real time; True when set."""
        if self._is_set:
            return True
        asleep = threading.Lock()
        asleep.acquire()
        self.add_callback(asleep.release)
        try:
            if threading.current_thread() is threading.main_thread():
                _sleep_in_naps(asleep, timeout)
            else:
                asleep.acquire(timeout=-1 if timeout is None else timeout)
        finally:  # also where a signal handler raises
            self.remove_callback(asleep.release)
        return self._is_set

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the signal is set, or now if it already is."""
        self._callbacks.append(callback)
        if self._is_set:
            self.set()

    def remove_callback(self, callback: Callable[[], None]) -> None:
        """Forget a callback that has not run yet."""
        try:
            self._callbacks.remove(callback)
        except ValueError:
            return  # it runs, or has run

    def on_close(self, give_back: Callable[[], None]) -> None:
        """Set the function that gives back what the signal hangs on, such as a watch; `close` calls it."""
        self._on_close = give_back

    def close(self) -> None:
        """Give back what the signal hangs on: nobody waits for it any longer. Idempotent."""
        give_back, self._on_close = self._on_close, None
        if give_back is not None:
            give_back()


def _sleep_in_naps(asleep: threading.Lock, timeout: float | None) -> None:
    until = None if timeout is None else time.monotonic() + timeout
    left = _HANDLERS_WAIT_SECONDS if timeout is None else timeout
    while not asleep.acquire(timeout=min(left, _HANDLERS_WAIT_SECONDS)):
        if until is not None and (left := until - time.monotonic()) <= 0.0:
            return
