"""etcd, through its JSON gateway and etcd3gw, or through gRPC.

words.py    what is asked and answered, as values
codec.py    keys and values: how a ticket is written
wire.py     the seam, `Transport`; retries, for both transports
refusals.py  what refusals mean, for both
watch.py    all watches on one stream, one thread, for both
late.py     what a watch missed that began late
history.py  law 4: a store that went back
guarded.py  the user's own keys, while a ticket stands
operating.py  what operators need: listing, watching, removing, notes
places.py   the keys of a lease's tickets
audit.py    no key of my lease stands that I don't know of
lines.py    reading lines and changing tickets, for all leases
lease.py    EtcdLease: the verbs

Holds that others renew:

own.py         EtcdOwnLease: a lease for one ticket
rounds.py      those that wait are renewed together
spares.py      those without a ticket, to be used again
marks.py       what the store remembers of idempotency keys
chores.py      what is done in the background until it is done
entrusting.py  the verbs

The gateway, `etcd://`:

gateway.py    the transport: one POST through etcd3gw each
documents.py  its JSON
streams.py    what carries watches: a WebSocket, or one long POST

Endpoints, failover, TLS and users are holdfast/links/session.py.

gRPC, `etcd+grpc://`: the package grpc/, with a map of its own.
"""

from __future__ import annotations

from holdfast.backends.etcd.entrusting import EtcdEntrusting
from holdfast.backends.etcd.lease import EtcdLease
from holdfast.backends.etcd.wire import Transport, Wire
from holdfast.belief import provable
from holdfast.helpers import Helpers
from holdfast.lease import Surroundings
from holdfast.options import Options

_HEART_SECONDS = 5.0

__all__ = ["EtcdBackend"]


class EtcdBackend:
    """One etcd cluster under one namespace."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self.name = options.display
        self._namespace = options.namespace
        self._around = around
        self._wire = Wire(options, around, _transport(options, around))
        # One thread renews all leases: a store that is away may block it, but nobody else.
        self._heart = Helpers("holdfast-heart", 1)
        self._leases: list[EtcdLease] = []
        self.entrusting = EtcdEntrusting(self._wire, self._namespace, around, self._heart)

    @property
    def goes_aside(self) -> bool:
        """Over the plain gateway; what is entrusted does, a lease of many tickets is granted under a lock."""
        return self._wire.goes_aside

    def open(self, ttl: float, lock_delay: float) -> EtcdLease:
        lease = EtcdLease(
            self._wire, self._namespace, ttl, lock_delay, self._around, self._heart, self._beat_seconds_max
        )
        self._leases = [known for known in self._leases if not known.state.over] + [lease]
        return lease

    def statistics(self) -> dict[str, object]:
        return {**self._wire.statistics(), "reaping": sum(lease.reaping for lease in self._leases)}

    def close(self) -> None:
        self._heart.close(_HEART_SECONDS)
        self._wire.close()

    def _beat_seconds_max(self) -> float:
        """How long one renewal may keep the heart: the lease with the shortest TTL must get its turn."""
        return min(_HEART_SECONDS, *(provable(lease.ttl) / 3 for lease in self._leases))


def _transport(options: Options, around: Surroundings) -> Transport:
    """What the URL's scheme names. Each is imported only when it is wanted."""
    if options.scheme == "etcd+grpc":
        from holdfast.backends.etcd.grpc import Grpc

        return Grpc(options, around)
    from holdfast.backends.etcd.gateway import Gateway

    return Gateway(options, around)
