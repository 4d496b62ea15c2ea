"""Metrics of the service itself, for Prometheus, beside those of holds in `tenure.metrics`; and deferred events.

tenure_http_requests_total{route, status}
tenure_http_request_seconds_total{route}      how long they took, waits included
tenure_http_requests_running                  streams and waiting acquires included
tenure_http_connections                       and tenure_http_connections_refused_total; see http/listener.py
tenure_log_lines_dropped_total                see log.py
tenure_lent_leases                            leases of remote clients that stand here
tenure_lent_tickets                           their tickets, with those that wait
tenure_lent_leases_ended_total{ending}        closed, expired (not renewed), lost (by the store), shutdown (ours)

A lease that the store never granted is not counted. Holds under a remote client's lease are counted by that client.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tenure.events import Event, Source, Subscriber, tell
from tenure.service.remote.leases import RemoteLeases


class ServiceCounts(Collector):
    """Requests by the name of their route: no more labels than routes, whatever paths clients send."""

    def __init__(self) -> None:
        self.running = 0
        self._requests: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def ended(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        self._requests[route, str(status)] += 1
        self._seconds[route] += seconds

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the metrics; see prometheus_client."""
        requests = CounterMetricFamily("tenure_http_requests", "Requests that ended.", labels=("route", "status"))
        for (route, status), count in self._requests.items():
            requests.add_metric((route, status), count)
        yield requests
        seconds = CounterMetricFamily("tenure_http_request_seconds", "How long they took.", labels=("route",))
        for route, took in self._seconds.items():
            seconds.add_metric((route,), took)
        yield seconds
        yield GaugeMetricFamily("tenure_http_requests_running", "Requests under way.", value=self.running)


class RemoteLeaseCounts(Collector):
    """Leases of remote clients, and why they ended. Every ending has a series from the start."""

    def __init__(self, remote_leases: RemoteLeases) -> None:
        self._remote_leases = remote_leases

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the metrics; see prometheus_client."""
        totals = self._remote_leases.totals
        yield GaugeMetricFamily("tenure_lent_leases", "Leases of thin clients.", value=totals.leases)
        yield GaugeMetricFamily("tenure_lent_tickets", "Tickets under them.", value=totals.tickets)
        ended = CounterMetricFamily("tenure_lent_leases_ended", "Leases that are over, by why.", labels=("ending",))
        for ending, count in self._remote_leases.ended.items():
            ended.add_metric((ending.value,), count)
        yield ended


class DeferredEvents:
    """The events of a client, delivered on the event loop's thread, in their order, after the task that caused them.

    A request does not wait for its own events to be counted: they are delivered when its task waits or has ended. Once
    the loop is closed they are delivered at once.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Subscribe as to the source itself. Needs a running loop."""
        return self._source.subscribe(_EventQueue(subscriber, asyncio.get_running_loop()))


class _EventQueue:
    """The queue before one subscriber, filled by any thread and emptied by the loop.

    It takes no lock: two threads that come at once may have it emptied twice, and the second time it is empty.
    """

    def __init__(self, subscriber: Subscriber, loop: asyncio.AbstractEventLoop) -> None:
        self._subscriber = subscriber
        self._loop = loop
        self._thread = threading.get_ident()
        self._events: deque[Event] = deque()
        self._due = False  # whether the loop has been asked to empty it

    def __call__(self, event: Event) -> None:
        self._events.append(event)
        if self._loop.is_closed():
            self._empty()
        elif not self._due:
            self._due = True
            self._schedule()

    def _schedule(self) -> None:
        here = threading.get_ident() == self._thread
        try:
            (self._loop.call_soon if here else self._loop.call_soon_threadsafe)(self._empty)
        except RuntimeError:  # closed just now
            self._empty()

    def _empty(self) -> None:
        self._due = False  # first: an event from here on is found below, or schedules again
        while True:
            try:
                event = self._events.popleft()
            except IndexError:
                return
            tell(self._subscriber, event)
