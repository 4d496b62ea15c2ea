"""Operator's actions: what `Operator` of the two faces does, as steps for their drivers.

Everything is looked up in the store at the time of asking. Only `force_release` writes, and only by `remove`, which
writes the audit record in the transaction that removes the ticket: there is no removal without a record, and no record
without a removal, wherever anybody is killed.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import unicodedata
from collections.abc import Callable, Sequence

from tenure._admin.models import (
    AuditRecord,
    Ending,
    Explanation,
    JournalEntry,
    LineInfo,
    LinePage,
    TicketInfo,
    line_info,
    read_audit,
    read_entry,
    stored_audit,
)
from tenure._admin.protocol import (
    NamesPage,
    RecordKind,
    StoreAdmin,
    StoredRecord,
    record_name,
    segment_prefix,
    wall_time,
)
from tenure._core.base import validation
from tenure._core.base.clock import Clock
from tenure._core.base.limits import (
    AUDIT_MAX,
    AUDIT_PER_LINE_MAX,
    OWNER_BYTES_MAX,
    REASON_BYTES_MAX,
    RETRY_PAUSE_MAX,
    SNAPSHOT_PAUSE,
    TIMES_LEFT_MAX,
    TOKEN_MAX,
)
from tenure._core.base.retry import jittered
from tenure._core.base.signals import Signal
from tenure._core.base.validation import encode
from tenure._core.lease import Line
from tenure._core.turn import Await, Operate, Steps
from tenure.errors import InvalidOption, LeaseLost, NoSuchTicket, StoreError, StoreUnavailable

_log = logging.getLogger("tenure")


class OperatorSteps:
    """Steps of one client's operator. `admin` is asked at every action for the verbs: the lease behind them may end."""

    def __init__(self, admin: Callable[[], StoreAdmin], clock: Clock, request_seconds: float, owner: str) -> None:
        self._admin = admin
        self._clock = clock
        self._request_seconds = request_seconds
        self._owner = owner

    # Looking.

    def page(self, prefix: str, after: str) -> Steps[LinePage]:
        """A page of the lines below `prefix`."""
        segment_prefix(prefix)
        verbs = self._admin()
        page: NamesPage = yield Operate(lambda until: verbs.lines(prefix, after, until), self._until())
        now = wall_time()
        return LinePage(tuple(line_info(line, now) for line in page.lines), page.after)

    def snapshot(self, prefix: str) -> Steps[tuple[LineInfo, ...]]:
        """Lines below `prefix`, all of them."""
        found: list[LineInfo] = []
        after: str | None = ""
        while after is not None:  # ends: each page begins behind the one before
            page = yield from self.page(prefix, after)
            found += page.lines
            after = page.after
        return tuple(found)

    def line(self, name: str) -> Steps[LineInfo]:
        """The line `name`, with the time that its leases have left."""
        encode(name)
        verbs, until = self._admin(), self._until()
        line: Line = yield Operate(lambda until: verbs.line(name, until), until)
        leases = list(dict.fromkeys(ticket.lease_id for ticket in line.tickets if ticket.lease_id))[:TIMES_LEFT_MAX]
        times = yield Operate(lambda until: verbs.time_left(leases, until), until)
        return line_info(line, wall_time(), times)

    # Forcing out.

    def force_release(
        self,
        name: str,
        token: int,
        reason: str,
        actor: str | None,
        *,
        ticket_id: str = "",
        nonce: str = "",
        kept: tuple[str, int] = ("", AUDIT_MAX),
    ) -> Steps[AuditRecord]:
        """Remove the ticket of this token, and record by whom. Raises NoSuchTicket, UsageError, StoreError.

        A service does so for its clients: with the ticket's id, the nonce of the client's call, and the prefix of the
        records of which only so many are kept.
        """
        encode(name)
        validation.count(token, "token", maximum=TOKEN_MAX)
        reason = _sentence(reason, "reason", REASON_BYTES_MAX)
        actor = self._owner if actor is None else _sentence(actor, "actor", OWNER_BYTES_MAX)
        verbs, until = self._admin(), self._until()
        line: Line = yield Operate(lambda until: verbs.line(name, until), until)
        ticket = next((t for t in line.tickets if t.token == token and ticket_id in ("", t.id)), None)
        if ticket is None:
            return (yield from self._done_before(line, token, reason, actor, until))
        holding = any(t.token == token and t.holds for t in line_info(line, 0.0).tickets)
        record = AuditRecord(
            resource=name,
            token=token,
            holder=ticket.owner,
            reason=reason,
            actor=actor,
            at=round(wall_time(), 3),
            was_holding=holding,
            ticket_id=ticket.id,
            nonce=nonce or secrets.token_hex(10),
        )
        removed: bool = yield Operate(lambda until: verbs.remove(ticket, stored_audit(record), until), until)
        if not removed:  # it went by itself meanwhile, or another operator was faster
            line = yield Operate(lambda until: verbs.line(name, until), until)
            return (yield from self._done_before(line, token, reason, actor, until))
        return (yield from self._written(verbs, record, kept, until))

    def _done_before(self, line: Line, token: int, reason: str, actor: str, until: float) -> Steps[AuditRecord]:
        """The record of the same call made before, whose answer was lost perhaps. Raises NoSuchTicket."""
        verbs = self._admin()
        stored: Sequence[StoredRecord] = yield Operate(
            lambda until: verbs.read(RecordKind.AUDIT, line.resource, until), until
        )
        known = [record for record in _records(stored) if record.token == token]
        for record in known:
            if (record.reason, record.actor) == (reason, actor):
                return record
        raise NoSuchTicket(_nobody_there(line_info(line, wall_time()), token, known))

    def _written(
        self, verbs: StoreAdmin, record: AuditRecord, kept: tuple[str, int], until: float
    ) -> Steps[AuditRecord]:
        """Return the record as it stands in the store, where a service has put its own; and remove the oldest ones."""
        name, stored, (prefix, keep) = record.resource, stored_audit(record), kept
        try:
            stands = yield Operate(lambda until: verbs.record(stored.kind, name, stored.name, until), until)
            record = (stands and read_audit(stands)) or record
            yield Operate(lambda until: verbs.trim(RecordKind.AUDIT, name, AUDIT_PER_LINE_MAX, until), until)
            yield Operate(lambda until: verbs.trim_all(RecordKind.AUDIT, prefix, keep, until), until)
        except (StoreError, LeaseLost) as error:  # what was asked for is done, and the next one trims as well
            _log.debug("the audit of %r could not be trimmed: %s", name, error)
        return record

    # Looking back.

    def audit(self, prefix: str) -> Steps[tuple[AuditRecord, ...]]:
        """Records of who was forced out of the lines below `prefix`, the oldest first."""
        segment_prefix(prefix)
        verbs = self._admin()
        stored: Sequence[StoredRecord] = yield Operate(
            lambda until: verbs.browse(RecordKind.AUDIT, prefix, until), self._until()
        )
        return _records(stored)

    def history(self, name: str) -> Steps[tuple[JournalEntry, ...]]:
        """The holds of a line that were written down, the oldest first, with their ends as far as they are known."""
        _, entries, _ = yield from self._looked_back(name)
        return entries

    def why(self, name: str) -> Steps[Explanation]:
        """Explain who holds it now, and how the last hold ended."""
        line, entries, records = yield from self._looked_back(name)
        ended = [entry for entry in entries if entry.ended is not None]
        return Explanation(line, ended[-1] if ended else None, records[-1] if records else None)

    def _looked_back(self, name: str) -> Steps[tuple[LineInfo, tuple[JournalEntry, ...], tuple[AuditRecord, ...]]]:
        encode(name)
        verbs, until = self._admin(), self._until()
        # In this order: what the line does not show any more was written down before, or never will be.
        stored: Sequence[StoredRecord] = yield Operate(lambda until: verbs.read(RecordKind.JOURNAL, name, until), until)
        line = yield from self.line(name)
        forced: Sequence[StoredRecord] = yield Operate(lambda until: verbs.read(RecordKind.AUDIT, name, until), until)
        records = _records(forced)
        entries = [entry for one in stored if (entry := read_entry(one)) is not None]
        return line, tuple(_ended(entry, line, records) for entry in entries), records

    def _until(self) -> float:
        return self._clock.now() + self._request_seconds


