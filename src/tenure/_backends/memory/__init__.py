"""memory:// — the reference implementation of the laws, in this process.

    lease     MemoryLease: the verbs, on the client's side
    server    MemoryStore: leases, lines and watches in one total order; and its faults
    admin     the operators' verbs

One acquire: `MemoryLease.enter` has a lease granted, and asks by `_ask`, the retries, and `MemoryFaults.carry`, which
may lose the request or the answer, for `MemoryStore.enter`: put the ticket and return the line, under one lock.

Users test their own code with it: see `tenure.testing.World`. Give `connect` a VirtualClock and nothing
sleeps; a backend's `faults` lose requests and answers or cut its client off, and `store(name)` expires leases.
Clients of the same name in one process share one store; each has faults of its own. It is held to the same
conformance suite as etcd and ZooKeeper; it coordinates nothing beyond this process.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

from tenure._backends.memory.lease import MemoryLease
from tenure._backends.memory.server import MemoryFaults, MemoryStore, store
from tenure._core.base.options import Options
from tenure._core.base.threads import generation
from tenure._core.lease import BackendContext, LeaseState

__all__ = ["MemoryBackend", "MemoryFaults", "MemoryStore", "store"]

_TESTING: Final = frozenset({"pytest", "unittest", "tenure.testing"})
_log = logging.getLogger("tenure")
_warned_in: set[int] = set()  # generations of processes: once in each is enough


class MemoryBackend:
    """Connects clients of this process to a MemoryStore."""

    def __init__(self, options: Options, context: BackendContext) -> None:
        self.name = options.display
        self.store = store(options.endpoints[0][0], context.clock)
        self.faults = MemoryFaults()
        self._namespace = options.namespace
        self._borrowed = options.scheme != "memory"  # by a backend that is built on this one
        self._context = context
        self._leases: list[MemoryLease] = []

    def open(self, ttl: float, lock_delay: float) -> MemoryLease:
        self._warn_once()
        lease = MemoryLease(self.store, self.faults, self._namespace, ttl, lock_delay, self._context)
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

    def _warn_once(self) -> None:
        """Warn where this may be taken for a store that processes share: in a forked child, or outside of tests."""
        test = not generation() and not _TESTING.isdisjoint(sys.modules)
        if test or self._borrowed or generation() in _warned_in:
            return
        _warned_in.add(generation())
        _log.warning(
            "%s is used %s: its holds exclude nobody in any other process; connect to etcd:// or zookeeper:// "
            "(`tenure dev` starts an etcd to try it with)",
            *(self.name, "in a forked child" if generation() else "outside of tests"),
        )
