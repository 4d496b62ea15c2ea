"""The operators' verbs on ZooKeeper: lines by listing nodes, removals by `multi`, records as persistent nodes.

See _admin/protocol.py. A record is the node `/<namespace>/<kind>/<name of the line>/<name of the record>`; the nodes
above it are containers. There is no request for many nodes at once: they are asked for one by one, a bounded number of
them on the way together.

Watching takes one persistent recursive watch on the namespace (ZooKeeper 3.6), however many wait. The server forgets it
with the connection; whoever waits is woken then, and the next one to wait sets it anew.
"""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from kazoo.exceptions import NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency, UnimplementedError
from kazoo.protocol.serialization import CheckVersion, Create, Delete, int_struct, write_string

from tenure._admin.protocol import (
    NamesPage,
    RecordKind,
    StoredRecord,
    TimeLeft,
    batches,
    listed_as,
    name_of,
    segment_prefix,
)
from tenure._backends.zookeeper import codec
from tenure._backends.zookeeper.connection import Pending, ZooKeeperSession
from tenure._backends.zookeeper.lines import ZooKeeperLines
from tenure._core.base.limits import PAGE_KEYS, RECORDS_READ_MAX, REQUESTS_AT_ONCE_MAX
from tenure._core.base.signals import Signal
from tenure._core.base.validation import encode
from tenure._core.belief import Belief
from tenure._core.lease import Line, Ticket
from tenure.errors import StoreRefused

Outcome = TypeVar("Outcome")
_PERSISTENT: Final = 0
_ANY: Final = -1
_RECURSIVE: Final = 1
_TRIES_MAX: Final = 16


class Exchange(Protocol):
    """Retries while the session lives: ZooKeeperLease's way to carry out a request."""

    def __call__(self, attempt: Callable[[], Outcome], until: float) -> Outcome: ...


