"""etcd's own gRPC, `etcd+grpc://`: the second transport, equal to the gateway in all but speed.

    etcd.proto    the messages, as few as are needed
    messages      requests written and answers read, by hand
    http2         HTTP/2, as far as a gRPC client needs it: no socket
    connection    one connection of the pool, with the stream for keep-alives; the stream for watches

Why not the library `grpcio`: it starts threads of its own, which a fork leaves behind and a signal handler may find in
the midst of anything, and a request takes it about twice as long as the few frames here take. So does `h2`, for its
care about every event. `hpack` reads the headers; it is all that `tenure[grpc]` installs.

A client has up to sixteen connections for requests (four are kept), one for the keep-alive stream (another only while
an answer there is overdue) and one for the watch stream: no thread but the watcher's, and a forked child touches none
of it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Final

from tenure._core.base.options import Options
from tenure._core.lease import BackendContext
from tenure.errors import ServerMissing, StoreError, StoreRefused, how_to_install

try:
    import hpack as _hpack  # noqa: F401
except ImportError as _error:
    raise ServerMissing(
        f"etcd+grpc:// needs the package hpack, which is not installed: run `{how_to_install('grpc')}`, or use etcd:// "
        "(the same over etcd's JSON gateway)"
    ) from _error

from tenure._backends.etcd import requests
from tenure._backends.etcd.grpc import messages
from tenure._backends.etcd.grpc.connection import GrpcConnection, GrpcReply, WatchStream, dial
from tenure._backends.etcd.grpc.http2 import framed, unframed
from tenure._backends.etcd.requests import Header, LeaseGone, Life, Range, Txn, TxnResult, WatchRequest
from tenure._backends.etcd.watch import WatchConnection
from tenure._transport.session import ConnectionPool, Refusal

_KV: Final = "/etcdserverpb.KV/"
_LEASE: Final = "/etcdserverpb.Lease/"
_UNIMPLEMENTED: Final = 12
_TEMPORARY: Final = (429, 502, 503, 504)


class Grpc:
    """The transport: requests are protobuf messages, each a stream; but renewals share one."""

    def __init__(self, options: Options, context: BackendContext) -> None:
        self.session: ConnectionPool[GrpcReply] = ConnectionPool(options, context, GrpcDialect())

    def txn(self, txn: Txn, until: float) -> TxnResult:
        return messages.answer(self._ask(_KV + "Txn", messages.transaction(txn), until))

    def range(self, asked: Range, until: float) -> TxnResult:
        return messages.found(self._ask(_KV + "Range", messages.reading(asked), until))

    def delete(self, key: bytes, until: float) -> bool:
        return messages.deleted(self._ask(_KV + "DeleteRange", messages.deletion(key), until))

    def grant(self, number: int, ttl: int, until: float) -> float:
        return messages.granted(self._ask(_LEASE + "LeaseGrant", messages.grant(number, ttl), until))

    def life(self, number: int, keys: bool, until: float) -> Life:
        content = self._ask(_LEASE + "LeaseTimeToLive", messages.life(number, keys=keys), until)
        life = messages.living(content)
        if life is None:
            raise LeaseGone(f"lease {number:x} is not known")
        return life

    def keep_alive(self, number: int, until: float) -> float:
        return self.keep_alives((number,), until)[number]

    def keep_alives(self, numbers: Sequence[int], until: float) -> Mapping[int, float]:
        body = b"".join(framed(messages.lease(number)) for number in numbers)
        answers = unframed(self._ask(_LEASE + "LeaseKeepAlive", body, until))
        # One after the other, as they were asked for.
        return {number: messages.kept_alive(content, number) for number, content in zip(numbers, answers, strict=True)}

    def revoke(self, number: int, until: float) -> None:
        self._ask(_LEASE + "LeaseRevoke", messages.lease(number), until)

    def version(self, until: float) -> str:
        return messages.version(self._ask("/etcdserverpb.Maintenance/Status", messages.NOTHING, until))

    def position(self, until: float) -> Header:
        return messages.position(self._ask(_KV + "Range", messages.ANYTHING, until))

    def open_stream(
        self, sock: socket.socket, endpoint: tuple[str, int], token: str | None, watches: Mapping[int, WatchRequest]
    ) -> WatchConnection:
        return WatchStream(sock, endpoint, token, watches)

    def close(self) -> None:
        self.session.close()

    def _ask(self, path: str, body: bytes, until: float) -> bytes:
        return self.session.ask(path, body, until).content


class GrpcDialect:
    """gRPC as the connection pool needs to know it."""

    server: Final = "etcd"
    signs_in: Final = True
    alpn: Final = "h2"
    goes_aside: Final = False
    dedicated_path: Final = _LEASE + "LeaseKeepAlive"

    def connect(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> GrpcConnection:
        return GrpcConnection(endpoint, tls, seconds)

    def dial(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
        return dial(endpoint, tls, seconds)

    def sign_in(self, user: str, password: str) -> tuple[str, bytes]:
        return "/etcdserverpb.Auth/Authenticate", messages.sign_in(user, password)

    def token(self, reply: GrpcReply) -> str:
        return messages.token(reply.content)

    def refused(self, where: str, user: str | None, refusal: Refusal) -> Exception:
        return requests.meaning(where, user, refusal, _stranger)


def _stranger(where: str, refusal: Refusal) -> StoreError | None:
    if refusal.code == _UNIMPLEMENTED:
        return StoreRefused(f"{where} speaks gRPC, but not as etcd: {refusal.message}")
    if refusal.code is not None or refusal.status in _TEMPORARY:
        return None
    said = refusal.message.partition("\n")[0].strip()[:80]
    return StoreRefused(
        f"{where} answers, but does not speak gRPC ({said}). Check that the port is etcd's client port, and that a "
        "proxy in between passes HTTP/2 on; etcd:// may do without."
    )