class LinesWatch:
    """View of the lines below a prefix, for one operator. `next_snapshot` is a generator of steps, one per snapshot.

    Changes that come close together make one snapshot. It goes on through reconnects.
    """

    def __init__(self, operator: OperatorSteps, prefix: str) -> None:
        segment_prefix(prefix)
        self._operator = operator
        self._prefix = prefix
        self._last: tuple[LineInfo, ...] | None = None
        self._signal: Signal | None = None
        self._pause_until = 0.0

    def next_snapshot(self) -> Steps[tuple[LineInfo, ...]]:
        """The lines as they are: at first now, later once they differ from the last snapshot."""
        while True:
            try:
                lines = yield from self._look()
            except (StoreUnavailable, LeaseLost):
                if self._last is None:
                    raise
                self.close()
                # a store on its way back: go on asking
                yield Await(Signal(), self._operator._clock.now() + jittered(RETRY_PAUSE_MAX))
                continue
            if self._last is None or _lasting(lines) != _lasting(self._last):
                self._last = lines
                return lines

    def close(self) -> None:
        """End the watch."""
        signal, self._signal = self._signal, None
        if signal is not None:
            signal.close()

    def _look(self) -> Steps[tuple[LineInfo, ...]]:
        operator = self._operator
        if self._signal is not None:
            yield Await(self._signal, None)  # no end: it lasts until whoever watches, or the client, is through
            self.close()
            yield Await(Signal(), self._pause_until)
        verbs = operator._admin()
        self._signal = yield Operate(lambda until: verbs.watch(self._prefix, until), operator._until())
        self._pause_until = operator._clock.now() + SNAPSHOT_PAUSE
        return (yield from operator.snapshot(self._prefix))


