"""The user's own keys in etcd, read and written only while a ticket stands (its key, by its create revision).

A commit is tied to the ticket's mod revision as well: touching the ticket makes sure that a commit whose
answer was lost is not carried out later.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Sequence
from typing import Any

from holdfast.backends.etcd.codec import KeyValue, b64
from holdfast.backends.etcd.wire import Answer
from holdfast.lease import Committed, Compare, Delete, Fate, Put, Record, Ticket


def is_still(ticket: Ticket) -> dict[str, str]:
    """The condition that this very ticket stands."""
    return {"target": "CREATE", "result": "EQUAL", "key": ticket.key, "create_revision": str(ticket.token)}


def reading(ticket: Ticket, keys: Sequence[str]) -> dict[str, Any]:
    """The request to read `keys` while the ticket stands."""
    return {"compare": [is_still(ticket)], "success": [{"request_range": {"key": _written(key)}} for key in keys]}


def records(answer: Answer, keys: Sequence[str]) -> tuple[Record | None, ...]:
    """What was read. Not by place: an empty range is told as an empty answer, but a key is told with its value."""
    found = {kv["key"]: kv for kv in answer.key_values}
    return tuple(None if (kv := found.get(_written(key))) is None else _record(key, kv) for key in keys)


def committing(ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> dict[str, Any]:
    """The request to write all or nothing while the ticket stands, unamended."""
    return {
        "compare": [*_unamended(ticket), *map(_holds, compares)],
        "success": [_write(write) for write in writes],
        "failure": [{"request_range": {"key": ticket.key}}],
    }


def committed(answer: Answer, ticket: Ticket, writes: Sequence[Put | Delete]) -> Committed:
    """What became of it."""
    if answer.succeeded:
        return Committed(Fate.DONE, {w.key: answer.revision for w in writes if isinstance(w, Put)})
    standing = as_it_stands(answer, ticket)
    if standing is None:
        return Committed(Fate.GONE)
    if ticket.version not in (None, standing.version):
        return Committed(Fate.AMENDED, ticket=standing)
    return Committed(Fate.DIFFERS)


def amending(ticket: Ticket, text: str) -> dict[str, Any]:
    """The request to give the ticket another value. Tied to its version: a try that arrives late does nothing."""
    put = {"key": ticket.key, "value": text, "ignore_lease": True}
    return {
        "compare": _unamended(ticket),
        "success": [{"request_put": put}],
        "failure": [{"request_range": {"key": ticket.key}}],
    }


def stands_with(answer: Answer, ticket: Ticket, text: str) -> bool:
    """Does that very ticket stand, with this value?"""
    return any(kv.get("value") == text for kv in answer.key_values) and as_it_stands(answer, ticket) is not None


def touching(ticket: Ticket) -> dict[str, Any]:
    """The request to move the ticket on from its version."""
    put = {"key": ticket.key, "ignore_value": True, "ignore_lease": True}
    return {
        "compare": _unamended(ticket),
        "success": [{"request_put": put}],
        "failure": [{"request_range": {"key": ticket.key}}],
    }


def touched(answer: Answer, ticket: Ticket) -> Ticket | None:
    """The ticket as it stands after that."""
    return dataclasses.replace(ticket, version=answer.revision) if answer.succeeded else as_it_stands(answer, ticket)


def as_it_stands(answer: Answer, ticket: Ticket) -> Ticket | None:
    """The ticket with the version it has now; None where another one or none stands at its key."""
    for kv in answer.key_values:
        if kv["key"] == ticket.key and int(kv["create_revision"]) == ticket.token:
            return dataclasses.replace(ticket, version=int(kv["mod_revision"]))
    return None


def _unamended(ticket: Ticket) -> list[dict[str, str]]:
    if ticket.version is None:
        return [is_still(ticket)]
    return [is_still(ticket), _at(ticket.key, ticket.version)]


def _holds(compare: Compare) -> dict[str, str]:
    key = _written(compare.key)
    if compare.version == 0:
        return {"target": "CREATE", "result": "EQUAL", "key": key, "create_revision": "0"}
    return _at(key, compare.version)


def _at(key: str, mod_revision: int) -> dict[str, str]:
    return {"target": "MOD", "result": "EQUAL", "key": key, "mod_revision": str(mod_revision)}


def _write(write: Put | Delete) -> dict[str, Any]:
    if isinstance(write, Put):
        return {"request_put": {"key": _written(write.key), "value": b64(write.value)}}
    return {"request_delete_range": {"key": _written(write.key)}}


def _record(key: str, kv: KeyValue) -> Record:
    return Record(key, base64.b64decode(kv.get("value", "")), int(kv["mod_revision"]))


def _written(key: str) -> str:
    return b64(key.encode())
