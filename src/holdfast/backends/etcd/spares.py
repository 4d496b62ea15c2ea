"""Leases without a ticket, kept to be used again, so that not every try costs a grant and a revocation.

Nobody renews them: what is not needed within its TTL ends by itself. So there are few, however many there were to be.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.clock import Clock
from holdfast.limits import SPARE_LEASES_MAX, SPARE_LEASES_PER_TTL_MAX


class Spare(NamedTuple):
    """A lease of which every request that named it is known to have ended."""

    number: int
    ttl: float
    """The granted one."""
    deadline: float
    """Until when we can prove it; 0.0 where we can't."""
    ends_by: float
    """Nobody renews it: then the store has ended it for certain."""


class Spares:
    """By TTL; the one that was used last is the first to be used again. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.RLock()  # guards everything below; a signal handler may re-enter
        self._by_ttl: dict[float, list[Spare]] = {}
        self._granted_least = 0.0
        self._closed = False

    def __len__(self) -> int:
        with self._guard:
            return sum(map(len, self._by_ttl.values()))

    def granted(self, asked: float, ttl: float) -> None:
        """More than was asked for is granted where that is below the server's least."""
        if ttl > asked:
            self._granted_least = max(self._granted_least, ttl)

    def take(self, asked: float) -> Spare | None:
        with self._guard:
            self._drop_ended()
            spares = self._by_ttl.get(max(asked, self._granted_least))
            return spares.pop() if spares else None

    def put(self, spare: Spare) -> bool:
        """False where there are enough: it is the caller's to end."""
        with self._guard:
            self._drop_ended()
            spares = self._by_ttl.setdefault(spare.ttl, [])
            if self._closed or len(spares) >= SPARE_LEASES_PER_TTL_MAX or len(self) >= SPARE_LEASES_MAX:
                return False
            spares.append(spare)
            return True

    def close(self) -> Sequence[Spare]:
        """All there are; no more are taken in."""
        with self._guard:
            self._closed = True
            self._drop_ended()
            left = [spare for spares in self._by_ttl.values() for spare in spares]
            self._by_ttl.clear()
            return left

    def _drop_ended(self) -> None:
        now = self._clock.now()
        kept = {ttl: [s for s in spares if s.ends_by > now] for ttl, spares in self._by_ttl.items()}
        self._by_ttl = {ttl: spares for ttl, spares in kept.items() if spares}
