"""tenure.metrics: what Prometheus gets to read, from real stores."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

import tenure
from tenure import aio
from tenure.events import Event, Hub
from tenure.fencing._fence import Fence, admit, line_name
from tenure.metrics import Metrics, first_part
from tests.conformance.store_worlds import eventually
from tests.telemetry.conftest import TTL, Site


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Iterator[Metrics]:
    made = Metrics(registry=registry)
    yield made
    made.close()


def read(registry: CollectorRegistry) -> dict[str, float]:
    """The text that Prometheus would get, as its own parser reads it: `name{label="value"}` to number."""
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def nonzero(registry: CollectorRegistry, *beginnings: str) -> dict[str, float]:
    return {name: value for name, value in read(registry).items() if value and name.startswith(beginnings)}


def test_contended_lock_is_counted_with_its_wait_and_hold(
    site: Site, metrics: Metrics, registry: CollectorRegistry
) -> None:
    """One holds, one waits, one does not want to, one has no time: two clients, one set of metrics."""
    with tenure.connect(site.url) as one, tenure.connect(site.url) as other, ThreadPoolExecutor() as pool:
        metrics.follow(one)
        metrics.follow(other)
        entered = threading.Event()
        stop = other.subscribe(lambda event: entered.set() if event.event == "entered" else None)
        hold = one.lock("bills:ledger").acquire()
        waiting = pool.submit(other.lock("bills:ledger").acquire)
        assert entered.wait(10)
        stop()
        assert other.lock("bills:ledger").try_acquire() is None
        with pytest.raises(tenure.AcquireTimeout):
            other.lock("bills:ledger").acquire(timeout=2.0)
        during = nonzero(registry, "tenure_waiting", "tenure_held")
        assert during == {"tenure_waiting{resource=bills}": 1, "tenure_held{resource=bills}": 1}
        hold.release()
        waiting.result().release()
    found = nonzero(registry, "tenure_attempts", "tenure_contended", "tenure_waiting", "tenure_held")
    assert found == {
        "tenure_attempts_total{outcome=acquired,resource=bills}": 2,
        "tenure_attempts_total{outcome=busy,resource=bills}": 1,
        "tenure_attempts_total{outcome=timed_out,resource=bills}": 1,
        "tenure_contended_total{resource=bills}": 3,
    }
    all_of_it = read(registry)
    assert all_of_it["tenure_wait_seconds_count{outcome=acquired,resource=bills}"] == 2
    assert all_of_it["tenure_wait_seconds_sum{outcome=timed_out,resource=bills}"] >= 2.0
    assert all_of_it["tenure_hold_seconds_count{ending=released,resource=bills}"] == 2
    assert all_of_it["tenure_hold_seconds_bucket{ending=released,le=+Inf,resource=bills}"] == 2
    assert all_of_it["tenure_hold_seconds_bucket{ending=released,le=0.1,resource=bills}"] <= 1
    assert all_of_it["tenure_renewal_failures_total"] == 0


def test_cut_off_holder_is_counted_as_suspect_renewal_failures_and_expired(
    site: Site, metrics: Metrics, registry: CollectorRegistry
) -> None:
    """A partition that lasts: the failed renewals, the suspect time, the loss and its lease."""
    with tenure.connect(site.url) as client:
        metrics.follow(client)
        hold = client.lock("bills:ledger").acquire()
        site.proxy.blackhole()
        assert hold.lost.wait(TTL + 20)
        eventually(lambda: read(registry).get("tenure_leases_lost_total") == 1)
        site.proxy.heal()
    found = read(registry)
    assert found["tenure_expired_total{resource=bills}"] == 1
    assert found["tenure_hold_seconds_count{ending=expired,resource=bills}"] == 1
    assert found["tenure_renewal_failures_total"] >= 1
    assert 0 < found["tenure_suspect_seconds_total{resource=bills}"] < TTL
    assert found["tenure_suspect{resource=bills}"] == found["tenure_held{resource=bills}"] == 0


def test_forced_and_removed_hold_is_counted(site: Site, metrics: Metrics, registry: CollectorRegistry) -> None:
    """By an operator with a record."""
    with tenure.connect(site.url) as client:
        metrics.follow(client)
        hold = client.lock("bills:ledger").acquire()
        assert hold.state is tenure.HoldState.HELD
        time.sleep(0.5)  # its own ticket is watched once it has lasted a moment; before, the loss is found later
        client.operator().force_release("bills:ledger", token=hold.token, reason="stuck", actor="alice")
        assert hold.lost.wait(20)
        eventually(lambda: "tenure_forced_total{resource=bills}" in read(registry))
    found = nonzero(registry, "tenure_removed", "tenure_forced", "tenure_expired", "tenure_held")
    assert found == {"tenure_removed_total{resource=bills}": 1, "tenure_forced_total{resource=bills}": 1}


def test_release_that_was_not_confirmed_is_counted(site: Site, metrics: Metrics, registry: CollectorRegistry) -> None:
    """The store is cut off in the moment of the release."""
    with tenure.connect(site.url) as client:
        metrics.follow(client)
        hold = client.lock("bills:ledger").acquire()
        site.proxy.blackhole()
        with pytest.raises(tenure.StoreError):
            hold.release()
        site.proxy.heal()
        assert read(registry)["tenure_release_failures_total{resource=bills}"] == 1


def test_stale_write_to_the_lock_s_own_store_is_counted(
    site: Site, metrics: Metrics, registry: CollectorRegistry
) -> None:
    """`hold.store` is a guard like the others."""
    with tenure.connect(site.url) as client:
        hold = client.lock("bills:ledger").acquire()
        client.operator().force_release("bills:ledger", token=hold.token, reason="stuck", actor="alice")
        with pytest.raises((tenure.StaleToken, tenure.LeaseLost)) as refused:
            hold.store.put("total", b"1")
    stale = refused.type is tenure.StaleToken  # or the hold had heard of it before
    assert read(registry).get("tenure_stale_refused_total{resource=bills}", 0) == stale


def test_asyncio_clients_are_counted_alike(site: Site, metrics: Metrics, registry: CollectorRegistry) -> None:
    """Twenty tasks on one lock."""

    async def main() -> None:
        async with aio.connect(site.url) as client:
            metrics.follow(client)

            async def one() -> None:
                async with client.lock("bills:ledger"):
                    pass

            await asyncio.gather(*(one() for _ in range(20)))

    asyncio.run(main())
    found = nonzero(registry, "tenure_attempts", "tenure_contended", "tenure_held", "tenure_waiting")
    assert found.pop("tenure_contended_total{resource=bills}") >= 10
    assert found == {"tenure_attempts_total{outcome=acquired,resource=bills}": 20}


def test_refused_stale_token_is_counted_once_by_its_name(metrics: Metrics, registry: CollectorRegistry) -> None:
    """Whatever guard it was: the rule tells."""
    line = line_name("any/where", "bills:ledger")
    with pytest.raises(tenure.StaleToken):
        admit(Fence(line, 2), Fence(line, 1))
    assert nonzero(registry, "tenure_stale") == {"tenure_stale_refused_total{resource=bills}": 1}


# Labels.


@pytest.mark.parametrize(
    ("by", "names", "labels"),
    [
        (first_part, ["a:b", "a/c", "b"], {"a": 2, "b": 1}),
        (["tenant", "tenant_1"], ["tenant_1:x", "tenant_2:x", "else"], {"tenant_1": 1, "tenant": 1, "other": 1}),
        ("jobs/", ["jobs/1", "jobs/2", "x"], {"jobs/": 2, "other": 1}),
        ((), ["a", "b"], {"other": 2}),
        (lambda name: name[1000], ["a"], {"other": 1}),
        (lambda name: "", ["a"], {"other": 1}),
        (lambda name: "\ud800" + "x" * 500, ["a"], {"?" + "x" * 99: 1}),
        (lambda name: 'quo"te\n\\', ["a"], {'quo"te\n\\': 1}),
    ],
)
def test_label_is_what_by_says_of_the_name(
    by: Callable[[str], str] | list[str], names: list[str], labels: dict[str, int], registry: CollectorRegistry
) -> None:
    """Beginnings, of which the longest counts, or a function; nonsense costs no count and breaks no page."""
    metrics, hub = Metrics(by=by, registry=registry), Hub(lambda: 0.0)
    metrics.follow(hub)
    for name in names:
        hub.emit("acquired", resource=name, ticket=name, seconds=0.0)
    found = {
        sample.labels["resource"]: sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if sample.name == "tenure_attempts_total"
    }
    assert found == labels
    metrics.close()


def test_labels_have_a_bound_beyond_which_all_are_other(registry: CollectorRegistry) -> None:
    """A name per tenant must not become a time series per tenant."""
    metrics, hub = Metrics(labels_max=10, registry=registry), Hub(lambda: 0.0)
    metrics.follow(hub)
    for number in range(10_000):
        hub.emit("acquired", resource=f"tenant{number}", ticket=str(number), seconds=0.0)
    found = nonzero(registry, "tenure_attempts")
    assert len(found) == 11
    assert found["tenure_attempts_total{outcome=acquired,resource=other}"] == 9990
    metrics.close()


# Lives.


def test_client_that_is_not_followed_any_more_leaves_no_gauge_behind(registry: CollectorRegistry) -> None:
    """What it holds is nobody's business then, and what it tells later neither."""
    metrics, hub = Metrics(registry=registry), Hub(lambda: 0.0)
    stop = metrics.follow(hub)
    hub.emit("entered", resource="a", ticket="1")
    hub.emit("acquired", resource="a", ticket="2", seconds=0.0)
    hub.emit("suspect", resource="a", ticket="2")
    assert len(nonzero(registry, "tenure_waiting", "tenure_held", "tenure_suspect")) == 3
    stop()
    hub.emit("released", resource="a", ticket="2", seconds=0.0, ending="released")
    assert nonzero(registry, "tenure_waiting", "tenure_held", "tenure_suspect", "tenure_hold_") == {}
    metrics.close()


