"""The stores that the lock is in, by other means than tenure's own: to depose a holder, and to look.

A worker tells with its grant what that takes (`told_of`), and the nemesis hands it on (`depose`).
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final, Protocol

import httpx
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tenure import Hold
from tests.servers import Cluster

_REQUEST_SECONDS: Final = 10.0
_THEFT_SECONDS: Final = 2.0


class Store(Protocol):
    """A store as its administrator sees it."""

    def depose(self, lease: str, *, whole: bool) -> None:
        """End the holder's lease or session (`whole`), or remove its ticket alone. It may be gone already."""

    def under(self, root: str) -> list[tuple[str, bytes]]:
        """Keys and values below `root`, in the order in which the store made them."""

    def remove(self, root: str) -> None:
        """Remove everything at and below it."""

    def close(self) -> None: ...


def opened(cluster: Cluster) -> Store:
    """The one for this kind of cluster."""
    return EtcdStore(cluster) if cluster.kind == "etcd" else ZooKeeperStore(cluster)


def options_of(url: str) -> dict[str, Any]:
    """The options that tenure's clients of a test's store need beyond its URL. Any: values of many types."""
    return {"tick": 0.2} if url.startswith("zookeeper:") else {}


def told_of(hold: Hold) -> str:
    """The facts that it takes to depose this holder."""
    told: dict[str, Any] = {"lease": hold.lease_id, "key": hold._ticket.key}  # Any: JSON
    connection = getattr(hold._lease, "_connection", None)  # ZooKeeper's: the session can be taken over with these
    if connection is not None and (session := connection._client.client_id) is not None:  # None: it is over already
        told["session"] = [session[0], session[1].hex()]
    return json.dumps(told)


class EtcdStore:
    """etcd's gateway: a request each."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = httpx.Client(base_url=f"http://{cluster.endpoints[0]}/v3", timeout=_REQUEST_SECONDS)

    def depose(self, lease: str, *, whole: bool) -> None:
        told = json.loads(lease)
        if not whole:
            self._ask("/kv/deleterange", {"key": base64.b64encode(told["key"].encode()).decode()})
            return
        answer = self._client.post("/lease/revoke", json={"ID": str(int(told["lease"], 16))})
        if answer.status_code != httpx.codes.NOT_FOUND:
            answer.raise_for_status()

    def under(self, root: str) -> list[tuple[str, bytes]]:
        found = self._ask("/kv/range", _below(root) | {"sort_target": "CREATE", "sort_order": "ASCEND"})
        pairs = [(base64.b64decode(kv["key"]).decode(), kv) for kv in found.get("kvs", ())]
        return [(key, base64.b64decode(kv.get("value", ""))) for key, kv in pairs]

    def remove(self, root: str) -> None:
        self._ask("/kv/deleterange", _below(root))

    def close(self) -> None:
        self._client.close()

    def _ask(self, path: str, request: dict[str, str]) -> dict[str, Any]:
        answer: dict[str, Any] = self._client.post(path, json=request).raise_for_status().json()
        return answer


class ZooKeeperStore:
    """A session of the administrator's own."""

    def __init__(self, cluster: Cluster) -> None:
        self._endpoint = cluster.endpoints[0]
        self._client = KazooClient(self._endpoint, timeout=10.0)
        self._client.start(_REQUEST_SECONDS)

    def depose(self, lease: str, *, whole: bool) -> None:
        told = json.loads(lease)
        if whole and "session" in told and self._end_session(told["session"]):
            return
        self._delete(told["key"])

    def under(self, root: str) -> list[tuple[str, bytes]]:
        asked = [(path, self._client.get_async(path)) for path in self._tree(f"/{root}")]
        found = [(path, *answer.get(_REQUEST_SECONDS)) for path, answer in asked if not _is_gone(answer)]
        found.sort(key=lambda one: one[2].czxid)
        return [(path.removeprefix("/"), data) for path, data, _ in found]

    def remove(self, root: str) -> None:
        self._delete(f"/{root}")

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _delete(self, path: str) -> None:
        try:
            self._client.delete(path, recursive=True)
        except NoNodeError:
            return

    def _end_session(self, session: list[Any]) -> bool:
        """Close it from a second connection that claims it, as a duplicate client would.

        False where the owner claims it back each time: only one connection at a time has a session.
        """
        thief = KazooClient(self._endpoint, client_id=(session[0], bytes.fromhex(session[1])), timeout=4.0)
        try:
            thief.start(_THEFT_SECONDS)
            thief.stop()
        except KazooTimeoutError:
            return False
        finally:
            thief.close()
        return True

    def _tree(self, path: str) -> list[str]:
        try:
            children = self._client.get_children(path)
        except NoNodeError:
            return []
        return [path, *(node for child in children for node in self._tree(f"{path}/{child}"))]


def _is_gone(answer: Any) -> bool:  # Any: kazoo has no types
    """True where the node went after it was listed."""
    answer.wait(_REQUEST_SECONDS)
    return isinstance(answer.exception, NoNodeError)


def _below(root: str) -> dict[str, str]:
    """The range of what lies below `root`, as `key` and `range_end`; `0` is the byte after the closing `/`."""
    return {
        "key": base64.b64encode(f"{root}/".encode()).decode(),
        "range_end": base64.b64encode(f"{root}0".encode()).decode(),
    }
