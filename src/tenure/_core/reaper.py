"""The reaper: it owns the tickets whose owners could not withdraw them (law 7).

A try is a short task on the client's workers; between tries a timer waits, so a store that is away
costs no thread. It ends when the ticket is gone for certain, or its lease is: then the store removes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tenure._core.base.limits import REQUEST_TIMEOUT_DEFAULT, RETRY_PAUSE_FIRST
from tenure._core.base.retry import jittered
from tenure._core.base.threads import generation
from tenure._core.lease import BackendContext, Entry, LeaseState
from tenure.errors import ClientClosed, StoreUnavailable

_PAUSE_MAX = 2.0


class Reaper:
    """Reaper of one lease: it withdraws entries in the background."""

    def __init__(
        self,
        withdraw: Callable[[Entry, float], bool],
        state: Callable[[], LeaseState],
        context: BackendContext,
    ) -> None:
        self._withdraw = withdraw
        self._state = state
        self._context = context
        self._born = generation()
        self._guard = threading.RLock()  # guards _owned
        self._owned: set[str] = set()

    @property
    def owned(self) -> int:
        """Number of tickets that it still has to see gone."""
        return len(self._owned)

    def own(self, entry: Entry) -> None:
        """Remove the ticket of `entry`, should it exist or come to exist. Returns at once."""
        if self._born != generation():
            return  # a child drops what its parent waits for: the ticket is the parent's, and stays
        # By its id, not its token: a request whose answer was lost may put the ticket only after this call.
        with self._guard:
            if entry.id in self._owned:
                return
            self._owned.add(entry.id)
        try:
            self._submit(entry, RETRY_PAUSE_FIRST)
        except BaseException:  # interrupted: the next one to give it up must find that no try is under way
            self._owned.discard(entry.id)
            raise

    def _submit(self, entry: Entry, pause: float) -> None:
        try:
            self._context.workers.submit(lambda: self._try(entry, pause))
        except ClientClosed:  # its leases were closed with it, and their tickets with them
            self._owned.clear()
        except StoreUnavailable:  # no thread for it just now
            self._later(entry, pause)

    def _later(self, entry: Entry, pause: float) -> None:
        # By a timer, not by a sleep: tickets that wait for a store which is away occupy no thread.
        clock, longer = self._context.clock, min(pause * 2, _PAUSE_MAX)
        clock.schedule(clock.now() + jittered(pause), lambda: self._submit(entry, longer))

    def _try(self, entry: Entry, pause: float) -> None:
        clock, hub = self._context.clock, self._context.hub
        if self._state().over:  # the store removes what hangs on a lease that has ended
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
