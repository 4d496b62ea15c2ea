"""Histories written by hand: a few lines each, so that a test shows what went wrong in them."""

from __future__ import annotations

import itertools
from typing import Any

from tenure._core.lease import Mode
from tenure.testing import Event, History, Kind

TTL = 5.0


class Story:
    """Collects events in any order. Ticket, lease and token of one hold are told from each other by the token."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._calls = itertools.count(1)

    @property
    def history(self) -> History:
        return History(self.events)

    def add(self, at: float, client: str, kind: Kind, operation: str = "", **facts: Any) -> Story:
        self.events.append(Event(at, client, kind, operation, **{"resource": "x", **facts}))
        return self

    def call(
        self, client: str, operation: str, at: float, end: float | None, kind: Kind = Kind.OK, **facts: Any
    ) -> Story:
        """A call and its outcome; with `end=None` it never comes back."""
        number = next(self._calls)
        timeout = facts.pop("timeout", None)
        answer = {name: facts.pop(name) for name in ("deadline", "ttl") if name in facts}
        self.add(at, client, Kind.INVOKE, operation, call=number, timeout=timeout, **facts)
        if end is not None:
            self.add(end, client, kind, operation, call=number, **facts, **answer)
        return self

    def had(self, client: str, token: int, at: float, ok: float, *, operation: str = "acquire", **facts: Any) -> Story:
        """A hold: asked for at `at`, had at `ok`."""
        known = {"hold": f"t{token}", "token": token, "lease": f"lease-{client}", "ttl": TTL, **facts}
        return self.call(client, operation, at, ok, **known)

    def waited(self, client: str, at: float, end: float | None = None, kind: Kind = Kind.FAIL, **facts: Any) -> Story:
        """An acquire that came to nothing, or to no end."""
        return self.call(client, "acquire", at, end, kind, **facts)

    def released(self, client: str, token: int, at: float, end: float | None, kind: Kind = Kind.OK) -> Story:
        return self.call(client, "release", at, end, kind, hold=f"t{token}", token=token)

    def looked(self, client: str, token: int, at: float, held: bool, **facts: Any) -> Story:
        known = {"since": at, "held": held, "hold": f"t{token}", "token": token, **facts}
        return self.add(at + 0.001, client, Kind.CHECK, **known)

    def told(self, client: str, operation: str, at: float, token: int | None = None) -> Story:
        return self.add(at, client, Kind.TOLD, operation, token=token, hold="" if token is None else f"t{token}")

    def between(self, start: float, end: float, client: str = "", operation: str = "cut") -> Story:
        """A fault."""
        self.add(start, client, Kind.FAULT, operation)
        return self.add(end, client, Kind.HEALED, operation)

    def stood_still(self, client: str, start: float, end: float) -> Story:
        self.add(start, client, Kind.PAUSED)
        return self.add(end, client, Kind.RESUMED)

    def machine_stood_still(self, start: float, end: float) -> Story:
        return self.add(end, "", Kind.STILL, since=start)

    def died(self, client: str, at: float) -> Story:
        return self.add(at, client, Kind.DIED)

    def stands(
        self, client: str, token: int, start: float, end: float | None, cause: str = "left", **facts: Any
    ) -> Story:
        """The store's own word on one ticket."""
        known = {"hold": f"t{token}", "token": token, "lease": f"lease-{client}", "ttl": TTL, **facts}
        self.add(start, client, Kind.TRUTH, "created", **known)
        if end is not None:
            self.add(end, client, Kind.TRUTH, "removed", **known, cause=cause)
        return self

    def lease_ended(self, client: str, at: float, cause: str = "") -> Story:
        return self.add(at, client, Kind.TRUTH, "lease_ended", lease=f"lease-{client}", cause=cause)

    def asked(self, operation: str, token: int, at: float, accepted: bool, **facts: Any) -> Story:
        """A request at a fenced store."""
        return self.add(at, "store", Kind.STORE, operation, token=token, accepted=accepted, **facts)

    def wrote(self, client: str, value: str, at: float, end: float | None, kind: Kind = Kind.OK) -> Story:
        return self.call(client, "write", at, end, kind, value=value)

    def keeps(self, at: float, *values: str, counter: int | None = None) -> Story:
        """The contents of the fenced store in the end."""
        self.add(at, "store", Kind.STORE, "counter", count=len(values) if counter is None else counter)
        self.add(at, "store", Kind.STORE, "contents", count=len(values))
        for value in values:
            self.add(at, "store", Kind.STORE, "kept", value=value)
        return self

    def measured(self, client: str, what: str, *counts: int) -> Story:
        for at, count in enumerate(counts):
            self.add(float(at), client, Kind.MEASURED, what, count=count)
        return self


def seat(weight: int = 1, limit: int = 2) -> dict[str, Any]:
    return {"mode": Mode.SEAT, "weight": weight, "limit": limit}


READ: dict[str, Any] = {"mode": Mode.READ}
