"""What an operator gets to see: lines and their tickets, audit records, journal entries. Values, and how they are kept.

Times of day (`since`, `at`, `acquired_at`) are seconds since 1970, by the wall clock of whoever wrote them: for people.
Tokens are ints.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from holdfast.lease import Line, Mode, Ticket
from holdfast.operating import Note, Shelf, TimeLeft, note_name


class Kind(enum.Enum):
    """What a line is used as, as far as its tickets tell.

    ELECTION: a lone holder that shows a value. LOCK: anything else that is held alone; an election without a value and
    the writing side of an rwlock look the same.
    """

    LOCK = "lock"
    ELECTION = "election"
    RWLOCK = "rwlock"
    SEMAPHORE = "semaphore"


class Ending(enum.Enum):
    """Why a hold ended."""

    RELEASED = "released"
    EXPIRED = "expired"
    """Its lease ended, or could not be proven in time."""
    FORCED = "forced"
    """Forced out by an operator; there is an audit record."""
    REMOVED = "removed"
    """Its ticket was deleted by hand; there is no audit record."""
    CLOSED = "closed"
    """Its client was closed."""


@dataclass(frozen=True, slots=True)
class TicketInfo:
    """One ticket of a line, as it stood when it was looked at."""

    resource: str
    """The name of the line."""
    token: int
    """Its fencing token: what `force_release` wants."""
    id: str
    owner: str | None
    """None: a stranger's (etcdctl, Go, Curator, kazoo)."""
    holds: bool
    """Has its turn come? Otherwise it waits."""
    mode: Mode
    weight: int
    """How many seats it takes; 1 but for semaphores."""
    limit: int
    """How many seats its owner says there are; 1 but for semaphores."""
    value: str
    since: float | None
    """Since when it stands in the line, by its owner's wall clock; None where nobody said."""
    age: float | None
    """How long that is, by the wall clock here, in seconds: a waiter's wait so far. Never below 0."""
    lease_id: str
    """"" where it hangs on no lease: an orphan, that nothing but a removal will end."""
    ttl: float | None = None
    """For how long its lease was granted, in seconds; None where the store can't tell, or was not asked."""
    left: float | None = None
    """For how long its lease stands if nobody renews it any more; None likewise."""

    @property
    def orphaned(self) -> bool:
        """Does it hang on no lease, so that it would stand for ever?"""
        return not self.lease_id

    def __repr__(self) -> str:
        state = "holds" if self.holds else "waits"
        return f"<holdfast.TicketInfo {self.resource!r} token={self.token} {state} owner={self.owner!r}>"


@dataclass(frozen=True, slots=True)
class LineInfo:
    """One line, as it stood when it was looked at."""

    name: str
    kind: Kind | None
    """None where nobody stands in it."""
    limit: int | None
    """How many seats a semaphore has, as its first ticket says; None for all else."""
    tickets: tuple[TicketInfo, ...]
    """In the store's order: holders first, then who waits, the next one first."""

    @property
    def holders(self) -> tuple[TicketInfo, ...]:
        """Those whose turn has come."""
        return tuple(ticket for ticket in self.tickets if ticket.holds)

    @property
    def waiters(self) -> tuple[TicketInfo, ...]:
        """Those who wait, in their order."""
        return tuple(ticket for ticket in self.tickets if not ticket.holds)

    def __repr__(self) -> str:
        if self.kind is None:
            return f"<holdfast.LineInfo {self.name!r} empty>"
        held = ", ".join(f"{ticket.owner or 'a stranger'} (token {ticket.token})" for ticket in self.holders[:3])
        more = f" and {len(self.holders) - 3} more" if len(self.holders) > 3 else ""
        return f"<holdfast.LineInfo {self.name!r} {self.kind.value} held by {held}{more}, {len(self.waiters)} waiting>"


@dataclass(frozen=True, slots=True)
class LinePage:
    """Some lines of a listing. It may be empty and yet not be the last."""

    lines: tuple[LineInfo, ...]
    after: str | None
    """What to ask for the next page with, opaque; None: this is the last."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """That somebody was forced out. It was written in the very transaction that did it."""

    resource: str
    token: int
    """The ticket that was removed."""
    holder: str | None
    """Its owner; None: a stranger."""
    reason: str
    actor: str
    """Who did it."""
    at: float
    """When, by the wall clock of the one who did."""
    was_holding: bool
    """Had its turn come? Otherwise it waited."""
    ticket_id: str
    nonce: str = dataclasses.field(repr=False)
    """One per call: by it a retry knows its own first try."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One hold, as it was written down by its holder's client. Times in seconds."""

    resource: str
    kind: Kind
    owner: str
    token: int
    value: str
    acquired_at: float
    """By the holder's wall clock."""
    waited: float
    """How long it had waited for its turn."""
    held: float | None = None
    """How long it was held; None while it is, and where nobody lived to write it down."""
    ended: Ending | None = None
    """None: it stands."""
    reason: str = ""
    """Why it was lost, in words; "" where there is nothing to say."""
    derived: bool = False
    """Nobody wrote down its end: `ended` is what follows from what stands in the line, and from the audit records.

    An end that was not written down yet (that takes a moment) looks the same.
    """
    ticket_id: str = dataclasses.field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a line is as it is: who holds it, who waits, and how the last hold ended. `str()` says it in sentences."""

    line: LineInfo
    last: JournalEntry | None
    """The last hold that has ended, where a journal is kept."""
    forced: AuditRecord | None
    """The last time somebody was forced out of this line."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """What there is to say, one by one. Strangers' text may be in them."""
        name = repr(self.line.name)
        told = [f"{name} is held by {_ticket(t)}." for t in self.line.holders] or [f"Nobody holds {name}."]
        waiting = self.line.waiters
        if waiting:
            told.append(f"{len(waiting)} waiting, the next of them {_ticket(waiting[0])}.")
        if self.last is not None:
            told.append(_last(self.last))
        if self.forced is not None:
            by = f"by {self.forced.actor} at {_time(self.forced.at)}: {self.forced.reason}"
            told.append(f"{self.forced.holder or 'A stranger'} (token {self.forced.token}) was forced out {by}.")
        return tuple(told)

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def _ticket(ticket: TicketInfo) -> str:
    since = "" if ticket.since is None else f" since {_time(ticket.since)}"
    orphan = ", which hangs on no lease" if ticket.orphaned else ""
    return f"{ticket.owner or 'a stranger'} (token {ticket.token}), in line{since}{orphan}"


