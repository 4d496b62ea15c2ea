"""The wire: what an etcd lease needs of a transport, and the gateway's way of doing it.

A seam of its own, because a gRPC transport will stand beside the JSON gateway: transactions, grant,
keep-alive, revoke, watch. Everything else is above it. All but one may be sent twice without harm, and
are: they go on until they are answered, refused, or `until` has come. `txn_once` is sent once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from etcd3gw.client import Etcd3Client

from holdfast.backends.etcd.codec import KeyValue
from holdfast.backends.etcd.history import History
from holdfast.backends.etcd.session import Session
from holdfast.backends.etcd.watch import Watcher, Watching
from holdfast.errors import HoldfastError, StoreRefused
from holdfast.lease import Surroundings
from holdfast.options import Options
from holdfast.retry import persist

Json: TypeAlias = Mapping[str, Any]  # Any: etcd's own documents
_API: Final = "/v3/"
_GREETING_SECONDS: Final = 5.0
_warned_of: set[str] = set()  # once a process is enough
_log = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a transaction came to."""

    body: Json
    tries: int
    """Above 1 an earlier try went unanswered, and may have been the one that did it."""

    @property
    def succeeded(self) -> bool:
        return bool(self.body.get("succeeded"))

    @property
    def revision(self) -> int:
        return int(self.body["header"]["revision"])

    @property
    def key_values(self) -> list[KeyValue]:
        """What its ranges found, in order."""
        return [kv for r in self.body.get("responses", ()) for kv in r.get("response_range", {}).get("kvs", ())]


class Wire(Protocol):
    """A transport to one cluster."""

    def txn(self, request: Json, until: float) -> Answer:
        """Carry out one transaction that may be sent twice without harm."""

    def txn_once(self, request: Json, until: float) -> Answer:
        """Carry out one that may not. After StoreUnavailable its fate is unknown."""

    def call(self, path: str, request: Json, until: float) -> Json:
        """Any other request with an answer of its own. Raises LeaseGone where it names an unknown lease."""

    def watch(self, watching: Watching) -> Callable[[], None]:
        """Set `watching.signal` on its first event, and when the watch ends; the returned function stops it."""

    def greet(self) -> None:
        """Look at the server's version in the background, once; warn of one with known lease bugs."""

    def statistics(self) -> dict[str, object]: ...

    def close(self) -> None: ...


class GatewayWire:
    """The JSON gateway through etcd3gw, over our own session."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self._options = options
        self._around = around
        self._clock = around.clock
        self._greeted = False
        self._session = Session(options, around)
        self._client = Etcd3Client(api_path=_API, session=self._session)
        self._history = History(options.display)
        self._watcher = Watcher(self._session, around, self._probe)
        self._session.on_move = self._watcher.reconnect
        self._urls: dict[str, str] = {}

    def txn(self, request: Json, until: float) -> Answer:
        return self._persist("/kv/txn", request, until, ordered=True)

    def txn_once(self, request: Json, until: float) -> Answer:
        return Answer(self._ask("/kv/txn", request, until, ordered=True), 1)

    def call(self, path: str, request: Json, until: float) -> Json:
        return self._persist(path, request, until, ordered=False).body

    def watch(self, watching: Watching) -> Callable[[], None]:
        return self._watcher.add(watching)

    def close(self) -> None:
        self._watcher.close()
        self._session.close()

    def statistics(self) -> dict[str, object]:
        host, port = self._session.endpoint
        return {
            "endpoint": f"{host}:{port}",
            "endpoints_failed": self._session.generation,
            "watches": self._watcher.watches,
            "watch_connections": self._watcher.connections,
        }

    def greet(self) -> None:
        if not self._greeted:
            self._greeted = True
            self._around.workers.submit(self._look_at_version)

    def _look_at_version(self) -> None:
        try:
            version = str(self.call("/maintenance/status", {}, self._clock.now() + _GREETING_SECONDS)["version"])
        except (HoldfastError, KeyError):
            return  # a courtesy; whatever is wrong shows where it matters
        if _has_known_bugs(version) and version not in _warned_of:
            _warned_of.add(version)
            _log.warning(
                "etcd %s has known bugs that can end leases early or show stale reads; run 3.5.28, 3.6.9 or later, and "
                "have the protected resource check tokens",
                version,
            )

    def _persist(self, path: str, request: Json, until: float, *, ordered: bool) -> Answer:
        tries = 0

        def attempt() -> Answer:
            nonlocal tries
            tries += 1
            return Answer(self._ask(path, request, until, ordered=ordered), tries)

        return persist(attempt, until, self._clock)

    def _ask(self, path: str, request: Json, until: float, *, ordered: bool) -> Json:
        url = self._urls.get(path) or self._urls.setdefault(path, self._client.get_url(path))
        least = self._history.revision
        body: Json = self._client.post(url, json=request, until=until)
        if not isinstance(body, dict) or not body.keys() & {"header", "result", "error"}:
            raise StoreRefused(f"something answers at {self._options.display}, but not as etcd: {str(body)[:80]}")
        if ordered:
            self._history.check(body.get("header", {}), least)
        return body

    def _probe(self, until: float) -> None:
        """Does the current endpoint still reach the quorum? Moves on where it does not. Raises StoreError."""
        least = self._history.revision
        answer = self._client.post(
            self._client.get_url("/kv/range"), json={"key": "AA==", "count_only": True}, until=until
        )
        self._history.check(answer.get("header", {}), least)


def _has_known_bugs(version: str) -> bool:
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:3] if part.isdigit())
    return numbers < (3, 5, 28) or (3, 6) <= numbers < (3, 6, 9)
