"""What is asked of etcd and what it answers, as values: the words of the seam, which each transport writes its own way.

Keys are bytes. Named tuples, because a lock cycle makes a dozen of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from holdfast.errors import StoreRefused
from holdfast.signals import Signal


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
    """Only `Answer.counts` tells of it."""
    revision: int = 0
    """As it stood then; 0: as it stands."""


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
    """All of `success` where all of `compare` hold, else all of `failure`."""

    compare: tuple[Condition, ...] = ()
    success: tuple[Operation, ...] = ()
    failure: tuple[Operation, ...] = ()


class KeyValue(NamedTuple):
    """One key that a range found."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0
    """0: it hangs on none."""


class Header(NamedTuple):
    """Who answered, and how far its history had come; zeros where it did not say."""

    cluster_id: int
    revision: int


class Answer(NamedTuple):
    """What a transaction came to."""

    header: Header
    succeeded: bool
    key_values: list[KeyValue]
    """What its ranges found, in order."""
    tries: int = 1
    """Above 1 an earlier try went unanswered, and may have been the one that did it."""
    counts: tuple[int, ...] = ()
    """How many keys each of its ranges has, beyond any limit, in order; ranges without any may be left out."""

    @property
    def revision(self) -> int:
        return self.header.revision


class Life(NamedTuple):
    """What the store knows of a lease."""

    granted_ttl: float
    keys: tuple[bytes, ...]
    left_ttl: float = 0.0
    """For how long it stands if nobody renews it."""


class Told(NamedTuple):
    """One message of the stream that carries watches."""

    watch_id: int
    revision: int = 0
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    events: bool = False
    reason: str = ""


class Watching(NamedTuple):
    """What to watch: keys, from which revision, for which events."""

    key: bytes
    range_end: bytes | None
    start_revision: int
    deletes_only: bool
    signal: Signal
    catch_up: Callable[[], None] | None = None
    """Where it is given the watch begins with what comes. It is called where anything was written since
    `start_revision`, and sees to it that what was missed is found. Must not block."""


class LeaseGone(Exception):
    """The store does not know the lease (any more). Never leaves the etcd backend."""


class OutOfSpace(StoreRefused):
    """The store takes no transactions until it has space again. Plain deletions it does take."""
