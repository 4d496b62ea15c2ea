"""The reaper: it owns the tickets whose owners could not withdraw them (law 7).

A try is a short task on the client's workers; between tries a timer waits, so a store that is away
costs no thread. It ends when the ticket is gone for certain, or its lease is: then the store removes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.errors import ClientClosed, StoreUnavailable
from holdfast.forks import generation
from holdfast.lease import Entry, LeaseState, Surroundings
from holdfast.limits import REQUEST_TIMEOUT_DEFAULT, RETRY_PAUSE_FIRST

_PAUSE_MAX = 2.0


class Reaper:
    """Withdraws entries of one lease, in the background."""

    def __init__(
        self,
        withdraw: Callable[[Entry, float], bool],
        state: Callable[[], LeaseState],
        around: Surroundings,
    ) -> None:
        self._withdraw = withdraw
        self._state = state
        self._around = around
        self._born = generation()
        self._guard = threading.RLock()  # guards _owned
        self._owned: set[str] = set()

    @property
    def owned(self) -> int:
        """How many tickets it still has to see gone."""
        return len(self._owned)

    def own(self, entry: Entry) -> None:
        """See to it that the ticket of `entry` goes, should it exist or come to exist."""
        if self._born != generation():
            return  # a child drops what its parent waits for: the ticket is the parent's, and stays
        with self._guard:
            if entry.id in self._owned:
                return
            self._owned.add(entry.id)
        try:
            self._submit(entry, RETRY_PAUSE_FIRST)
        except BaseException:  # interrupted: whoever gives it up again must find it nobody's
            self._owned.discard(entry.id)
            raise

    def _submit(self, entry: Entry, pause: float) -> None:
        try:
            self._around.workers.submit(lambda: self._try(entry, pause))
        except ClientClosed:  # its leases were closed with it, and their tickets with them
            self._owned.clear()
        except StoreUnavailable:  # no thread for it just now
            self._later(entry, pause)

    def _later(self, entry: Entry, pause: float) -> None:
        clock, longer = self._around.clock, min(pause * 2, _PAUSE_MAX)
        clock.schedule(clock.now() + pause, lambda: self._submit(entry, longer))

    def _try(self, entry: Entry, pause: float) -> None:
        clock, hub = self._around.clock, self._around.hub
        if self._state().over:
            self._owned.discard(entry.id)
            return
        try:
            removed = self._withdraw(entry, clock.now() + REQUEST_TIMEOUT_DEFAULT)
        except Exception as error:  # even a bug of ours must not end with an orphan: try again
            hub.emit("reap_failed", resource=entry.resource, owner=entry.owner, reason=str(error))
            self._later(entry, pause)
            return
        if removed:
            hub.emit("reaped", resource=entry.resource, owner=entry.owner)
        self._owned.discard(entry.id)
