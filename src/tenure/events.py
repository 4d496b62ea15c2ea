"""Events of holds and leases, in one vocabulary: logs, metrics and your own subscribers all hear the same.

    entered      a ticket stands in the line
    acquired     its turn came; a hold was handed out
    entrusted    its turn came; the hold is somebody else's to renew, and its end is not told here
    busy         it was not its turn at once, and nobody wanted to wait; the ticket was withdrawn
    timed_out    the caller's deadline came first; the ticket is being withdrawn
    abandoned    the wait ended otherwise (cancelled, lost, refused); the ticket is being withdrawn
    released     a hold was given up
    release_failed  the store did not confirm that; the reaper goes on
    suspect      the last renewals went unanswered; the hold is still provable, but not for long
    renewed      a suspect lease is proven again
    lost         a hold can't be proven any longer
    forced       after `lost`, where an operator wrote down that it was so: by whom, and why
    amended      the value of a ticket changed
    reaped       the reaper withdrew a ticket whose owner could not
    reap_failed  the reaper could not, yet; it goes on until the lease is gone
    lease_opened, lease_closed, lease_lost
    renewal_failed  one renewal went unanswered; the next one follows soon
    endpoint_failed  an endpoint did not answer; the next one is tried
    stale_refused  a guard refused a stale token; told by `tenure.fencing.subscribe`, as guards know no client

Of a hold that goes well the log has one record at INFO, `acquired`; what goes wrong is a WARNING, the rest DEBUG.
Emitting costs one attribute look-up when nobody listens. Subscribers run in the emitting thread: they must be quick,
must not block and must not call back into tenure. Of one ticket, `entered` comes before `acquired` and that before all
that is told of its hold. `tenure.metrics` and `tenure.tracing` are subscribers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypedDict, Unpack

logger: logging.Logger = logging.getLogger("tenure")

_LEVELS: Final = {
    "suspect": logging.WARNING,
    "lost": logging.WARNING,
    "forced": logging.WARNING,
    "lease_lost": logging.WARNING,
    "reap_failed": logging.WARNING,
    "endpoint_failed": logging.WARNING,
    "stale_refused": logging.WARNING,
    "timed_out": logging.INFO,
    "acquired": logging.INFO,
    "entrusted": logging.INFO,
    "lease_opened": logging.INFO,
    "lease_closed": logging.INFO,
}


@dataclass(frozen=True, slots=True)
class Event:
    """Transition of a hold or lease. `at` is a reading of the client's clock, not of the wall."""

    event: str
    at: float
    resource: str | None = None
    owner: str | None = None
    lease_id: str | None = None
    token: int | None = None
    ttl: float | None = None
    reason: str | None = None
    seconds: float | None = None
    """How long it took: the wait (acquired, busy, timed_out, abandoned) or the hold (released, lost)."""
    ticket: str | None = None
    """The ticket's id: the same in the line, in the journal and in `hold.id`."""
    behind: str | None = None
    """At the end of a wait: the id of the ticket that it was behind last; None where it did not have to wait."""
    ending: str | None = None
    """How a hold ended (released, lost, forced): released, closed, expired, removed or forced."""


class Facts(TypedDict, total=False):
    """The fields of an Event that whoever emits it knows."""

    resource: str
    owner: str
    lease_id: str
    token: int | None
    ttl: float
    reason: str | None
    seconds: float | None
    ticket: str
    behind: str | None
    ending: str | None


Subscriber = Callable[[Event], None]


class Source(Protocol):
    """Source of events: a client of either face."""

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]: ...


class Listener(Protocol):
    """A subscriber that remembers what it has heard of one source."""

    def __call__(self, event: Event) -> None: ...

    def forget(self) -> None:
        """Put in order what is open: no more events will come."""


def follow(source: Source, listener: Listener) -> Callable[[], None]:
    """Let `listener` hear every event from now on; the returned function ends that, and has it forget."""
    unsubscribe = source.subscribe(listener)

    def stop() -> None:
        unsubscribe()
        listener.forget()

    return stop


class Hub:
    """The subscribers of one client, and a count of each event for `statistics()`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._subscribers: tuple[Subscriber, ...] = ()
        self.counts: dict[str, int] = {}

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Hear every event from now on; the returned function ends that."""
        self._subscribers += (subscriber,)

        def unsubscribe() -> None:
            self._subscribers = tuple(s for s in self._subscribers if s is not subscriber)

        return unsubscribe

    def emit(self, event: str, **facts: Unpack[Facts]) -> None:
        """Count the event; tell it to the log and to subscribers if either listens."""
        self.counts[event] = self.counts.get(event, 0) + 1
        level = _LEVELS.get(event, logging.DEBUG)
        logged = logger.isEnabledFor(level)
        if not logged and not self._subscribers:
            return
        happening = Event(event, self._now(), **facts)
        if logged:
            _log(level, happening)
        for subscriber in self._subscribers:
            tell(subscriber, happening)


def tell(subscriber: Subscriber, happening: Event) -> None:
    """Tell one subscriber, whatever comes of it."""
    try:
        subscriber(happening)
    except (Exception, SystemExit):  # a metric that fails must not cost anybody their lock
        logger.exception("a subscriber to tenure's events failed")


def _log(level: int, happening: Event) -> None:
    """Log one line for people, with the facts as fields for machines: of a hold that goes well people need fewer."""
    fields = {name: getattr(happening, name) for name in Event.__slots__ if getattr(happening, name) is not None}
    brief = level < logging.WARNING and happening.resource is not None
    left_out = ("event", "at", *(("lease_id", "ttl", "ticket", "behind", "ending") if brief else ()))
    shown = {name: fact for name, fact in fields.items() if name not in left_out}
    facts = " ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v!r}" for k, v in shown.items())
    logger.log(level, "%s %s", happening.event, facts, extra=fields)
