"""Names and data: how a ticket is written in ZooKeeper.

A line is the node `/<namespace>/<name>`; a ticket is an ephemeral sequential node under it, named
`_c_<ticket id>[-<kind>]-lock-<sequence>`. What a rule needs stands in the name, so that listing the
children is enough; who and what for stands in the data. Curator's mutexes, and kazoo's `Lock` with
`extra_lock_patterns=["-lock-"]`, stand in the same line: exclusive tickets of an unknown owner.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from typing import Any, Final

from tenure._core.base.validation import encode
from tenure._core.lease import Entry, Mode, Ticket

_SEQUENCE: Final = r"(\d{10}|-\d{9,10})\Z"
"""Ten characters; the sign takes one where the number leaves one free."""
_OURS: Final = re.compile(r"_c_([0-9a-f]{20})(?:-(read)|-seat\.([1-9]\d{0,6})\.([1-9]\d{0,6}))?-lock-" + _SEQUENCE)
_ANYBODYS: Final = re.compile(r".*lock(?:-|__)" + _SEQUENCE, re.DOTALL)
_HALF: Final = 2**31


def line_path(namespace: str, resource: str) -> str:
    """Return the path of the node under which the tickets of `resource` stand."""
    return f"/{namespace}/{encode(resource)}"


def session_name(session_id: int) -> str:
    """Write a session's id as ZooKeeper's own tools show it; "" for none."""
    return f"{session_id & 2**64 - 1:x}" if session_id else ""


def node_prefix(entry: Entry) -> str:
    """Write the name of a ticket's node, before the store adds the sequence."""
    kind = ""
    if entry.mode is Mode.READ:
        kind = "-read"
    elif entry.mode is Mode.SEAT:
        kind = f"-seat.{entry.weight}.{entry.limit}"
    return f"_c_{entry.id}{kind}-lock-"


def write_data(owner: str, value: str, created_at: float | None = None) -> bytes:
    """Write a node's data: owner, time and value."""
    content: dict[str, Any] = {"owner": owner, "at": round(time.time() if created_at is None else created_at, 3)}
    if value:
        content["value"] = value
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def read_data(raw: bytes) -> tuple[str | None, str, float | None]:
    """Read owner, value and time; the raw text as value where somebody else wrote it."""
    text = raw.decode(errors="replace")
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        return None, text, None
    if not isinstance(content, dict) or not isinstance(content.get("owner"), str):
        return None, text, None
    value, at = content.get("value", ""), content.get("at")
    return content["owner"], value if isinstance(value, str) else text, at if isinstance(at, (int, float)) else None


def read_line(resource: str, path: str, children: Iterable[str]) -> tuple[Ticket, ...]:
    """Read the tickets among `children`, in the store's order; other nodes (nested lines) are no tickets."""
    found = [(int(match[1]), name) for name in children if (match := _ANYBODYS.match(name))]
    if any(sequence < -_HALF // 2 for sequence, _ in found):
        # The sequence is a signed 32-bit number and has wrapped: the negative ones are the younger.
        found = [(sequence + 2 * _HALF if sequence < 0 else sequence, name) for sequence, name in found]
    return tuple(_ticket(resource, path, name) for _, name in sorted(found))


def _ticket(resource: str, path: str, name: str) -> Ticket:
    match = _OURS.match(name)
    if match is None:
        return Ticket(resource, id=name, key=f"{path}/{name}", token=None)
    ticket_id, read, weight, limit, _ = match.groups()
    mode = Mode.READ if read else Mode.SEAT if weight else Mode.EXCLUSIVE
    return Ticket(
        resource, ticket_id, f"{path}/{name}", None, mode=mode, weight=int(weight or 1), limit=int(limit or 1)
    )


def is_out_of_order(ticket: Ticket) -> bool:
    """Tell whether the line's sequence has come to its end. ZooKeeper then gives the last number again and again, or
    negative ones, so that nobody can tell any more which ticket is the older."""
    match = _ANYBODYS.match(ticket.key)
    return match is not None and not 0 <= int(match[1]) < _HALF - 1


def mine(ticket: Ticket, entry: Entry, token: int, lease_id: str) -> Ticket:
    """Complete our own ticket, of which everything is known."""
    return ticket._replace(token=token, owner=entry.owner, value=entry.value, lease_id=lease_id, version=0)


def described(ticket: Ticket, data: bytes, stat: Any) -> Ticket:
    """Complete a ticket with its node's data. `stat` is kazoo's, which has no types."""
    owner, value, created_at = read_data(data)
    return ticket._replace(
        token=stat.czxid,
        owner=owner,
        value=value,
        created_at=created_at if created_at is not None else stat.ctime / 1000.0,
        lease_id=session_name(stat.ephemeralOwner),
        version=stat.version,
    )
