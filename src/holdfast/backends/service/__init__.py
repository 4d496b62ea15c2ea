"""A service in front of a store: `holdfast serve`, over HTTP. The thin client.

calls.py      one request and its answer; what refusals mean
changes.py    all waits on one stream, one thread
lease.py      ServiceLease: the verbs, each a request
operating.py  what operators need, each verb a request
"""

from __future__ import annotations

from holdfast.backends.service.calls import Calls
from holdfast.backends.service.changes import Changes
from holdfast.backends.service.lease import ServiceLease
from holdfast.fence import line_of
from holdfast.helpers import Helpers
from holdfast.lease import LeaseState, Surroundings
from holdfast.options import Options

_HEART_SECONDS = 5.0

__all__ = ["ServiceBackend"]


class ServiceBackend:
    """One service, and the names below one prefix."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self.name = options.display
        self._around = around
        self._calls = Calls(options, around)
        self._changes = Changes(self._calls, around)
        # One thread renews all leases: a service that is away may block it, but nobody else.
        self._heart = Helpers("holdfast-heart", 1)
        self._leases: list[ServiceLease] = []

    def open(self, ttl: float, lock_delay: float) -> ServiceLease:
        lease = ServiceLease(self._calls, self._changes, ttl, lock_delay, self._around, self._heart)
        ended = (LeaseState.LOST, LeaseState.CLOSED)
        self._leases = [known for known in self._leases if known.state not in ended] + [lease]
        return lease

    def line_name(self, resource: str) -> str:
        """As the service's own fences name it, so that holders of both kinds are told apart by age, and not by way."""
        place = self._calls.place
        return line_of(place.namespace, place.prefix + self._calls.inside(resource))

    @property
    def incarnation(self) -> int:
        """The service's."""
        return self._calls.place.incarnation

    def statistics(self) -> dict[str, object]:
        host, port = self._calls.session.endpoint
        return {
            "endpoint": f"{host}:{port}",
            "endpoints_failed": self._calls.session.generation,
            "waits": self._changes.waits,
            "streams": self._changes.streams,
            "reaping": sum(lease.reaping for lease in self._leases),
        }

    def close(self) -> None:
        self._heart.close(_HEART_SECONDS)
        self._changes.close()
        self._calls.session.close()
