"""What operators need of etcd: lines by ranges of keys, removals and notes by transactions. See holdfast/operating.py.

A note is a key `<namespace>/<shelf>/<name of the line>/<name of the note>`, bound to no lease. All shelves lie in one
span of keys, which listing and watching lines leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from holdfast.backends.etcd import codec
from holdfast.backends.etcd.guarded import is_still
from holdfast.backends.etcd.wire import Wire
from holdfast.backends.etcd.words import (
    Answer,
    DeleteKey,
    KeyValue,
    LeaseGone,
    Operation,
    PutKey,
    Range,
    Txn,
    Watching,
)
from holdfast.belief import Belief
from holdfast.errors import StoreRefused
from holdfast.lease import Line, Ticket
from holdfast.limits import PAGE_KEYS
from holdfast.names import decode, encode
from holdfast.operating import Note, Page, Shelf, TimeLeft, batches, name_of, segment_prefix
from holdfast.signals import Signal

_SHELVES_FROM, _SHELVES_TO = b"%a", b"&"
"""Between these lies every `%` with a small letter behind it, and no encoded name."""
_DELETES_MAX: Final = 64


class EtcdOperating:
    """The verbs, over the wire of one client. They need no lease; `belief` tells watchers of the client's end."""

    def __init__(self, wire: Wire, namespace: str, belief: Belief) -> None:
        self._wire = wire
        self._namespace = namespace
        self._root = f"{namespace}/".encode()
        self._belief = belief

    # Lines.

    def lines(self, prefix: str, after: str, until: float) -> Page:
        spans = self._spans(prefix, codec.stored(after))
        for number, (start, end) in enumerate(spans):
            answer = self._ask(Range(start, end, PAGE_KEYS, by_key=True), until)
            if len(answer.key_values) == PAGE_KEYS:
                return self._cut_page(answer, prefix, until)
            if answer.key_values:
                following = spans[number + 1 :]
                return Page(self._lines(answer, prefix), codec.shown(following[0][0]) if following else None)
        return Page((), None)

    def line(self, name: str, until: float) -> Line:
        answer = self._ask(Range(*codec.line_range(self._namespace, name)), until)
        return self._line(name, answer.key_values, answer.revision)

    def _cut_page(self, answer: Answer, prefix: str, until: float) -> Page:
        """A page that may have been cut within its last line: that is the next page's. One line alone is read on."""
        segment, slash, _ = answer.key_values[-1].key[len(self._root) :].partition(b"/")
        cut = self._root + segment + slash
        if not slash:  # no ticket: somebody's key between two lines
            return Page(self._lines(answer, prefix), codec.shown(cut + b"\0"))
        whole = [kv for kv in answer.key_values if not kv.key.startswith(cut)]
        if whole:
            return Page(self._lines(answer._replace(key_values=whole), prefix), codec.shown(cut))
        found, end = list(filter(self._is_ticket, answer.key_values)), _below(cut)[1]
        while len(answer.key_values) == PAGE_KEYS:  # of a line that changes each part is as it was when that was read
            answer = self._ask(Range(answer.key_values[-1].key + b"\0", end, PAGE_KEYS, by_key=True), until)
            found += filter(self._is_ticket, answer.key_values)
        return Page(self._lines(answer._replace(key_values=found), prefix), codec.shown(end))

    def _lines(self, answer: Answer, prefix: str) -> tuple[Line, ...]:
        found = []
        for segment, key_values in groupby(filter(self._is_ticket, answer.key_values), self._segment):
            name = name_of(codec.shown(segment))
            if name is not None and name.startswith(prefix):
                found.append(self._line(name, key_values, answer.revision))
        return tuple(found)

    def _is_ticket(self, kv: KeyValue) -> bool:
        """Does it stand in a line of this namespace? Not in one nested below, of which there may be any number."""
        return kv.key.count(b"/", len(self._root)) == 1

    def _line(self, name: str, key_values: Iterable[KeyValue], revision: int) -> Line:
        told = ((kv, codec.read_ticket(kv, self._namespace, name)) for kv in key_values)
        # The key's name says which lease it should hang on; what it does hang on is what counts.
        tickets = [t if kv.lease else t._replace(lease_id="") for kv, t in told if t is not None]
        return Line(name, tuple(sorted(tickets, key=lambda ticket: ticket.token or 0)), revision)

    def _segment(self, kv: KeyValue) -> bytes:
        return kv.key[len(self._root) :].partition(b"/")[0]

    def _spans(self, prefix: str, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        """The ranges in which lines below `prefix` stand, from `after` on: all but the shelves."""
        first = self._root + segment_prefix(prefix).encode()
        last = first[:-1] + bytes([first[-1] + 1])  # ASCII: there is a next one
        first = max(first, after)
        around = ((self._root, self._root + _SHELVES_FROM), (self._root + _SHELVES_TO, self._root[:-1] + b"0"))
        spans = [(max(first, low), min(last, high)) for low, high in around]
        return [(low, high) for low, high in spans if low < high]

    def time_left(self, lease_ids: Sequence[str], until: float) -> Mapping[str, TimeLeft]:
        found = {}
        for lease_id in lease_ids:
            try:
                life = self._wire.life(int(lease_id, 16), until)
            except (ValueError, LeaseGone, StoreRefused):  # ValueError: a foreign key whose name tells of no lease
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
            self._belief.drop_wait(signal)

        signal.on_close(close)
        self._belief.add_wait(signal)
        for start, end in self._spans(prefix):
            stops.append(self._wire.watch(Watching(start, end, since, False, signal)))
        return signal

    # Removals and notes.

    def remove(self, ticket: Ticket, note: Note | None, until: float) -> bool:
        gone = DeleteKey(codec.stored(ticket.key))
        if note is None:
            answer = self._wire.txn(Txn((is_still(ticket),), (gone,)), until)
            return answer.succeeded or answer.tries > 1  # gone after a lost answer: that try was ours
        key, text = self._key(note), note.text.encode()
        answer = self._wire.txn(Txn((is_still(ticket),), (PutKey(key, text), gone), (Range(key),)), until)
        return answer.succeeded or any(kv.value == text for kv in answer.key_values)

    def write(self, notes: Sequence[Note], until: float) -> Mapping[str, int]:
        puts = [PutKey(self._key(note), note.text.encode()) for note in notes]
        lines = list(dict.fromkeys((note.shelf, note.resource) for note in notes))
        counts = [Range(*_below(self._shelf(*line)), count_only=True) for line in lines]
        answer = self._wire.txn(Txn(success=(*puts, *counts)), until)
        return dict(zip((resource for _, resource in lines), answer.counts, strict=True))

    def note(self, shelf: Shelf, resource: str, name: str, until: float) -> Note | None:
        found = self._ask(Range(self._shelf(shelf, resource) + name.encode()), until).key_values
        return self._read_note(shelf, found[0]) if found else None

    def read(self, shelf: Shelf, resource: str, until: float) -> tuple[Note, ...]:
        answer = self._ask(Range(*_below(self._shelf(shelf, resource)), by_key=True), until)
        return tuple(n for kv in answer.key_values if (n := self._read_note(shelf, kv)) is not None)

    def browse(self, shelf: Shelf, prefix: str, until: float) -> tuple[Note, ...]:
        start, end = _below(f"{self._namespace}/{shelf.value}/{segment_prefix(prefix)}".encode())
        found: list[Note] = []
        more = True
        while more:
            page = self._ask(Range(start, end, PAGE_KEYS, by_key=True), until).key_values
            more = len(page) == PAGE_KEYS
            start = page[-1].key + b"\0" if page else start
            notes = (self._read_note(shelf, kv) for kv in page)
            found += [note for note in notes if note is not None and note.resource.startswith(prefix)]
        return tuple(sorted(found, key=lambda note: note.order))

    def trim(self, shelf: Shelf, resource: str, keep: int, until: float) -> None:
        names = self._ask(Range(*_below(self._shelf(shelf, resource)), by_key=True, keys_only=True), until).key_values
        self._delete([kv.key for kv in names[:-keep]], until)

    def trim_all(self, shelf: Shelf, keep: int, until: float) -> None:
        start, end = _below(f"{self._namespace}/{shelf.value}/".encode())
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

    def _key(self, note: Note) -> bytes:
        return self._shelf(note.shelf, note.resource) + note.name.encode()

    def _shelf(self, shelf: Shelf, resource: str) -> bytes:
        return f"{self._namespace}/{shelf.value}/{encode(resource)}/".encode()

    def _read_note(self, shelf: Shelf, kv: KeyValue) -> Note | None:
        """None for a key that somebody else put there."""
        try:
            _, _, segment, name = kv.key[len(self._root) - 1 :].decode().split("/")
            return Note(shelf, decode(segment), name, kv.value.decode(), kv.create_revision)
        except ValueError:
            return None

    def _ask(self, asked: Range, until: float) -> Answer:
        return self._wire.range(asked, until)


def _below(prefix: bytes) -> tuple[bytes, bytes]:
    """The range of all keys that begin with `prefix`, which ends in ASCII."""
    return prefix, prefix[:-1] + bytes([prefix[-1] + 1])
