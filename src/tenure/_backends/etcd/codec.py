"""Keys and values: how a ticket is written in etcd.

A line is the prefix `<namespace>/<name>/`; a ticket is one key under it, `<lease id in hex>-<round>-<number>` (see
ticket_keys.py), bound to the lease and ordered by create revision; the ticket's id stands in its value. That is the
layout of Go's `clientv3/concurrency`, so `etcdctl lock`, `etcdctl elect` and Go's Mutex and Election stand in the same
line. Their tickets, and any other key found there, are exclusive tickets of an unknown owner.
"""

from __future__ import annotations

import json
import time
from functools import lru_cache
from typing import Any, Final

from tenure._backends.etcd.requests import KeyValue
from tenure._core.base.validation import encode
from tenure._core.lease import Entry, Mode, Ticket

_MARK: Final = "tenure"
_text: Final = json.encoder.encode_basestring  # JSONEncoder's own for a str; all of it takes five times as long


@lru_cache(maxsize=4096)
def line_prefix(namespace: str, resource: str) -> bytes:
    """The prefix of the keys of the tickets of `resource`."""
    return f"{namespace}/{encode(resource)}/".encode()


@lru_cache(maxsize=4096)
def line_range(namespace: str, resource: str) -> tuple[bytes, bytes]:
    """`key` and `range_end` of a line. `0` is the byte after the closing `/`."""
    prefix = line_prefix(namespace, resource)
    return prefix, prefix[:-1] + b"0"


def shown(key: bytes) -> str:
    """Decode a key to the text that a ticket carries, whatever bytes a stranger wrote."""
    return key.decode(errors="surrogateescape")


def stored(key: str) -> bytes:
    """Encode a ticket's text to the key again."""
    return key.encode(errors="surrogateescape")


def ticket_key(namespace: str, resource: str, lease_id: int, round_: int, number: int) -> bytes:
    return line_prefix(namespace, resource) + b"%x-%d-%d" % (lease_id, round_, number)


def write_value(entry: Entry, at: float) -> bytes:
    """Write a ticket's value: enough for every rule, and readable for people."""
    content = f'{{"{_MARK}":1,"id":{_text(entry.id)},"owner":{_text(entry.owner)},"at":{at!r}'
    if entry.mode is not Mode.EXCLUSIVE:
        content += f',"mode":"{entry.mode.value}"'
    if entry.mode is Mode.SEAT:
        content += f',"weight":{entry.weight},"limit":{entry.limit}'
    if entry.value:
        content += f',"value":{_text(entry.value)}'
    return f"{content}}}".encode()


def wall_time() -> float:
    """The wall-clock time in seconds, to the millisecond; only people read it."""
    return time.time_ns() // 1_000_000 / 1000


def amended_value(ticket: Ticket, value: str) -> bytes:
    """Write the ticket's value anew, with another text for others to read."""
    entry = Entry(ticket.resource, ticket.owner or "", ticket.mode, ticket.weight, ticket.limit, value, id=ticket.id)
    return write_value(entry, wall_time() if ticket.created_at is None else ticket.created_at)


def own_ticket(kv: KeyValue, entry: Entry, lease_id: str, at: float) -> Ticket:
    """Make the ticket that was put for `entry` just now, without reading its value, which would take long."""
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
    """Read the ticket at a key of the line; None for a key of a line nested below it, which is no ticket."""
    prefix = line_prefix(namespace, resource)
    suffix = kv.key[len(prefix) :]
    if b"/" in suffix:
        return None
    content, text = _read_value(kv.value)
    name = suffix.decode(errors="replace")
    return Ticket(
        resource=resource,
        id=content.get("id", name),
        key=shown(kv.key),
        token=kv.create_revision,
        mode=Mode(content.get("mode", Mode.EXCLUSIVE)),
        weight=content.get("weight", 1),
        limit=content.get("limit", 1),
        owner=content.get("owner"),
        value=text,
        lease_id=name.partition("-")[0],
        created_at=content.get("at"),
        version=kv.mod_revision,
    )


def _read_value(raw: bytes) -> tuple[dict[str, Any], str]:
    """Read our facts and the text; no facts where somebody else wrote the value, or wrote nonsense in our name."""
    text = raw.decode(errors="replace")
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        return {}, text
    if not isinstance(content, dict) or content.get(_MARK) != 1 or not _is_sound(content):
        return {}, text
    return content, content.get("value", "")


def _is_sound(content: dict[str, Any]) -> bool:
    mode = content.get("mode", "exclusive")
    if not isinstance(mode, str) or mode not in {mode.value for mode in Mode}:
        return False
    counts = (content.get("weight", 1), content.get("limit", 1))
    texts = (content.get("id", ""), content.get("owner", ""), content.get("value", ""))
    at = content.get("at", 0.0)
    return (
        all(type(c) is int and c > 0 for c in counts)
        and all(type(t) is str for t in texts)
        and (type(at) is float or type(at) is int)
    )
