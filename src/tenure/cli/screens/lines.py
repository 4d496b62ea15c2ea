"""Lines and their tickets, as tables for people, and as fields and JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.segment import Segment
from rich.style import Style

from tenure._admin.models import Kind, LineInfo, TicketInfo
from tenure._core.lease import Mode
from tenure.cli.screens import paper
from tenure.cli.screens.table import BAD, GOOD, QUIET, STRONG, Cell, Column, Row, table
from tenure.cli.screens.words import NOTHING, clock_time, count, iso, other_days, plain, seconds, span

STRANGER: Final = "a stranger"
LINES: Final = (
    Column("NAME", minimum=22),
    Column("KIND", drop=3),
    Column("HOLDER", minimum=14),
    Column("VALUE", minimum=14, drop=4),
    Column("TOKEN", right=True),
    Column("IN LINE", drop=2, right=True),
    Column("WAIT", drop=1, right=True),
)
_TICKETS: Final = (
    Column(""),
    Column("OWNER", minimum=20),
    Column("AS", drop=3),
    Column("VALUE", minimum=14, drop=4),
    Column("TOKEN", right=True),
    Column("SINCE", drop=6, right=True),
    Column("IN LINE", drop=1, right=True),
    Column("TTL", drop=5, right=True),
    Column("LEFT", drop=2, right=True),
)


def lines_table(lines: Sequence[LineInfo], width: int | None) -> list[Segment]:
    """The table of `ls`, one row a line."""
    return table(LINES, [line_row(line) for line in lines], width)


def line_row(line: LineInfo, style: Style = STRONG, older: float = 0.0) -> Row:
    """A line's first holder, and how many more there are. The line was looked at `older` seconds ago."""
    holders, waiting = line.holders, len(line.waiters)
    first = holders[0] if holders else None
    more = f" +{len(holders) - 1}" if len(holders) > 1 else ""
    return (
        Cell(line.name, style),
        Cell(kind(line), QUIET),
        _owner(first, more),
        Cell(first.value if first else ""),
        Cell(str(first.token) if first else NOTHING),
        Cell(NOTHING if first is None or first.age is None else span(first.age + older)),
        Cell(str(waiting) if waiting else NOTHING, None if waiting else QUIET),
    )


def tally(lines: Sequence[LineInfo]) -> str:
    """Count of the lines, and of those where somebody waits."""
    waiting = sum(1 for line in lines if line.waiters)
    in_use = f"{count(len(lines), 'line')} in use" if lines else "nothing in use"
    return in_use + (f", {waiting:,} with somebody waiting" if waiting else "")


def line_fields(line: LineInfo) -> tuple[object, ...]:
    """The fields of a line in `ls`, for a pipe."""
    holders = line.holders
    return (
        line.name,
        kind(line),
        ", ".join(owner(ticket) for ticket in holders),
        ", ".join(str(ticket.token) for ticket in holders),
        iso(holders[0].since) if holders else None,
        len(line.waiters),
        ", ".join(ticket.value for ticket in holders if ticket.value),
    )


def line_json(line: LineInfo) -> dict[str, object]:
    """A line with all its tickets, as JSON."""
    return {
        "name": line.name,
        "kind": line.kind.value if line.kind else None,
        "limit": line.limit,
        "holders": [ticket_json(ticket) for ticket in line.holders],
        "waiters": [ticket_json(ticket) for ticket in line.waiters],
    }


def ticket_json(ticket: TicketInfo) -> dict[str, object]:
    """A ticket, as JSON."""
    return {
        "token": str(ticket.token),
        "owner": ticket.owner,
        "holds": ticket.holds,
        "mode": ticket.mode.value,
        "weight": ticket.weight,
        "value": ticket.value,
        "since": iso(ticket.since),
        "age_seconds": seconds(ticket.age),
        "ttl_seconds": seconds(ticket.ttl),
        "left_seconds": seconds(ticket.left),
        "orphaned": ticket.orphaned,
        "id": ticket.id,
        "lease_id": ticket.lease_id,
    }


def show_line(line: LineInfo, *, waiters_max: int | None, wide: bool) -> None:
    """Show a line at the terminal: what it is, and its tickets in order."""
    waiting = line.waiters if waiters_max is None else line.waiters[:waiters_max]
    dated = other_days([ticket.since for ticket in line.tickets])
    rows = [_ticket_row("holds", ticket, line, dated=dated) for ticket in line.holders]
    rows += [_ticket_row(str(position), ticket, line, dated=dated) for position, ticket in enumerate(waiting, 1)]
    heading = [Segment(plain(line.name), STRONG), Segment(f"   {_summary(line)}", QUIET), Segment.line()]
    paper.show([*heading, Segment.line(), *table(_TICKETS, rows, paper.room(wide))])
    if len(waiting) < len(line.waiters):
        paper.say(f"… and {len(line.waiters) - len(waiting):,} more who wait: --all shows them", apart=True)


def ticket_fields(position: str, ticket: TicketInfo, line: LineInfo) -> tuple[object, ...]:
    """The fields of a ticket in `show`, for a pipe."""
    return (
        position,
        owner(ticket),
        _mode(ticket, line),
        ticket.token,
        iso(ticket.since),
        seconds(ticket.age),
        seconds(ticket.ttl),
        seconds(ticket.left),
        ticket.value,
    )


def owner(ticket: TicketInfo) -> str:
    """The owner, as far as that is known."""
    if ticket.orphaned:
        return f"orphaned: {ticket.owner}" if ticket.owner else "orphaned"
    return ticket.owner or STRANGER


def kind(line: LineInfo) -> str:
    """The use of a line; of a semaphore how many of its seats are taken."""
    if line.kind is None:
        return "free"
    if line.kind is not Kind.SEMAPHORE:
        return str(line.kind.value)
    return f"{line.kind.value} {sum(ticket.weight for ticket in line.holders)}/{line.limit}"


def _summary(line: LineInfo) -> str:
    waiting = count(len(line.waiters), "waits", "wait") if line.waiters else "nobody waits"
    if line.kind is Kind.SEMAPHORE:
        taken = sum(ticket.weight for ticket in line.holders)
        return f"semaphore, {taken:,} of {line.limit:,} seats taken, {waiting}"
    held = f", {count(len(line.holders), 'reader')}" if line.holders and line.holders[0].mode is Mode.READ else ""
    return f"{line.kind.value if line.kind else 'free'}{held}, {waiting}"


def _ticket_row(position: str, ticket: TicketInfo, line: LineInfo, *, dated: bool) -> Row:
    return (
        Cell(position, GOOD if ticket.holds else QUIET),
        _owner(ticket),
        Cell(_mode(ticket, line), QUIET),
        Cell(ticket.value),
        Cell(str(ticket.token), STRONG if ticket.holds else None),
        Cell(clock_time(ticket.since, dated=dated)),
        Cell(span(ticket.age)),
        Cell("" if ticket.ttl is None else span(ticket.ttl)),
        Cell("" if ticket.left is None else span(ticket.left)),
    )


def _mode(ticket: TicketInfo, line: LineInfo) -> str:
    """The mode of a ticket where tickets of its line differ: reads, writes, or a number of seats."""
    if ticket.mode is Mode.SEAT:
        return count(ticket.weight, "seat")
    if line.kind is not Kind.RWLOCK:
        return ""
    return "reads" if ticket.mode is Mode.READ else "writes"


def _owner(ticket: TicketInfo | None, more: str = "") -> Cell:
    if ticket is None:
        return Cell(NOTHING, QUIET)
    style = BAD if ticket.orphaned else QUIET if ticket.owner is None else None
    return Cell(owner(ticket) + more, style)
