"""Values for operators: lines and their tickets, audit records, journal entries; and how the last two are stored.

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

from tenure._admin.protocol import RecordKind, StoredRecord, TimeLeft, record_name
from tenure._core.lease import Line, Mode, Ticket


class Kind(enum.Enum):
    """Use of a line, as far as its tickets show it.

    ELECTION: a lone holder that shows a value. LOCK: anything else that is held alone; an election without a value and
    the writing side of an rwlock look the same.
    """

    LOCK = "lock"
    ELECTION = "election"
    RWLOCK = "rwlock"
    SEMAPHORE = "semaphore"


class Ending(enum.Enum):
    """Reason of a hold's end."""

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
    """Ticket of a line, as it stood when it was looked at."""

    resource: str
    """The name of the line."""
    token: int
    """Its fencing token, by which `force_release` names it."""
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
        """True where it hangs on no lease, so that it would stand for ever."""
        return not self.lease_id

    def __repr__(self) -> str:
        state = "holds" if self.holds else "waits"
        return f"<tenure.TicketInfo {self.resource!r} token={self.token} {state} owner={self.owner!r}>"


@dataclass(frozen=True, slots=True)
class LineInfo:
    """Line, as it stood when it was looked at."""

    name: str
    kind: Kind | None
    """None where nobody stands in it."""
    limit: int | None
    """How many seats a semaphore has, as its first ticket says; None for all else."""
    tickets: tuple[TicketInfo, ...]
    """In the store's order: holders first, then who waits, the next one first."""

    @property
    def holders(self) -> tuple[TicketInfo, ...]:
        """Tickets whose turn has come."""
        return tuple(ticket for ticket in self.tickets if ticket.holds)

    @property
    def waiters(self) -> tuple[TicketInfo, ...]:
        """Tickets that wait, in their order."""
        return tuple(ticket for ticket in self.tickets if not ticket.holds)

    def __repr__(self) -> str:
        if self.kind is None:
            return f"<tenure.LineInfo {self.name!r} empty>"
        held = ", ".join(f"{ticket.owner or 'a stranger'} (token {ticket.token})" for ticket in self.holders[:3])
        more = f" and {len(self.holders) - 3} more" if len(self.holders) > 3 else ""
        return f"<tenure.LineInfo {self.name!r} {self.kind.value} held by {held}{more}, {len(self.waiters)} waiting>"


@dataclass(frozen=True, slots=True)
class LinePage:
    """Page of a listing of lines. It may be empty and yet not be the last."""

    lines: tuple[LineInfo, ...]
    after: str | None
    """Where the next page begins, opaque; None: this is the last."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Record of a ticket that was forced out, written in the very transaction that did it."""

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
    """Record of a hold, written by its holder's client. Times in seconds."""

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
        """The explanation in sentences. Strangers' text may be in them."""
        name = repr(self.line.name)
        sentences = [f"{name} is held by {_ticket(t)}." for t in self.line.holders] or [f"Nobody holds {name}."]
        waiting = self.line.waiters
        if waiting:
            sentences.append(f"{len(waiting)} waiting, the next of them {_ticket(waiting[0])}.")
        if self.last is not None:
            sentences.append(_last(self.last))
        if self.forced is not None:
            by = f"by {self.forced.actor} at {_time(self.forced.at)}: {self.forced.reason}"
            sentences.append(f"{self.forced.holder or 'A stranger'} (token {self.forced.token}) was forced out {by}.")
        return tuple(sentences)

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
    """The number of tickets at the front of the line whose turn has come."""
    # One pass with the outcome of the recipes' rules, each of which sees the line from one ticket only.
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
    """Use of a line with these tickets; None where there are none."""
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


# How records are stored.

_VERSION: Final = 1
StoredKind = TypeVar("StoredKind", AuditRecord, JournalEntry)


def stored_audit(record: AuditRecord) -> StoredRecord:
    """The audit record as it is stored."""
    facts = dataclasses.asdict(record) | {"v": _VERSION, "token": str(record.token)}
    return StoredRecord(RecordKind.AUDIT, record.resource, record_name(record.token, record.ticket_id), _text(facts))


def read_audit(stored: StoredRecord) -> AuditRecord | None:
    """The audit record; None where a stranger wrote what is stored there."""
    return _read(AuditRecord, stored)


def stored_entry(entry: JournalEntry) -> StoredRecord:
    """The journal entry as it is stored."""
    facts = dataclasses.asdict(entry) | {"v": _VERSION, "token": str(entry.token), "kind": entry.kind.value}
    facts["ended"] = None if entry.ended is None else entry.ended.value
    return StoredRecord(RecordKind.JOURNAL, entry.resource, record_name(entry.token, entry.ticket_id), _text(facts))


def read_entry(stored: StoredRecord) -> JournalEntry | None:
    """The journal entry; None where a stranger wrote what is stored there."""
    return _read(JournalEntry, stored)


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


def _text(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))


def _read(kind: type[StoredKind], stored: StoredRecord) -> StoredKind | None:
    try:
        written = json.loads(stored.text)
        if written.pop("v") != _VERSION or written.get("resource") != stored.resource:
            return None
        facts = {f.name: _READERS.get(f.name, _sound(f.name))(written[f.name]) for f in dataclasses.fields(kind)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return kind(**facts)


def _sound(name: str) -> Any:
    def checked(value: Any) -> Any:
        if not isinstance(value, _TYPES.get(name, (bool,))):
            raise TypeError(f"{name} can't be {value!r}")
        return value

    return checked
