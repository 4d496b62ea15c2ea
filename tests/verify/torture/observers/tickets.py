"""Tickets and leases by changes of etcd's keys: a key made is a ticket created, a key gone one removed.

A key's value tells the ticket's id, owner, mode, weight and limit; its name the lease. An amendment is neither.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from tenure._core.lease import Mode
from tenure.testing.history.event import Event, Kind
from tests.verify.torture.observers.moments import Moments
from tests.verify.torture.observers.truth import Truth, line_and_place


@dataclass(slots=True)
class Lease:
    """A life of a lease, as it was listed."""

    asked_at: float
    """When the last question was sent whose answer listed it."""
    ended: float | None = None
    promised: float = 0.0
    """Until when it lives at least, as the store said, counted from before it was asked."""


class Telling:
    """The events of one run, from what was seen of it."""

    def __init__(self, namespace: str, moments: Moments, leases: dict[int, list[Lease]]) -> None:
        self._namespace = namespace
        self._moments = moments
        self._leases = leases
        self._standing: dict[str, Event] = {}
        self._owners: dict[str, Event] = {}

    def tell(self, changes: list[tuple[float, dict[str, Any]]], missing: str) -> Truth:
        events = [event for now, change in changes if (event := self._ticket(now, change)) is not None]
        leases = [
            event for number, lives in self._leases.items() for lease in lives for event in self._lease(number, lease)
        ]
        alive = sum(lives[-1].ended is None for lives in self._leases.values())
        return Truth((*events, *leases), missing, {"tickets": len(self._standing), "leases": alive})

    def _ticket(self, now: float, change: dict[str, Any]) -> Event | None:
        kv = change["kv"]
        key, revision = base64.b64decode(kv["key"]).decode(errors="replace"), int(kv["mod_revision"])
        if change.get("type") == "DELETE":
            created = self._standing.pop(key, None)
            return None if created is None else self._removed(created, now, revision)
        if kv["create_revision"] != kv["mod_revision"] or (found := line_and_place(key, self._namespace)) is None:
            return None
        created = self._created(*found, kv, now)
        self._standing[key] = created
        self._owners.setdefault(created.lease, created)
        return created

    def _created(self, line: str, place: str, kv: dict[str, Any], now: float) -> Event:
        facts = _facts(base64.b64decode(kv.get("value", "")))
        revision = int(kv["create_revision"])
        return Event(
            self._by(revision, now),
            facts.get("owner", ""),
            Kind.TRUTH,
            "created",
            line,
            hold=facts.get("id", place),
            token=revision,
            revision=revision,
            lease=place.partition("-")[0],
            mode=Mode(facts.get("mode", "exclusive")),
            weight=facts.get("weight", 1),
            limit=facts.get("limit", 1),
            since=self._since(revision, now),
        )

    def _removed(self, created: Event, now: float, revision: int) -> Event:
        return Event(
            self._by(revision, now),
            created.client,
            Kind.TRUTH,
            "removed",
            created.resource,
            hold=created.hold,
            token=created.token,
            revision=revision,
            lease=created.lease,
            since=self._since(revision, now),
        )

    def _lease(self, number: int, lease: Lease) -> list[Event]:
        """The events of a lease that ever had a ticket; it is not known whose the others were."""
        first = self._owners.get(f"{number:x}")
        if first is None:
            return []
        granted = Event(first.at, first.client, Kind.TRUTH, "lease_granted", lease=first.lease, since=0.0)
        if lease.ended is None:
            return [granted]
        cause = "early" if lease.ended < lease.promised else ""
        facts: dict[str, Any] = {"lease": first.lease, "since": lease.asked_at, "cause": cause}
        return [granted, Event(lease.ended, first.client, Kind.TRUTH, "lease_ended", **facts)]

    def _by(self, revision: int, now: float) -> float:
        answered = self._moments.by(revision)
        return now if answered is None else min(now, answered)

    def _since(self, revision: int, now: float) -> float:
        return min(self._moments.since(revision), self._by(revision, now))


def _facts(value: bytes) -> dict[str, Any]:
    """The facts in the value of one of our tickets; none in any other value."""
    try:
        facts = json.loads(value)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) and facts.get("tenure") == 1 else {}
