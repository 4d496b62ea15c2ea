"""The one place where tenure waits while CMD runs: for signals, for reports from the watchdog, and for the hold.

Signals are blocked in all threads and taken in by one, because only that tells who sent them. What a terminal sends, it
sends to CMD as well.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import tenure

ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
STOPPING: Final = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_NOT_FOR_CMD: Final = frozenset(
    {
        *(signal.SIGKILL, signal.SIGSTOP),  # nobody can hear them
        *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGABRT),
        *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGXCPU, signal.SIGXFSZ),  # of what this process does itself
    }
)
LISTENED_TO: Final = frozenset(signal.valid_signals() - _NOT_FOR_CMD)
_SI_KERNEL: Final = 0x80


@dataclass(frozen=True, slots=True)
class Signalled:
    """A signal came. `by_terminal`: the kernel sent it, to the whole process group, that is.

    `sender` is 0 where it is outside of this PID namespace, as whoever runs a container is.
    """

    number: int
    sender: int
    by_terminal: bool


@dataclass(frozen=True, slots=True)
class Reported:
    """A report of the watchdog; without facts: it has ended."""

    facts: dict[str, Any]  # as it wrote them
    by: object


@dataclass(frozen=True, slots=True)
class AcquireEnded:
    """The end of an acquire: a hold, None where it is not to be had, or an error."""

    hold: tenure.Hold | None
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Changed:
    """The hold is in another state; the reader looks at it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a call to `finish`: something was given up, or could not be in time."""


News: TypeAlias = Signalled | Reported | AcquireEnded | Changed | Finished


class SupervisorInbox:
    """A queue of news, and the thread that takes in signals. Make it before any other thread: they inherit the mask."""

    def __init__(self) -> None:
        self._news: queue.SimpleQueue[News | threading.Event] = queue.SimpleQueue()
        signal.pthread_sigmask(signal.SIG_BLOCK, LISTENED_TO)
        threading.Thread(target=self._listen, name="tenure-signals", daemon=True).start()

    def put(self, news: News) -> None:
        """Add news, from any thread."""
        self._news.put(news)

    def get(self, seconds: float | None = None) -> News | None:
        """The next news; None when there is none within `seconds`."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            try:
                news = self._news.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
            except queue.Empty:
                return None
            if not isinstance(news, threading.Event):
                return news
            news.set()

    def answers(self, seconds: float) -> bool:
        """True when the inbox is still read, within that time."""
        asked = threading.Event()
        self._news.put(asked)
        return asked.wait(seconds)

    def ask(self, call: Callable[[], tenure.Hold | None]) -> None:
        """Run a call that may wait on a thread of its own; its outcome is put here."""

        def asking() -> None:
            try:
                self.put(AcquireEnded(call(), None))
            except Exception as error:  # whatever it is, it is the main thread's to raise
                self.put(AcquireEnded(None, error))

        threading.Thread(target=asking, name="tenure-acquire", daemon=True).start()

    def finish(self, call: Callable[[], object]) -> None:
        """Give something up on a thread of its own: a store that is away must not keep a second Ctrl-C waiting."""

        def finishing() -> None:
            try:
                call()
            except tenure.TenureError:
                pass  # the client's reaper goes on, and its lease ends what that can't
            finally:
                self.put(Finished())

        threading.Thread(target=finishing, name="tenure-finish", daemon=True).start()

    def _listen(self) -> None:
        while True:
            info = signal.sigwaitinfo(LISTENED_TO)
            self.put(Signalled(info.si_signo, info.si_pid, info.si_code == _SI_KERNEL))


def stop_here(number: int) -> None:
    """Stop this process as the signal would have, so that a shell sees a stopped job. Returns when it is continued."""
    signal.pthread_kill(threading.main_thread().ident or 0, number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})


def has_terminal() -> bool:
    """True when a terminal controls this session."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
