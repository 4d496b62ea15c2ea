"""Keys in the store itself. The decision is the store's: the belief of the hold is left out on purpose.

`hold.store` would refuse by belief first, which is right, and would hide what happens to a commit that is already on
its way when the ticket goes. So the worker drives the same exchange (`Keys`) below that belief, over another lease:
the lease of the hold ends with its ticket, on ZooKeeper together with the connection that could send anything.
The control sends the same commits tied to a ticket of its own that nobody takes away: plain writes.
"""

from __future__ import annotations

import json
import secrets
from typing import Final

import tenure
from tenure import Hold, Put
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.drivers.blocking import run
from tenure._core.guarded_keys import Keys
from tests.fencing.torture.check import Contents, Entry
from tests.fencing.torture.events import What
from tests.fencing.torture.stores import Store, options_of

from . import end_of_ours

_COURIER_TTL: Final = 6.0  # longer than anybody is stopped
_REQUEST_SECONDS: Final = 5.0


class StoreResource:
    """`address`: a URL without options, whose namespace is the root of the data."""

    def __init__(self, address: str, *, guarded: bool) -> None:
        self._data = address.rpartition("/")[2]
        self._guarded = guarded
        self._client = tenure.connect(f"{address}-couriers", ttl=_COURIER_TTL, **options_of(address))
        self._own = self._courier()

    def read(self, hold: Hold) -> int:
        if self._own.lost.is_set():  # stopped for too long by a busy machine
            self._own = self._courier()
        found = run(self._keys(hold).read([f"{self._data}/count"], _soon()), SYSTEM_CLOCK)[0]
        return int(found.value) if found is not None else 0

    def write(self, hold: Hold, count: int, element: str) -> None:
        entry = json.dumps([count, hold.token, element]).encode()
        puts = (
            Put(f"{self._data}/count", b"%d" % count),
            Put(f"{self._data}/elements/{element}", b"1"),
            Put(f"{self._data}/journal/{count:06d}-{element}", entry),
        )
        run(self._keys(hold).commit(puts, _soon()), SYSTEM_CLOCK)

    def turn_over(self) -> None:
        """Nothing is left of it."""

    def end_of(self, error: Exception) -> What | None:
        return end_of_ours(error)

    def close(self) -> None:
        self._client.close()

    def _courier(self) -> Hold:
        return self._client.lock(secrets.token_hex(8)).acquire(timeout=10)

    def _keys(self, hold: Hold) -> Keys:
        judged = hold if self._guarded else self._own
        return Keys(self._own._lease, judged._ticket, lambda: judged.fence, "", None)


class StoreTarget:
    """The keys, read by other means than tenure's own."""

    def __init__(self, address: str, store: Store) -> None:
        self.address = address
        self._root = address.rpartition("/")[2]
        self._store = store

    def contents(self) -> Contents:
        found = self._store.under(self._root)
        journal = [json.loads(value) for key, value in found if "/journal/" in key]
        return Contents(
            next((int(value) for key, value in found if key.endswith("/count")), 0),
            frozenset(key.rpartition("/")[2] for key, _ in found if "/elements/" in key),
            tuple(Entry(*line) for line in journal),
        )

    def close(self) -> None:
        self._store.remove(self._root)


def _soon() -> float:
    return SYSTEM_CLOCK.now() + _REQUEST_SECONDS
