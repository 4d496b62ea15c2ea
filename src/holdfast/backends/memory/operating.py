"""What operators need of the memory store: the reference of holdfast/operating.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from holdfast.backends.memory.server import MemoryFaults, MemoryStore
from holdfast.belief import Belief
from holdfast.lease import Line, Ticket
from holdfast.limits import PAGE_KEYS
from holdfast.names import encode
from holdfast.operating import Note, Page, Shelf, TimeLeft, listed_as, name_of, segment_prefix
from holdfast.signals import Signal

Outcome = TypeVar("Outcome")


class Ask(Protocol):
    """One exchange with the store: the operation's name, its deadline, what it does there."""

    def __call__(self, operation: str, until: float, request: Callable[[], Outcome]) -> Outcome: ...


class MemoryOperating:
    """The verbs, over one client's way to the store."""

    def __init__(self, store: MemoryStore, faults: MemoryFaults, namespace: str, ask: Ask, belief: Belief) -> None:
        self._store = store
        self._faults = faults
        self._namespace = namespace
        self._ask = ask
        self._belief = belief

    def lines(self, prefix: str, after: str, until: float) -> Page:
        return self._ask("lines", until, lambda: self._page(prefix, after))

    def line(self, name: str, until: float) -> Line:
        return self._ask("line", until, lambda: self._store.look(self._line(name), name))

    def _page(self, prefix: str, after: str) -> Page:
        root = f"{self._namespace}/"
        places = (line[len(root) :] for line in self._store.lines if line.startswith(root))
        names = ((listed_as(place), name_of(place)) for place in places if "/" not in place)
        wanted = sorted((place, name) for place, name in names if name is not None and name.startswith(prefix))
        wanted = [(place, name) for place, name in wanted if place > after]
        now = wanted[:PAGE_KEYS]
        lines = tuple(self._store.look(self._line(name), name) for _, name in now)
        return Page(lines, now[-1][0] if len(wanted) > len(now) else None)

    def time_left(self, lease_ids: Sequence[str], until: float) -> Mapping[str, TimeLeft]:
        def times() -> Mapping[str, TimeLeft]:
            return {lease: left for lease in lease_ids if (left := self._store.time_left(lease)) is not None}

        return self._ask("time_left", until, times)

    def watch(self, prefix: str, until: float) -> Signal:
        signal = Signal()

        def stop() -> None:
            self._store.unwatch_all(signal)
            self._belief.drop_wait(signal)

        signal.on_close(stop)
        self._belief.add_wait(signal)
        start = f"{self._namespace}/{segment_prefix(prefix)}"
        self._ask("watch", until, lambda: self._store.watch_all(start, signal, self._faults))
        return signal

    def remove(self, ticket: Ticket, note: Note | None, until: float) -> bool:
        path = "" if note is None else self._path(note.shelf, note.resource, note.name)
        tries = 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            removed = self._store.remove(self._line(ticket.resource), ticket, path, note)
            return removed or (note is None and tries > 1)  # gone after a try that was carried out: that was ours

        return self._ask("remove", until, attempt)

    def write(self, notes: Sequence[Note], until: float) -> Mapping[str, int]:
        return self._ask("write", until, lambda: self._write(notes))

    def _write(self, notes: Sequence[Note]) -> Mapping[str, int]:
        for note in notes:
            self._store.put_note(self._path(note.shelf, note.resource, note.name), note)
        about = {(note.shelf, note.resource) for note in notes}
        return {resource: len(self._about(shelf, resource)) for shelf, resource in about}

    def note(self, shelf: Shelf, resource: str, name: str, until: float) -> Note | None:
        return self._ask("note", until, lambda: self._store.notes.get(self._path(shelf, resource, name)))

    def read(self, shelf: Shelf, resource: str, until: float) -> tuple[Note, ...]:
        return self._ask("read_notes", until, lambda: tuple(self._about(shelf, resource)))

    def browse(self, shelf: Shelf, prefix: str, until: float) -> tuple[Note, ...]:
        def found() -> tuple[Note, ...]:
            return tuple(note for note in self._of(shelf) if note.resource.startswith(prefix))

        return self._ask("browse", until, found)

    def trim(self, shelf: Shelf, resource: str, keep: int, until: float) -> None:
        self._ask("trim", until, lambda: self._drop(self._about(shelf, resource)[:-keep]))

    def trim_all(self, shelf: Shelf, keep: int, until: float) -> None:
        self._ask("trim", until, lambda: self._drop(self._of(shelf)[:-keep]))

    def _drop(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self._store.drop_note(self._path(note.shelf, note.resource, note.name))

    def _about(self, shelf: Shelf, resource: str) -> list[Note]:
        return sorted((note for note in self._of(shelf) if note.resource == resource), key=lambda note: note.name)

    def _of(self, shelf: Shelf) -> list[Note]:
        """All notes of the shelf, in the order in which they were made."""
        root = f"{self._namespace}/{shelf.value}/"
        found = [note for path, note in self._store.notes.items() if path.startswith(root)]
        return sorted(found, key=lambda note: note.order)

    def _line(self, resource: str) -> str:
        return f"{self._namespace}/{encode(resource)}"

    def _path(self, shelf: Shelf, resource: str, name: str) -> str:
        return f"{self._namespace}/{shelf.value}/{encode(resource)}/{name}"
