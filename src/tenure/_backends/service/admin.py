"""The operators' verbs, asked of the service that has the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tenure._admin.protocol import NamesPage, RecordKind, StoredRecord, TimeLeft
from tenure._backends.service.calls import Calls
from tenure._backends.service.changes import Changes
from tenure._core.base.signals import Signal
from tenure._core.belief import Belief
from tenure._core.lease import Line, Ticket
from tenure._transport import remote
from tenure._transport.remote import Json
from tenure.errors import StoreRefused


class ServiceAdmin:
    """The verbs, each a request."""

    def __init__(self, calls: Calls, changes: Changes, belief: Belief) -> None:
        self._calls = calls
        self._changes = changes
        self._belief = belief

    def lines(self, prefix: str, after: str, until: float) -> NamesPage:
        answer = self._ask("lines", {"prefix": self._calls.inside(prefix), "after": after}, until)
        return remote.read_page(answer, self._calls.outside)

    def line(self, name: str, until: float) -> Line:
        return remote.read_line(self._ask("line", {"resource": self._calls.inside(name)}, until), name)

    def time_left(self, lease_ids: Sequence[str], until: float) -> Mapping[str, TimeLeft]:
        return remote.read_times(self._ask("time-left", {"storeLeases": list(lease_ids)}, until)["times"])

    def watch(self, prefix: str, until: float) -> Signal:
        signal = Signal()
        self._belief.add_signal(signal)
        try:
            stop = self._changes.watch(signal, self._calls.inside(prefix), until)
        except BaseException:
            self._belief.drop_signal(signal)
            raise

        def close() -> None:
            stop()
            self._belief.drop_signal(signal)

        signal.on_close(close)
        return signal

    def remove(self, ticket: Ticket, note: StoredRecord | None, until: float) -> bool:
        if note is None:
            raise StoreRefused("a service removes no ticket without an audit record, which says why")
        record = json.loads(note.text)  # an operator's own; the service makes another of the same call
        body = {
            "resource": self._calls.inside(ticket.resource),
            "ticketId": ticket.id,
            "token": str(ticket.token or 0),
            **{fact: record[fact] for fact in ("reason", "actor", "nonce")},
        }
        return bool(self._ask("remove", body, until)["removed"])

    def write(self, notes: Sequence[StoredRecord], until: float) -> Mapping[str, int]:
        raise StoreRefused("a service writes the journal itself, about the holds under its clients' leases")

    def record(self, shelf: RecordKind, resource: str, name: str, until: float) -> StoredRecord | None:
        notes = self._notes("note", self._about(shelf, resource) | {"name": name}, until)
        return notes[0] if notes else None

    def read(self, shelf: RecordKind, resource: str, until: float) -> tuple[StoredRecord, ...]:
        return self._notes("read", self._about(shelf, resource), until)

    def browse(self, shelf: RecordKind, prefix: str, until: float) -> tuple[StoredRecord, ...]:
        return self._notes("browse", {"shelf": shelf.value, "prefix": self._calls.inside(prefix)}, until)

    def trim(self, shelf: RecordKind, resource: str, keep: int, until: float) -> None:
        """Do nothing: the service keeps its own bounds."""

    def trim_all(self, shelf: RecordKind, prefix: str, keep: int, until: float) -> None:
        """Do nothing: the service keeps its own bounds."""

    def _ask(self, verb: str, body: Json, until: float) -> Any:  # Any: JSON
        return self._calls.ask(f"/v1/operate/{verb}", body, until)

    def _notes(self, verb: str, body: Json, until: float) -> tuple[StoredRecord, ...]:
        notes = map(remote.read_note, self._ask(verb, body, until)["notes"])
        return tuple(remote.renamed(note, self._calls.outside(note.resource)) for note in notes)

    def _about(self, shelf: RecordKind, resource: str) -> Json:
        return {"shelf": shelf.value, "resource": self._calls.inside(resource)}
