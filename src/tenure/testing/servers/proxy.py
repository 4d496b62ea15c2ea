"""A TCP proxy that breaks the connection between a client and one server, on demand and exactly.

Faults of the network: `blackhole`, `refuse`, `reset`, `delay`, ended by `heal`. Faults of one answer: `lose_answer`
(it happened, nobody heard), `lose_request` (it did not happen), `hold_answer` (it happened, heard later), armed for
the next matching request and ended by firing or by `forget`. They work on plain HTTP/1.1, HTTP/2 and jute; with TLS use
protocol "raw", where nothing matches.

One thread runs one event loop that owns all state; public methods hand their work to it and return when it is done,
so a fault is in force when its method returns. `match` is called in that thread: it must be quick and must not call
the proxy.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Coroutine
from types import TracebackType
from typing import NamedTuple, TypeVar

from tenure.testing.servers.framing import WireProtocol
from tenure.testing.servers.processes import give_back
from tenure.testing.servers.wire import LOOPBACK, FaultRule, FrameFate, HeldAnswer, Match, ProxyState

T = TypeVar("T")

_CALL_SECONDS = 10.0


class WebSocketFrames(NamedTuple):
    """Frames completed since the proxy started, over all upgraded connections."""

    to_server: int
    to_client: int


class FaultProxy:
    """Listens on `endpoint`, forwards to `target`; use it as a context manager or call `close()`.

    `host` is the address of this machine that it listens on and forwards from.
    """

    def __init__(self, target: str, protocol: WireProtocol, *, host: str = LOOPBACK) -> None:
        self._loop = asyncio.new_event_loop()
        self._wire = ProxyState(target, protocol, self._loop, host)
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._closed = False
        self._thread.start()
        self._port = 0
        try:
            self._port = self._call(self._wire.listen_anywhere())
        except BaseException:  # an interrupt must not leave the thread behind either
            self.close()
            raise

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<FaultProxy {self.endpoint} to {self._wire.target}>"

    @property
    def endpoint(self) -> str:
        return f"{self._wire.host}:{self._port}"

    @property
    def requests(self) -> Counter[str | int]:
        """A copy: requests by path (etcd) or opcode (zookeeper), as clients sent them, lost ones included."""
        with self._wire.counting:
            return Counter(self._wire.requests)

    @property
    def websocket_frames(self) -> WebSocketFrames:
        with self._wire.counting:
            return WebSocketFrames(self._wire.websocket_to_server, self._wire.websocket_to_client)

    @property
    def connections(self) -> int:
        """The number of client connections that are open now."""
        return self._call(self._wire.count_links())

    def blackhole(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Keep connections, accept new ones, and forward nothing in these directions, not even their end.

        A direction given as False flows again. What is swallowed never arrives later: see `heal`.
        """
        self._call(self._wire.blackhole(to_server=to_server, to_client=to_client))

    def refuse(self) -> None:
        """Refuse new connections and RST the open ones, until `heal`."""
        self._call(self._wire.refuse())

    def reset(self) -> None:
        """RST every open connection once; new ones are served."""
        self._call(self._wire.reset())

    def delay(self, *, to_client: float = 0.0, to_server: float = 0.0) -> None:
        """Every byte from now on arrives this many seconds later, in order; zero ends it."""
        self._call(self._wire.delay(to_client=to_client, to_server=to_server))

    def heal(self) -> None:
        """End blackhole, refuse and delay. Connections that lost bytes in a blackhole are RST, the others live on.

        Leaves faults of single answers alone: see `forget` and `HeldAnswer.release`.
        """
        self._call(self._wire.heal(self._port))

    def lose_answer(self, match: Match, times: int = 1) -> threading.Event:
        """Forward the next matching requests; when the server begins to answer, swallow that and RST the connection.

        The event is set when the last of `times` has fired.
        """
        return self._arm(FrameFate.LOSE_ANSWER, match, times).done

    def lose_request(self, match: Match, times: int = 1) -> threading.Event:
        """Do not forward the next matching requests; RST the connection instead. The event is as above."""
        return self._arm(FrameFate.LOSE_REQUEST, match, times).done

    def swallow_request(self, match: Match, times: int = 1) -> threading.Event:
        """Do not forward the next matching requests, and let the connection live on. The event is as above."""
        return self._arm(FrameFate.SWALLOW_REQUEST, match, times).done

    def hold_answer(self, match: Match) -> HeldAnswer:
        """Forward the next matching request and hold its answer, and all that follows it, until released."""
        return self._arm(FrameFate.HOLD_ANSWER, match, 1).held

    def forget(self) -> None:
        """Drop the faults of single answers that have not met their request yet."""
        self._call(self._wire.forget())

    def close(self) -> None:
        """Close everything, clients get RST, and end the thread. Idempotent.

        Raises the first exception a `match` raised: a fault that could not be decided is no test.
        """
        if self._closed:
            return
        try:
            self._call(self._wire.refuse())
        finally:
            self._closed = True
            self._stop_thread()
        if self._wire.match_error is not None:
            raise self._wire.match_error

    def _stop_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_SECONDS)
        self._loop.close()
        give_back(self._port)

    def _arm(self, fate: FrameFate, match: Match, times: int) -> FaultRule:
        rule = FaultRule(fate, match, left=times, unfired=times, held=HeldAnswer(self._loop))
        self._call(self._wire.arm(rule))
        return rule

    def _call(self, work: Coroutine[None, None, T]) -> T:
        if self._closed:
            work.close()
            raise RuntimeError(f"{self!r} is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECONDS)
