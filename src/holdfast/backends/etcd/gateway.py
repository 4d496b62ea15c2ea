"""The JSON gateway through etcd3gw, over our own session.

etcd3gw knows one host and no users, and its own session is `requests`, which costs more than the store does. It
takes any object that can `post`: `Poster` is that, and hands everything to the session.
"""

from __future__ import annotations

import json as json_text
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from etcd3gw.client import Etcd3Client

from holdfast.backends.etcd import documents, refusals
from holdfast.backends.etcd.documents import Json
from holdfast.backends.etcd.streams import PostStream, WebSocketStream
from holdfast.backends.etcd.watch import Stream
from holdfast.backends.etcd.words import Answer, Header, LeaseGone, Life, Range, Txn, Watching
from holdfast.errors import GatewayDisabled, StoreError, StoreRefused, StoreUnavailable
from holdfast.lease import Surroundings
from holdfast.links.http import Answer as HttpAnswer
from holdfast.links.http import Connection, connect
from holdfast.links.session import Refusal, Session
from holdfast.options import Options

_API: Final = "/v3/"
_ANYTHING: Final = {"key": "AA==", "count_only": True}


class Gateway:
    """The transport: requests are JSON documents, each a POST."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self._store = options.display
        self.session: Session[HttpAnswer] = Session(options, around, HttpDialect())
        self._client = Etcd3Client(api_path=_API, session=Poster(self.session))
        self._urls: dict[str, str] = {}

    def txn(self, txn: Txn, until: float) -> Answer:
        return documents.answer(self._post_text("/kv/txn", documents.transaction(txn), until))

    def range(self, asked: Range, until: float) -> Answer:
        return documents.found(self._post_text("/kv/range", documents.reading(asked), until))

    def delete(self, key: bytes, until: float) -> bool:
        return int(self._post("/kv/deleterange", {"key": documents.b64(key)}, until).get("deleted", 0)) > 0

    def grant(self, number: int, ttl: int, until: float) -> float:
        return documents.seconds_of(self._post("/lease/grant", {"TTL": str(ttl), "ID": str(number)}, until), "TTL")

    def life(self, number: int, keys: bool, until: float) -> Life:
        told = self._post("/lease/timetolive", {"ID": str(number), "keys": keys}, until)
        left = documents.seconds_of(told, "TTL") if "TTL" in told else 0.0
        if left < 0:
            raise LeaseGone(f"lease {number:x} is not known")
        return Life(documents.seconds_of(told, "grantedTTL"), documents.keys(told), left)

    def keep_alive(self, number: int, until: float) -> float:
        told = self._post("/lease/keepalive", {"ID": str(number)}, until)
        if "error" in told:
            raise StoreUnavailable(f"the keep-alive was answered with an error: {told['error']}")
        result = told.get("result") or {}
        return documents.seconds_of(result, "TTL") if "TTL" in result else 0.0  # a dead lease's answer has no TTL in it

    def keep_alives(self, numbers: Sequence[int], until: float) -> Mapping[int, float]:
        # The gateway reads one document after the other, and answers each. It may stop reading once it answers.
        body = b"".join(_dumps({"ID": str(number)}) for number in numbers)
        return documents.kept_alive(self.session.ask(_API + "lease/keepalive", body, until).text)

    def revoke(self, number: int, until: float) -> None:
        self._post("/lease/revoke", {"ID": str(number)}, until)

    def version(self, until: float) -> str:
        return str(self._post("/maintenance/status", {}, until).get("version", ""))

    def position(self, until: float) -> Header:
        return documents.header(self._post("/kv/range", _ANYTHING, until))

    def open_stream(
        self, sock: socket.socket, endpoint: tuple[str, int], token: str | None, watches: Mapping[int, Watching]
    ) -> Stream:
        if token is not None:  # the WebSocket can't carry it
            return PostStream(sock, endpoint, token, watches)
        stream = WebSocketStream(sock, endpoint)
        for watch_id, watching in watches.items():
            stream.create(watch_id, watching)
        return stream

    def close(self) -> None:
        self.session.close()

    def _post(self, path: str, request: Json, until: float) -> Json:
        return self._post_text(path, _dumps(request), until)

    def _post_text(self, path: str, request: bytes, until: float) -> Json:
        url = self._urls.get(path) or self._urls.setdefault(path, self._client.get_url(path))
        body: Json = self._client.post(url, data=request, until=until)
        if not isinstance(body, dict) or not body.keys() & {"header", "result", "error"}:
            raise StoreRefused(f"something answers at {self._store}, but not as etcd: {str(body)[:80]}")
        return body


class Poster:
    """The session in the shape that etcd3gw calls."""

    def __init__(self, session: Session[HttpAnswer]) -> None:
        self._session = session

    def post(self, url: str, *, until: float, data: Any = None, json: Any = None, timeout: object = None) -> HttpAnswer:
        """One try, one answer."""
        path = url[url.index("/", url.index("//") + 2) :]
        return self._session.ask(path, data if data is not None else _dumps(json), until)

    def get(self, url: str, timeout: object = None) -> HttpAnswer:
        """What etcd3gw would discover versions with; holdfast names the API path itself."""
        raise StoreRefused(f"nothing asks etcd for {url}")


class HttpDialect:
    """HTTP/1.1, as the session needs to know it."""

    server: Final = "etcd"
    signs_in: Final = True
    alpn: Final = "http/1.1"
    goes_aside: Final = True
    kept_apart: Final = ""

    def connect(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> Connection:
        return Connection(endpoint, tls, seconds)

    def dial(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
        return connect(endpoint, tls, seconds)

    def sign_in(self, user: str, password: str) -> tuple[str, bytes]:
        return "/v3/auth/authenticate", _dumps({"name": user, "password": password})

    def token(self, reply: HttpAnswer) -> str:
        told = reply.json()
        return str(told.get("token") or "") if isinstance(told, dict) else ""

    def refused(self, where: str, user: str | None, refusal: Refusal) -> Exception:
        return refusals.meaning(where, user, refusal, _stranger)


def _stranger(where: str, refusal: Refusal) -> StoreError | None:
    if refusal.status != 404:
        return None
    return GatewayDisabled(
        f"{where} answers, but has no JSON gateway (HTTP 404). Start etcd with --enable-grpc-gateway=true, and "
        "check that the port is its client port."
    )


def _dumps(body: object) -> bytes:
    return json_text.dumps(body, separators=(",", ":")).encode()
