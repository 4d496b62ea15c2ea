"""What is done in the background until it is done, or until a lease that nobody renews has ended by itself.

A client that closes works off what is left, within a bound: thousands may have given up their waits a moment before,
and whoever comes next would stand behind their tickets until the leases run out.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Final

from holdfast.backends.etcd.wire import Wire
from holdfast.backends.etcd.words import LeaseGone
from holdfast.errors import ClientClosed, StoreUnavailable
from holdfast.lease import Surroundings
from holdfast.limits import REQUEST_TIMEOUT_DEFAULT, RETRY_PAUSE_FIRST
from holdfast.signals import Signal

_PAUSE_MAX: Final = 2.0
_log = logging.getLogger("holdfast")


class _Chore:
    """One thing to do. `under_way` says whether a thread is at it."""

    __slots__ = ("give_up_at", "pause", "under_way", "work")

    def __init__(self, work: Callable[[float], None], give_up_at: float) -> None:
        self.work = work
        self.give_up_at = give_up_at
        self.pause = RETRY_PAUSE_FIRST
        self.under_way = False


class Chores:
    """Tries are short tasks on the client's workers; between them a timer waits."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._guard = threading.RLock()  # guards everything below; a signal handler may re-enter
        self._open: dict[_Chore, None] = {}  # the oldest first
        self._under_way = 0
        self._end = math.inf  # by when all is to be done, once the client closes
        self._over = False
        self._idle: Signal | None = None  # set when no thread is at any: somebody waits for that

    @property
    def open(self) -> int:
        """How many are not done yet."""
        return len(self._open)

    def until_done(self, work: Callable[[float], None], ttl: float) -> None:
        """Call `work(until)` soon, and again until it does not raise or `ttl` is over. Never raises."""
        chore = _Chore(work, self._around.clock.now() + ttl + REQUEST_TIMEOUT_DEFAULT)
        with self._guard:
            if self._over:
                return  # nobody renews the lease: its TTL ends it
            self._open[chore] = None
        self._submit(chore)

    def finish(self, until: float) -> None:
        """The client closes: try each that is left, and be done by `until`. What is not is left to its TTL, and told.

        Beside the workers, which may be busy with a store that does not answer.
        """
        clock = self._around.clock
        with self._guard:
            self._end = until
            waiting = list(self._open)
        for chore in waiting:
            if clock.now() >= until:
                break
            self._try(chore)
        while (idle := self._wait_for_idle()) is not None and clock.wait(idle, until):
            pass  # ends: what fails from here on is not tried again
        with self._guard:
            self._over = True
            left = len(self._open)
            self._open.clear()
        if left:
            _log.warning(
                "leases of tickets that were given up, and that could not be ended before the client closed: %d. "
                "Nobody renews them: their TTLs end them",
                left,
            )

    def _wait_for_idle(self) -> Signal | None:
        """A signal for when no thread is at any; None where none is."""
        with self._guard:
            self._idle = Signal() if self._under_way else None
            return self._idle

    def _submit(self, chore: _Chore) -> None:
        try:
            self._around.workers.submit(lambda: self._try(chore))
        except ClientClosed:
            self._drop(chore)  # as above
        except StoreUnavailable:  # no thread for it just now
            self._later(chore)

    def _try(self, chore: _Chore) -> None:
        """Unless it is done, or another thread is at it."""
        with self._guard:
            if chore.under_way or chore not in self._open:
                return
            chore.under_way = True
            self._under_way += 1
        try:
            chore.work(min(self._around.clock.now() + REQUEST_TIMEOUT_DEFAULT, self._end))
        except Exception as error:  # even a bug of ours: try again
            self._put_down(chore)
            if self._end == math.inf:  # else it is told with the others, once
                self._around.hub.emit("reap_failed", reason=str(error))
                self._later(chore)
        except BaseException:  # interrupted: it is still to be done
            self._put_down(chore)
            raise
        else:
            self._drop(chore)
            self._put_down(chore)

    def _put_down(self, chore: _Chore) -> None:
        with self._guard:
            chore.under_way = False
            self._under_way -= 1
            if self._under_way == 0 and self._idle is not None:
                self._idle.set()

    def _later(self, chore: _Chore) -> None:
        due = self._around.clock.now() + chore.pause
        if due < chore.give_up_at:
            chore.pause = min(2 * chore.pause, _PAUSE_MAX)
            self._around.clock.schedule(due, lambda: self._submit(chore))
        else:
            self._drop(chore)

    def _drop(self, chore: _Chore) -> None:
        with self._guard:
            self._open.pop(chore, None)


def revoke(wire: Wire, number: int, until: float) -> None:
    """End a lease, or find it ended."""
    try:
        wire.revoke(number, until)
    except LeaseGone:
        return
