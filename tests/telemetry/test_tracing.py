"""tenure.tracing: the spans of real stores, as OpenTelemetry's own exporter in memory has them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import tenure
from tenure import aio
from tenure.events import Hub
from tenure.fencing._fence import Fence, admit, line_name
from tenure.tracing import Tracing
from tests.conformance.store_worlds import eventually
from tests.telemetry.conftest import TTL, Site


class Traces:
    """A provider of its own, what follows clients with it, and what it exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.tracing = Tracing(tracer_provider=self.provider)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == f"tenure.{name}"]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span


@pytest.fixture
def traces() -> Iterator[Traces]:
    made = Traces()
    yield made
    made.tracing.close()
    made.provider.shutdown()


def of(span: ReadableSpan, attribute: str) -> object:
    return (span.attributes or {}).get(f"tenure.{attribute}")


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def links(span: ReadableSpan) -> dict[object, int]:
    """Where it links to, by why."""
    return {(link.attributes or {})["tenure.link"]: link.context.span_id for link in span.links}


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def test_waiter_is_linked_to_the_holder_it_waited_behind(site: Site, traces: Traces) -> None:
    """Two clients: the hold of the second links to its wait, and that to the hold of the first."""
    with tenure.connect(site.url) as one, tenure.connect(site.url) as other, ThreadPoolExecutor() as pool:
        traces.tracing.follow(one)
        traces.tracing.follow(other)
        entered = threading.Event()
        other.subscribe(lambda event: entered.set() if event.event == "entered" else None)
        first = one.lock("ledger").acquire()
        waiting = pool.submit(other.lock("ledger").acquire)
        assert entered.wait(10)
        time.sleep(0.3)
        first.release()
        second = waiting.result()
        second.release()
    by_ticket = {(span.name, of(span, "ticket")): span for span in traces.exporter.get_finished_spans()}
    first_wait, first_hold = (by_ticket[f"tenure.{name}", first.id] for name in ("acquire", "hold"))
    second_wait, second_hold = (by_ticket[f"tenure.{name}", second.id] for name in ("acquire", "hold"))
    assert len(by_ticket) == 4
    assert links(first_hold) == {"wait": id_of(first_wait)}
    assert links(first_wait) == {}
    assert links(second_hold) == {"wait": id_of(second_wait)}
    assert links(second_wait) == {"behind": id_of(first_hold)}
    assert of(second_wait, "behind") == first.id
    assert of(second_wait, "outcome") == "acquired"
    assert seconds(second_wait) >= 0.3
    assert of(second_hold, "token") == str(second.token)
    assert of(second_hold, "ending") == "released"
    assert second_hold.status.status_code is StatusCode.UNSET


def test_holder_elsewhere_is_named_by_its_ticket(site: Site, traces: Traces) -> None:
    """A holder that nobody follows here, as one in another process: no link, but the id that joins them."""
    with tenure.connect(site.url) as other, tenure.connect(site.url) as client:
        hold = other.lock("ledger").acquire()
        client.lock("warm").acquire().release()
        traces.tracing.follow(client)
        with pytest.raises(tenure.AcquireTimeout):
            client.lock("ledger").acquire(timeout=2.0)
        assert client.lock("ledger").try_acquire() is None
    waited, busy = traces.spans("acquire")
    assert of(waited, "behind") == of(busy, "behind") == hold.id
    assert links(waited) == links(busy) == {}
    assert (of(waited, "outcome"), waited.status.status_code) == ("timed_out", StatusCode.ERROR)
    assert (of(busy, "outcome"), busy.status.status_code) == ("busy", StatusCode.UNSET)


def test_lost_hold_is_an_error_with_its_reason(site: Site, traces: Traces) -> None:
    """A partition that lasts: suspect within, lost at the end."""
    with tenure.connect(site.url) as client:
        traces.tracing.follow(client)
        hold = client.lock("ledger").acquire()
        site.proxy.blackhole()
        assert hold.lost.wait(TTL + 20)
        eventually(lambda: len(traces.spans("hold")) == 1)
        site.proxy.heal()
    span = traces.only("hold")
    assert (span.status.status_code, of(span, "ending")) == (StatusCode.ERROR, "expired")
    assert span.status.description
    assert [event.name for event in span.events] == ["tenure.suspect"]


def test_forced_release_is_told_after_the_hold_it_ended(site: Site, traces: Traces) -> None:
    """By whom, and why."""
    with tenure.connect(site.url) as client:
        traces.tracing.follow(client)
        hold = client.lock("ledger").acquire()
        time.sleep(0.5)  # see test_metrics
        client.operator().force_release("ledger", token=hold.token, reason="stuck", actor="alice")
        eventually(lambda: len(traces.spans("forced")) == 1)
    forced = traces.only("forced")
    assert of(forced, "reason") == "forced: stuck by alice"
    assert links(forced) == {"hold": id_of(traces.only("hold"))}


def test_spans_are_children_of_what_was_current(site: Site, traces: Traces) -> None:
    """In a thread, and in each of two tasks."""
    with tenure.connect(site.url) as client, traces.tracer.start_as_current_span("thread") as outer:
        traces.tracing.follow(client)
        with client.lock("ledger"):
            pass

    async def main() -> None:
        async with aio.connect(site.url) as client:
            traces.tracing.follow(client)

            async def work(name: str) -> None:
                with traces.tracer.start_as_current_span(name):
                    async with client.lock("ledger"):
                        await asyncio.sleep(0.01)

            await asyncio.gather(work("one"), work("two"))

    asyncio.run(main())
    roots = {id_of(span): span.name for span in traces.exporter.get_finished_spans() if "." not in span.name}
    assert roots[outer.get_span_context().span_id] == "thread"
    for name in ("acquire", "hold"):
        parents = [roots[span.parent.span_id] for span in traces.spans(name) if span.parent]
        assert sorted(parents) == ["one", "thread", "two"]


def test_refused_stale_token_is_an_event_of_the_current_span(traces: Traces) -> None:
    """There, where the write was tried."""
    line = line_name("billing", "ledger")
    with pytest.raises(tenure.StaleToken), traces.tracer.start_as_current_span("write"):
        admit(Fence(line, 2), Fence(line, 1))
    (span,) = traces.exporter.get_finished_spans()
    assert [event.name for event in span.events if event.name.startswith("tenure")] == ["tenure.stale_refused"]


def test_client_that_is_not_followed_any_more_leaves_no_span_open(traces: Traces) -> None:
    """Its holds' spans end there."""
    hub = Hub(lambda: 0.0)
    stop = traces.tracing.follow(hub)
    hub.emit("acquired", resource="a", ticket="1", seconds=0.0)
    stop()
    hub.emit("released", resource="a", ticket="1")
    assert len(traces.spans("hold")) == 1


def test_memory_of_holds_has_a_bound(traces: Traces) -> None:
    """The oldest is forgotten: its waiters get the id alone."""
    hub = Hub(lambda: 0.0)
    traces.tracing.follow(hub)
    for number in range(10_001):
        hub.emit("acquired", resource="a", ticket=str(number), seconds=0.0)
        hub.emit("released", resource="a", ticket=str(number))
    traces.exporter.clear()
    for behind in ("0", "10000"):
        hub.emit("busy", resource="a", ticket=f"after {behind}", behind=behind)
    assert [len(span.links) for span in traces.spans("acquire")] == [0, 1]