def test_hold_that_was_there_before_takes_no_gauge_below_zero(registry: CollectorRegistry) -> None:
    """Its end is counted, its beginning was not."""
    metrics, hub = Metrics(registry=registry), Hub(lambda: 0.0)
    metrics.follow(hub)
    for event in ("suspect", "renewed", "released"):
        hub.emit(event, resource="a", ticket="1", seconds=0.0)
    assert min(read(registry).values()) >= 0
    metrics.close()


def test_one_registry_takes_one_and_again_after_it_was_closed(registry: CollectorRegistry) -> None:
    """A second one would count everything twice."""
    first = Metrics(registry=registry)
    with pytest.raises(tenure.UsageError, match="already"):
        Metrics(registry=registry)
    first.close()
    Metrics(registry=registry).close()
    assert generate_latest(registry) == b""


def test_event_within_an_event_as_from_a_signal_handler_does_not_block(registry: CollectorRegistry) -> None:
    """A handler may release a hold while the main thread is counting, or while a page is made."""
    hub = Hub(lambda: 0.0)

    def counting(name: str) -> str:
        if name == "outer":
            signal.raise_signal(signal.SIGUSR1)
        return name

    metrics = Metrics(by=counting, registry=registry)
    metrics.follow(hub)
    before = signal.signal(signal.SIGUSR1, lambda *_: hub.emit("acquired", resource="inner", ticket="i", seconds=0.0))
    try:
        hub.emit("acquired", resource="outer", ticket="o", seconds=0.0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(nonzero(registry, "tenure_attempts")) == 2
    metrics.close()


def test_many_threads_lose_no_count(registry: CollectorRegistry) -> None:
    """Events come from every thread that a client has."""
    metrics, hub = Metrics(registry=registry), Hub(lambda: 0.0)
    metrics.follow(hub)

    def work(worker: int) -> None:
        for number in range(500):
            ticket = f"{worker}-{number}"
            hub.emit("entered", resource="a", ticket=ticket)
            hub.emit("acquired", resource="a", ticket=ticket, seconds=0.0)
            hub.emit("released", resource="a", ticket=ticket, seconds=0.0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    found = nonzero(registry, "tenure_attempts", "tenure_held", "tenure_waiting")
    assert found == {"tenure_attempts_total{outcome=acquired,resource=a}": 4000}
    metrics.close()


def test_unknown_event_and_empty_event_change_nothing(metrics: Metrics, registry: CollectorRegistry) -> None:
    """Words that come later, or events that know nothing."""
    before, heard = read(registry), []

    class Silent:
        def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
            heard.append(subscriber)
            return lambda: None

    metrics.follow(Silent())
    for word in ("novelty", "renewed", "suspect"):
        heard[0](Event(word, 0.0))
    assert read(registry) == before


def test_missing_package_is_told_in_a_sentence() -> None:
    """Which one, and how to get it."""
    for module, package, extra in (
        ("metrics", "prometheus_client", "metrics"),
        ("tracing", "opentelemetry", "tracing"),
    ):
        program = f"import sys; sys.modules[{package!r}] = None\nimport tenure.{module}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith(f"ImportError: tenure.{module} needs the package "), last
        assert last.endswith(f"pip install 'tenure[{extra}]'"), last


def test_importing_tenure_imports_neither() -> None:
    """Nobody pays for what nobody uses."""
    program = "import tenure, sys; print([m for m in ('prometheus_client', 'opentelemetry') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
