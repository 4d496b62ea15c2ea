"""Prometheus metrics of clients and guards: a subscriber to their events. `pip install 'tenure[metrics]'`.

    metrics = Metrics()                  # on prometheus_client's own registry; registry=… for another
    metrics.follow(client)               # blocking or asyncio, as many as there are; returns what ends that

    tenure_attempts_total{resource, outcome}   acquired, busy (nobody wanted to wait), timed_out, abandoned
    tenure_contended_total{resource}           attempts that found somebody ahead of them
    tenure_wait_seconds{resource, outcome}     histogram: from the call to its end
    tenure_hold_seconds{resource, ending}      histogram: released, closed (with its client), expired, removed
    tenure_waiting, tenure_held, tenure_suspect {resource}    how many there are now
    tenure_suspect_seconds_total{resource}     how long holds were suspect, counted when that ends
    tenure_expired_total, tenure_removed_total, tenure_forced_total {resource}    losses
    tenure_release_failures_total, tenure_reap_failures_total {resource}    the reaper goes on after either
    tenure_stale_refused_total{resource}       stale tokens that guards of this process refused
    tenure_renewal_failures_total, tenure_leases_lost_total, tenure_endpoint_failures_total

Names of locks have no bound, labels must: `by` says which label a name gets, the beginnings of names (the longest that
fits counts) or a function, and `labels_max` labels are the most; all other names are "other". Without `by` it is what
stands before the first `:` or `/`.

An event costs some ten microseconds, in the thread that emits it; without a subscriber nothing is paid. Counts are kept
here and handed over when Prometheus asks: the locks of prometheus_client are not re-entrant, and a signal handler may
release a hold in the midst of an event. So its multiprocess mode does not know them: serve each process by itself.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import accumulate
from typing import Final, TypeAlias

from tenure._core.base import validation
from tenure.errors import UsageError, how_to_install
from tenure.events import Event, Source, follow
from tenure.fencing._fence import subscribe

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector
except ImportError as _error:
    raise ImportError(
        f"tenure.metrics needs the package prometheus_client ({_error}): {how_to_install('metrics')}"
    ) from _error

OTHER: Final = "other"
_LABELS_MAX: Final = 100
_LABEL_CHARACTERS_MAX: Final = 100
_BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0),
)
_PLAIN: Final = {
    "renewal_failed": ("tenure_renewal_failures", "Renewals of leases that went unanswered."),
    "lease_lost": ("tenure_leases_lost", "Leases that ended without being given up."),
    "endpoint_failed": ("tenure_endpoint_failures", "Endpoints that did not answer."),
}
"""Counters without labels, by their event."""
_OF_RESOURCES: Final = {
    "expired": ("tenure_expired", "Holds lost because their lease was not proven in time, or had ended."),
    "removed": ("tenure_removed", "Holds lost because their ticket was removed from the store."),
    "forced": ("tenure_forced", "Holds of which an operator wrote down that they were forced out."),
    "release_failed": ("tenure_release_failures", "Releases that the store did not confirm."),
    "reap_failed": ("tenure_reap_failures", "Tries of the reaper to withdraw a ticket that failed."),
    "stale_refused": ("tenure_stale_refused", "Stale tokens that guards refused."),
    "contended": ("tenure_contended", "Attempts that found somebody ahead of them."),
}
"""Counters by resource."""

Metric: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


def first_part(name: str) -> str:
    """The part of a name before the first `:` or `/`."""
    return name.partition(":")[0].partition("/")[0]


class Metrics(Collector):
    """Counts of all clients that it follows. Thread-safe; make one for each registry.

    Raises UsageError where the registry has one already, InvalidOption for a bad `labels_max`.
    """

    def __init__(
        self,
        *,
        by: Callable[[str], str] | Collection[str] = first_part,
        labels_max: int = _LABELS_MAX,
        registry: CollectorRegistry | None = REGISTRY,
    ) -> None:
        self._label = _Labels(
            by if callable(by) else _Longest(by), validation.count(labels_max, "labels_max", maximum=10_000)
        )
        self._guard = threading.RLock()  # guards all below; a signal handler may come back in, and cost one count
        self._attempts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._waits: defaultdict[tuple[str, str], _Histogram] = defaultdict(_Histogram)
        self._holds: defaultdict[tuple[str, str], _Histogram] = defaultdict(_Histogram)
        self._suspect_seconds: defaultdict[str, float] = defaultdict(float)
        self._now: dict[str, defaultdict[str, int]] = {
            what: defaultdict(int) for what in ("waiting", "held", "suspect")
        }
        self._plain = dict.fromkeys(_PLAIN, 0)
        self._of_resources: dict[str, defaultdict[str, int]] = {what: defaultdict(int) for what in _OF_RESOURCES}
        self._registry = registry
        if registry is not None:
            try:
                registry.register(self)
            except ValueError as error:
                raise UsageError(
                    "this registry has the metrics of tenure already; one Metrics follows any number of clients"
                ) from error
        self._stop = subscribe(self._refused)

    def follow(self, client: Source) -> Callable[[], None]:
        """Count the events of `client` from now on; the returned function ends that. Follow each client once."""
        return follow(client, _TicketCounts(self))

    def close(self) -> None:
        """Leave the registry, and hear no more of guards. Clients are unfollowed by what `follow` returned."""
        self._stop()
        if self._registry is not None:
            self._registry.unregister(self)
            self._registry = None

    def describe(self) -> Iterator[Metric]:
        """List the metrics by name: a registry knows by them that it has them already."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, for Prometheus."""
        with self._guard:
            yield from list(self._collected())

    def _collected(self) -> Iterator[Metric]:
        attempts = CounterMetricFamily(
            "tenure_attempts", "Attempts to acquire that ended.", labels=("resource", "outcome")
        )
        for labels, count in self._attempts.items():
            attempts.add_metric(labels, count)
        yield attempts
        yield _shown(self._waits, "tenure_wait_seconds", "From the call to its end.", "outcome")
        yield _shown(self._holds, "tenure_hold_seconds", "How long holds lasted.", "ending")
        for what, help_text in (
            ("waiting", "Tickets that wait in a line."),
            ("held", "Holds."),
            ("suspect", "Holds whose last renewals went unanswered."),
        ):
            gauge = GaugeMetricFamily(f"tenure_{what}", help_text, labels=("resource",))
            for label, number in self._now[what].items():
                gauge.add_metric((label,), number)
            yield gauge
        yield _counter("tenure_suspect_seconds", "How long holds were suspect.", self._suspect_seconds)
        for what, (name, help_text) in _OF_RESOURCES.items():
            yield _counter(name, help_text, self._of_resources[what])
        for what, (name, help_text) in _PLAIN.items():
            yield CounterMetricFamily(name, help_text, value=self._plain[what])

    def _refused(self, event: Event) -> None:
        with self._guard:
            self._of_resources["stale_refused"][self._label(event.resource)] += 1


