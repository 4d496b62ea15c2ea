"""Rounds: the leases of tickets that wait are renewed together, a whole lot of them in one exchange (law 10).

One timer and the backend's heart for all. A lease is due when a third of its proof is over.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, Protocol

from holdfast.backends.etcd.wire import Wire
from holdfast.clock import Timer
from holdfast.errors import ClientClosed, HoldfastError, StoreWentBack
from holdfast.lease import Surroundings, Workers
from holdfast.limits import RENEWALS_AT_ONCE_MAX
from holdfast.operating import batches

_EXCHANGE_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 0.1


class Waiting(Protocol):
    """A lease whose ticket waits."""

    @property
    def number(self) -> int: ...

    @property
    def due(self) -> float:
        """When it is to be renewed."""

    def renewed(self, sent: float, ttl: float) -> None:
        """The store has renewed it; a TTL of 0: it does not know it."""

    def failed(self, reason: str) -> None:
        """The store has lost it, with its history."""


class Rounds:
    """Thread-safe."""

    def __init__(self, wire: Wire, around: Surroundings, heart: Workers) -> None:
        self._wire = wire
        self._around = around
        self._heart = heart
        self._guard = threading.RLock()  # guards everything below
        self._waiting: dict[int, Waiting] = {}
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, lease: Waiting) -> None:
        with self._guard:
            self._waiting[lease.number] = lease
            self._come_by(lease.due)

    def remove(self, lease: Waiting) -> None:
        with self._guard:
            if self._waiting.get(lease.number) is lease:
                del self._waiting[lease.number]

    def _come_by(self, due: float) -> None:
        """Guard held. A timer that comes too early finds nothing due, and is set anew."""
        if self._timer is not None and self._timer.due <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._around.clock.schedule(due, self._begin)

    def _begin(self) -> None:
        """On the clock's thread."""
        try:
            self._heart.submit(self._round)
        except ClientClosed:
            return
        except HoldfastError as error:  # no thread for it just now
            self._around.hub.emit("renewal_failed", reason=str(error))
            with self._guard:
                self._timer = None  # or nobody would come by again
                self._come_by(self._around.clock.now() + _AGAIN_SECONDS)

    def _round(self) -> None:
        clock = self._around.clock
        with self._guard:
            self._timer = None
            due = [lease for lease in self._waiting.values() if lease.due <= clock.now()]
        all_asked = all(self._renew(some) for some in batches(due, RENEWALS_AT_ONCE_MAX))  # up to the first that fails
        least = clock.now() + (0.0 if all_asked else _AGAIN_SECONDS)
        with self._guard:
            if self._waiting:
                self._come_by(max(least, min(lease.due for lease in self._waiting.values())))

    def _renew(self, leases: Sequence[Waiting]) -> bool:
        """One exchange for all of them; False where it came to nothing: the next round is the retry."""
        sent = self._around.clock.now()
        try:
            told = self._wire.keep_alives([lease.number for lease in leases], sent + _EXCHANGE_SECONDS)
        except StoreWentBack as error:
            for lease in leases:
                lease.failed(str(error))
            return True
        except Exception as error:  # even a bug of ours: the clock ends what is not proven in time
            self._around.hub.emit("renewal_failed", reason=str(error))
            return False
        for lease in leases:
            ttl = told.get(lease.number)
            if ttl is not None:
                lease.renewed(sent, ttl)
        return len(told) > 0
