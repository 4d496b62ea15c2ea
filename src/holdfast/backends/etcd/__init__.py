"""etcd, through its JSON gateway and etcd3gw.

codec.py    keys and values: how a ticket is written
http.py     one connection: an exchange is one send
session.py  endpoints, failover, TLS, users; given to etcd3gw
watch.py    all watches on one socket, one thread
wire.py     the seam: transactions, keep-alive, watch; law 4
lease.py    EtcdLease: the verbs
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from holdfast.backends.etcd.lease import EtcdLease
from holdfast.backends.etcd.wire import GatewayWire, Wire
from holdfast.belief import provable
from holdfast.lease import LeaseState, Surroundings
from holdfast.options import Options

__all__ = ["EtcdBackend"]


class EtcdBackend:
    """One etcd cluster under one namespace."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self.name = options.display
        self._namespace = options.namespace
        self._around = around
        self._wire: Wire = GatewayWire(options, around)
        # One thread renews all leases: a store that is away may block it, but nobody else.
        self._heart = ThreadPoolExecutor(1, thread_name_prefix="holdfast-heart")
        self._leases: list[EtcdLease] = []

    def open(self, ttl: float) -> EtcdLease:
        lease = EtcdLease(self._wire, self._namespace, ttl, self._around, self._heart, self._beat_seconds_max)
        self._leases = [known for known in self._leases if known.state is not LeaseState.LOST] + [lease]
        return lease

    def statistics(self) -> dict[str, object]:
        return {**self._wire.statistics(), "reaping": sum(lease.reaping for lease in self._leases)}

    def close(self) -> None:
        self._heart.shutdown(wait=True)
        self._wire.close()

    def _beat_seconds_max(self) -> float:
        """How long one renewal may keep the heart: the lease with the shortest TTL must get its turn."""
        return min(provable(lease.ttl) / 3 for lease in self._leases)
