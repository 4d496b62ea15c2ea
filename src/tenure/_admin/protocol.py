"""Verbs for operators: `StoreAdmin`, a protocol that a store may have beside that of its leases.

A lease whose store has it shows it as `admin`; locks and elections work without. Two things go beyond looking:

* `remove` takes out one very ticket, and puts a record of that into the store in the same transaction: neither
  happens without the other, wherever a process is killed.
* Records are what operators leave and read: a short text of one kind, below the name of a line and a name of its own
  (see `record_name`). They are bound to no lease. The name of a kind begins with a `%` and a small letter, which no
  encoded name does: so no line and no namespace can collide with it. Law 12 does not hold for records: they are kept,
  and `trim` bounds them.
"""

from __future__ import annotations

import enum
import hashlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, runtime_checkable

from tenure._core.base.signals import Signal
from tenure._core.base.validation import decode, encode
from tenure._core.lease import Line, Ticket

Item = TypeVar("Item")
_OUR_ID: Final = re.compile(r"[0-9a-f]{20}\Z")


class RecordKind(enum.Enum):
    """Kind of a stored record: the path that it stands at, below the namespace."""

    AUDIT = "%audit"
    JOURNAL = "%journal"


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """Text about one ticket of the line `resource`. Names sort in the order of the tickets' tokens."""

    kind: RecordKind
    resource: str
    name: str
    text: str
    order: int = 0
    """Grows from record to record in the order in which they were made; 0 where the store did not show it."""


@dataclass(frozen=True, slots=True)
class NamesPage:
    """Page of a listing of lines. It may be empty and yet not be the last."""

    lines: tuple[Line, ...]
    after: str | None
    """Where the next page begins, opaque; None: there is none."""


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """Time that a lease was granted for, and that it stands if nobody renews it, in seconds."""

    granted: float
    left: float


class StoreAdmin(Protocol):
    """Verbs for operators. They block no longer than `until`, raise from the error tree, and may be called from any
    thread.

    All may be repeated after a lost answer, and are, within the call.
    """

    def lines(self, prefix: str, after: str, until: float) -> NamesPage:
        """The next lines whose names begin with `prefix`, each with all its tickets, described. `after`: "" at first.

        Lines come in the order of `listed_as`. Each page is the store's state at a moment of its own.
        """

    def line(self, name: str, until: float) -> Line:
        """The line `name`, its tickets described. `lease_id` is "" for a ticket on no lease, which nothing will end."""

    def time_left(self, lease_ids: Sequence[str], until: float) -> Mapping[str, TimeLeft]:
        """Times of these leases, whoever has them; a lease of which the store can't tell is left out."""

    def watch(self, prefix: str, until: float) -> Signal:
        """A signal that is set when a line below `prefix` changes from now on: read after this call.

        It may be set early and for nothing; it never misses. It is also set when the lease or the watch ends.
        Close it after use.
        """

    def remove(self, ticket: Ticket, record: StoredRecord | None, until: float) -> bool:
        """Remove that very ticket and write `record`: both or neither. False where it was gone, with nothing written.

        The record's text must be unlike any other's: by it a retry knows its own first try.
        """

    def write(self, records: Sequence[StoredRecord], until: float) -> Mapping[str, int]:
        """Write `records`, over those of the same names; the number that each of their lines has of that kind now.

        At most `RECORDS_AT_ONCE_MAX`, all of one kind.
        """

    def record(self, kind: RecordKind, resource: str, name: str, until: float) -> StoredRecord | None:
        """The record of this name, or None."""

    def read(self, kind: RecordKind, resource: str, until: float) -> tuple[StoredRecord, ...]:
        """The newest `RECORDS_READ_MAX` records about one line, by name."""

    def browse(self, kind: RecordKind, prefix: str, until: float) -> tuple[StoredRecord, ...]:
        """Records about all lines whose names begin with `prefix`, in the order in which they were made."""

    def trim(self, kind: RecordKind, resource: str, keep: int, until: float) -> None:
        """Delete all but the last `keep` records about that line."""

    def trim_all(self, kind: RecordKind, prefix: str, keep: int, until: float) -> None:
        """Delete the oldest records of that kind about lines below `prefix`, until no more than `keep` are left."""


@runtime_checkable
class HasAdmin(Protocol):
    """Lease whose store has the verbs for operators."""

    @property
    def admin(self) -> StoreAdmin: ...


def record_name(token: int, ticket_id: str) -> str:
    """The name of the record about a ticket. The id tells tokens of two incarnations of a store apart."""
    if not _OUR_ID.match(ticket_id):  # a foreign one: whatever it is, it must fit into a key
        ticket_id = hashlib.sha256(ticket_id.encode(errors="replace")).hexdigest()[:20]
    return f"{token:019d}-{ticket_id}"


def name_of(segment: str) -> str | None:
    """The name of the line at this segment below the namespace; None where no line can stand."""
    try:
        name = decode(segment)
        return name if encode(name) == segment else None
    except ValueError:  # InvalidName too: nobody could ask for it by a name
        return None


def segment_prefix(prefix: str) -> str:
    """The common beginning of the segments of all names that begin with `prefix`. Raises InvalidName."""
    # A name "." is written with percent signs, ".a" is not: both are found by looking at all.
    return "" if prefix in ("", ".", "..") else encode(prefix)


def wall_time() -> float:
    """Seconds since 1970 by this machine's clock, for people to read. Nothing is decided by it."""
    return time.time()


def listed_as(segment: str) -> str:
    """Sort key of lines in a listing: etcd's order of the keys of their tickets."""
    return f"{segment}/"


def batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Slices of `items`, `size` at a time."""
    return (items[start : start + size] for start in range(0, len(items), size))
