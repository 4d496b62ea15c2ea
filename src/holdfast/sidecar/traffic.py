"""What the service counts of its requests, for Prometheus, beside what `holdfast.metrics` counts of the holds.

holdfast_http_requests_total{route, status}
holdfast_http_request_seconds_total{route}      how long they took, waits included
holdfast_http_requests_running                  streams and waiting acquires included
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector


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
