"""memory:// — the reference implementation of the laws, in this process.

Also what users test their own code with: see `holdfast.testing.World`. Give `connect` a VirtualClock and nothing
sleeps; a backend's `faults` lose requests and answers or cut its client off, and `store(name)` expires leases.
Clients of the same name in one process share one store; each has faults of its own. It is held to the same
conformance suite as etcd and ZooKeeper; it coordinates nothing beyond this process.
"""

from __future__ import annotations

from holdfast.backends.memory.lease import MemoryLease
from holdfast.backends.memory.server import MemoryFaults, MemoryStore, store
from holdfast.lease import LeaseState, Surroundings
from holdfast.options import Options

__all__ = ["MemoryBackend", "MemoryFaults", "MemoryStore", "store"]


class MemoryBackend:
    """Connects clients of this process to a MemoryStore."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self.name = options.display
        self.store = store(options.endpoints[0][0], around.clock)
        self.faults = MemoryFaults()
        self._namespace = options.namespace
        self._around = around
        self._leases: list[MemoryLease] = []

    def open(self, ttl: float, lock_delay: float) -> MemoryLease:
        lease = MemoryLease(self.store, self.faults, self._namespace, ttl, lock_delay, self._around)
        ended = (LeaseState.LOST, LeaseState.CLOSED)
        self._leases = [known for known in self._leases if known.state not in ended] + [lease]
        return lease

    def heal(self) -> None:
        """End a cut."""
        self.faults.cut_off = False
        self.store.wake(self.faults)

    def statistics(self) -> dict[str, object]:
        return {"requests": dict(self.store.requests), "reaping": sum(lease.reaping for lease in self._leases)}

    def close(self) -> None:
        self._leases.clear()
