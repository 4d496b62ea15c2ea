"""The inside of a FaultProxy: faults, sockets and lanes in one event loop. See proxy for what it promises.

A test arms a `FaultRule` for one answer and gets a handle of it; `ProxyState` owns the state of one proxy and decides
when a rule meets its request; a `_ProxiedConnection` is one client connection. Bytes go through two ordered lanes, so
that delay, hold, loss and the end of a connection keep the order in which they were decided.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from tenure.testing.servers.framing import Conversation, FramedRequest, Piece, WireProtocol, conversation
from tenure.testing.servers.processes import free_port

Match: TypeAlias = Callable[..., bool]  # (method, path, body or message) for etcd, (opcode, frame) for zookeeper


class HeldAnswer:
    """An answer on its way that waits. Later bytes of the same connection wait behind it, as on a real wire."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.arrived: threading.Event = threading.Event()
        self._loop = loop
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let it pass. Idempotent; before the answer has come, it will not be held."""
        with contextlib.suppress(RuntimeError):  # the proxy is closed: nothing waits any more
            self._loop.call_soon_threadsafe(self._released.set)

    async def wait_released(self) -> None:
        """Wait until the test releases it. Without a bound: closing the proxy ends the wait by cancelling it."""
        await self._released.wait()


class FrameFate(Enum):
    LOSE_ANSWER = "lose answer"
    LOSE_REQUEST = "lose request"
    SWALLOW_REQUEST = "swallow request"
    HOLD_ANSWER = "hold answer"


@dataclass
class FaultRule:
    """A fault armed for the next `left` matching requests, of which `unfired` are still to hit their target."""

    fate: FrameFate
    match: Match
    left: int
    unfired: int
    held: HeldAnswer
    done: threading.Event = field(default_factory=threading.Event)

    def take(self, request: FramedRequest) -> bool:
        """Use up one of `left` where this request matches, and say whether it does."""
        if not self.match(*request.arguments):
            return False
        self.left -= 1
        return True

    def fire(self) -> None:
        self.unfired -= 1
        if self.unfired == 0:
            self.done.set()


LOOPBACK = "127.0.0.1"
_CONNECT_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
_READ_BYTES = 64 * 1024
_QUEUED_PIECES_MAX = 1024
_PORT_TRIES_MAX = 5
_LINGER_ZERO = struct.pack("ii", 1, 0)  # closing sends RST


class ProxyState:
    """All state of one proxy. Touched by the loop's thread only, but for the counters."""

    def __init__(self, target: str, protocol: WireProtocol, loop: asyncio.AbstractEventLoop, host: str) -> None:
        self.target = target
        self.host = host
        # Beside loopback a proxy is told apart by its address, on both sides; from loopback one gets nowhere else.
        self.source: tuple[str, int] | None = None if host == LOOPBACK else (host, 0)
        self.loop = loop
        self.to_server: _Direction = _Direction()
        self.to_client: _Direction = _Direction()
        self.counting: threading.Lock = threading.Lock()  # guards requests and websocket_*
        self.requests: Counter[str | int] = Counter()
        self.websocket_to_server: int = 0
        self.websocket_to_client: int = 0
        self.match_error: Exception | None = None
        self._protocol = protocol
        self._rules: list[FaultRule] = []
        self._links: dict[_ProxiedConnection, asyncio.Task[None]] = {}
        self._listener: socket.socket | None = None

    async def listen_anywhere(self) -> int:
        """Listen on a port nobody else took first, and say which."""
        for _ in range(_PORT_TRIES_MAX - 1):
            port = free_port()
            with contextlib.suppress(OSError):
                await self.listen(port)
                return port
        await self.listen(port := free_port())
        return port

    async def listen(self, port: int) -> None:
        """Accept connections.

        Not by asyncio's own server: closed between accept and hand-over, it loses the connection without a RST.
        """
        self._listener = socket.create_server((self.host, port))
        self._listener.setblocking(False)
        self.loop.add_reader(self._listener, self._accept, self._listener)

    async def count_links(self) -> int:
        return len(self._links)

    async def blackhole(self, *, to_server: bool, to_client: bool) -> None:
        self.to_server.blackholed = to_server
        self.to_client.blackholed = to_client

    async def refuse(self) -> None:
        if self._listener is not None:
            self.loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self.reset()

    async def reset(self) -> None:
        await self._end(list(self._links))

    async def delay(self, *, to_client: float, to_server: float) -> None:
        self.to_client.delay_seconds = to_client
        self.to_server.delay_seconds = to_server

    async def heal(self, port: int) -> None:
        await self.blackhole(to_server=False, to_client=False)
        await self.delay(to_client=0.0, to_server=0.0)
        await self._end([link for link in self._links if link.lost_bytes])
        if self._listener is None:
            await self.listen(port)

    async def arm(self, rule: FaultRule) -> None:
        self._rules.append(rule)

    async def forget(self) -> None:
        self._rules.clear()

    def rule_for(self, request: FramedRequest) -> FaultRule | None:
        """The first armed rule that takes this request."""
        try:
            found = next((rule for rule in self._rules if rule.take(request)), None)
        except Exception as error:
            # The test's own function: its bug is told by close(), not by a connection that falls silent.
            self.match_error = self.match_error or error
            return None
        self._rules = [rule for rule in self._rules if rule.left]
        return found

    def count(self, piece: Piece, *, to_server: bool) -> None:
        with self.counting:
            if to_server:
                self.websocket_to_server += piece.websocket_frames
            else:
                self.websocket_to_client += piece.websocket_frames
            if to_server and piece.request is not None:
                self.requests[piece.request.label] += 1

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):  # the client thought better of it
            accepted, _ = listener.accept()
            link = _ProxiedConnection(self, conversation(self._protocol), accepted)
            self._links[link] = task = self.loop.create_task(link.run())
            task.add_done_callback(lambda _: self._links.pop(link))

    async def _end(self, links: list[_ProxiedConnection]) -> None:
        tasks = [self._links[link] for link in links]
        for link in links:
            link.reset()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)


