"""Lines, tickets and notes as JSON: what is said between a client over HTTP and the service that has the store.

Both ends read and write it here. Tokens, versions and revisions are strings: they exceed what a JSON number holds in
most languages. Names are those of whoever is spoken to; `renamed` changes the one that stands in a note's text, too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from holdfast.lease import Committed, Compare, Delete, Entry, Fate, Line, Mode, Put, Reach, Record, Ticket
from holdfast.operating import Note, Page, Shelf, TimeLeft

Json: TypeAlias = dict[str, Any]


# What is asked for.


def write_entry(entry: Entry) -> Json:
    """A wish for a place in a line."""
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


def read_entry(told: Json) -> Entry:
    """The same, read back."""
    return Entry(
        resource=told["resource"],
        owner=told["ownerId"],
        mode=Mode(told["mode"]),
        weight=told["weight"],
        limit=told["slots"],
        value=told["value"],
        reach=Reach(told["reach"]),
        id=told["ticketId"],
    )


def write_compare(compare: Compare) -> Json:
    return {"key": compare.key, "version": str(compare.version)}


def write_change(change: Put | Delete) -> Json:
    """A part of a commit: `value` is null where the key is to go."""
    return {"key": change.key, "value": write_bytes(change.value) if isinstance(change, Put) else None}


def read_change(told: Json) -> Put | Delete:
    return Delete(told["key"]) if told["value"] is None else Put(told["key"], told["value"])


# What is answered.


def write_ticket(ticket: Ticket, key: str) -> Json:
    """A ticket. `key` is what stands for the place where the store keeps it."""
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


def read_ticket(told: Json, resource: str) -> Ticket:
    """The same, under the name that the reader has for its line."""
    return Ticket(
        resource=resource,
        id=told["ticketId"],
        key=told["key"],
        token=_number(told["token"]),
        mode=Mode(told["mode"]),
        weight=told["weight"],
        limit=told["slots"],
        owner=told["ownerId"],
        value=told["value"],
        lease_id=told["storeLease"],
        created_at=told["createdAt"],
        version=_number(told["version"]),
    )


def write_line(line: Line, name: str, key: Callable[[Ticket], str]) -> Json:
    """A line, under the name that the reader has for it."""
    tickets = [write_ticket(ticket._replace(resource=name), key(ticket)) for ticket in line.tickets]
    return {"resource": name, "revision": str(line.revision), "tickets": tickets}


def read_line(told: Json, resource: str) -> Line:
    tickets = tuple(read_ticket(ticket, resource) for ticket in told["tickets"])
    return Line(resource, tickets, int(told["revision"]))


def write_record(record: Record | None, key: str) -> Json | None:
    if record is None:
        return None
    return {"key": key, "value": write_bytes(record.value), "version": str(record.version)}


def read_record(told: Json | None) -> Record | None:
    return None if told is None else Record(told["key"], read_bytes(told["value"]), int(told["version"]))


def read_committed(told: Json, resource: str) -> Committed:
    """What became of a commit."""
    versions = {key: int(version) for key, version in told["versions"].items()}
    ticket = None if told["ticket"] is None else read_ticket(told["ticket"], resource)
    return Committed(Fate(told["fate"]), versions, ticket)


def write_page(page: Page, outside: Callable[[str], str], key: Callable[[Ticket], str]) -> Json:
    return {"lines": [write_line(line, outside(line.resource), key) for line in page.lines], "after": page.after}


def read_page(told: Json, inside: Callable[[str], str]) -> Page:
    return Page(tuple(read_line(line, inside(line["resource"])) for line in told["lines"]), told["after"])


def write_times(times: Mapping[str, TimeLeft]) -> Json:
    return {lease: {"granted": time.granted, "left": time.left} for lease, time in times.items()}


def read_times(told: Json) -> dict[str, TimeLeft]:
    return {lease: TimeLeft(time["granted"], time["left"]) for lease, time in told.items()}


# Both ways.


def write_note(note: Note) -> Json:
    return {
        "shelf": note.shelf.value,
        "resource": note.resource,
        "name": note.name,
        "text": note.text,
        "order": str(note.order),
    }


def read_note(told: Json) -> Note:
    return Note(Shelf(told["shelf"]), told["resource"], told["name"], told["text"], int(told["order"]))


def renamed(note: Note, resource: str, **facts: str) -> Note:
    """The same note about a line that is called so: the name stands in its text, too, where that is one of ours.

    `facts` take the place of those in the text.
    """
    try:
        told = json.loads(note.text)
        ours = isinstance(told, dict) and told.get("resource") == note.resource
    except (ValueError, RecursionError):
        ours = False
    if not ours:
        return replace(note, resource=resource)
    text = json.dumps(told | {"resource": resource} | facts, ensure_ascii=False, separators=(",", ":"))
    return replace(note, resource=resource, text=text)


def write_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def read_bytes(text: str) -> bytes:
    """Raises ValueError."""
    return base64.b64decode(text, validate=True)


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
