"""ZooKeeper, through kazoo.

codec.py       names and data: how a ticket is written
handler.py     what we put into kazoo: connections, waits, a log without passwords
connection.py  one session: requests with deadlines, errors in our words
proof.py       what an answer proves, of the session's life and the store's history
lines.py       lines as exchanges with the server
guarded.py     the user's own keys, while a ticket stands
operating.py   what operators need: listing, watching, removing, notes
watches.py     one watch per node, however many wait
sweeper.py     nothing is left behind
lease.py       ZooKeeperLease: the verbs, and the session's life
"""

from __future__ import annotations

from holdfast.backends.zookeeper.lease import ZooKeeperLease
from holdfast.backends.zookeeper.proof import History
from holdfast.lease import Surroundings
from holdfast.options import Options

__all__ = ["ZooKeeperBackend"]


class ZooKeeperBackend:
    """One ensemble under one namespace. A session per TTL asked for: ZooKeeper's TTL is the session's."""

    goes_aside = True

    def __init__(self, options: Options, around: Surroundings) -> None:
        self.name = options.display
        self._options = options
        self._around = around
        self._history = History(options.display)
        self._leases: list[ZooKeeperLease] = []

    def open(self, ttl: float, lock_delay: float) -> ZooKeeperLease:
        lease = ZooKeeperLease(self._options, ttl, lock_delay, self._around, self._history)
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
