"""What is done in the background until it is done, or until a lease that nobody renews has ended by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.backends.etcd.wire import Wire
from holdfast.backends.etcd.words import LeaseGone
from holdfast.errors import ClientClosed, StoreUnavailable
from holdfast.lease import Surroundings
from holdfast.limits import REQUEST_TIMEOUT_DEFAULT, RETRY_PAUSE_FIRST

_PAUSE_MAX: Final = 2.0


class Chores:
    """Tries are short tasks on the client's workers; between them a timer waits."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.open = 0

    def until_done(self, work: Callable[[float], None], ttl: float) -> None:
        """Call `work(until)` soon, and again until it does not raise or `ttl` is over. Never raises."""
        self.open += 1
        self._submit(work, RETRY_PAUSE_FIRST, self._around.clock.now() + ttl + REQUEST_TIMEOUT_DEFAULT)

    def _submit(self, work: Callable[[float], None], pause: float, give_up_at: float) -> None:
        try:
            self._around.workers.submit(lambda: self._try(work, pause, give_up_at))
        except ClientClosed:
            self.open -= 1  # nobody renews the lease: its TTL ends it
        except StoreUnavailable:  # no thread for it just now
            self._later(work, pause, give_up_at)

    def _try(self, work: Callable[[float], None], pause: float, give_up_at: float) -> None:
        try:
            work(self._around.clock.now() + REQUEST_TIMEOUT_DEFAULT)
        except Exception as error:  # even a bug of ours: try again
            self._around.hub.emit("reap_failed", reason=str(error))
            self._later(work, pause, give_up_at)
            return
        self.open -= 1

    def _later(self, work: Callable[[float], None], pause: float, give_up_at: float) -> None:
        due = self._around.clock.now() + pause
        if due < give_up_at:
            longer = min(2 * pause, _PAUSE_MAX)
            self._around.clock.schedule(due, lambda: self._submit(work, longer, give_up_at))
        else:
            self.open -= 1


def revoke(wire: Wire, number: int, until: float) -> None:
    """End a lease, or find it ended."""
    try:
        wire.revoke(number, until)
    except LeaseGone:
        return
