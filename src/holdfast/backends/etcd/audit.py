"""The audit: no key of my lease stands that I don't know of (law 7).

A try of `enter` whose answer was lost may be carried out late: a member that was stopped with the request in
its socket puts the key when it goes on, minutes later, long after the ticket was removed. No time is late
enough to be safe. So once there was such a try, or a ticket was given up without knowing its fate, the lease's
own list of keys is looked at, soon at first and then once a TTL for as long as the lease lives; a key whose
ticket is not among mine is deleted. An orphan blocks its line no longer than a crashed holder would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from holdfast.backends.etcd.places import Places
from holdfast.backends.etcd.wire import Wire
from holdfast.backends.etcd.words import LeaseGone
from holdfast.errors import ClientClosed, HoldfastError
from holdfast.forks import generation
from holdfast.lease import LeaseState, Surroundings
from holdfast.limits import REQUEST_TIMEOUT_DEFAULT

_SOON: Final = 0.25
_GROWS_BY: Final = 3


class Audit:
    """Looks after the keys of one lease. Costs nothing until there is a doubt."""

    def __init__(self, wire: Wire, places: Places, state: Callable[[], LeaseState], around: Surroundings) -> None:
        self._wire = wire
        self._places = places
        self._state = state
        self._around = around
        self._born = generation()
        self._guard = threading.RLock()  # guards the two below
        self._lease = 0
        self._pause: float | None = None  # None: no doubt yet

    def doubt(self, lease: int, ttl: float) -> None:
        """There may be, or come to be, a key that nobody owns."""
        if not lease or self._born != generation():
            return  # nothing was sent yet; or a child drops what is its parent's
        with self._guard:
            running = self._pause is not None
            self._lease, self._pause = lease, _SOON
        if not running:
            self._look_later(ttl)

    def _look_later(self, ttl: float) -> None:
        with self._guard:
            pause = min(self._pause or _SOON, ttl)
            self._pause = pause * _GROWS_BY
        clock = self._around.clock
        clock.schedule(clock.now() + pause, lambda: self._submit(ttl))

    def _submit(self, ttl: float) -> None:
        if self._state() in (LeaseState.LOST, LeaseState.CLOSED):
            return
        try:
            self._around.workers.submit(lambda: self._look(ttl))
        except ClientClosed:
            return
        except HoldfastError:  # no thread for it just now
            self._look_later(ttl)

    def _look(self, ttl: float) -> None:
        until = self._around.clock.now() + REQUEST_TIMEOUT_DEFAULT
        try:
            for key in self._wire.life(self._lease, until, keys=True).keys:
                self._delete_if_unknown(key, until)
        except (HoldfastError, LeaseGone):
            pass  # the next look is the retry. A deposed leader does not know a lease that lives; what is gone ends us
        self._look_later(ttl)

    def _delete_if_unknown(self, key: bytes, until: float) -> None:
        """A ticket is among mine from before its key is sent until after the key is gone: another one is nobody's.

        The key may have been listed before its ticket left: whoever comes next must not have its ticket there.
        """
        lease = f"{self._lease:x}"
        if not key.rpartition(b"/")[2].startswith(f"{lease}-".encode()) or not self._places.abolish(key):
            return
        if self._wire.delete(key, until):
            self._around.hub.emit("reaped", lease_id=lease, reason="a request that was given up was carried out late")
