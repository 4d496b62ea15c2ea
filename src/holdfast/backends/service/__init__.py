"""A service in front of a store: `holdfast serve`, over HTTP. The thin client.

calls.py      one request and its answer; what refusals mean
changes.py    all waits on one stream, one thread
replicas.py   where leases are opened, and where each was
lease.py      ServiceLease: the verbs, each a request
operating.py  what operators need, each verb a request
"""

from __future__ import annotations

from holdfast.backends.service.lease import ServiceLease
from holdfast.backends.service.replicas import Replicas
from holdfast.fence import line_of
from holdfast.lease import LeaseState, Surroundings
from holdfast.options import Options, shown

__all__ = ["ServiceBackend"]


class ServiceBackend:
    """One service, and the names below one prefix."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self.name = options.display
        self._around = around
        self._replicas = Replicas(options, around)
        self._leases: list[ServiceLease] = []

    def open(self, ttl: float, lock_delay: float) -> ServiceLease:
        lease = ServiceLease(self._replicas, ttl, lock_delay, self._around)
        ended = (LeaseState.LOST, LeaseState.CLOSED)
        self._leases = [known for known in self._leases if known.state not in ended] + [lease]
        return lease

    def line_name(self, resource: str) -> str:
        """As the service's own fences name it, so that holders of both kinds are told apart by age, and not by way."""
        calls = self._replicas.any.calls
        return line_of(calls.place.namespace, calls.place.prefix + calls.inside(resource))

    @property
    def incarnation(self) -> int:
        """The service's."""
        return self._replicas.any.calls.place.incarnation

    def statistics(self) -> dict[str, object]:
        return {
            "endpoint": shown(self._replicas.any.calls.session.endpoint),
            "endpoints_failed": sum(replica.calls.session.generation for replica in self._replicas),
            "waits": sum(replica.changes.waits for replica in self._replicas),
            "streams": sum(replica.changes.streams for replica in self._replicas),
            "reaping": sum(lease.reaping for lease in self._leases),
        }

    def close(self) -> None:
        for replica in self._replicas:
            replica.close()
