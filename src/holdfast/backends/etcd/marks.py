"""Marks: what the store remembers of idempotency keys, so that any client finds what a lost answer hid.

A mark is a key `<namespace>/%once/<word>`, put by the transaction that puts the ticket: its create revision is the
ticket's token. Who takes a ticket over writes its mark again, so that whoever had it before can tell, and withdraws
it no more. A mark outlives its ticket, on a lease that nobody renews: that is how long the key is spent.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
from typing import Final, NamedTuple

from holdfast.backends.etcd.wire import Wire
from holdfast.backends.etcd.words import KeyValue, PutKey
from holdfast.clock import Clock
from holdfast.entrusting import Once
from holdfast.errors import StoreUnavailable
from holdfast.locks import take

_SHELF: Final = "%once"


class Mark(NamedTuple):
    """What stands at a mark."""

    wish: str
    ticket_id: str
    lease: int
    ttl: float
    token: int
    version: int


class Marks:
    """Writing and reading them. Thread-safe."""

    def __init__(self, wire: Wire, namespace: str, clock: Clock) -> None:
        self._wire = wire
        self._namespace = namespace
        self._clock = clock
        self._guard = threading.RLock()  # guards the granting
        self._lease: tuple[int, float, float] = (0, 0.0, 0.0)  # its number, until when it is used, for what time

    def key(self, once: Once) -> bytes:
        return f"{self._namespace}/{_SHELF}/{once.key}".encode()

    def put(self, once: Once, ticket_id: str, lease: int, ttl: float, until: float) -> PutKey:
        """The operation that makes the mark."""
        told = {"holdfast": 1, "wish": once.wish, "id": ticket_id, "lease": f"{lease:x}", "ttl": ttl}
        return PutKey(self.key(once), json.dumps(told).encode(), self._lease_for(once.seconds, until))

    def forget_lease(self) -> None:
        """It may be gone: the next mark gets another."""
        self._lease = (0, 0.0, 0.0)

    def _lease_for(self, seconds: float, until: float) -> int:
        """One that lives for at least `seconds` from now on. It is used for so long, and lives for twice that."""
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


def read_mark(kv: KeyValue) -> Mark | None:
    """None where somebody else wrote it."""
    try:
        told = json.loads(kv.value)
        lease = int(told["lease"], 16)
        facts = (str(told["wish"]), str(told["id"]), lease, float(told["ttl"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Mark(*facts, kv.create_revision, kv.mod_revision)
