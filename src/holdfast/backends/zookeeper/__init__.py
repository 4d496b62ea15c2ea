"""ZooKeeper, through kazoo.

codec.py       names and data: how a ticket is written
connection.py  one session: requests with deadlines, errors in our words
watches.py     one watch per node, however many wait
lease.py       ZooKeeperLease: the verbs, and when a session is proven
"""

from __future__ import annotations

from holdfast.backends.zookeeper.lease import History, ZooKeeperLease
from holdfast.lease import LeaseState, Surroundings
from holdfast.options import Options

__all__ = ["ZooKeeperBackend"]


class ZooKeeperBackend:
    """One ensemble under one namespace. A session per TTL asked for: ZooKeeper's TTL is the session's."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self.name = options.display
        self._options = options
        self._around = around
        self._history = History(options.display)
        self._leases: list[ZooKeeperLease] = []

    def open(self, ttl: float) -> ZooKeeperLease:
        lease = ZooKeeperLease(self._options, ttl, self._around, self._history)
        self._leases = [known for known in self._leases if known.state is not LeaseState.LOST] + [lease]
        return lease

    def statistics(self) -> dict[str, object]:
        return {
            "sessions": sum(1 for lease in self._leases if lease.id),
            "watches": sum(lease.watches for lease in self._leases),
            "reaping": sum(lease.reaping for lease in self._leases),
        }

    def close(self) -> None:
        self._leases.clear()