class _Direction:
    """The network's treatment of bytes in one direction."""

    def __init__(self) -> None:
        self.blackholed = False
        self.delay_seconds: float = 0.0


class _Side(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class _DirectionEnd(Enum):
    """The way in which a direction ends, queued behind its last bytes."""

    CLOSE = "close"
    RESET = "reset"


@dataclass(frozen=True)
class _Parcel:
    """A piece on its way: bytes or an end, not to arrive before `due`, nor before `held` is released."""

    content: bytes | _DirectionEnd
    due: float
    rule: FaultRule | None = None


class _ProxiedConnection:
    """A client connection and its connection to the server. Each direction is a reader and an ordered lane."""

    def __init__(self, wire: ProxyState, talk: Conversation, accepted: socket.socket) -> None:
        # Accepted into a blackhole: the server never hears of this connection, so heal() must end it.
        self._stillborn = wire.to_server.blackholed
        self.lost_bytes = self._stillborn
        self._wire = wire
        self._talk = talk
        self._accepted = accepted
        self._client: _Side | None = None
        self._server: _Side | None = None
        self._ended = asyncio.Event()
        self._rules: dict[int, FaultRule] = {}
        self._to_server: asyncio.Queue[_Parcel] = asyncio.Queue(_QUEUED_PIECES_MAX)
        self._to_client: asyncio.Queue[_Parcel] = asyncio.Queue(_QUEUED_PIECES_MAX)

    async def run(self) -> None:
        # asyncio does this only for sockets it made itself; without it every answer waits for a delayed ACK
        self._accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client = _Side(*await asyncio.open_connection(sock=self._accepted))
        tasks: list[asyncio.Task[object]] = [
            asyncio.create_task(self._forward(self._client)),
            asyncio.create_task(self._ended.wait()),
        ]
        try:
            # No bound: a connection lasts as long as its ends or the proxy want it to.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._clean_up(tasks)

    def reset(self) -> None:
        """RST both ends now; whatever was under way is lost."""
        for side in self._sides():
            _abort(side.writer)
        self._ended.set()

    def _sides(self) -> list[_Side]:
        return [side for side in (self._client, self._server) if side is not None]

    async def _forward(self, client: _Side) -> None:
        if self._ended.is_set():
            self.reset()  # told to end while its socket was being wrapped
            return
        if self._stillborn:
            await self._ended.wait()  # no bound: until heal, reset or close
            return
        try:
            self._server = server = await self._connect()
        except OSError:
            self.reset()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(client.reader, self._from_client, self._to_server, self._wire.to_server))
            group.create_task(self._read(server.reader, self._from_server, self._to_client, self._wire.to_client))
            group.create_task(self._deliver(self._to_server, server.writer, self._wire.to_server))
            group.create_task(self._deliver(self._to_client, client.writer, self._wire.to_client))

    async def _connect(self) -> _Side:
        host, _, port = self._wire.target.rpartition(":")
        async with asyncio.timeout(_CONNECT_SECONDS):
            return _Side(*await asyncio.open_connection(host, int(port), local_addr=self._wire.source))

    async def _read(
        self,
        reader: asyncio.StreamReader,
        parse: Callable[[bytes], list[tuple[bytes | _DirectionEnd, FaultRule | None]]],
        lane: asyncio.Queue[_Parcel],
        direction: _Direction,
    ) -> None:
        while True:
            content = await _read_some(reader)
            due = self._wire.loop.time() + direction.delay_seconds
            if isinstance(content, _DirectionEnd):
                await lane.put(_Parcel(content, due))
                return
            for part, rule in parse(content):
                await lane.put(_Parcel(part, due, rule))

    def _from_client(self, data: bytes) -> list[tuple[bytes | _DirectionEnd, FaultRule | None]]:
        return [self._judge_request(piece) for piece in self._talk.requests(data)]

    def _judge_request(self, piece: Piece) -> tuple[bytes | _DirectionEnd, FaultRule | None]:
        self._wire.count(piece, to_server=True)
        rule = self._wire.rule_for(piece.request) if piece.request else None
        if rule is None or piece.request is None:
            return piece.data, None
        if rule.fate is FrameFate.LOSE_REQUEST:
            return _DirectionEnd.RESET, rule
        if rule.fate is FrameFate.SWALLOW_REQUEST:
            rule.fire()
            return b"", None
        self._rules[piece.request.number] = rule
        return piece.data, None

    def _from_server(self, data: bytes) -> list[tuple[bytes | _DirectionEnd, FaultRule | None]]:
        return [self._judge_answer(piece) for piece in self._talk.answers(data)]

    def _judge_answer(self, piece: Piece) -> tuple[bytes | _DirectionEnd, FaultRule | None]:
        self._wire.count(piece, to_server=False)
        rule = self._rules.pop(piece.request.number, None) if piece.request else None
        if rule is not None and rule.fate is FrameFate.LOSE_ANSWER:
            return _DirectionEnd.RESET, rule
        if rule is not None:
            rule.held.arrived.set()
        return piece.data, rule

    async def _deliver(self, lane: asyncio.Queue[_Parcel], writer: asyncio.StreamWriter, direction: _Direction) -> None:
        while True:
            parcel = await lane.get()
            await asyncio.sleep(max(0.0, parcel.due - self._wire.loop.time()))
            if parcel.rule is not None and parcel.rule.fate is FrameFate.HOLD_ANSWER:
                await parcel.rule.held.wait_released()
            if direction.blackholed:
                self.lost_bytes = True
                continue
            if isinstance(parcel.content, _DirectionEnd):
                self._end(parcel)
                return
            await self._write(writer, parcel.content)

    def _end(self, parcel: _Parcel) -> None:
        if parcel.content is _DirectionEnd.RESET:
            self.reset()
        if parcel.rule is not None:
            parcel.rule.fire()
        self._ended.set()

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        try:
            writer.write(data)
            await writer.drain()
        except OSError:
            self.reset()

    async def _clean_up(self, tasks: Iterable[asyncio.Task[object]]) -> None:
        if not self._ended.is_set():
            self.reset()  # forwarding failed: nonsense where HTTP should be
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for side in self._sides():
            side.writer.close()
            await _closed(side.writer)


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close with RST, and forget unsent bytes."""
    with contextlib.suppress(OSError):  # already closed by its peer
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    writer.transport.abort()


async def _closed(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):  # the peer may have gone; the socket is closed anyway
        async with asyncio.timeout(_CLOSE_SECONDS):
            await writer.wait_closed()


async def _read_some(reader: asyncio.StreamReader) -> bytes | _DirectionEnd:
    """The next bytes, or how the connection ended."""
    try:
        return await reader.read(_READ_BYTES) or _DirectionEnd.CLOSE
    except OSError:
        return _DirectionEnd.RESET
