"""The user's own keys in etcd, read and written only while a ticket stands (its key, by its create revision).

A commit is tied to the ticket's mod revision as well: touching the ticket makes sure that a commit whose
answer was lost is not carried out later.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure._backends.etcd.codec import stored
from tenure._backends.etcd.requests import (
    Condition,
    CreatedAt,
    DeleteKey,
    KeyValue,
    ModifiedAt,
    Operation,
    PutKey,
    Range,
    Txn,
    TxnResult,
)
from tenure._core.lease import Committed, Compare, Delete, Fate, Put, Record, Ticket


def is_still(ticket: Ticket) -> CreatedAt:
    """Make the condition that this very ticket stands."""
    return CreatedAt(stored(ticket.key), -1 if ticket.token is None else ticket.token)  # -1 holds of no key


def records(key_values: Sequence[KeyValue], keys: Sequence[str]) -> tuple[Record | None, ...]:
    """Pair the keys with what was read, by key and not by position: an empty range leaves no trace in the answer."""
    found = {kv.key: kv for kv in key_values}
    return tuple(
        None if (kv := found.get(key.encode())) is None else Record(key, kv.value, kv.mod_revision) for key in keys
    )


def committing(ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> Txn:
    """Make the request to write all or nothing while the ticket stands, unamended."""
    return Txn((*_unamended(ticket), *map(_holds, compares)), tuple(map(_write, writes)), (Range(stored(ticket.key)),))


def committed(answer: TxnResult, ticket: Ticket, writes: Sequence[Put | Delete]) -> Committed:
    """Read the fate of a commit from the answer to its transaction."""
    if answer.succeeded:
        return Committed(Fate.DONE, {w.key: answer.revision for w in writes if isinstance(w, Put)})
    standing = as_it_stands(answer, ticket)
    if standing is None:
        return Committed(Fate.GONE)
    if ticket.version not in (None, standing.version):
        return Committed(Fate.AMENDED, ticket=standing)
    return Committed(Fate.DIFFERS)


def amending(ticket: Ticket, text: bytes) -> Txn:
    """Make the request for another value of the ticket. It names the version: a try that arrives late does nothing."""
    key = stored(ticket.key)
    return Txn(_unamended(ticket), (PutKey(key, text, None),), (Range(key),))


def stands_with(answer: TxnResult, ticket: Ticket, text: bytes) -> bool:
    """Tell whether that very ticket stands with this value."""
    return any(kv.value == text for kv in answer.key_values) and as_it_stands(answer, ticket) is not None


def touching(ticket: Ticket) -> Txn:
    """Make the request that moves the ticket on from its version."""
    key = stored(ticket.key)
    return Txn(_unamended(ticket), (PutKey(key, None, None),), (Range(key),))


def touched(answer: TxnResult, ticket: Ticket) -> Ticket | None:
    """Read from the answer how the ticket stands after that; None where it is gone."""
    return ticket._replace(version=answer.revision) if answer.succeeded else as_it_stands(answer, ticket)


def as_it_stands(answer: TxnResult, ticket: Ticket) -> Ticket | None:
    """Read the ticket with the version it has now; None where another one or none stands at its key."""
    key = stored(ticket.key)
    for kv in answer.key_values:
        if kv.key == key and kv.create_revision == ticket.token:
            return ticket._replace(version=kv.mod_revision)
    return None


def _unamended(ticket: Ticket) -> tuple[Condition, ...]:
    if ticket.version is None:
        return (is_still(ticket),)
    return is_still(ticket), ModifiedAt(stored(ticket.key), ticket.version)


def _holds(compare: Compare) -> Condition:
    if compare.version == 0:
        return CreatedAt(compare.key.encode(), 0)
    return ModifiedAt(compare.key.encode(), compare.version)


def _write(write: Put | Delete) -> Operation:
    if isinstance(write, Put):
        return PutKey(write.key.encode(), write.value)
    return DeleteKey(write.key.encode())