class _TicketCounts:
    """Counts of one client's tickets: waiting, held, suspect. Guarded by its metrics' lock."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._waiting: dict[str, str] = {}  # ticket: label
        self._held: dict[str, str] = {}
        self._suspect: dict[str, float] = {}  # ticket: since when
        self._ended = False

    def __call__(self, event: Event) -> None:
        metrics, ticket = self._metrics, event.ticket or ""
        with metrics._guard:
            if self._ended:
                return
            label = metrics._label(event.resource)
            match event.event:
                case "entered":
                    self._waiting[ticket] = label
                    metrics._now["waiting"][label] += 1
                case "acquired" | "busy" | "timed_out" | "abandoned" as outcome:
                    self._attempted(event, label, outcome)
                case "entrusted":
                    self._attempted(event, label, "acquired")
                case "suspect" if ticket in self._held:
                    self._suspect[ticket] = event.at
                    metrics._now["suspect"][self._held[ticket]] += 1
                case "renewed" if ticket in self._held:
                    self._recovered(ticket, self._held[ticket], event.at)
                case "released" | "lost":
                    self._over(event, label)
                case "forced" | "release_failed" | "reap_failed" as what:
                    metrics._of_resources[what][label] += 1
                case "renewal_failed" | "lease_lost" | "endpoint_failed" as what:
                    metrics._plain[what] += 1

    def forget(self) -> None:
        """Drop the client's counts: it is not followed any more."""
        with self._metrics._guard:
            self._ended = True
            for what, labels in (
                ("waiting", self._waiting.values()),
                ("held", self._held.values()),
                ("suspect", [self._held[ticket] for ticket in self._suspect]),
            ):
                for label in labels:
                    self._metrics._now[what][label] -= 1

    def _attempted(self, event: Event, label: str, outcome: str) -> None:
        metrics, ticket = self._metrics, event.ticket or ""
        if ticket in self._waiting:
            metrics._now["waiting"][self._waiting.pop(ticket)] -= 1
        metrics._attempts[label, outcome] += 1
        metrics._waits[label, outcome].observe(event.seconds or 0.0)
        if event.behind is not None:
            metrics._of_resources["contended"][label] += 1
        if event.event == "acquired":
            self._held[ticket] = label
            metrics._now["held"][label] += 1

    def _recovered(self, ticket: str, label: str, at: float) -> None:
        since = self._suspect.pop(ticket, None)
        if since is not None:
            self._metrics._now["suspect"][label] -= 1
            self._metrics._suspect_seconds[label] += max(0.0, at - since)

    def _over(self, event: Event, label: str) -> None:
        metrics, ticket = self._metrics, event.ticket or ""
        label = self._held.get(ticket, label)
        self._recovered(ticket, label, event.at)
        if self._held.pop(ticket, None) is not None:
            metrics._now["held"][label] -= 1
        ending = event.ending or event.event
        if event.seconds is not None:  # of an entrusted hold nobody here knows how long it lasted
            metrics._holds[label, ending].observe(event.seconds)
        if ending in ("expired", "removed"):
            metrics._of_resources[ending][label] += 1


