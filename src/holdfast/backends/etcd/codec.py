"""Keys and values: how a ticket is written in etcd.

A line is the prefix `<namespace>/<name>/`; a ticket is one key under it, `<lease id in hex>-<ticket id>`,
bound to the lease and ordered by create revision. That is the layout of Go's `clientv3/concurrency`,
so `etcdctl lock`, `etcdctl elect` and Go's Mutex and Election stand in the same line. Their tickets,
and any other key found there, are exclusive tickets of an unknown owner.
"""

from __future__ import annotations

import base64
import json
import time
from functools import lru_cache
from typing import Any, Final, TypedDict

from holdfast.lease import Entry, Mode, Ticket
from holdfast.names import encode

_MARK: Final = "holdfast"


class KeyValue(TypedDict, total=False):
    """One key of a range answer. Numbers are strings on the gateway, and zero is left out."""

    key: str
    value: str
    create_revision: str
    mod_revision: str
    lease: str


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


@lru_cache(maxsize=4096)
def line_prefix(namespace: str, resource: str) -> bytes:
    """Where the tickets of `resource` stand."""
    return f"{namespace}/{encode(resource)}/".encode()


@lru_cache(maxsize=4096)
def line_range(namespace: str, resource: str) -> tuple[str, str]:
    """`key` and `range_end` of a line, ready for a request. `0` is the byte after the closing `/`."""
    prefix = line_prefix(namespace, resource)
    return b64(prefix), b64(prefix[:-1] + b"0")


def ticket_key(namespace: str, resource: str, lease_id: int, ticket_id: str) -> bytes:
    return line_prefix(namespace, resource) + f"{lease_id:x}-{ticket_id}".encode()


def write_value(entry: Entry) -> bytes:
    """What stands at the key: enough for every rule and for people who look."""
    told: dict[str, Any] = {_MARK: 1, "owner": entry.owner, "at": round(time.time(), 3)}
    if entry.mode is not Mode.EXCLUSIVE:
        told["mode"] = entry.mode.value
    if entry.mode is Mode.SEAT:
        told |= {"weight": entry.weight, "limit": entry.limit}
    if entry.value:
        told["value"] = entry.value
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def amended_value(ticket: Ticket, value: str) -> bytes:
    """The ticket's value with another text for others to read."""
    entry = Entry(ticket.resource, ticket.owner or "", ticket.mode, ticket.weight, ticket.limit, value)
    told = json.loads(write_value(entry))
    if ticket.created_at is not None:
        told["at"] = ticket.created_at
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def read_ticket(kv: KeyValue, namespace: str, resource: str) -> Ticket | None:
    """The ticket at a key of the line; None for a key of a line nested below it, which is no ticket."""
    prefix = line_prefix(namespace, resource)
    key = base64.b64decode(kv["key"])
    place = key[len(prefix) :]
    if b"/" in place:
        return None
    told, text = _read_value(base64.b64decode(kv.get("value", "")))
    name = place.decode(errors="replace")
    lease_id, _, ticket_id = name.partition("-")
    return Ticket(
        resource=resource,
        id=ticket_id if told else name,
        key=kv["key"],
        token=int(kv["create_revision"]),
        mode=Mode(told.get("mode", Mode.EXCLUSIVE)),
        weight=told.get("weight", 1),
        limit=told.get("limit", 1),
        owner=told.get("owner"),
        value=text,
        lease_id=lease_id,
        created_at=told.get("at"),
        version=int(kv["mod_revision"]),
    )


def _read_value(raw: bytes) -> tuple[dict[str, Any], str]:
    """Our facts and the text; no facts where somebody else wrote it, or wrote nonsense in our name."""
    text = raw.decode(errors="replace")
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError):
        return {}, text
    if not isinstance(told, dict) or told.get(_MARK) != 1 or not _is_sound(told):
        return {}, text
    return told, told.get("value", "")


def _is_sound(told: dict[str, Any]) -> bool:
    mode = told.get("mode", "exclusive")
    if not isinstance(mode, str) or mode not in {mode.value for mode in Mode}:
        return False
    counts = (told.get("weight", 1), told.get("limit", 1))
    texts = (told.get("owner", ""), told.get("value", ""))
    at = told.get("at", 0.0)
    return (
        all(type(c) is int and c > 0 for c in counts)
        and all(type(t) is str for t in texts)
        and (type(at) is float or type(at) is int)
    )
