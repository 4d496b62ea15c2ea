"""The reaper: it owns the tickets whose owners could not withdraw them (law 7).

A try is a short task on the client's workers; between tries a timer waits, so a store that is away
costs no thread. It ends when the ticket is gone for certain, or its lease is: then the store removes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.errors import ClientClosed, HoldfastError
from holdfast.lease import Entry, LeaseState, Surroundings
from holdfast.limits import FATE_WINDOW, REQUEST_TIMEOUT_DEFAULT, RETRY_PAUSE_FIRST

_PAUSE_MAX = 2.0


class Reaper:
    """Withdraws entries of one lease, in the background."""

    def __init__(
        self, withdraw: Callable[[Entry, float], bool], state: Callable[[], LeaseState], around: Surroundings
    ) -> None:
        self._withdraw = withdraw
        self._state = state
        self._around = around
        self._guard = threading.RLock()  # guards _owned
        self._owned: set[str] = set()

    @property
    def owned(self) -> int:
        """How many tickets it still has to see gone."""
        return len(self._owned)

    def own(self, entry: Entry) -> None:
        """See to it that the ticket of `entry` goes, should it exist or come to exist."""
        with self._guard:
            if entry.id in self._owned:
                return
            self._owned.add(entry.id)
        self._try_soon(entry, 0.0, RETRY_PAUSE_FIRST)

    def _try_soon(self, entry: Entry, after: float, pause: float) -> None:
        clock, workers = self._around.clock, self._around.workers

        def submit() -> None:
            try:
                workers.submit(lambda: self._try(entry, pause))
            except ClientClosed:  # its leases were closed with it, and the ticket with them
                self._owned.discard(entry.id)

        if after:
            clock.schedule(clock.now() + after, submit)
        else:
            submit()

    def _try(self, entry: Entry, pause: float) -> None:
        clock, hub = self._around.clock, self._around.hub
        if self._state() in (LeaseState.LOST, LeaseState.CLOSED):
            self._owned.discard(entry.id)
            return
        try:
            removed = self._withdraw(entry, clock.now() + REQUEST_TIMEOUT_DEFAULT)
        except HoldfastError as error:
            hub.emit("reap_failed", resource=entry.resource, owner=entry.owner, reason=str(error))
            self._try_soon(entry, pause, min(pause * 2, _PAUSE_MAX))
            return
        if removed:
            hub.emit("reaped", resource=entry.resource, owner=entry.owner)
            self._owned.discard(entry.id)
        else:
            # Not there. A request whose answer was lost may still be on its way to the store: look
            # once more when no server can carry it out any longer.
            self._look_once_more(entry)

    def _look_once_more(self, entry: Entry) -> None:
        with self._guard:
            if entry.id not in self._owned:
                return
            self._owned.discard(entry.id)
        clock, workers = self._around.clock, self._around.workers

        def submit() -> None:
            try:
                workers.submit(lambda: self._last_try(entry))
            except ClientClosed:
                return

        clock.schedule(clock.now() + FATE_WINDOW, submit)

    def _last_try(self, entry: Entry) -> None:
        try:
            if self._state() in (LeaseState.HELD, LeaseState.SUSPECT):
                self._withdraw(entry, self._around.clock.now() + REQUEST_TIMEOUT_DEFAULT)
        except HoldfastError:
            self.own(entry)
