"""Administrators, one of each store, who do what is done to clients from outside. Nothing here goes through our
drivers.

An administrator ends leases and removes tickets, keeps the place of a line, knows what a request of each verb looks
like on the wire, and removes all that a playing has left.
"""

from __future__ import annotations

import base64
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import urllib3
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tenure._core.base.validation import encode
from tenure._core.lease import Lease, Ticket
from tenure.errors import StoreUnavailable

_SECONDS: Final = 10.0
_quiet = logging.getLogger("tests.verify.traces")  # a session that is taken over is reported by kazoo, and is meant
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class Admin(Protocol):
    """An administrator of one store."""

    def prepare(self, namespace: str, kept: str) -> None:
        """Make the place of the line `kept`, so that it stays while the line is empty."""

    def revoke(self, lease: Lease) -> None: ...

    def remove(self, namespace: str, ticket: Ticket) -> None: ...

    def lines(self, namespace: str) -> Mapping[str, tuple[Ticket, ...]]:
        """The tickets of each resource; nothing where that would take a request."""

    def matches(self, verb: str, ticket_id: str) -> Callable[..., bool]:
        """True for a request of `verb` for that ticket. Arguments as the proxy gives them."""

    def meet(self, store: Any) -> None:
        """The memory store itself: only that has one to meet."""

    def clean(self, namespace: str, keys: Sequence[str]) -> None: ...

    def close(self) -> None: ...


class MemoryAdmin:
    """The administrator of a memory store, which it meets when the first client has come."""

    def __init__(self) -> None:
        self._store: Any = None  # Any: its type is the backend's own

    def meet(self, store: Any) -> None:
        self._store = store

    def prepare(self, namespace: str, kept: str) -> None:
        """A line of the memory store has no place."""
        self._store = None

    def revoke(self, lease: Lease) -> None:
        self._store.expire(lease.id)

    def remove(self, namespace: str, ticket: Ticket) -> None:
        self._store.leave(f"{namespace}/{encode(ticket.resource)}", ticket.id, ticket.token)

    def lines(self, namespace: str) -> Mapping[str, tuple[Ticket, ...]]:
        lines: Mapping[str, tuple[Ticket, ...]] = {} if self._store is None else self._store.lines
        return {tickets[0].resource: tickets for tickets in lines.values()}

    def matches(self, verb: str, ticket_id: str) -> Callable[..., bool]:
        raise NotImplementedError("nothing of the memory store is on a wire")

    def clean(self, namespace: str, keys: Sequence[str]) -> None:
        self._store = None

    def close(self) -> None:
        """Do nothing: it has opened nothing."""


_ETCD_VERBS: Final[Mapping[str, Callable[[bytes], bool]]] = {
    "enter": lambda body: b'"lease":' in body,
    "amend": lambda body: b"ignore_lease" in body and b"ignore_value" not in body,
    "touch": lambda body: b"ignore_value" in body,
    "leave": lambda body: b"request_delete_range" in body and b'"MOD"' not in body,
    "commit": lambda body: b'"MOD"' in body and b"ignore_lease" not in body,
}


class EtcdAdmin:
    """The administrator of one etcd server, over its gateway."""

    def __init__(self, endpoint: tuple[str, int]) -> None:
        self._url = f"http://{endpoint[0]}:{endpoint[1]}/v3"
        self._pool = urllib3.PoolManager(timeout=_SECONDS, retries=False)
        self._ask("/maintenance/status", {})  # is anybody there?

    def meet(self, store: Any) -> None: ...

    def prepare(self, namespace: str, kept: str) -> None:
        """A line of etcd has no place."""

    def revoke(self, lease: Lease) -> None:
        self._ask("/lease/revoke", {"ID": str(int(lease.id, 16))})

    def remove(self, namespace: str, ticket: Ticket) -> None:
        self._ask("/kv/deleterange", {"key": _b64(ticket.key)})

    def lines(self, namespace: str) -> Mapping[str, tuple[Ticket, ...]]:
        return {}

    def matches(self, verb: str, ticket_id: str) -> Callable[..., bool]:
        of_verb = _ETCD_VERBS[verb]
        return lambda method, path, body: path == "/v3/kv/txn" and of_verb(body)

    def clean(self, namespace: str, keys: Sequence[str]) -> None:
        for key in keys:
            self._ask("/kv/deleterange", {"key": _b64(key)})
        self._ask("/kv/deleterange", {"key": _b64(f"{namespace}/"), "range_end": _b64(f"{namespace}0")})

    def close(self) -> None:
        self._pool.clear()

    def _ask(self, path: str, request: Mapping[str, str]) -> None:
        try:
            answer = self._pool.request("POST", self._url + path, json=request)
        except urllib3.exceptions.HTTPError as error:
            raise StoreUnavailable(f"{self._url} did not answer the administrator: {error}") from error
        if answer.status != 200:
            raise StoreUnavailable(f"{self._url} refused the administrator: {answer.data[:200]!r}")


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


_CLAIMS_MAX: Final = 10
_OPCODES: Final = {"enter": 15, "leave": 2, "amend": 5, "touch": 5, "commit": 14}


class ZooKeeperAdmin:
    """The administrator of one ZooKeeper server, with a session of its own."""

    def __init__(self, endpoint: tuple[str, int]) -> None:
        self._endpoint = f"{endpoint[0]}:{endpoint[1]}"
        self._zk = KazooClient(self._endpoint, timeout=_SECONDS, logger=_quiet)
        try:
            self._zk.start(_SECONDS)
        except KazooTimeoutError as error:
            self.close()
            raise StoreUnavailable(f"{self._endpoint} did not answer the administrator") from error

    def meet(self, store: Any) -> None: ...

    def prepare(self, namespace: str, kept: str) -> None:
        """A line's node goes when it is empty, and its count of tickets with it: another node below keeps it."""
        self._zk.create(f"/{namespace}/{encode(kept)}/kept", makepath=True)

    def revoke(self, lease: Lease) -> None:
        """Close the session from a second connection that claims it: ZooKeeper has no other way.

        The client may claim it back at just that moment: so again, until who claims it is given another one.
        """
        client: Any = lease._connection._client  # type: ignore[attr-defined]  # Any: kazoo has no types
        mine, password = client._session_id, client._session_passwd  # client_id is None between two connections
        for _ in range(_CLAIMS_MAX):
            thief = KazooClient(self._endpoint, client_id=(mine, password), timeout=_SECONDS, logger=_quiet)
            thief.start()
            given = thief.client_id[0]
            thief.stop()
            thief.close()
            if given != mine:
                return
        raise StoreUnavailable(f"{self._endpoint} still knows session {mine:x}")

    def remove(self, namespace: str, ticket: Ticket) -> None:
        with contextlib.suppress(NoNodeError):
            self._zk.delete(ticket.key)

    def lines(self, namespace: str) -> Mapping[str, tuple[Ticket, ...]]:
        return {}

    def matches(self, verb: str, ticket_id: str) -> Callable[..., bool]:
        wanted, name = _OPCODES[verb], ticket_id.encode()
        return lambda opcode, frame: opcode == wanted and name in frame

    def clean(self, namespace: str, keys: Sequence[str]) -> None:
        for path in (f"/{namespace}", *(f"/{key.rpartition('/')[0]}" for key in keys[:1])):
            with contextlib.suppress(NoNodeError):
                self._zk.delete(path, recursive=True)

    def close(self) -> None:
        with contextlib.suppress(KazooException):
            self._zk.stop()
        self._zk.close()
