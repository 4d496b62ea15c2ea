"""etcd, through its JSON gateway and etcd3gw, or through gRPC.

    lease           EtcdLease: the verbs, and the lease's life
    lines           lines read and watched, tickets changed: the requests that name no lease
    codec           keys and values: how a ticket is written
    ticket_keys     the keys of a lease's tickets; the audit that no other key of it stands (law 7)
    requests        requests and answers as values; the errors of refusals
    wire            the seam, `Transport`; retries and the store's history (law 4), for both transports
    watch           all watches on one stream, one thread, for both transports
    guarded_keys    the user's own keys, while a ticket stands
    admin           the operators' verbs: listing, watching, removing, records
    delegated       holds that others renew: a package with a map of its own
    gateway         the transport of `etcd://`: JSON over HTTP/1.1
    grpc            the transport of `etcd+grpc://`

One acquire: `EtcdLease.enter` takes a key and makes one transaction, put my key and read the line; `Wire.txn` retries
it and checks the history; the transport writes it and sends it through the connection pool (_transport/session.py). The
line in the answer goes to the turn. A waiter watches the ticket ahead (`EtcdLines.wait_change`) and looks again.
"""

from __future__ import annotations

from tenure._backends.etcd.delegated import EtcdDelegation
from tenure._backends.etcd.lease import EtcdLease
from tenure._backends.etcd.wire import Transport, Wire
from tenure._core.base.options import Options
from tenure._core.base.threads import Helpers
from tenure._core.belief import provable
from tenure._core.lease import BackendContext

_RENEWAL_SECONDS = 5.0

__all__ = ["EtcdBackend"]


class EtcdBackend:
    """The backend: an etcd cluster under one namespace."""

    def __init__(self, options: Options, context: BackendContext) -> None:
        self.name = options.display
        self._namespace = options.namespace
        self._context = context
        self._wire = Wire(options, context, _transport(options, context))
        # All leases are renewed by one thread: a store that is away may block it, but nothing else.
        self._renewal_thread = Helpers("tenure-heart", 1)
        self._leases: list[EtcdLease] = []
        self.delegation = EtcdDelegation(self._wire, self._namespace, context, self._renewal_thread)

    @property
    def goes_aside(self) -> bool:
        """True over the plain gateway, for delegated holds; a lease of many tickets is granted under a lock."""
        return self._wire.goes_aside

    def open(self, ttl: float, lock_delay: float) -> EtcdLease:
        lease = EtcdLease(
            self._wire, self._namespace, ttl, lock_delay, self._context, self._renewal_thread, self._beat_seconds_max
        )
        self._leases = [known for known in self._leases if not known.state.over] + [lease]
        return lease

    def statistics(self) -> dict[str, object]:
        return {**self._wire.statistics(), "reaping": sum(lease.reaping for lease in self._leases)}

    def close(self) -> None:
        self._renewal_thread.close(_RENEWAL_SECONDS)
        self._wire.close()

    def _beat_seconds_max(self) -> float:
        """Return how long one renewal may block the thread: the lease with the shortest TTL must get its turn."""
        return min(_RENEWAL_SECONDS, *(provable(lease.ttl) / 3 for lease in self._leases))


def _transport(options: Options, context: BackendContext) -> Transport:
    """Make the transport that the URL's scheme names; its module is imported only then."""
    if options.scheme == "etcd+grpc":
        from tenure._backends.etcd.grpc import Grpc

        return Grpc(options, context)
    from tenure._backends.etcd.gateway import Gateway

    return Gateway(options, context)
