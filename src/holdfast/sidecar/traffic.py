"""What the service counts of itself, for Prometheus, beside what `holdfast.metrics` counts of the holds.

holdfast_http_requests_total{route, status}
holdfast_http_request_seconds_total{route}      how long they took, waits included
holdfast_http_requests_running                  streams and waiting acquires included
holdfast_lent_leases                            leases of thin clients that stand here
holdfast_lent_tickets                           tickets under them, of those that wait as well
holdfast_lent_leases_ended_total{ending}        closed, expired (not renewed), lost (by the store), shutdown (ours)

A lease that the store never granted is none of those. What is held under a lent lease is its client's to count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from holdfast.sidecar.lending import Lending


class Traffic(Collector):
    """Counts by the name of the route: as many as there are routes, whatever paths are asked for."""

    def __init__(self) -> None:
        self.running = 0
        self._requests: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def ended(self, route: str, status: int, seconds: float) -> None:
        """One request more has ended."""
        self._requests[route, str(status)] += 1
        self._seconds[route] += seconds

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """What Prometheus asks for."""
        requests = CounterMetricFamily("holdfast_http_requests", "Requests that ended.", labels=("route", "status"))
        for (route, status), count in self._requests.items():
            requests.add_metric((route, status), count)
        yield requests
        seconds = CounterMetricFamily("holdfast_http_request_seconds", "How long they took.", labels=("route",))
        for route, took in self._seconds.items():
            seconds.add_metric((route,), took)
        yield seconds
        yield GaugeMetricFamily("holdfast_http_requests_running", "Requests under way.", value=self.running)


class Loans(Collector):
    """What is lent to thin clients, and why what was is over: each ending from the start, so that none is missed."""

    def __init__(self, lending: Lending) -> None:
        self._lending = lending

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """What Prometheus asks for."""
        standing = self._lending.standing
        yield GaugeMetricFamily("holdfast_lent_leases", "Leases of thin clients.", value=standing.leases)
        yield GaugeMetricFamily("holdfast_lent_tickets", "Tickets under them.", value=standing.tickets)
        ended = CounterMetricFamily("holdfast_lent_leases_ended", "Leases that are over, by why.", labels=("ending",))
        for ending, count in self._lending.ended.items():
            ended.add_metric((ending.value,), count)
        yield ended
