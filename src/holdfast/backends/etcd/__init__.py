"""etcd, through its JSON gateway and etcd3gw.

codec.py    keys and values: how a ticket is written
http.py     one connection: an exchange is one send
session.py  endpoints, failover, TLS, users; given to etcd3gw
streams.py  what carries watches: a WebSocket, or one long POST
watch.py    all watches on one stream, one thread
history.py  law 4: a store that went back
wire.py     the seam: transactions, keep-alive, watch
guarded.py  the user's own keys, while a ticket stands
audit.py    no key of my lease stands that I don't know of
lease.py    EtcdLease: the verbs
"""

from __future__ import annotations

from holdfast.backends.etcd.lease import EtcdLease
from holdfast.backends.etcd.wire import GatewayWire, Wire
from holdfast.belief import provable
from holdfast.helpers import Helpers
from holdfast.lease import LeaseState, Surroundings
from holdfast.options import Options

_HEART_SECONDS = 5.0

__all__ = ["EtcdBackend"]


class EtcdBackend:
    """One etcd cluster under one namespace."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self.name = options.display
        self._namespace = options.namespace
        self._around = around
        self._wire: Wire = GatewayWire(options, around)
        # One thread renews all leases: a store that is away may block it, but nobody else.
        self._heart = Helpers("holdfast-heart", 1)
        self._leases: list[EtcdLease] = []

    def open(self, ttl: float, lock_delay: float) -> EtcdLease:
        lease = EtcdLease(
            self._wire, self._namespace, ttl, lock_delay, self._around, self._heart, self._beat_seconds_max
        )
        self._leases = [known for known in self._leases if known.state is not LeaseState.LOST] + [lease]
        return lease

    def statistics(self) -> dict[str, object]:
        return {**self._wire.statistics(), "reaping": sum(lease.reaping for lease in self._leases)}

    def close(self) -> None:
        self._heart.close(_HEART_SECONDS)
        self._wire.close()

    def _beat_seconds_max(self) -> float:
        """How long one renewal may keep the heart: the lease with the shortest TTL must get its turn."""
        return min(_HEART_SECONDS, *(provable(lease.ttl) / 3 for lease in self._leases))
