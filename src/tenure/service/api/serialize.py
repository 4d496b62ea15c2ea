"""Lines, tickets and records as JSON. Names are the tenant's, tokens are strings, times are RFC 3339.

Ids of tickets and leases stay inside: an id is what releases a hold, and looking must not give it away.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tenure._admin.models import AuditRecord, Explanation, JournalEntry, LineInfo, TicketInfo
from tenure.service.auth.tokens import Tenant
from tenure.service.limits import HOLDERS_LISTED_MAX, SHOWN_MAX


def time_of_day(at: float | None) -> str | None:
    """Format a wall clock's reading; None where there is none, or none that a calendar has."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None  # a ticket's time is whatever its owner wrote down


def ticket(info: TicketInfo) -> dict[str, Any]:
    """Serialize one ticket of a line."""
    return {
        "token": str(info.token),
        "ownerId": info.owner,
        "holds": info.holds,
        "mode": info.mode.value,
        "weight": info.weight,
        "value": info.value,
        "since": time_of_day(info.since),
        "ageSeconds": None if info.age is None else round(info.age, 3),
        "ttlSeconds": info.ttl,
        "leftSeconds": info.left,
        "orphaned": info.orphaned,
    }


def line(tenant: Tenant, info: LineInfo) -> dict[str, Any]:
    """Serialize a line with its waiters, up to `SHOWN_MAX` of them."""
    return _line(tenant, info, SHOWN_MAX) | {"waiters": [ticket(t) for t in info.waiters[:SHOWN_MAX]]}


def listed(tenant: Tenant, info: LineInfo) -> dict[str, Any]:
    """Serialize a line for a list: without its waiters, but with the longest wait."""
    waits = [waiter.age for waiter in info.waiters if waiter.age is not None]
    return _line(tenant, info, HOLDERS_LISTED_MAX) | {"longestWaitSeconds": max(waits, default=None)}


def _line(tenant: Tenant, info: LineInfo, maximum: int) -> dict[str, Any]:
    holders = info.holders
    return {
        "name": tenant.outside(info.name),
        "kind": None if info.kind is None else info.kind.value,
        "slots": info.limit,
        "holders": [ticket(t) for t in holders[:maximum]],
        "holderCount": len(holders),
        "waiterCount": len(info.tickets) - len(holders),
    }


def record(tenant: Tenant, info: AuditRecord) -> dict[str, Any]:
    """Serialize the audit record of a force release."""
    return {
        "name": tenant.outside(info.resource),
        "token": str(info.token),
        "ownerId": info.holder,
        "reason": info.reason,
        "actor": info.actor,
        "at": time_of_day(info.at),
        "wasHolding": info.was_holding,
    }


def entry(tenant: Tenant, info: JournalEntry) -> dict[str, Any]:
    """Serialize one hold of the journal, ended or not."""
    return {
        "name": tenant.outside(info.resource),
        "kind": info.kind.value,
        "ownerId": info.owner,
        "token": str(info.token),
        "value": info.value,
        "acquiredAt": time_of_day(info.acquired_at),
        "waitedSeconds": info.waited,
        "heldSeconds": info.held,
        "ended": None if info.ended is None else info.ended.value,
        "reason": info.reason,
        "derived": info.derived,
    }


def explanation(tenant: Tenant, info: Explanation) -> dict[str, Any]:
    """Serialize the reasons why a line is as it is."""
    return {
        "name": tenant.outside(info.line.name),
        "sentences": list(info.sentences),
        "line": line(tenant, info.line),
        "last": None if info.last is None else entry(tenant, info.last),
        "forced": None if info.forced is None else record(tenant, info.forced),
    }