class _Labels:
    """Labels of names: those that the function gives, for the first `maximum` of them; then "other"."""

    def __init__(self, by: Callable[[str], str], maximum: int) -> None:
        self._by = by
        self._maximum = maximum
        self._known: set[str] = set()

    def __call__(self, name: str | None) -> str:
        if name is None:
            return OTHER
        try:
            label = str(self._by(name))
        except Exception:  # the user's function: an event must be counted all the same
            return OTHER
        label = label[:_LABEL_CHARACTERS_MAX].encode(errors="replace").decode()  # what can't be written can't be shown
        if label and label not in self._known and len(self._known) < self._maximum:
            self._known.add(label)
        return label if label in self._known else OTHER


class _Longest:
    """The longest of some beginnings of names."""

    def __init__(self, prefixes: Collection[str]) -> None:
        self._prefixes = sorted([prefixes] if isinstance(prefixes, str) else prefixes, key=len, reverse=True)

    def __call__(self, name: str) -> str:
        return next((prefix for prefix in self._prefixes if name.startswith(prefix)), OTHER)


class _Histogram:
    """The number of values in each bucket, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(_BUCKETS, seconds)] += 1
        self.sum += seconds


def _shown(
    histograms: dict[tuple[str, str], _Histogram], name: str, help_text: str, second: str
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, help_text, labels=("resource", second))
    bounds = [*map(str, _BUCKETS), "+Inf"]
    for labels, histogram in histograms.items():
        family.add_metric(labels, list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.sum)
    return family


def _counter(name: str, help_text: str, counts: dict[str, int] | dict[str, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, help_text, labels=("resource",))
    for label, count in counts.items():
        family.add_metric((label,), count)
    return family
