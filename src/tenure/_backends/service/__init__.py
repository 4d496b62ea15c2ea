"""The thin client: a service in front of a store, `tenure serve`, over HTTP.

    lease      ServiceLease: the verbs, each a request; the replicas, of which one opens a lease
    calls      one request and its answer; the errors of refusals
    changes    all waits on one stream, one thread
    admin      the operators' verbs, each a request

One acquire: `ServiceLease.enter` opens the lease at any replica, and posts the entry to the one that opened it by
`Calls.ask_once`, through the connection pool (_transport/session.py). A waiter registers with `Changes`, whose stream
reports that the ticket ahead has changed, and looks again.
"""

from __future__ import annotations

from tenure._backends.service.lease import Replicas, ServiceLease
from tenure._core.base.options import Options, shown
from tenure._core.lease import BackendContext, LeaseState
from tenure.fencing._fence import line_of

__all__ = ["ServiceBackend"]


class ServiceBackend:
    """The backend: a service, and the names below one prefix."""

    def __init__(self, options: Options, context: BackendContext) -> None:
        self.name = options.display
        self._context = context
        self._replicas = Replicas(options, context)
        self._leases: list[ServiceLease] = []

    def open(self, ttl: float, lock_delay: float) -> ServiceLease:
        lease = ServiceLease(self._replicas, ttl, lock_delay, self._context)
        ended = (LeaseState.LOST, LeaseState.CLOSED)
        self._leases = [known for known in self._leases if known.state not in ended] + [lease]
        return lease

    def line_name(self, resource: str) -> str:
        """The line's name in the service's own fences: a guard then compares holders of both kinds by token."""
        calls = self._replicas.any.calls
        return line_of(calls.names.namespace, calls.names.prefix + calls.inside(resource))

    @property
    def incarnation(self) -> int:
        """The service's incarnation."""
        return self._replicas.any.calls.names.incarnation

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
