"""What operators need of a store, beside what a lease needs: `Operating`, a protocol of its own.

A lease that has it shows it as `operating`; everybody else's leases work without. Two things go beyond looking:

* `remove` takes out one very ticket, and puts a note of it into the store in the same transaction: neither
  happens without the other, wherever a process is killed.
* Notes are what operators leave and read: a short text on a shelf, below the name of a line and a name of its own
  (see `note_name`). They are bound to no lease. A shelf's name begins with a `%` and a small letter, which no
  encoded name does: so no line and no namespace can collide with it. Law 12 does not hold for notes: they are kept,
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

from holdfast.lease import Line, Ticket
from holdfast.names import decode, encode
from holdfast.signals import Signal

Item = TypeVar("Item")
_OUR_ID: Final = re.compile(r"[0-9a-f]{20}\Z")


class Shelf(enum.Enum):
    """Where a note stands, below the namespace."""

    AUDIT = "%audit"
    JOURNAL = "%journal"


@dataclass(frozen=True, slots=True)
class Note:
    """A text about one ticket of the line `resource`. Names sort in the order of the tickets' tokens."""

    shelf: Shelf
    resource: str
    name: str
    text: str
    order: int = 0
    """Where the store told it: grows from note to note in the order in which they were made."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines. It may be empty and yet not be the last."""

    lines: tuple[Line, ...]
    after: str | None
    """What to ask for the next page with, opaque; None: there is none."""


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """How long a lease was granted for, and how long it stands if nobody renews it, in seconds."""

    granted: float
    left: float


class Operating(Protocol):
    """The verbs. They block no longer than `until`, raise from the error tree, and may be called from any thread.

    All may be repeated after a lost answer, and are, within the call.
    """

    def lines(self, prefix: str, after: str, until: float) -> Page:
        """The next lines whose names begin with `prefix`, each with all its tickets, described. `after`: "" at first.

        Lines come in the order of `listed_as`. Each page is the store's state at a moment of its own.
        """

    def line(self, name: str, until: float) -> Line:
        """One line, its tickets described. `lease_id` is "" where a ticket hangs on no lease: nothing will end it."""

    def time_left(self, lease_ids: Sequence[str], until: float) -> Mapping[str, TimeLeft]:
        """Of these leases, of anybody's, as far as the store can tell; the others are left out."""

    def watch(self, prefix: str, until: float) -> Signal:
        """A signal that is set when a line below `prefix` changes from now on: read after this call.

        It may be set early and for nothing; it never misses. It is also set when the lease or the watch ends.
        Close it after use.
        """

    def remove(self, ticket: Ticket, note: Note | None, until: float) -> bool:
        """Remove that very ticket and write `note`: both or neither. False where it was gone before, nothing written.

        The note's text must be unlike any other's: by it a retry knows its own first try.
        """

    def write(self, notes: Sequence[Note], until: float) -> Mapping[str, int]:
        """See to it that these stand with these texts; how many each of their lines has now on that shelf.

        At most `NOTES_AT_ONCE_MAX`, all of one shelf.
        """

    def note(self, shelf: Shelf, resource: str, name: str, until: float) -> Note | None:
        """One note."""

    def read(self, shelf: Shelf, resource: str, until: float) -> tuple[Note, ...]:
        """The notes about one line, by name."""

    def browse(self, shelf: Shelf, prefix: str, until: float) -> tuple[Note, ...]:
        """The notes about all lines whose names begin with `prefix`, in the order in which they were made."""

    def trim(self, shelf: Shelf, resource: str, keep: int, until: float) -> None:
        """Let only the last `keep` notes about that line stand."""

    def trim_all(self, shelf: Shelf, keep: int, until: float) -> None:
        """Let no more than `keep` notes stand on that shelf: the oldest go."""


@runtime_checkable
class Operable(Protocol):
    """A lease whose store has what operators need."""

    @property
    def operating(self) -> Operating: ...


def note_name(token: int, ticket_id: str) -> str:
    """The name of the note about a ticket. The id tells tokens of two incarnations of a store apart."""
    if not _OUR_ID.match(ticket_id):  # a foreign one: whatever it is, it must fit into a key
        ticket_id = hashlib.sha256(ticket_id.encode(errors="replace")).hexdigest()[:20]
    return f"{token:019d}-{ticket_id}"


def name_of(segment: str) -> str | None:
    """The name of the line that stands at this segment below the namespace; None where no line can."""
    try:
        name = decode(segment)
        return name if encode(name) == segment else None
    except ValueError:  # InvalidName too: nobody could ask for it by a name
        return None


def segment_prefix(prefix: str) -> str:
    """With what the segments of all names that begin with `prefix` begin. Raises InvalidName."""
    # A name "." is written with percent signs, ".a" is not: both are found by looking at all.
    return "" if prefix in ("", ".", "..") else encode(prefix)


def wall_time() -> float:
    """What a clock on a wall shows, for people to read. Nothing is decided by it."""
    return time.time()


def listed_as(segment: str) -> str:
    """By what lines are ordered where they are listed: as etcd orders the keys of their tickets."""
    return f"{segment}/"


def batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """`items`, `size` at a time."""
    return (items[start : start + size] for start in range(0, len(items), size))
