"""OpenTelemetry spans of waits and holds: a subscriber to clients' events. `pip install 'tenure[tracing]'`.

    tracing = Tracing()                  # of the global tracer provider; tracer_provider=… for another
    tracing.follow(client)               # blocking or asyncio, as many as there are; returns what ends that

    tenure.acquire    from the call to its end: outcome acquired, busy, timed_out or abandoned
    tenure.hold       from the turn to release or loss; events within: suspect, renewed, amended
    tenure.forced, tenure.release_failed    a moment after a hold: an operator had forced it out; the store did
                        not confirm its release

The spans are children of what was current where `acquire` was called. A hold links to its wait (`tenure.link` is
`wait`), and a wait links to the hold it was behind last (`behind`), where a client that is followed in this process
held it. Across processes no link can be made, because no store carries a trace; there the ids join them: the waiter's
`tenure.behind` is the holder's `tenure.ticket`, which `hold.id` shows as well.

Attributes: `tenure.resource`, `.owner`, `.ticket`, `.token` (a text: it may exceed 2^53), `.lease`, `.ttl`,
`.behind`, `.outcome`, `.ending` (released, closed, expired, removed), `.reason`. What was not to be is marked as an
error: a loss, a time-out, an abandoned wait. A stale token that a guard refuses is an event of the current span there.

A span is exported when it ends, so a leader's hold is not seen before its term is over. A release in a signal handler
ends a span there; whether that is safe is up to the SDK.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from tenure.errors import how_to_install
from tenure.events import Event, Source, follow
from tenure.fencing._fence import subscribe

try:
    from opentelemetry.trace import (
        Link,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TracerProvider,
        get_current_span,
        get_tracer,
    )
except ImportError as _error:
    raise ImportError(
        f"tenure.tracing needs the package opentelemetry-api ({_error}): {how_to_install('tracing')}"
    ) from _error

_REMEMBERED_MAX: Final = 10_000
_NANOSECONDS: Final = 1_000_000_000
_OUTCOMES: Final = {"entrusted": "acquired"}
"""Outcomes that have another name than their event."""


class Tracing:
    """Spans of all clients that it follows. Thread-safe."""

    def __init__(self, *, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = get_tracer("tenure", tracer_provider=tracer_provider)
        self._guard = threading.RLock()  # guards _remembered
        self._remembered: OrderedDict[str, SpanContext] = OrderedDict()  # by ticket: a wait ends after the hold
        self._stop = subscribe(_refused)

    def follow(self, client: Source) -> Callable[[], None]:
        """Trace `client` from now on; the returned function ends that, and the spans of the client's open holds."""
        return follow(client, _HoldSpans(self))

    def close(self) -> None:
        """Hear no more of guards. Clients are unfollowed by what `follow` returned."""
        self._stop()

    def remember(self, ticket: str, context: SpanContext) -> None:
        """The span of a hold; the newest ones are known."""
        with self._guard:
            self._remembered[ticket] = context
            while len(self._remembered) > _REMEMBERED_MAX:
                self._remembered.popitem(last=False)

    def link(self, ticket: str | None, why: str) -> list[Link]:
        """A link to the hold of this ticket, where that is known here."""
        with self._guard:
            context = None if ticket is None else self._remembered.get(ticket)
        return [] if context is None else [Link(context, {"tenure.link": why})]


class _HoldSpans:
    """The spans of one client's holds."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._holds: dict[str, Span] = {}  # by ticket

    def __call__(self, event: Event) -> None:
        match event.event:
            case "acquired":
                self._acquired(event)
            case "entrusted" | "busy" | "timed_out" | "abandoned":
                self._attempted(event)
            case "suspect" | "renewed" | "amended":
                hold = self._holds.get(event.ticket or "")
                if hold is not None:
                    hold.add_event(f"tenure.{event.event}", _attributes(event))
            case "released" | "lost":
                self._ended(event)
            case "forced" | "release_failed":
                self._told_after(event)

    def forget(self) -> None:
        """End the client's spans: it is not followed any more."""
        while self._holds:
            self._holds.popitem()[1].end()

    def _attempted(self, event: Event) -> SpanContext:
        now = time.time_ns()
        span = self._tracing._tracer.start_span(
            "tenure.acquire",
            kind=SpanKind.CLIENT,
            links=self._tracing.link(event.behind, "behind"),
            attributes=_attributes(event) | {"tenure.outcome": _OUTCOMES.get(event.event, event.event)},
            start_time=now - round((event.seconds or 0.0) * _NANOSECONDS),
        )
        if event.event in ("timed_out", "abandoned"):
            span.set_status(Status(StatusCode.ERROR, event.reason or event.event))
        span.end(now)
        return span.get_span_context()

    def _acquired(self, event: Event) -> None:
        wait, ticket = self._attempted(event), event.ticket or ""
        span = self._tracing._tracer.start_span(
            "tenure.hold", links=[Link(wait, {"tenure.link": "wait"})], attributes=_attributes(event)
        )
        self._holds[ticket] = span
        self._tracing.remember(ticket, span.get_span_context())

    def _told_after(self, event: Event) -> None:
        """The hold's own span has ended by now."""
        now, links = time.time_ns(), self._tracing.link(event.ticket, "hold")
        name, attributes = f"tenure.{event.event}", _attributes(event)
        self._tracing._tracer.start_span(name, links=links, attributes=attributes, start_time=now).end(now)

    def _ended(self, event: Event) -> None:
        span = self._holds.pop(event.ticket or "", None)
        if span is None:
            return  # it was held before its client was followed
        span.set_attributes(_attributes(event))
        if event.event == "lost":
            span.set_status(Status(StatusCode.ERROR, event.reason))
        span.end()


def _refused(event: Event) -> None:
    get_current_span().add_event("tenure.stale_refused", _attributes(event))


def _attributes(event: Event) -> dict[str, str | float]:
    """Take an event's facts, under the names that the attributes have."""
    facts: dict[str, str | float | None] = {
        "tenure.resource": event.resource,
        "tenure.owner": event.owner,
        "tenure.ticket": event.ticket,
        "tenure.token": None if event.token is None else str(event.token),
        "tenure.lease": event.lease_id,
        "tenure.ttl": event.ttl,
        "tenure.behind": event.behind,
        "tenure.ending": event.ending,
        "tenure.reason": event.reason,
    }
    return {name: value for name, value in facts.items() if value is not None}
