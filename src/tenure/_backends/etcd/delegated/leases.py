"""Many leases at once: a pool of those without a ticket, and the renewal of those whose tickets wait.

LeasePool keeps leases to be used again, so that not every try costs a grant and a revocation. Nobody renews a pooled
lease: one that is not needed within its TTL ends by itself, so the pool stays small.

BatchRenewal renews the leases of waiting tickets, a whole lot of them in one exchange (law 10). One timer and the
backend's renewal thread serve them all. A lease is due when a third of its proof is over.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from tenure._admin.protocol import batches
from tenure._backends.etcd.wire import Wire
from tenure._core.base.clock import Clock, Timer
from tenure._core.base.limits import RENEWALS_AT_ONCE_MAX, SPARE_LEASES_MAX, SPARE_LEASES_PER_TTL_MAX
from tenure._core.lease import BackendContext, Workers
from tenure.errors import ClientClosed, StoreWentBack, TenureError


class PooledLease(NamedTuple):
    """A lease without a ticket. Every request that named it is known to have ended."""

    number: int
    ttl: float
    """The granted one."""
    deadline: float
    """End of our proof of it; 0.0 where there is none."""
    ends_by: float
    """End of it at the store for certain, as nobody renews it."""


class LeasePool:
    """Unused leases by TTL, last in, first out. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.RLock()  # guards everything below; a signal handler may re-enter
        self._by_ttl: dict[float, list[PooledLease]] = {}
        self._ttl_min = 0.0
        self._closed = False

    def __len__(self) -> int:
        with self._guard:
            return sum(map(len, self._by_ttl.values()))

    def granted(self, asked: float, ttl: float) -> None:
        """Learn the server's shortest TTL: it grants more than was asked for where that is below its minimum."""
        if ttl > asked:
            self._ttl_min = max(self._ttl_min, ttl)

    def take(self, asked: float) -> PooledLease | None:
        with self._guard:
            self._drop_ended()
            pool = self._by_ttl.get(max(asked, self._ttl_min))
            return pool.pop() if pool else None

    def put(self, pooled: PooledLease) -> bool:
        """Take a lease in; False where the pool is full, and the caller has to end it."""
        with self._guard:
            self._drop_ended()
            pool = self._by_ttl.setdefault(pooled.ttl, [])
            if self._closed or len(pool) >= SPARE_LEASES_PER_TTL_MAX or len(self) >= SPARE_LEASES_MAX:
                return False
            pool.append(pooled)
            return True

    def close(self) -> Sequence[PooledLease]:
        """Empty the pool for good, and return the leases that were in it."""
        with self._guard:
            self._closed = True
            self._drop_ended()
            left = [pooled for pool in self._by_ttl.values() for pooled in pool]
            self._by_ttl.clear()
            return left

    def _drop_ended(self) -> None:
        now = self._clock.now()
        kept = {ttl: [s for s in pool if s.ends_by > now] for ttl, pool in self._by_ttl.items()}
        self._by_ttl = {ttl: pool for ttl, pool in kept.items() if pool}


_EXCHANGE_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 0.1


class Waiting(Protocol):
    """A lease whose ticket waits."""

    @property
    def number(self) -> int: ...

    @property
    def due(self) -> float:
        """The time at which to renew it."""

    def renewed(self, sent: float, ttl: float) -> None:
        """Take the store's answer; a TTL of 0 says that it does not know the lease."""

    def failed(self, reason: str) -> None:
        """End the belief: the store has lost the lease, with its history."""


class BatchRenewal:
    """Renewal of all leases whose tickets wait, in rounds. Thread-safe."""

    def __init__(self, wire: Wire, context: BackendContext, renewal_thread: Workers) -> None:
        self._wire = wire
        self._context = context
        self._renewal_thread = renewal_thread
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
        """Set the timer, with the guard held. One that comes too early finds nothing due, and is set anew."""
        if self._timer is not None and self._timer.due <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.clock.schedule(due, self._begin)

    def _begin(self) -> None:
        """Start a round on the renewal thread. Called on the clock's thread."""
        try:
            self._renewal_thread.submit(self._round)
        except ClientClosed:
            return
        except TenureError as error:  # no thread for it just now
            self._context.hub.emit("renewal_failed", reason=str(error))
            with self._guard:
                self._timer = None  # or nobody would come by again
                self._come_by(self._context.clock.now() + _AGAIN_SECONDS)

    def _round(self) -> None:
        clock = self._context.clock
        with self._guard:
            self._timer = None
            due = [lease for lease in self._waiting.values() if lease.due <= clock.now()]
        all_asked = all(self._renew(some) for some in batches(due, RENEWALS_AT_ONCE_MAX))  # up to the first that fails
        minimum = clock.now() + (0.0 if all_asked else _AGAIN_SECONDS)
        with self._guard:
            if self._waiting:
                self._come_by(max(minimum, min(lease.due for lease in self._waiting.values())))

    def _renew(self, leases: Sequence[Waiting]) -> bool:
        """Renew these leases in one exchange; False where it failed: the next round is the retry."""
        sent = self._context.clock.now()
        try:
            ttls = self._wire.keep_alives([lease.number for lease in leases], sent + _EXCHANGE_SECONDS)
        except StoreWentBack as error:
            for lease in leases:
                lease.failed(str(error))
            return True
        except Exception as error:  # even a bug of ours: the clock ends what is not proven in time
            self._context.hub.emit("renewal_failed", reason=str(error))
            return False
        for lease in leases:
            ttl = ttls.get(lease.number)
            if ttl is not None:
                lease.renewed(sent, ttl)
        return len(ttls) > 0
