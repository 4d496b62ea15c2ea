"""Lines, tickets and records as JSON, between thin clients and the service that has the store; for both ends.

Tokens, versions and revisions are strings: they exceed a JSON number in most languages. A line goes by the name that
the receiver has for it; `renamed` changes the name that stands in a record's text, too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from tenure._admin.protocol import NamesPage, RecordKind, StoredRecord, TimeLeft
from tenure._core.lease import Committed, Compare, Delete, Entry, Fate, Line, Mode, Put, Reach, Record, Ticket

Json: TypeAlias = dict[str, Any]


# What is asked for.


def write_entry(entry: Entry) -> Json:
    """Write an entry: the request for a place in a line."""
    return {
        "resource": entry.resource,
        "ownerId": entry.owner,
        "mode": entry.mode.value,
        "weight": entry.weight,
        "slots": entry.limit,
        "value": entry.value,
        "reach": entry.reach.value,
        "ticketId": entry.id,
    }


def read_entry(body: Json) -> Entry:
    """Read an entry."""
    return Entry(
        resource=body["resource"],
        owner=body["ownerId"],
        mode=Mode(body["mode"]),
        weight=body["weight"],
        limit=body["slots"],
        value=body["value"],
        reach=Reach(body["reach"]),
        id=body["ticketId"],
    )


def write_compare(compare: Compare) -> Json:
    return {"key": compare.key, "version": str(compare.version)}


def write_change(change: Put | Delete) -> Json:
    """Write a part of a commit: `value` is null where the key is to go."""
    return {"key": change.key, "value": write_bytes(change.value) if isinstance(change, Put) else None}


def read_change(body: Json) -> Put | Delete:
    return Delete(body["key"]) if body["value"] is None else Put(body["key"], body["value"])


# What is answered.


def write_ticket(ticket: Ticket, key: str) -> Json:
    """Write a ticket. `key` stands for its key in the store."""
    return {
        "resource": ticket.resource,
        "ticketId": ticket.id,
        "key": key,
        "token": _text(ticket.token),
        "mode": ticket.mode.value,
        "weight": ticket.weight,
        "slots": ticket.limit,
        "ownerId": ticket.owner,
        "value": ticket.value,
        "storeLease": ticket.lease_id,
        "createdAt": ticket.created_at,
        "version": _text(ticket.version),
    }


def read_ticket(body: Json, resource: str) -> Ticket:
    """Read a ticket; `resource` is the reader's name for its line."""
    return Ticket(
        resource=resource,
        id=body["ticketId"],
        key=body["key"],
        token=_number(body["token"]),
        mode=Mode(body["mode"]),
        weight=body["weight"],
        limit=body["slots"],
        owner=body["ownerId"],
        value=body["value"],
        lease_id=body["storeLease"],
        created_at=body["createdAt"],
        version=_number(body["version"]),
    )


def write_line(line: Line, name: str, key: Callable[[Ticket], str]) -> Json:
    """Write a line, under the name that the reader has for it."""
    tickets = [write_ticket(ticket._replace(resource=name), key(ticket)) for ticket in line.tickets]
    return {"resource": name, "revision": str(line.revision), "tickets": tickets}


def read_line(body: Json, resource: str) -> Line:
    tickets = tuple(read_ticket(ticket, resource) for ticket in body["tickets"])
    return Line(resource, tickets, int(body["revision"]))


def write_record(record: Record | None, key: str) -> Json | None:
    if record is None:
        return None
    return {"key": key, "value": write_bytes(record.value), "version": str(record.version)}


def read_record(body: Json | None) -> Record | None:
    return None if body is None else Record(body["key"], read_bytes(body["value"]), int(body["version"]))


def read_committed(body: Json, resource: str) -> Committed:
    """Read the fate of a commit."""
    versions = {key: int(version) for key, version in body["versions"].items()}
    ticket = None if body["ticket"] is None else read_ticket(body["ticket"], resource)
    return Committed(Fate(body["fate"]), versions, ticket)


def write_page(page: NamesPage, outside: Callable[[str], str], key: Callable[[Ticket], str]) -> Json:
    return {"lines": [write_line(line, outside(line.resource), key) for line in page.lines], "after": page.after}


def read_page(body: Json, inside: Callable[[str], str]) -> NamesPage:
    return NamesPage(tuple(read_line(line, inside(line["resource"])) for line in body["lines"]), body["after"])


def write_times(times: Mapping[str, TimeLeft]) -> Json:
    return {lease: {"granted": time.granted, "left": time.left} for lease, time in times.items()}


def read_times(body: Json) -> dict[str, TimeLeft]:
    return {lease: TimeLeft(time["granted"], time["left"]) for lease, time in body.items()}


# Both ways.


def write_note(note: StoredRecord) -> Json:
    return {
        "shelf": note.kind.value,
        "resource": note.resource,
        "name": note.name,
        "text": note.text,
        "order": str(note.order),
    }


def read_note(body: Json) -> StoredRecord:
    return StoredRecord(RecordKind(body["shelf"]), body["resource"], body["name"], body["text"], int(body["order"]))


def renamed(note: StoredRecord, resource: str) -> StoredRecord:
    """Change the line's name in a record, and in its text where the text is one of ours."""
    try:
        body = json.loads(note.text)
        ours = isinstance(body, dict) and body.get("resource") == note.resource
    except (ValueError, RecursionError):
        ours = False
    if not ours:
        return replace(note, resource=resource)
    text = json.dumps(body | {"resource": resource}, ensure_ascii=False, separators=(",", ":"))
    return replace(note, resource=resource, text=text)


def write_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def read_bytes(text: str) -> bytes:
    """Decode base64. Raises ValueError."""
    return base64.b64decode(text, validate=True)


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
