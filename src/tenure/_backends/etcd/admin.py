"""The operators' verbs on etcd: lines by ranges of keys, removals and records by transactions. See _admin/protocol.py.

A record is a key `<namespace>/<kind>/<name of the line>/<name of the record>`, bound to no lease. All kinds lie in one
span of keys, which listing and watching lines leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from tenure._admin.protocol import NamesPage, RecordKind, StoredRecord, TimeLeft, batches, name_of, segment_prefix
from tenure._backends.etcd import codec
from tenure._backends.etcd.guarded_keys import is_still
from tenure._backends.etcd.requests import (
    DeleteKey,
    KeyValue,
    LeaseGone,
    Operation,
    PutKey,
    Range,
    Txn,
    TxnResult,
    WatchRequest,
)
from tenure._backends.etcd.wire import Wire
from tenure._core.base.limits import PAGE_KEYS, RECORDS_READ_MAX
from tenure._core.base.signals import Signal
from tenure._core.base.validation import decode, encode
from tenure._core.belief import Belief
from tenure._core.lease import Line, Ticket
from tenure.errors import StoreRefused

_RECORDS_FROM, _RECORDS_TO = b"%a", b"&"
"""Span of every `%` with a small letter behind it, and of no encoded name."""
_DELETES_MAX: Final = 64


class EtcdAdmin:
    """The verbs, over the wire of one client. They need no lease; `belief` ends watches with the client."""

    def __init__(self, wire: Wire, namespace: str, belief: Belief) -> None:
        self._wire = wire
        self._namespace = namespace
        self._root = f"{namespace}/".encode()
        self._belief = belief

    # Lines.

    def lines(self, prefix: str, after: str, until: float) -> NamesPage:
        spans = self._spans(prefix, codec.stored(after))
        for number, (start, end) in enumerate(spans):
            answer = self._ask(Range(start, end, PAGE_KEYS, by_key=True), until)
            if len(answer.key_values) == PAGE_KEYS:
                return self._cut_page(answer, prefix, until)
            if answer.key_values:
                following = spans[number + 1 :]
                return NamesPage(self._lines(answer, prefix), codec.shown(following[0][0]) if following else None)
        return NamesPage((), None)

    def line(self, name: str, until: float) -> Line:
        answer = self._ask(Range(*codec.line_range(self._namespace, name)), until)
        return self._line(name, answer.key_values, answer.revision)

    def _cut_page(self, answer: TxnResult, prefix: str, until: float) -> NamesPage:
        """Make a page that may be cut within its last line, which is the next page's. One line alone is read on."""
        segment, slash, _ = answer.key_values[-1].key[len(self._root) :].partition(b"/")
        cut = self._root + segment + slash
        if not slash:  # no ticket: somebody's key between two lines
            return NamesPage(self._lines(answer, prefix), codec.shown(cut + b"\0"))
        whole = [kv for kv in answer.key_values if not kv.key.startswith(cut)]
        if whole:
            return NamesPage(self._lines(answer._replace(key_values=whole), prefix), codec.shown(cut))
        found, end = list(filter(self._is_ticket, answer.key_values)), _below(cut)[1]
        while len(answer.key_values) == PAGE_KEYS:  # of a line that changes each part is as it was when that was read
            answer = self._ask(Range(answer.key_values[-1].key + b"\0", end, PAGE_KEYS, by_key=True), until)
            found += filter(self._is_ticket, answer.key_values)
        return NamesPage(self._lines(answer._replace(key_values=found), prefix), codec.shown(end))

    def _lines(self, answer: TxnResult, prefix: str) -> tuple[Line, ...]:
        found = []
        for segment, key_values in groupby(filter(self._is_ticket, answer.key_values), self._segment):
            name = name_of(codec.shown(segment))
            if name is not None and name.startswith(prefix):
                found.append(self._line(name, key_values, answer.revision))
        return tuple(found)

    def _is_ticket(self, kv: KeyValue) -> bool:
        """Tell whether the key stands in a line of this namespace. Lines nested below, of any number, do not count."""
        return kv.key.count(b"/", len(self._root)) == 1

    def _line(self, name: str, key_values: Iterable[KeyValue], revision: int) -> Line:
        read = ((kv, codec.read_ticket(kv, self._namespace, name)) for kv in key_values)
        # The key's name says which lease it should hang on; what it does hang on is what counts.
        tickets = [t if kv.lease else t._replace(lease_id="") for kv, t in read if t is not None]
        return Line(name, tuple(sorted(tickets, key=lambda ticket: ticket.token or 0)), revision)

    def _segment(self, kv: KeyValue) -> bytes:
        return kv.key[len(self._root) :].partition(b"/")[0]

    def _spans(self, prefix: str, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        """List the ranges in which lines below `prefix` stand, from `after` on: all but the records."""
        first = self._root + segment_prefix(prefix).encode()
        last = first[:-1] + bytes([first[-1] + 1])  # ASCII: there is a next one
        first = max(first, after)
        allowed = ((self._root, self._root + _RECORDS_FROM), (self._root + _RECORDS_TO, self._root[:-1] + b"0"))
        spans = [(max(first, low), min(last, high)) for low, high in allowed]
        return [(low, high) for low, high in spans if low < high]

    def time_left(self, lease_ids: Sequence[str], until: float) -> Mapping[str, TimeLeft]:
        found = {}
        for lease_id in lease_ids:
            try:
                life = self._wire.life(int(lease_id, 16), until)
            except (ValueError, LeaseGone, StoreRefused):  # ValueError: a foreign key whose name holds no lease
                continue
            if life.left_ttl > 0:
                found[lease_id] = TimeLeft(life.granted_ttl, life.left_ttl)
        return found

    def watch(self, prefix: str, until: float) -> Signal:
        since = self._ask(Range(self._root, b"", count_only=True), until).revision + 1
        signal = Signal()
        stops: list[Callable[[], None]] = []

        def close() -> None:
            for stop in stops:
                stop()
            self._belief.drop_signal(signal)

        signal.on_close(close)
        self._belief.add_signal(signal)
        for start, end in self._spans(prefix):
            stops.append(self._wire.watch(WatchRequest(start, end, since, False, signal)))
        return signal

    # Removals and notes.

    def remove(self, ticket: Ticket, note: StoredRecord | None, until: float) -> bool:
        gone = DeleteKey(codec.stored(ticket.key))
        if note is None:
            answer = self._wire.txn(Txn((is_still(ticket),), (gone,)), until)
            return answer.succeeded or answer.tries > 1  # gone after a lost answer: that try was ours
        key, text = self._key(note), note.text.encode()
        answer = self._wire.txn(Txn((is_still(ticket),), (PutKey(key, text), gone), (Range(key),)), until)
        return answer.succeeded or any(kv.value == text for kv in answer.key_values)

    def write(self, notes: Sequence[StoredRecord], until: float) -> Mapping[str, int]:
        puts = [PutKey(self._key(note), note.text.encode()) for note in notes]
        lines = list(dict.fromkeys((note.kind, note.resource) for note in notes))
        counts = [Range(*_below(self._shelf(*line)), count_only=True) for line in lines]
        answer = self._wire.txn(Txn(success=(*puts, *counts)), until)
        return dict(zip((resource for _, resource in lines), answer.counts, strict=True))

    def record(self, shelf: RecordKind, resource: str, name: str, until: float) -> StoredRecord | None:
        found = self._ask(Range(self._shelf(shelf, resource) + name.encode()), until).key_values
        return self._read_note(shelf, found[0]) if found else None

    def read(self, shelf: RecordKind, resource: str, until: float) -> tuple[StoredRecord, ...]:
        newest = Range(*_below(self._shelf(shelf, resource)), RECORDS_READ_MAX, newest_first=True)
        found = (self._read_note(shelf, kv) for kv in self._ask(newest, until).key_values)
        return tuple(sorted((note for note in found if note is not None), key=lambda note: note.name))

    def browse(self, shelf: RecordKind, prefix: str, until: float) -> tuple[StoredRecord, ...]:
        start, end = _below(f"{self._namespace}/{shelf.value}/{segment_prefix(prefix)}".encode())
        found: list[StoredRecord] = []
        more = True
        while more:
            page = self._ask(Range(start, end, PAGE_KEYS, by_key=True), until).key_values
            more = len(page) == PAGE_KEYS
            start = page[-1].key + b"\0" if page else start
            notes = (self._read_note(shelf, kv) for kv in page)
            found += [note for note in notes if note is not None and note.resource.startswith(prefix)]
        return tuple(sorted(found, key=lambda note: note.order))

    def trim(self, shelf: RecordKind, resource: str, keep: int, until: float) -> None:
        names = self._ask(Range(*_below(self._shelf(shelf, resource)), by_key=True, keys_only=True), until).key_values
        self._delete([kv.key for kv in names[:-keep]], until)

    def trim_all(self, shelf: RecordKind, prefix: str, keep: int, until: float) -> None:
        start, end = _below(f"{self._namespace}/{shelf.value}/{segment_prefix(prefix)}".encode())
        counts = self._ask(Range(start, end, count_only=True), until).counts
        excess = sum(counts) - keep
        while excess > 0:
            oldest = self._ask(Range(start, end, min(excess, PAGE_KEYS), keys_only=True), until).key_values
            if not oldest:
                return
            self._delete([kv.key for kv in oldest], until)
            excess -= len(oldest)

    def _delete(self, keys: Sequence[bytes], until: float) -> None:
        for some in batches(keys, _DELETES_MAX):
            operations: tuple[Operation, ...] = tuple(DeleteKey(key) for key in some)
            self._wire.txn(Txn(success=operations), until)

    def _key(self, note: StoredRecord) -> bytes:
        return self._shelf(note.kind, note.resource) + note.name.encode()

    def _shelf(self, shelf: RecordKind, resource: str) -> bytes:
        return f"{self._namespace}/{shelf.value}/{encode(resource)}/".encode()

    def _read_note(self, shelf: RecordKind, kv: KeyValue) -> StoredRecord | None:
        """Read a record from its key; None for a key that somebody else put there."""
        try:
            _, _, segment, name = kv.key[len(self._root) - 1 :].decode().split("/")
            return StoredRecord(shelf, decode(segment), name, kv.value.decode(), kv.create_revision)
        except ValueError:
            return None

    def _ask(self, asked: Range, until: float) -> TxnResult:
        return self._wire.range(asked, until)


def _below(prefix: bytes) -> tuple[bytes, bytes]:
    """The range of all keys that begin with `prefix`, which ends in ASCII."""
    return prefix, prefix[:-1] + bytes([prefix[-1] + 1])
