"""The operators' verbs on the memory store: the reference for tenure/_admin/protocol.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from tenure._admin.protocol import NamesPage, RecordKind, StoredRecord, TimeLeft, listed_as, name_of, segment_prefix
from tenure._backends.memory.server import MemoryFaults, MemoryStore
from tenure._core.base.limits import PAGE_KEYS, RECORDS_READ_MAX
from tenure._core.base.signals import Signal
from tenure._core.base.validation import encode
from tenure._core.belief import Belief
from tenure._core.lease import Line, Ticket

Outcome = TypeVar("Outcome")


class AskStore(Protocol):
    """Exchange with the store: the operation's name, its deadline, and the function to call there."""

    def __call__(self, operation: str, until: float, request: Callable[[], Outcome]) -> Outcome: ...


class MemoryAdmin:
    """The verbs, over one client's way to the store."""

    def __init__(self, store: MemoryStore, faults: MemoryFaults, namespace: str, ask: AskStore, belief: Belief) -> None:
        self._store = store
        self._faults = faults
        self._namespace = namespace
        self._ask = ask
        self._belief = belief

    def lines(self, prefix: str, after: str, until: float) -> NamesPage:
        return self._ask("lines", until, lambda: self._page(prefix, after))

    def line(self, name: str, until: float) -> Line:
        return self._ask("line", until, lambda: self._store.look(self._line(name), name))

    def _page(self, prefix: str, after: str) -> NamesPage:
        root = f"{self._namespace}/"
        segments = (line[len(root) :] for line in self._store.lines if line.startswith(root))
        names = ((listed_as(segment), name_of(segment)) for segment in segments if "/" not in segment)
        wanted = sorted((segment, name) for segment, name in names if name is not None and name.startswith(prefix))
        wanted = [(segment, name) for segment, name in wanted if segment > after]
        now = wanted[:PAGE_KEYS]
        lines = tuple(self._store.look(self._line(name), name) for _, name in now)
        return NamesPage(lines, now[-1][0] if len(wanted) > len(now) else None)

    def time_left(self, lease_ids: Sequence[str], until: float) -> Mapping[str, TimeLeft]:
        def times() -> Mapping[str, TimeLeft]:
            return {lease: left for lease in lease_ids if (left := self._store.time_left(lease)) is not None}

        return self._ask("time_left", until, times)

    def watch(self, prefix: str, until: float) -> Signal:
        signal = Signal()

        def stop() -> None:
            self._store.unwatch_all(signal)
            self._belief.drop_signal(signal)

        signal.on_close(stop)
        self._belief.add_signal(signal)
        start = f"{self._namespace}/{segment_prefix(prefix)}"
        self._ask("watch", until, lambda: self._store.watch_all(start, signal, self._faults))
        return signal

    def remove(self, ticket: Ticket, note: StoredRecord | None, until: float) -> bool:
        path = "" if note is None else self._path(note.kind, note.resource, note.name)
        tries = 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            removed = self._store.remove(self._line(ticket.resource), ticket, path, note)
            return removed or (note is None and tries > 1)  # gone after a try that was carried out: that was ours

        return self._ask("remove", until, attempt)

    def write(self, notes: Sequence[StoredRecord], until: float) -> Mapping[str, int]:
        return self._ask("write", until, lambda: self._write(notes))

    def _write(self, notes: Sequence[StoredRecord]) -> Mapping[str, int]:
        for note in notes:
            self._store.put_note(self._path(note.kind, note.resource, note.name), note)
        about = {(note.kind, note.resource) for note in notes}
        return {resource: len(self._about(shelf, resource)) for shelf, resource in about}

    def record(self, shelf: RecordKind, resource: str, name: str, until: float) -> StoredRecord | None:
        return self._ask("note", until, lambda: self._store.notes.get(self._path(shelf, resource, name)))

    def read(self, shelf: RecordKind, resource: str, until: float) -> tuple[StoredRecord, ...]:
        return self._ask("read_notes", until, lambda: tuple(self._about(shelf, resource)[-RECORDS_READ_MAX:]))

    def browse(self, shelf: RecordKind, prefix: str, until: float) -> tuple[StoredRecord, ...]:
        return self._ask("browse", until, lambda: tuple(self._of(shelf, prefix)))

    def trim(self, shelf: RecordKind, resource: str, keep: int, until: float) -> None:
        self._ask("trim", until, lambda: self._drop(self._about(shelf, resource)[:-keep]))

    def trim_all(self, shelf: RecordKind, prefix: str, keep: int, until: float) -> None:
        self._ask("trim", until, lambda: self._drop(self._of(shelf, prefix)[:-keep]))

    def _drop(self, notes: Iterable[StoredRecord]) -> None:
        for note in notes:
            self._store.drop_note(self._path(note.kind, note.resource, note.name))

    def _about(self, shelf: RecordKind, resource: str) -> list[StoredRecord]:
        return sorted((note for note in self._of(shelf) if note.resource == resource), key=lambda note: note.name)

    def _of(self, shelf: RecordKind, prefix: str = "") -> list[StoredRecord]:
        """List the records of one kind about lines below `prefix`, in the order in which they were made."""
        root = f"{self._namespace}/{shelf.value}/"
        notes = self._store.notes.items()
        found = [note for path, note in notes if path.startswith(root) and note.resource.startswith(prefix)]
        return sorted(found, key=lambda note: note.order)

    def _line(self, resource: str) -> str:
        return f"{self._namespace}/{encode(resource)}"

    def _path(self, shelf: RecordKind, resource: str, name: str) -> str:
        return f"{self._namespace}/{shelf.value}/{encode(resource)}/{name}"