class ZooKeeperAdmin:
    """The verbs, over one session."""

    def __init__(
        self, namespace: str, connection: ZooKeeperSession, lines: ZooKeeperLines, exchange: Exchange, belief: Belief
    ) -> None:
        self._namespace = namespace
        self._root = f"/{namespace}"
        self._connection = connection
        self._made = lines
        self._exchange = exchange
        self._belief = belief
        self._guard = threading.RLock()  # guards everything below
        self._waiting: dict[Signal, str] = {}  # the path with which what each waits for begins
        self._watched = False
        self._listens = False

    # Lines.

    def lines(self, prefix: str, after: str, until: float) -> NamesPage:
        return self._exchange(lambda: self._page(prefix, after, until), until)

    def line(self, name: str, until: float) -> Line:
        return self._exchange(lambda: self._described([name], until)[0], until)

    def _page(self, prefix: str, after: str, until: float) -> NamesPage:
        names = ((listed_as(child), name_of(child)) for child in self._children(self._root, until))
        wanted = sorted((segment, name) for segment, name in names if name is not None and name.startswith(prefix))
        wanted = [(segment, name) for segment, name in wanted if segment > after]
        now = wanted[:PAGE_KEYS]
        found = self._described([name for _, name in now], until)
        return NamesPage(tuple(line for line in found if line.tickets), now[-1][0] if len(wanted) > len(now) else None)

    def _described(self, names: Sequence[str], until: float) -> list[Line]:
        """Read these lines whole. A ticket that left between the listing and the reading is left out."""
        self._connection.agreement()  # answered before what is asked behind it
        paths = [codec.line_path(self._namespace, name) for name in names]
        listed = self._each(self._connection.children, paths, until)
        tickets = [codec.read_line(n, p, c or ()) for n, p, c in zip(names, paths, listed, strict=True)]
        answers = iter(self._each(self._connection.get, [ticket.key for line in tickets for ticket in line], until))
        return [Line(name, tuple(_standing(line, answers)), 0) for name, line in zip(names, tickets, strict=True)]

    def time_left(self, lease_ids: Sequence[str], until: float) -> Mapping[str, TimeLeft]:
        return {}  # a session's time-out is between its client and the server

    # Watching.

    def watch(self, prefix: str, until: float) -> Signal:
        signal = Signal()
        signal.on_close(lambda: self._forget(signal))
        self._belief.add_signal(signal)
        with self._guard:
            self._waiting[signal] = f"{self._root}/{segment_prefix(prefix)}"
        try:
            self._exchange(lambda: self._set_watch(until), until)
        except BaseException:
            signal.close()
            raise
        return signal

    def disconnected(self) -> None:
        """Wake everybody: the server has forgotten the watch. On one of kazoo's threads: must not block."""
        with self._guard:
            self._watched = False
            waiting = list(self._waiting)
        for signal in waiting:
            signal.set()

    def _set_watch(self, until: float) -> None:
        with self._guard:
            if self._watched:
                return
            if not self._listens:
                self._listens = True
                self._connection.on_event(self._heard)
            self._watched = True
            asked = self._connection.send(_AddWatch(self._root, _RECURSIVE))  # what others ask now is answered after it
        try:
            self._connection.ask(until, asked)
        except BaseException as error:
            self.disconnected()
            if isinstance(error.__cause__, UnimplementedError):
                raise StoreRefused("watching a namespace needs ZooKeeper 3.6; list its lines instead") from error
            raise

    def _heard(self, path: str) -> None:
        """Set the signals that a change of this node concerns. On kazoo's own thread: must not block."""
        if path.startswith(f"{self._root}/%") and path[len(self._root) + 2 :][:1].islower():
            return  # a record
        with self._guard:
            woken = [signal for signal, start in self._waiting.items() if path.startswith(start)]
        for signal in woken:
            signal.set()

    def _forget(self, signal: Signal) -> None:
        self._belief.drop_signal(signal)
        with self._guard:
            self._waiting.pop(signal, None)

    # Removals and notes.

    def remove(self, ticket: Ticket, note: StoredRecord | None, until: float) -> bool:
        tries = 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            removed = self._remove(ticket, note, until)
            return removed or (note is None and tries > 1)  # gone after a lost answer: that try was ours

        return self._exchange(attempt, until)

    def _remove(self, ticket: Ticket, note: StoredRecord | None, until: float) -> bool:
        """Remove the ticket by its node, whose name is never used again: to check that needs no token."""
        writes = [] if note is None else [self._create(note)]
        operations = [CheckVersion(ticket.key, _ANY), *writes, Delete(ticket.key, _ANY)]
        for _ in range(_TRIES_MAX):
            *outcomes, _ = self._connection.ask(until, self._connection.commit(operations))[0]
            failed = next((i for i, outcome in enumerate(outcomes) if _is_reason(outcome)), None)
            if failed is None:
                return True
            if failed == 0 and isinstance(outcomes[0], NoNodeError):
                return note is not None and self._is_there(note, until)
            if not (failed == 1 and note is not None and isinstance(outcomes[1], NoNodeError)):
                raise self._connection.translated(outcomes[failed])
            self._made.make_parents(self._shelf(note.kind, note.resource), until)
        raise StoreRefused(f"the node above {ticket.resource!r}'s notes came and went meanwhile. Nothing was written")

    def _is_there(self, note: StoredRecord, until: float) -> bool:
        """Tell whether this very record is there: an earlier try of ours put it."""
        found = self._find(note.kind, note.resource, note.name, until)
        return found is not None and found.text == note.text

    def write(self, notes: Sequence[StoredRecord], until: float) -> Mapping[str, int]:
        return self._exchange(lambda: self._write(notes, until), until)

    def _write(self, notes: Sequence[StoredRecord], until: float) -> Mapping[str, int]:
        left = list(notes)
        for _ in range(_TRIES_MAX):
            sent = [(note, self._connection.send(self._create(note))) for note in left]
            left = [note for note, answer in sent if not self._is_put(note, answer, until)]
            if not left:
                above = {self._shelf(note.kind, note.resource): note.resource for note in notes}
                stats = self._each(self._connection.exists, list(above), until)
                return {name: stat.numChildren for name, stat in zip(above.values(), stats, strict=True) if stat}
            for path in {self._shelf(note.kind, note.resource) for note in left}:
                self._made.make_parents(path, until)
        raise StoreRefused(f"the nodes above {len(left)} notes came and went meanwhile; they are not written")

    def _is_put(self, note: StoredRecord, created: Pending, until: float) -> bool:
        """Wait until the record is put; False where the node above it is missing."""
        try:
            self._connection.ask(until, created)
        except NoNodeError:
            return False
        except NodeExistsError:
            try:
                self._connection.ask(until, self._connection.set(self._path(note), note.text.encode()))
            except NoNodeError:
                return False  # trimmed this moment: it is put anew, and trimmed the next time
        return True

    def record(self, shelf: RecordKind, resource: str, name: str, until: float) -> StoredRecord | None:
        return self._exchange(lambda: self._find(shelf, resource, name, until), until)

    def _find(self, shelf: RecordKind, resource: str, name: str, until: float) -> StoredRecord | None:
        self._connection.sync(self._root)
        return next(iter(self._notes(shelf, [(resource, name)], until)), None)

    def read(self, shelf: RecordKind, resource: str, until: float) -> tuple[StoredRecord, ...]:
        return self._exchange(lambda: tuple(self._newest(shelf, resource, until)), until)

    def _newest(self, shelf: RecordKind, resource: str, until: float) -> Iterable[StoredRecord]:
        return self._notes(shelf, self._names(shelf, [resource], until)[-RECORDS_READ_MAX:], until)

    def browse(self, shelf: RecordKind, prefix: str, until: float) -> tuple[StoredRecord, ...]:
        def attempt() -> tuple[StoredRecord, ...]:
            names = self._names(shelf, self._about(shelf, prefix, until), until)
            return tuple(sorted(self._notes(shelf, names, until), key=lambda note: note.order))

        return self._exchange(attempt, until)

    def trim(self, shelf: RecordKind, resource: str, keep: int, until: float) -> None:
        self._exchange(lambda: self._delete(shelf, self._names(shelf, [resource], until)[:-keep], until), until)

    def trim_all(self, shelf: RecordKind, prefix: str, keep: int, until: float) -> None:
        def attempt() -> None:
            names = self._names(shelf, self._about(shelf, prefix, until), until)
            names.sort(key=lambda about_and_name: about_and_name[1])  # by token: a czxid, so the whole store's order
            self._delete(shelf, names[:-keep], until)

        self._exchange(attempt, until)

    def _about(self, shelf: RecordKind, prefix: str, until: float) -> list[str]:
        """List the lines below `prefix` that have records of that kind."""
        names = map(name_of, self._children(f"{self._root}/{shelf.value}", until))
        return [name for name in names if name is not None and name.startswith(prefix)]

    def _names(self, shelf: RecordKind, resources: Sequence[str], until: float) -> list[tuple[str, str]]:
        """List line and name of each record about these lines."""
        self._connection.sync(self._root)
        listed = self._each(self._connection.children, [self._shelf(shelf, about) for about in resources], until)
        return [(about, n) for about, names in zip(resources, listed, strict=True) for n in sorted(names or ())]

    def _notes(self, shelf: RecordKind, names: Iterable[tuple[str, str]], until: float) -> Iterator[StoredRecord]:
        wanted = list(names)
        paths = [f"{self._shelf(shelf, about)}/{name}" for about, name in wanted]
        for (about, name), found in zip(wanted, self._each(self._connection.get, paths, until), strict=True):
            if found is not None:
                data, stat = found
                yield StoredRecord(shelf, about, name, data.decode(errors="replace"), stat.czxid)

    def _delete(self, shelf: RecordKind, names: Sequence[tuple[str, str]], until: float) -> None:
        self._each(self._connection.delete, [f"{self._shelf(shelf, about)}/{name}" for about, name in names], until)

    # Requests.

    def _children(self, path: str, until: float) -> list[str]:
        self._connection.sync(path)
        try:
            children: list[str] = self._connection.ask(until, self._connection.children(path))[0]
        except NoNodeError:
            return []
        return children

    def _each(self, request: Callable[[str], Pending], paths: Sequence[str], until: float) -> list[Any]:
        """Send `request` for each path, a few at a time, and collect the answers; None where there is no such node."""
        found = []
        for some in batches(paths, REQUESTS_AT_ONCE_MAX):
            for answer in [request(path) for path in some]:
                try:
                    found += self._connection.ask(until, answer)
                except NoNodeError:
                    found.append(None)
        return found

    def _create(self, note: StoredRecord) -> Any:
        return Create(self._path(note), note.text.encode(), self._connection.acl, _PERSISTENT)

    def _path(self, note: StoredRecord) -> str:
        return f"{self._shelf(note.kind, note.resource)}/{note.name}"

    def _shelf(self, shelf: RecordKind, resource: str) -> str:
        return f"{self._root}/{shelf.value}/{encode(resource)}"


class _AddWatch(namedtuple("_AddWatch", "path mode")):  # as kazoo's own requests, which have no types
    """ZooKeeper's addWatch, which kazoo has no request for. It is answered without a word."""

    type = 106

    def serialize(self) -> bytes:
        return bytes(write_string(self.path)) + bytes(int_struct.pack(self.mode))

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> bool:
        return True  # a refusal stands in the header


def _standing(tickets: Sequence[Ticket], answers: Iterator[Any]) -> Iterator[Ticket]:
    """Yield those of `tickets` that could be read, each described by its answer."""
    for ticket, answer in zip(tickets, islice(answers, len(tickets)), strict=True):
        if answer is not None:
            yield codec.described(ticket, *answer)


def _is_reason(outcome: Any) -> bool:
    """Tell whether this outcome caused the refusal. The others of a refused `multi` are rolled back or never tried."""
    return isinstance(outcome, Exception) and not isinstance(outcome, (RolledBackError, RuntimeInconsistency))
