"""Requests to etcd and its answers as values, which each transport writes its own way; and the errors of refusals.

Keys are bytes. Named tuples, because a lock cycle makes a dozen of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from tenure._core.base.signals import Signal
from tenure._transport.session import Refusal, StaleAuth
from tenure.errors import AuthenticationFailed, PermissionDenied, StoreError, StoreRefused, StoreUnavailable, TLSFailed


class CreatedAt(NamedTuple):
    """Condition: the key was created at this revision; at 0: there is none."""

    key: bytes
    revision: int


class ModifiedAt(NamedTuple):
    """Condition: the key was written last at this revision."""

    key: bytes
    revision: int


class Range(NamedTuple):
    """Read a key, or all keys from `key` up to `range_end`, by create revision; or `by_key`, which pages cheaply."""

    key: bytes
    range_end: bytes = b""
    limit: int = 0
    newest_first: bool = False
    max_create_revision: int = 0
    by_key: bool = False
    keys_only: bool = False
    count_only: bool = False
    """Return no keys, only `TxnResult.counts`."""
    revision: int = 0
    """Revision to read at; 0: the newest."""


class PutKey(NamedTuple):
    """Write a key, bound to `lease`; without a value (None) or a lease (None) it keeps the one it has."""

    key: bytes
    value: bytes | None
    lease: int | None = 0


class DeleteKey(NamedTuple):
    """Delete a key."""

    key: bytes


Condition: TypeAlias = CreatedAt | ModifiedAt
Operation: TypeAlias = Range | PutKey | DeleteKey


class Txn(NamedTuple):
    """A transaction: all of `success` where all of `compare` hold, else all of `failure`."""

    compare: tuple[Condition, ...] = ()
    success: tuple[Operation, ...] = ()
    failure: tuple[Operation, ...] = ()


class KeyValue(NamedTuple):
    """A key that a range found."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0
    """Number of the lease it is bound to; 0: none."""


class Header(NamedTuple):
    """The answering cluster and the revision its history had reached; zeros where the answer did not say."""

    cluster_id: int
    revision: int


class TxnResult(NamedTuple):
    """The outcome of a transaction or a range."""

    header: Header
    succeeded: bool
    key_values: list[KeyValue]
    """The keys that its ranges found, in order."""
    tries: int = 1
    """Number of tries. Above 1 an earlier one went unanswered, and may have been the one that did it."""
    counts: tuple[int, ...] = ()
    """Number of keys in each range, beyond any limit, in order; ranges without any may be left out."""

    @property
    def revision(self) -> int:
        return self.header.revision


class Life(NamedTuple):
    """The store's knowledge of a lease."""

    granted_ttl: float
    keys: tuple[bytes, ...]
    left_ttl: float = 0.0
    """Time for which it stands if nobody renews it."""


class WatchMessage(NamedTuple):
    """A message of the stream that carries watches."""

    watch_id: int
    revision: int = 0
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    events: bool = False
    reason: str = ""


class WatchRequest(NamedTuple):
    """A request to watch keys: from which revision, for which events."""

    key: bytes
    range_end: bytes | None
    start_revision: int
    deletes_only: bool
    signal: Signal
    catch_up: Callable[[], None] | None = None
    """Look for missed changes. Where it is given, the watch begins with the next event; it is called where anything was
    written since `start_revision`. Must not block."""


class LeaseGone(Exception):
    """The store does not know the lease (any more). Never leaves the etcd backend."""


class OutOfSpace(StoreRefused):
    """The store takes no transactions until it has space again. Plain deletions it does take."""


_UNAVAILABLE: Final = (1, 4, 8, 10, 14)  # gRPC: cancelled, deadline exceeded, exhausted, aborted, unavailable
_GIVEN_UP: Final = ("proposal dropped", "raft: stopped")
"""Messages of a leader that has just gone, or of a member that stops; their code is `unknown`."""


def meaning(
    where: str, user: str | None, refusal: Refusal, stranger: Callable[[str, Refusal], StoreError | None]
) -> Exception:
    """Make the error of a refusal. `stranger` makes it for an answer that is not etcd's, and else returns None."""
    code, message, status = refusal
    if "requested lease not found" in message:
        return LeaseGone(message)
    if "HTTPS server" in message:
        return TLSFailed(f"{where} speaks TLS, and was spoken to without; give `ca` (or tls=true)")
    if (error := stranger(where, refusal)) is not None:
        return error
    if "invalid auth token" in message or "auth store is old" in message:
        return StaleAuth(message)
    if (
        "authentication failed" in message
        or "user name is empty" in message
        or "authentication is not enabled" in message
    ):
        return AuthenticationFailed(f"{where} does not accept this user and password: {message}")
    if code == 7 or "permission denied" in message:
        return PermissionDenied(f"user {user!r} may not do this under {where}: {message}")
    if "database space exceeded" in message:
        return OutOfSpace(f"{where} is out of space (NOSPACE): {message}. Compact, defragment and disarm the alarm.")
    if code in _UNAVAILABLE or status in (429, 503, 504) or any(said in message for said in _GIVEN_UP):
        return StoreUnavailable(f"{where} can't answer now: {message}")
    return StoreRefused(f"{where} refused ({f'HTTP {status}' if code is None else f'code {code}'}): {message}")
