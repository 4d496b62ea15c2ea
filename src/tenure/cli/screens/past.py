"""Audit records and journal entries, as tables for people, and as fields and JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.segment import Segment

from tenure._admin.models import AuditRecord, Ending, Explanation, JournalEntry
from tenure.cli.screens.lines import STRANGER, line_json
from tenure.cli.screens.table import BAD, GOOD, QUIET, STRONG, Cell, Column, Row, table
from tenure.cli.screens.words import clock_time, iso, other_days, seconds, span

_AUDIT: Final = (
    Column("WHEN"),
    Column("NAME", minimum=14),
    Column("TOKEN", drop=2, right=True),
    Column("FORCED OUT", minimum=10, drop=1),
    Column("WHILE", drop=3),
    Column("BY", minimum=10),
)
_HISTORY: Final = (
    Column("ACQUIRED"),
    Column("OWNER", minimum=12),
    Column("VALUE", minimum=12, drop=4),
    Column("TOKEN", drop=2, right=True),
    Column("WAITED", drop=1, right=True),
    Column("HELD", right=True),
    Column("ENDED"),
)
_STYLES: Final = {Ending.RELEASED: GOOD, Ending.CLOSED: GOOD, None: STRONG}


def audit_table(records: Sequence[AuditRecord], width: int | None) -> list[Segment]:
    """The table of `audit`: one row a record, its reason below."""
    dated = other_days([record.at for record in records])
    details = [record.reason for record in records]
    return table(_AUDIT, [_audit_row(record, dated=dated) for record in records], width, details)


def audit_fields(record: AuditRecord) -> tuple[object, ...]:
    """A record for a pipe."""
    was = "holding" if record.was_holding else "waiting"
    return iso(record.at), record.resource, record.token, record.holder, was, record.actor, record.reason


def audit_json(record: AuditRecord) -> dict[str, object]:
    """A record, as JSON."""
    return {
        "at": iso(record.at),
        "name": record.resource,
        "token": str(record.token),
        "holder": record.holder,
        "was_holding": record.was_holding,
        "actor": record.actor,
        "reason": record.reason,
        "ticket_id": record.ticket_id,
    }


def history_table(entries: Sequence[JournalEntry], width: int | None) -> list[Segment]:
    """The table of `history`: one row a hold, below it why it ended, where that is known."""
    dated = other_days([entry.acquired_at for entry in entries])
    details = [entry.reason.removeprefix("forced: ") for entry in entries]
    return table(_HISTORY, [_history_row(entry, dated=dated) for entry in entries], width, details)


def history_fields(entry: JournalEntry) -> tuple[object, ...]:
    """A hold for a pipe."""
    waited, held = seconds(entry.waited), seconds(entry.held)
    return iso(entry.acquired_at), entry.owner, entry.token, waited, held, _ended(entry), entry.reason, entry.value


def history_json(entry: JournalEntry) -> dict[str, object]:
    """A hold, as JSON."""
    return {
        "name": entry.resource,
        "kind": entry.kind.value,
        "owner": entry.owner,
        "token": str(entry.token),
        "value": entry.value,
        "acquired_at": iso(entry.acquired_at),
        "waited_seconds": seconds(entry.waited),
        "held_seconds": seconds(entry.held),
        "ended": entry.ended.value if entry.ended else None,
        "reason": entry.reason,
        "derived": entry.derived,
    }


def why_json(explanation: Explanation) -> dict[str, object]:
    """The line, its last hold, and the last time somebody was forced out, as JSON."""
    return {
        "line": line_json(explanation.line),
        "last": None if explanation.last is None else history_json(explanation.last),
        "forced": None if explanation.forced is None else audit_json(explanation.forced),
        "told": str(explanation),
    }


def _audit_row(record: AuditRecord, *, dated: bool) -> Row:
    return (
        Cell(clock_time(record.at, dated=dated), QUIET),
        Cell(record.resource, STRONG),
        Cell(str(record.token)),
        Cell(record.holder or STRANGER),
        Cell("holding" if record.was_holding else "waiting", QUIET),
        Cell(record.actor),
    )


def _history_row(entry: JournalEntry, *, dated: bool) -> Row:
    return (
        Cell(clock_time(entry.acquired_at, dated=dated), QUIET),
        Cell(entry.owner),
        Cell(entry.value),
        Cell(str(entry.token)),
        Cell(span(entry.waited)),
        Cell(span(entry.held)),
        Cell(_ended(entry), _STYLES.get(entry.ended, BAD)),
    )


def _ended(entry: JournalEntry) -> str:
    """The end of a hold; "?" behind what only follows from what is there."""
    if entry.ended is None:
        return "holds"
    return entry.ended.value + ("?" if entry.derived and entry.ended is Ending.EXPIRED else "")