def forced_out(admin: StoreAdmin, resource: str, token: int, ticket_id: str, until: float) -> str:
    """The reason of an operator who removed this ticket; "" where there is no record. Raises StoreError."""
    stored = admin.record(RecordKind.AUDIT, resource, record_name(token, ticket_id), until)
    record = None if stored is None else read_audit(stored)
    return "" if record is None else f"forced: {record.reason} by {record.actor}"


def _records(stored: Sequence[StoredRecord]) -> tuple[AuditRecord, ...]:
    return tuple(record for one in stored if (record := read_audit(one)) is not None)


def _ended(entry: JournalEntry, line: LineInfo, records: Sequence[AuditRecord]) -> JournalEntry:
    """The entry with its end, where that is known from elsewhere."""
    for record in records:
        if (record.token, record.ticket_id) == (entry.token, entry.ticket_id):  # whatever its holder knew of it
            reason = f"forced: {record.reason} by {record.actor}"
            return dataclasses.replace(entry, ended=Ending.FORCED, reason=reason, derived=entry.ended is None)
    if entry.ended is not None or any(t.token == entry.token for t in line.tickets):
        return entry
    return dataclasses.replace(entry, ended=Ending.EXPIRED, derived=True, reason="its holder wrote down no end")


def _lasting(lines: tuple[LineInfo, ...]) -> tuple[LineInfo, ...]:
    """Lines without their ages, which change by themselves."""
    still = (tuple(dataclasses.replace(ticket, age=None) for ticket in line.tickets) for line in lines)
    return tuple(dataclasses.replace(line, tickets=tickets) for line, tickets in zip(lines, still, strict=True))


def _sentence(text: object, what: str, bytes_max: int) -> str:
    checked = validation.text(text).strip()
    if not checked:
        raise InvalidOption(f"a force release needs {what}s that people can read later: the {what} can't be empty")
    if any(unicodedata.category(character) == "Cc" for character in checked):
        raise InvalidOption(f"{what} {checked!r} has a control character in it; leave it out, and keep it on one line")
    if len(checked.encode()) > bytes_max:
        raise InvalidOption(f"the {what} has more than {bytes_max} bytes; say it shorter, and refer to the rest")
    return checked


def _nobody_there(line: LineInfo, token: int, known: Sequence[AuditRecord]) -> str:
    message = f"no ticket with token {token} stands in the line of {line.name!r}, so nobody was forced out"
    if known:
        message += f"; it was forced out before, by {known[-1].actor}: {known[-1].reason}"
    if not line.tickets:
        return f"{message}. The line is empty"
    holders = ", ".join(map(_shown, line.holders[:3]))
    return f"{message}. Held now by {holders}; look at the line, and give the token of the ticket that is meant"


def _shown(ticket: TicketInfo) -> str:
    return f"{ticket.owner or 'a stranger'} (token {ticket.token})"
