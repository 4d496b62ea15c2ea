"""The store's own word, replayed: which ticket stood in its line from when to when, and when its turn had come.

Lines are first come, first served, so what is admitted is always the front of a line: an exclusive ticket when it
is the first, a reader when nobody exclusive is ahead, a seat when the weights up to and with its own fit its limit.
It is written down here once more, apart from the recipes, so that a mistake of theirs is not repeated by the judge.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tenure._core.lease import Mode
from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import History
from tenure.testing.history.intervals import by_resource


@dataclass(slots=True)
class Stay:
    """The stay of a ticket in its line: what made it, what admitted it, what removed it."""

    created: Event
    admitted: Event | None = None
    removed: Event | None = None

    @property
    def id(self) -> str:
        """The ticket's."""
        return self.created.hold


_known: WeakKeyDictionary[History, dict[str, dict[str, Stay]]] = WeakKeyDictionary()


def stays(history: History) -> dict[str, dict[str, Stay]]:
    """Every ticket's stay, by line and by ticket. A line of which no ticket was seen is not there."""
    known = _known.get(history)
    if known is None:
        tickets = (event for event in history.of(Kind.TRUTH) if event.operation in ("created", "removed"))
        lines = by_resource(tickets, lambda event: event.resource)
        known = _known[history] = {resource: _replay(events) for resource, events in lines.items()}
    return known


def lease_ends(history: History) -> dict[str, Event]:
    """The end of each lease, as far as the store was seen to say so."""
    return {event.lease: event for event in history.of(Kind.TRUTH) if event.operation == "lease_ended"}


def in_store_order(events: list[Event]) -> list[Event]:
    """The events by revision, where each has one; else as recorded."""
    if any(event.revision is None for event in events):
        return events
    return sorted(events, key=lambda event: (event.incarnation, event.revision or 0))


def _replay(events: list[Event]) -> dict[str, Stay]:
    """The stays of one line, by ticket. A ticket that came back (a request that was sent twice, and arrived once more
    after it had been undone) is a stay of its own, under its id and its token.
    """
    found: dict[str, Stay] = {}
    standing: dict[str, Stay] = {}
    line = _LineReplay()
    for event in in_store_order(events):
        if event.operation == "created":
            if event.hold not in standing:
                stay = standing[event.hold] = Stay(event)
                found[event.hold if event.hold not in found else f"{event.hold} {event.token}"] = stay
                line.arrive(stay)
        elif (left := standing.pop(event.hold, None)) is not None:
            left.removed = event
            line.leave(left)
        line.admit(event)
    return found


class _LineReplay:
    """A line at one moment: those that wait in order, and what those admitted amount to."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, Stay] = OrderedDict()
        self._admitted = 0
        self._exclusive = 0
        self._weight = 0

    def arrive(self, stay: Stay) -> None:
        self._waiting.setdefault(stay.id, stay)

    def leave(self, stay: Stay) -> None:
        if self._waiting.pop(stay.id, None) is None:
            self._count(stay.created, -1)

    def admit(self, event: Event) -> None:
        """Let in from the front whoever may be, because of `event`."""
        while self._waiting and self._may(first := next(iter(self._waiting.values()))):
            del self._waiting[first.id]
            first.admitted = event
            self._count(first.created, 1)

    def _may(self, stay: Stay) -> bool:
        ticket = stay.created
        if ticket.mode is Mode.EXCLUSIVE:
            return self._admitted == 0
        if self._exclusive:
            return False
        return ticket.mode is Mode.READ or self._weight + ticket.weight <= ticket.limit

    def _count(self, ticket: Event, sign: int) -> None:
        self._admitted += sign
        self._exclusive += sign * (ticket.mode is Mode.EXCLUSIVE)
        self._weight += sign * ticket.weight * (ticket.mode is Mode.SEAT)
