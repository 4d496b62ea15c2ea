"""Keys and values: how a ticket is written in etcd.

A line is the prefix `<namespace>/<name>/`; a ticket is one key under it, `<lease id in hex>-<place>` (see places.py),
bound to the lease and ordered by create revision; the ticket's id stands in its value. That is the layout of
Go's `clientv3/concurrency`, so `etcdctl lock`, `etcdctl elect` and Go's Mutex and Election stand in the same
line. Their tickets, and any other key found there, are exclusive tickets of an unknown owner.
"""

from __future__ import annotations

import json
import time
from functools import lru_cache
from typing import Any, Final

from holdfast.backends.etcd.words import KeyValue
from holdfast.lease import Entry, Mode, Ticket
from holdfast.names import encode

_MARK: Final = "holdfast"
_text: Final = json.encoder.encode_basestring  # JSONEncoder's own for a str; all of it takes five times as long


@lru_cache(maxsize=4096)
def line_prefix(namespace: str, resource: str) -> bytes:
    """Where the tickets of `resource` stand."""
    return f"{namespace}/{encode(resource)}/".encode()


@lru_cache(maxsize=4096)
def line_range(namespace: str, resource: str) -> tuple[bytes, bytes]:
    """`key` and `range_end` of a line. `0` is the byte after the closing `/`."""
    prefix = line_prefix(namespace, resource)
    return prefix, prefix[:-1] + b"0"


def shown(key: bytes) -> str:
    """A key as a ticket carries it: text, whatever bytes a stranger wrote."""
    return key.decode(errors="surrogateescape")


def stored(key: str) -> bytes:
    """The key itself again."""
    return key.encode(errors="surrogateescape")


def ticket_key(namespace: str, resource: str, lease_id: int, round_: int, number: int) -> bytes:
    return line_prefix(namespace, resource) + b"%x-%d-%d" % (lease_id, round_, number)


def write_value(entry: Entry, at: float) -> bytes:
    """What stands at the key: enough for every rule and for people who look."""
    told = f'{{"{_MARK}":1,"id":{_text(entry.id)},"owner":{_text(entry.owner)},"at":{at!r}'
    if entry.mode is not Mode.EXCLUSIVE:
        told += f',"mode":"{entry.mode.value}"'
    if entry.mode is Mode.SEAT:
        told += f',"weight":{entry.weight},"limit":{entry.limit}'
    if entry.value:
        told += f',"value":{_text(entry.value)}'
    return f"{told}}}".encode()


def wall_time() -> float:
    """For people to read."""
    return time.time_ns() // 1_000_000 / 1000


def amended_value(ticket: Ticket, value: str) -> bytes:
    """The ticket's value with another text for others to read."""
    entry = Entry(ticket.resource, ticket.owner or "", ticket.mode, ticket.weight, ticket.limit, value, id=ticket.id)
    return write_value(entry, wall_time() if ticket.created_at is None else ticket.created_at)


def own_ticket(kv: KeyValue, entry: Entry, lease_id: str, at: float) -> Ticket:
    """The ticket that was put for `entry` just now. What its value says is known; reading it would take long."""
    seats = entry.mode is Mode.SEAT
    return Ticket(
        resource=entry.resource,
        id=entry.id,
        key=shown(kv.key),
        token=kv.create_revision,
        mode=entry.mode,
        weight=entry.weight if seats else 1,
        limit=entry.limit if seats else 1,
        owner=entry.owner,
        value=entry.value,
        lease_id=lease_id,
        created_at=at,
        version=kv.mod_revision,
    )


def read_ticket(kv: KeyValue, namespace: str, resource: str) -> Ticket | None:
    """The ticket at a key of the line; None for a key of a line nested below it, which is no ticket."""
    prefix = line_prefix(namespace, resource)
    place = kv.key[len(prefix) :]
    if b"/" in place:
        return None
    told, text = _read_value(kv.value)
    name = place.decode(errors="replace")
    return Ticket(
        resource=resource,
        id=told.get("id", name),
        key=shown(kv.key),
        token=kv.create_revision,
        mode=Mode(told.get("mode", Mode.EXCLUSIVE)),
        weight=told.get("weight", 1),
        limit=told.get("limit", 1),
        owner=told.get("owner"),
        value=text,
        lease_id=name.partition("-")[0],
        created_at=told.get("at"),
        version=kv.mod_revision,
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
    texts = (told.get("id", ""), told.get("owner", ""), told.get("value", ""))
    at = told.get("at", 0.0)
    return (
        all(type(c) is int and c > 0 for c in counts)
        and all(type(t) is str for t in texts)
        and (type(at) is float or type(at) is int)
    )