def _last(entry: JournalEntry) -> str:
    held = "an unknown time" if entry.held is None else f"{entry.held:.1f} s"
    how = "" if entry.ended is None else f" and ended: {entry.ended.value}"
    why = f" ({entry.reason})" if entry.reason else ""
    return (
        f"The last hold was {entry.owner}'s (token {entry.token}), acquired at {_time(entry.acquired_at)} "
        f"after {entry.waited:.1f} s; it lasted {held}{how}{why}."
    )


def _time(at: float) -> str:
    """A ticket's time is whatever its owner wrote down."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return "a time that no clock shows"


# How lines are read.


def line_info(line: Line, now: float, left: Mapping[str, TimeLeft] | None = None) -> LineInfo:
    """`line` at `now` on the wall, with what is known of its leases."""
    front, times = admitted(line), left or {}
    return LineInfo(
        name=line.resource,
        kind=kind_of(line.tickets),
        limit=next((ticket.limit for ticket in line.tickets if ticket.mode is Mode.SEAT), None),
        tickets=tuple(
            _ticket_info(ticket, index < front, now, times.get(ticket.lease_id))
            for index, ticket in enumerate(line.tickets)
        ),
    )


def admitted(line: Line) -> int:
    """How many stand at the front of the line whose turn has come. What the recipes' rules come to, in one pass."""
    weights = limit = 0
    for count, ticket in enumerate(line.tickets):
        first = line.tickets[0]
        if count and (ticket.mode is Mode.EXCLUSIVE or ticket.mode is not first.mode):
            return count
        limit = limit or ticket.limit
        weights += ticket.weight
        if ticket.mode is Mode.SEAT and (weights > ticket.limit or ticket.limit != limit):
            return count
    return len(line.tickets)


def kind_of(tickets: tuple[Ticket, ...]) -> Kind | None:
    """What the line is used as."""
    modes = {ticket.mode for ticket in tickets}
    if Mode.SEAT in modes:
        return Kind.SEMAPHORE
    if Mode.READ in modes:
        return Kind.RWLOCK
    if not tickets:
        return None
    return Kind.ELECTION if any(ticket.owner is not None and ticket.value for ticket in tickets) else Kind.LOCK


def _ticket_info(ticket: Ticket, holds: bool, now: float, left: TimeLeft | None) -> TicketInfo:
    return TicketInfo(
        resource=ticket.resource,
        token=ticket.token or 0,
        id=ticket.id,
        owner=ticket.owner,
        holds=holds,
        mode=ticket.mode,
        weight=ticket.weight,
        limit=ticket.limit,
        value=ticket.value,
        since=ticket.created_at,
        age=None if ticket.created_at is None else max(0.0, now - ticket.created_at),
        lease_id=ticket.lease_id,
        ttl=None if left is None else left.granted,
        left=None if left is None else left.left,
    )


# How notes are written.

_VERSION: Final = 1
Kept = TypeVar("Kept", AuditRecord, JournalEntry)


def audit_note(record: AuditRecord) -> Note:
    """The record as it is stored."""
    told = dataclasses.asdict(record) | {"v": _VERSION, "token": str(record.token)}
    return Note(Shelf.AUDIT, record.resource, note_name(record.token, record.ticket_id), _text(told))


def read_audit(note: Note) -> AuditRecord | None:
    """The record; None where somebody else wrote the note."""
    return _read(AuditRecord, note)


def journal_note(entry: JournalEntry) -> Note:
    """The entry as it is stored."""
    told = dataclasses.asdict(entry) | {"v": _VERSION, "token": str(entry.token), "kind": entry.kind.value}
    told["ended"] = None if entry.ended is None else entry.ended.value
    return Note(Shelf.JOURNAL, entry.resource, note_name(entry.token, entry.ticket_id), _text(told))


def read_entry(note: Note) -> JournalEntry | None:
    """The entry; None where somebody else wrote the note."""
    return _read(JournalEntry, note)


_READERS: Final[Mapping[str, Any]] = {
    "token": int,
    "kind": Kind,
    "ended": lambda how: None if how is None else Ending(how),
}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("resource", "reason", "actor", "ticket_id", "nonce", "owner", "value"), (str,)),
    **dict.fromkeys(("at", "acquired_at", "waited"), (int, float)),
    "holder": (str, type(None)),
    "held": (int, float, type(None)),
}


def _text(told: Mapping[str, Any]) -> str:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _read(kind: type[Kept], note: Note) -> Kept | None:
    try:
        told = json.loads(note.text)
        if told.pop("v") != _VERSION or told.get("resource") != note.resource:
            return None
        facts = {f.name: _READERS.get(f.name, _sound(f.name))(told[f.name]) for f in dataclasses.fields(kind)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return kind(**facts)


def _sound(name: str) -> Any:
    def checked(value: Any) -> Any:
        if not isinstance(value, _TYPES.get(name, (bool,))):
            raise TypeError(f"{name} can't be {value!r}")
        return value

    return checked
