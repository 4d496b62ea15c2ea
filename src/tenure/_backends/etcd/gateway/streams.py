"""The gateway's two kinds of stream that carry watches: a WebSocket, and one long POST.

etcd's gateway speaks WebSocket on /v3/watch, where watches are added and cancelled as one goes. With etcd
users enabled it refuses that, whatever carries the token; there one streaming POST with all create requests
in its body does, opened anew when a watch is added.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Final

from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from tenure._backends.etcd.gateway import json_codec
from tenure._backends.etcd.gateway.json_codec import Json
from tenure._backends.etcd.requests import WatchMessage, WatchRequest
from tenure._transport.http import LineStream, host_header

_MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
_RECEIVE_BYTES: Final = 64 * 1024


class WebSocketStream:
    """Watches over a WebSocket: added and cancelled while it is open."""

    takes_more = True
    silence_seconds = 5.0

    def __init__(self, sock: socket.socket, endpoint: tuple[str, int]) -> None:
        self.sock = sock
        self._protocol = ClientProtocol(
            parse_uri(f"ws://{host_header(endpoint)}/v3/watch"), max_size=_MESSAGE_BYTES_MAX
        )
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        while self._protocol.state is State.CONNECTING:
            self._feed()
        if self._protocol.handshake_exc is not None:
            raise OSError(str(self._protocol.handshake_exc)) from self._protocol.handshake_exc

    def create(self, watch_id: int, watch: WatchRequest) -> None:
        self._send(json_codec.create(watch_id, watch))

    def cancel(self, watch_id: int) -> None:
        self._send(json_codec.cancel(watch_id))

    def _send(self, request: Json) -> None:
        self._protocol.send_text(json.dumps(request, separators=(",", ":")).encode())
        self._flush()

    def ping(self) -> bool:
        self._protocol.send_ping(b"")
        self._flush()
        return True

    def receive(self) -> list[WatchMessage]:
        messages = []
        for event in self._feed():
            if isinstance(event, Frame):
                if event.opcode is Opcode.CLOSE:
                    raise EOFError("the server closed the watch")
                if event.opcode is Opcode.TEXT and event.data:
                    lines = bytes(event.data).splitlines()
                    messages += [json_codec.watch_message(json.loads(line)) for line in lines if line]
        return messages

    def _feed(self) -> list[Frame | Response]:
        data = self.sock.recv(_RECEIVE_BYTES)
        if not data:
            raise EOFError("the server hung up")
        try:
            self._protocol.receive_data(data)
        except WebSocketException as error:
            raise OSError(f"what came back is no WebSocket: {error}") from error
        self._flush()
        events: list[Frame | Response] = [
            e for e in self._protocol.events_received() if isinstance(e, (Frame, Response))
        ]
        return events

    def _flush(self) -> None:
        out = b"".join(self._protocol.data_to_send())
        if out:
            self.sock.sendall(out)


class PostStream:
    """Watches over one streaming POST: all of them in its body."""

    takes_more = False
    silence_seconds = 5.0

    def __init__(
        self, sock: socket.socket, endpoint: tuple[str, int], token: str, watches: Mapping[int, WatchRequest]
    ) -> None:
        self.sock = sock
        # All of them begin where they are to: each would have to catch up whenever another one is added.
        creates = [json_codec.create(number, watch._replace(catch_up=None)) for number, watch in watches.items()]
        body = b"\n".join(json.dumps(create, separators=(",", ":")).encode() for create in creates)
        self._stream = LineStream(sock, endpoint, "/v3/watch", body, token)

    def create(self, watch_id: int, watch: WatchRequest) -> None:
        raise ValueError(f"a streaming POST takes no more requests once it is sent: watch {watch_id}")

    def cancel(self, watch_id: int) -> None:
        """Do nothing: the watch goes on unheard until the stream is opened anew."""

    def ping(self) -> bool:
        return False  # the kernel asks, see LineStream

    def receive(self) -> list[WatchMessage]:
        return [json_codec.watch_message(json.loads(line)) for line in self._stream.receive()]
