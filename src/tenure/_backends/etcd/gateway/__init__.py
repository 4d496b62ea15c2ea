"""The JSON gateway of etcd, `etcd://`: the first transport, through etcd3gw and over our own connection pool.

    json_codec    requests as JSON, and answers read
    streams       the two streams that carry watches: a WebSocket, or one long POST

etcd3gw knows one host and no users, and sends by `requests`, which costs more than the store does. It takes any object
that can `post`: `Poster` is that, and hands everything to the pool.
"""

from __future__ import annotations

import json as json_text
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from etcd3gw.client import Etcd3Client

from tenure._backends.etcd import requests
from tenure._backends.etcd.gateway import json_codec
from tenure._backends.etcd.gateway.json_codec import Json
from tenure._backends.etcd.gateway.streams import PostStream, WebSocketStream
from tenure._backends.etcd.requests import Header, LeaseGone, Life, Range, Txn, TxnResult, WatchRequest
from tenure._backends.etcd.watch import WatchConnection
from tenure._core.base.options import Options
from tenure._core.lease import BackendContext
from tenure._transport.http import HttpConnection, JsonResponse, connect
from tenure._transport.session import ConnectionPool, Refusal
from tenure.errors import GatewayDisabled, StoreError, StoreRefused, StoreUnavailable

_API: Final = "/v3/"
_ANYTHING: Final = {"key": "AA==", "count_only": True}


class Gateway:
    """The transport: requests are JSON documents, each a POST."""

    def __init__(self, options: Options, context: BackendContext) -> None:
        self._store = options.display
        self.session: ConnectionPool[JsonResponse] = ConnectionPool(options, context, HttpDialect())
        self._client = Etcd3Client(api_path=_API, session=Poster(self.session))
        self._urls: dict[str, str] = {}

    def txn(self, txn: Txn, until: float) -> TxnResult:
        return json_codec.answer(self._post_text("/kv/txn", json_codec.transaction(txn), until))

    def range(self, asked: Range, until: float) -> TxnResult:
        return json_codec.found(self._post_text("/kv/range", json_codec.reading(asked), until))

    def delete(self, key: bytes, until: float) -> bool:
        return int(self._post("/kv/deleterange", {"key": json_codec.b64(key)}, until).get("deleted", 0)) > 0

    def grant(self, number: int, ttl: int, until: float) -> float:
        return json_codec.seconds_of(self._post("/lease/grant", {"TTL": str(ttl), "ID": str(number)}, until), "TTL")

    def life(self, number: int, keys: bool, until: float) -> Life:
        body = self._post("/lease/timetolive", {"ID": str(number), "keys": keys}, until)
        left = json_codec.seconds_of(body, "TTL") if "TTL" in body else 0.0
        if left < 0:
            raise LeaseGone(f"lease {number:x} is not known")
        return Life(json_codec.seconds_of(body, "grantedTTL"), json_codec.keys(body), left)

    def keep_alive(self, number: int, until: float) -> float:
        body = self._post("/lease/keepalive", {"ID": str(number)}, until)
        if "error" in body:
            raise StoreUnavailable(f"the keep-alive was answered with an error: {body['error']}")
        result = body.get("result") or {}
        return json_codec.seconds_of(result, "TTL") if "TTL" in result else 0.0  # a dead lease's has none

    def keep_alives(self, numbers: Sequence[int], until: float) -> Mapping[int, float]:
        # The gateway reads one document after the other, and answers each. It may stop reading once it answers.
        body = b"".join(_dumps({"ID": str(number)}) for number in numbers)
        return json_codec.kept_alive(self.session.ask(_API + "lease/keepalive", body, until).text)

    def revoke(self, number: int, until: float) -> None:
        self._post("/lease/revoke", {"ID": str(number)}, until)

    def version(self, until: float) -> str:
        return str(self._post("/maintenance/status", {}, until).get("version", ""))

    def position(self, until: float) -> Header:
        return json_codec.header(self._post("/kv/range", _ANYTHING, until))

    def open_stream(
        self, sock: socket.socket, endpoint: tuple[str, int], token: str | None, watches: Mapping[int, WatchRequest]
    ) -> WatchConnection:
        if token is not None:  # the WebSocket can't carry it
            return PostStream(sock, endpoint, token, watches)
        stream = WebSocketStream(sock, endpoint)
        for watch_id, watch in watches.items():
            stream.create(watch_id, watch)
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
    """The connection pool in the shape that etcd3gw calls."""

    def __init__(self, session: ConnectionPool[JsonResponse]) -> None:
        self._session = session

    def post(
        self, url: str, *, until: float, data: Any = None, json: Any = None, timeout: object = None
    ) -> JsonResponse:
        """Send one request through the pool and return its response."""
        path = url[url.index("/", url.index("//") + 2) :]
        return self._session.ask(path, data if data is not None else _dumps(json), until)

    def get(self, url: str, timeout: object = None) -> JsonResponse:
        """Refuse: etcd3gw would ask for versions here, and tenure names the API path itself."""
        raise StoreRefused(f"nothing asks etcd for {url}")


class HttpDialect:
    """HTTP/1.1 as the connection pool needs to know it."""

    server: Final = "etcd"
    signs_in: Final = True
    alpn: Final = "http/1.1"
    goes_aside: Final = True
    dedicated_path: Final = ""

    def connect(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> HttpConnection:
        return HttpConnection(endpoint, tls, seconds)

    def dial(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
        return connect(endpoint, tls, seconds)

    def sign_in(self, user: str, password: str) -> tuple[str, bytes]:
        return "/v3/auth/authenticate", _dumps({"name": user, "password": password})

    def token(self, reply: JsonResponse) -> str:
        body = reply.json()
        return str(body.get("token") or "") if isinstance(body, dict) else ""

    def refused(self, where: str, user: str | None, refusal: Refusal) -> Exception:
        return requests.meaning(where, user, refusal, _stranger)


def _stranger(where: str, refusal: Refusal) -> StoreError | None:
    if refusal.status != 404:
        return None
    return GatewayDisabled(
        f"{where} answers, but has no JSON gateway (HTTP 404). Start etcd with --enable-grpc-gateway=true, and "
        "check that the port is its client port."
    )


def _dumps(body: object) -> bytes:
    return json_text.dumps(body, separators=(",", ":")).encode()
