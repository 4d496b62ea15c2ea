"""ZooKeeper, through kazoo.

    lease           ZooKeeperLease: the verbs, and the session's life
    lines           lines as exchanges with the server; the store's history (law 4)
    codec           names and data: how a ticket is written
    watches         one watch per node, however many wait
    guarded_keys    the user's own keys, while a ticket stands
    sweeper         removal of empty lines (law 12)
    connection      one session: requests with deadlines, errors of tenure's tree, which answers prove it (law 2)
    handler         changes to kazoo: connections, waits, a log without passwords
    admin           the operators' verbs: listing, watching, removing, records

One acquire: `ZooKeeperLease.enter` connects, registers with the sweeper, and goes through `_exchange`, the retries, to
`ZooKeeperLines.enter`: create and list, two sends of `ZooKeeperSession` back to back, one wait for the last answer. The
line it returns goes to the turn. A waiter watches the ticket ahead (`watches`) and looks again when that has fired.
"""

from __future__ import annotations

from tenure._backends.zookeeper.lease import ZooKeeperLease
from tenure._backends.zookeeper.lines import ZxidHistory
from tenure._core.base.options import Options
from tenure._core.lease import BackendContext

__all__ = ["ZooKeeperBackend"]


class ZooKeeperBackend:
    """The backend: an ensemble under one namespace. Each TTL gets a session: ZooKeeper's TTL is the session's."""

    goes_aside = True

    def __init__(self, options: Options, context: BackendContext) -> None:
        self.name = options.display
        self._options = options
        self._context = context
        self._history = ZxidHistory(options.display)
        self._leases: list[ZooKeeperLease] = []

    def open(self, ttl: float, lock_delay: float) -> ZooKeeperLease:
        lease = ZooKeeperLease(self._options, ttl, lock_delay, self._context, self._history)
        self._leases = [known for known in self._leases if not known.state.over] + [lease]
        return lease

    def statistics(self) -> dict[str, object]:
        return {
            "sessions": sum(1 for lease in self._leases if lease.id),
            "watches": sum(lease.watches for lease in self._leases),
            "reaping": sum(lease.reaping for lease in self._leases),
        }

    def close(self) -> None:
        self._leases.clear()
