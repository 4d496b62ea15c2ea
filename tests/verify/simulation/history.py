"""A run as a history, for the checkers of tenure.testing: what clients did, what the store had, what went wrong.

Recording is for judging a run once more, by other eyes. It is not for free, and a recorded run is another run than the
same seed without: the recorder's callbacks take their turns too.
"""

from __future__ import annotations

from typing import Any

from tenure._core.lease import Ticket
from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import MemoryRecorder
from tenure.testing.history.record import recorded


class HistoryWriter:
    """The writer of one run's history."""

    def __init__(self, records: MemoryRecorder) -> None:
        self._records = records

    def follow(self, face: Any, name: str) -> Any:  # Any: either face
        """Write down what a client does from here on."""
        return recorded(face, self._records, name=name)

    def created(self, ticket: Ticket, ttl: float) -> None:
        """`ttl` is for how long the store keeps its lease, a lock delay included."""
        self._truth("created", ticket, revision=ticket.token, ttl=ttl)

    def removed(self, ticket: Ticket, revision: int, cause: str) -> None:
        self._truth("removed", ticket, revision=revision, cause=cause)

    def late(self, client: str, begins: bool) -> None:
        """Record that a request which its sender has given up is on its way, or is no longer: it may still renew."""
        self.tell(Kind.FAULT if begins else Kind.HEALED, client, operation="late")

    def _truth(self, operation: str, ticket: Ticket, **facts: Any) -> None:  # Any: further fields of Event
        self.tell(
            Kind.TRUTH,
            ticket.owner or "",
            operation=operation,
            resource=ticket.resource,
            hold=ticket.id,
            token=ticket.token,
            mode=ticket.mode,
            weight=ticket.weight,
            limit=ticket.limit,
            lease=ticket.lease_id,
            **facts,
        )

    def tell(self, kind: Kind, client: str, **facts: Any) -> None:  # Any: fields of Event
        """Record anything else that happened."""
        self._records.record(Event(self._records.now(), client, kind, **facts))
