"""A service's life: bind, begin, serve, drain, end.

SIGTERM or SIGINT begins the end: nothing new is begun, waiting requests are answered with 503, streams end. What others
hold here, and would end with this service, is given up when they have released it or can't believe in it any more:
nobody else must be admitted before. Until then, and within the drain, they are answered. So the end takes the drain or
one TTL, whichever is longer, and what the store takes; a second signal does not hasten it. To kill the service within
that time is safe: the store waits for the TTL then. SIGHUP reads tokens and certificates again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final

import uvicorn
import uvloop

from holdfast import aio
from holdfast.errors import InvalidOption
from holdfast.sidecar.access import AccessLog
from holdfast.sidecar.app import App
from holdfast.sidecar.auth import Tokens
from holdfast.sidecar.bounds import KEEP_ALIVE_SECONDS
from holdfast.sidecar.keeping import Keeper
from holdfast.sidecar.protocol import Connection
from holdfast.sidecar.service import Service
from holdfast.sidecar.settings import Settings, load_certificate, tls_context
from holdfast.sidecar.sockets import bound, url_of
from holdfast.sidecar.table import PROBES, SERVED

_log = logging.getLogger("holdfast.sidecar")
_ANSWERS_SECONDS: Final = 5
"""For how long answers that are on their way may take at the end."""


def serve(connect: Callable[[], aio.Client], settings: Settings, started: Callable[[list[str]], None]) -> None:
    """Serve until a signal ends it. `started` is told the URLs once it can be used. Raises InvalidOption."""
    settings.check()
    if settings.tokens_in_clear:
        _log.warning("tokens cross the network in clear: give --tls-cert and --tls-key, or let a proxy do TLS")
    context = tls_context(settings)
    tokens = None if settings.tokens is None else Tokens(settings.tokens)
    _allow_many_connections()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(connect, settings, context, tokens, started))


async def _serve(
    connect: Callable[[], aio.Client],
    settings: Settings,
    context: ssl.SSLContext | None,
    tokens: Tokens | None,
    started: Callable[[list[str]], None],
) -> None:
    ended = asyncio.Event()
    with _signals(ended.set, lambda: _reload(settings, context, tokens)), contextlib.ExitStack() as sockets:
        listening = [(sockets.enter_context(bound(address)), context) for address in settings.listen]
        probed = None if settings.health is None else sockets.enter_context(bound(settings.health))
        advertise = settings.advertise or url_of(listening[0][0], tls=context is not None)
        async with AsyncExitStack() as parts:
            client = await parts.enter_async_context(connect())
            keeper = Keeper(client, address=advertise)
            parts.push_async_callback(keeper.close)
            service = Service.over(client, keeper, elect=settings.elect, most=settings.most, tokens=tokens)
            parts.push_async_callback(service.lending.end)
            parts.push_async_callback(service.candidates.resign)
            access = AccessLog(sys.stderr if settings.access_log else None)
            app = App(service, SERVED, access, any_host=settings.insecure or not settings.asks_nobody)
            servers = [_Server(app, sock, None if sock.family == socket.AF_UNIX else tls) for sock, tls in listening]
            if probed is not None:
                probes = App(service, PROBES, AccessLog(None), any_host=True)  # a kubelet calls it by the pod's address
                servers.append(_Server(probes, probed, None))
            await _run(service, servers, settings, ended, started)


async def _run(
    service: Service,
    servers: list[_Server],
    settings: Settings,
    ended: asyncio.Event,
    started: Callable[[list[str]], None],
) -> None:
    """Until `ended`; then until nobody is answered, and nobody believes. What comes behind it is bounded, too.

    Raises what a server failed with.
    """
    running = [asyncio.create_task(server.serve()) for server in servers]
    over = asyncio.create_task(ended.wait())
    begun = asyncio.create_task(_all_listen(servers))
    helpers = [over, begun]
    if service.tokens is not None:
        helpers.append(asyncio.create_task(service.tokens.follow()))
    try:
        await asyncio.wait((begun, over, *running), return_when=asyncio.FIRST_COMPLETED)
        if begun.done():
            started([server.url for server in servers])
            await asyncio.wait((over, *running), return_when=asyncio.FIRST_COMPLETED)
        for server_task in running:
            if server_task.done():
                server_task.result()
    finally:
        _log.info("shutting down")
        for task in helpers:
            task.cancel()
        await _end(service, servers, [*running, *helpers], settings.drain_seconds)


async def _end(
    service: Service, servers: list[_Server], tasks: Sequence[asyncio.Task[Any]], drain_seconds: float
) -> None:
    """Begin nothing, let owners release, answer what is under way. When it returns nobody believes in what ends."""
    service.drain.begin()
    resigned = asyncio.create_task(service.candidates.resign())
    unbelieved = asyncio.create_task(service.keeper.until_unbelieved())
    cut_off = asyncio.get_running_loop().time() + drain_seconds
    await asyncio.wait((unbelieved,), timeout=_for_owners(drain_seconds))
    for server in servers:
        server.should_exit = True
    try:
        async with asyncio.timeout_at(cut_off):
            await asyncio.gather(*tasks, return_exceptions=True)
    except TimeoutError:
        _log.warning("not all requests ended within %g s; they are cut off", drain_seconds)
    await asyncio.gather(resigned, unbelieved)


async def _all_listen(servers: list[_Server]) -> None:
    """Returns once connections are accepted."""
    while not all(server.started for server in servers):
        await asyncio.sleep(0.005)  # uvicorn tells it by nothing but this flag


def _for_owners(drain_seconds: float) -> float:
    """How much of it they have for their releases; the rest is for answers that are on their way then."""
    return max(drain_seconds - _ANSWERS_SECONDS, drain_seconds / 2)


class _Server(uvicorn.Server):
    """uvicorn on one socket, without its signal handlers."""

    def __init__(self, app: App, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_ANSWERS_SECONDS,
        )
        config.load()
        config.ssl = context
        super().__init__(config)
        self.url = url_of(sock, tls=context is not None)
        self._sock = sock

    async def serve(self, sockets: Any = None) -> None:
        """Until `should_exit`."""
        await super().serve([self._sock])

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are heard once for all servers, in `_signals`."""
        yield


@contextmanager
def _signals(end: Callable[[], None], reload: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


def _reload(settings: Settings, context: ssl.SSLContext | None, tokens: Tokens | None) -> None:
    if tokens is not None:
        tokens.reload()
    if context is not None:
        try:
            load_certificate(context, settings)
        except InvalidOption as error:
            _log.error("the certificate stays as it was: %s", error)


def _allow_many_connections() -> None:
    """Each waiting request is a connection: as many as the machine allows this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
