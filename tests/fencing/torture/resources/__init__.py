"""Resources that the workers fight over: a counter, a set and a journal behind each of the guards.

A `Resource` is one worker's way to it, a `Target` is the test's. Both of one kind stand in one file, and are made from
an address that is a text. `guarded=False` is the control: the same reads and writes, past the guard.
"""

from __future__ import annotations

from typing import Final, Protocol

from tenure import Hold
from tenure.errors import TenureError
from tests.fencing.torture.check import Contents
from tests.fencing.torture.events import What

KINDS: Final = ("postgresql", "mariadb", "sqlite", "redis", "file", "http", "etcd", "zookeeper")


class Resource(Protocol):
    """A worker's way to what is protected. It never asks the hold whether it is still held."""

    def read(self, hold: Hold) -> int:
        """Claim, then the counter."""

    def write(self, hold: Hold, count: int, element: str) -> None:
        """Claim, then all at once: the counter, the element into the set, both with the token into the journal."""

    def turn_over(self) -> None:
        """The turn has ended, whichever way."""

    def end_of(self, error: Exception) -> What | None:
        """FAIL where a write that raised this certainly did not happen, INFO where it may have; None for a bug."""

    def close(self) -> None: ...


class Target(Protocol):
    """The same as the test sees it; empty when it is made."""

    @property
    def address(self) -> str:
        """The address that the workers' side is made from."""

    def contents(self) -> Contents:
        """The contents now, past the guard."""

    def close(self) -> None: ...


def end_of_ours(error: Exception) -> What | None:
    """The end of a try by tenure's own errors: what they say of themselves."""
    if not isinstance(error, TenureError):
        return None
    return What.FAIL if error.happened == "no" else What.INFO


def resource(kind: str, address: str, *, guarded: bool) -> Resource:
    """A worker's way to the resource at `address`. Imports what this kind needs, and no more: workers are many."""
    if kind in ("postgresql", "mariadb", "sqlite"):
        from .sql import SQLResource

        return SQLResource(address, guarded=guarded)
    if kind == "redis":
        from .redis import RedisResource

        return RedisResource(address, guarded=guarded)
    if kind == "file":
        from .file import FileResource

        return FileResource(address, guarded=guarded)
    if kind == "http":
        from .http import HTTPResource

        return HTTPResource(address)  # whether it is guarded is the server's matter
    from .store import StoreResource

    return StoreResource(address, guarded=guarded)
