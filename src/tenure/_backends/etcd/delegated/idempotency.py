"""Idempotency records: the store's memory of idempotency keys, so that any client finds what a lost answer hid.

A record is a key `<namespace>/%once/<word>`, put by the transaction that puts the ticket: its create revision is the
ticket's token. A client that takes a ticket over writes the record again, so that the client before notices, and
withdraws the ticket no more. A record outlives its ticket, on a lease that nobody renews: that is how long the
key is spent.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
from typing import Final, NamedTuple

from tenure._backends.etcd.requests import KeyValue, PutKey
from tenure._backends.etcd.wire import Wire
from tenure._core.base.clock import Clock
from tenure._core.base.threads import take
from tenure._core.delegation import IdempotencyKey
from tenure.errors import StoreUnavailable

_SEGMENT: Final = "%once"


class IdempotencyRecord(NamedTuple):
    """The content of one record, with the revisions of its key."""

    request: str
    ticket_id: str
    lease: int
    ttl: float
    token: int
    version: int


class IdempotencyRecords:
    """The records of one namespace. Thread-safe."""

    def __init__(self, wire: Wire, namespace: str, clock: Clock) -> None:
        self._wire = wire
        self._namespace = namespace
        self._clock = clock
        self._guard = threading.RLock()  # guards the granting
        self._lease: tuple[int, float, float] = (0, 0.0, 0.0)  # its number, until when it is used, for what time

    def key(self, once: IdempotencyKey) -> bytes:
        return f"{self._namespace}/{_SEGMENT}/{once.key}".encode()

    def put(self, once: IdempotencyKey, ticket_id: str, lease: int, ttl: float, until: float) -> PutKey:
        """Make the operation that writes the record."""
        content = {"tenure": 1, "wish": once.request, "id": ticket_id, "lease": f"{lease:x}", "ttl": ttl}
        return PutKey(self.key(once), json.dumps(content).encode(), self._lease_for(once.seconds, until))

    def forget_lease(self) -> None:
        """Have the next record get a new lease: the current one may be gone."""
        self._lease = (0, 0.0, 0.0)

    def _lease_for(self, seconds: float, until: float) -> int:
        """Return a lease that lives for `seconds` from now, at least: used for so long, granted for twice that."""
        taken: list[bool] = []
        try:
            if not take(self._guard.acquire, until - self._clock.now(), taken):
                raise StoreUnavailable("another thread's request for a lease was not answered in time")
            number, use_until, for_seconds = self._lease
            now = self._clock.now()
            if not number or now >= use_until or for_seconds < seconds:
                number = secrets.randbits(62) + 1
                self._wire.grant_or_find(number, math.ceil(2 * seconds) + 1, until)
                self._lease = (number, now + seconds, seconds)
            return number
        finally:
            if taken and taken[0]:
                self._guard.release()


def read_record(kv: KeyValue) -> IdempotencyRecord | None:
    """Read a record; None where somebody else wrote the key."""
    try:
        content = json.loads(kv.value)
        lease = int(content["lease"], 16)
        facts = (str(content["wish"]), str(content["id"]), lease, float(content["ttl"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return IdempotencyRecord(*facts, kv.create_revision, kv.mod_revision)
