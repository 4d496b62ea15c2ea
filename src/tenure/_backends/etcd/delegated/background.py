"""Work retried in the background until it succeeds, or until the TTL of the lease concerned has ended it.

A client that closes works off what is left, within a bound: thousands may have given up their waits a moment before,
and whoever comes next would stand behind their tickets until the leases run out.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Final

from tenure._backends.etcd.requests import LeaseGone
from tenure._backends.etcd.wire import Wire
from tenure._core.base.limits import REQUEST_TIMEOUT_DEFAULT, RETRY_PAUSE_FIRST
from tenure._core.base.retry import jittered
from tenure._core.base.signals import Signal
from tenure._core.lease import BackendContext
from tenure.errors import ClientClosed, StoreUnavailable

_PAUSE_MAX: Final = 2.0
_log = logging.getLogger("tenure")


class _Task:
    """A piece of work. `under_way` says whether a thread is at it."""

    __slots__ = ("give_up_at", "pause", "under_way", "work")

    def __init__(self, work: Callable[[float], None], give_up_at: float) -> None:
        self.work = work
        self.give_up_at = give_up_at
        self.pause = RETRY_PAUSE_FIRST
        self.under_way = False


class Background:
    """The open tasks of one client. Tries run on the client's workers; between them a timer waits."""

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._guard = threading.RLock()  # guards everything below; a signal handler may re-enter
        self._open: dict[_Task, None] = {}  # the oldest first
        self._under_way = 0
        self._end = math.inf  # by when all is to be done, once the client closes
        self._over = False
        self._idle: Signal | None = None  # set when no thread is at any: somebody waits for that

    @property
    def open(self) -> int:
        """The number of tasks that are not done yet."""
        return len(self._open)

    def until_done(self, work: Callable[[float], None], ttl: float) -> None:
        """Call `work(until)` soon, and again until it does not raise or `ttl` is over. Never raises."""
        task = _Task(work, self._context.clock.now() + ttl + REQUEST_TIMEOUT_DEFAULT)
        with self._guard:
            if self._over:
                return  # nobody renews the lease: its TTL ends it
            self._open[task] = None
        self._submit(task)

    def finish(self, until: float) -> None:
        """Try each task that is left, as the client closes, until `until`. The rest is logged, and left to the TTLs.

        Runs in the calling thread: the workers may be busy with a store that does not answer.
        """
        clock = self._context.clock
        with self._guard:
            self._end = until
            waiting = list(self._open)
        for task in waiting:
            if clock.now() >= until:
                break
            self._try(task)
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
        """Return a signal that is set when no thread runs a task any more; None where none does."""
        with self._guard:
            self._idle = Signal() if self._under_way else None
            return self._idle

    def _submit(self, task: _Task) -> None:
        try:
            self._context.workers.submit(lambda: self._try(task))
        except ClientClosed:
            self._drop(task)  # as above
        except StoreUnavailable:  # no thread for it just now
            self._later(task)

    def _try(self, task: _Task) -> None:
        """Run the task, unless it is done or another thread is at it."""
        with self._guard:
            if task.under_way or task not in self._open:
                return
            task.under_way = True
            self._under_way += 1
        try:
            task.work(min(self._context.clock.now() + REQUEST_TIMEOUT_DEFAULT, self._end))
        except Exception as error:  # even a bug of ours: try again
            self._put_down(task)
            if self._end == math.inf:  # else it is logged with the others, once
                self._context.hub.emit("reap_failed", reason=str(error))
                self._later(task)
        except BaseException:  # interrupted: it is still to be done
            self._put_down(task)
            raise
        else:
            self._drop(task)
            self._put_down(task)

    def _put_down(self, task: _Task) -> None:
        with self._guard:
            task.under_way = False
            self._under_way -= 1
            if self._under_way == 0 and self._idle is not None:
                self._idle.set()

    def _later(self, task: _Task) -> None:
        due = self._context.clock.now() + jittered(task.pause)
        if due < task.give_up_at:
            task.pause = min(2 * task.pause, _PAUSE_MAX)
            self._context.clock.schedule(due, lambda: self._submit(task))
        else:
            self._drop(task)

    def _drop(self, task: _Task) -> None:
        with self._guard:
            self._open.pop(task, None)


def revoke(wire: Wire, number: int, until: float) -> None:
    """End a lease, or find it ended."""
    try:
        wire.revoke(number, until)
    except LeaseGone:
        return
