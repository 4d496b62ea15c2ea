"""A service's life: bind, connect, serve, drain, end.

SIGTERM or SIGINT begins the end: nothing new is begun, waiting requests are answered with 503, streams end. Holds with
timers here would end with this service: each is given up when its owner has released it or can't believe in it any
more, since nobody else must be admitted before. Until then, and within the drain, owners are answered. So the end takes
the drain or one TTL, whichever is longer, and the time of the store; a second signal does not hasten it. To kill the
service within that time is safe: the store waits for the TTL then. SIGHUP reads tokens and certificates again.

The sockets are made before anything else: a service that can't listen says so at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import resource
import signal
import socket
import ssl
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final

import uvicorn
import uvloop

from tenure import aio
from tenure.errors import InvalidOption
from tenure.service.api.openapi import PROBES, SCRAPED, SERVED
from tenure.service.auth.tokens import Tokens
from tenure.service.holds.keeper import Keeper
from tenure.service.http.app import App
from tenure.service.http.connection import HttpProtocol
from tenure.service.http.listener import ConnectionRoom, Listener, connections_max
from tenure.service.http.routing import Routes
from tenure.service.limits import KEEP_ALIVE_SECONDS, PROBE_CONNECTIONS_MAX
from tenure.service.log import AccessLog, written_aside
from tenure.service.service import Service
from tenure.service.settings import Address, NewestContext, Settings

_log = logging.getLogger("tenure.service")
_ANSWERS_SECONDS: Final = 5
"""Time at the end for answers that are on their way."""
_HSTS: Final = ("strict-transport-security", "max-age=31536000")
"""A browser that came by TLS comes by nothing else for a year."""


def serve(connect: Callable[[], aio.Client], settings: Settings, started: Callable[[list[str]], None]) -> None:
    """Serve until a signal ends it. Calls `started` with the URLs once it can be used. Raises InvalidOption."""
    settings.check()
    context = None if settings.cert is None else NewestContext(settings)
    tokens = None if settings.tokens is None else Tokens(settings.tokens)
    _allow_many_connections()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(connect, settings, context, tokens, started))


async def _serve(
    connect: Callable[[], aio.Client],
    settings: Settings,
    context: NewestContext | None,
    tokens: Tokens | None,
    started: Callable[[list[str]], None],
) -> None:
    ended = asyncio.Event()

    def reload() -> None:
        for part in (context, tokens):
            if part is not None:
                part.reload()

    with written_aside() as log, _signals(ended.set, reload), contextlib.ExitStack() as sockets:
        listening = [(sockets.enter_context(bound(address)), context) for address in settings.listen]
        probed = [(sockets.enter_context(bound(address)), routes) for address, routes in _probed(settings)]
        advertise = settings.advertise or url_of(listening[0][0], tls=context is not None)
        async with AsyncExitStack() as parts:
            client = await parts.enter_async_context(connect())
            keeper = Keeper(client, address=advertise)
            parts.push_async_callback(keeper.close)
            service = Service.over(client, keeper, elect=settings.elect, maximum=settings.maximum, tokens=tokens)
            parts.push_async_callback(service.remote_leases.end)
            parts.push_async_callback(service.candidates.resign)
            room = ConnectionRoom(connections_max())
            for counts in (log, room):
                service.registry.register(counts)
            access = AccessLog(log if settings.access_log else None)
            app = App(service, SERVED, access, names=settings.names)
            servers = [
                _UvicornServer(app, sock, None if sock.family == socket.AF_UNIX else tls, room)
                for sock, tls in listening
            ]
            for sock, routes in probed:
                probes = App(service, routes, AccessLog(None), names=None)  # a kubelet calls it by the pod's address
                servers.append(_UvicornServer(probes, sock, None, ConnectionRoom(PROBE_CONNECTIONS_MAX)))
            await _run(service, servers, settings, ended, started)


def _probed(settings: Settings) -> Iterator[tuple[Address, Routes]]:
    """Yield where probes and metrics are answered without a token. Metrics show parts of names, probes none."""
    if settings.health is not None:
        yield settings.health, Routes(PROBES if settings.metrics is not None else (*PROBES, SCRAPED))
    if settings.metrics is not None:
        yield settings.metrics, Routes((SCRAPED,))


async def _run(
    service: Service,
    servers: list[_UvicornServer],
    settings: Settings,
    ended: asyncio.Event,
    started: Callable[[list[str]], None],
) -> None:
    """Serve until `ended`, then until the last answer is sent and no owner believes in a hold that ends here.

    Raises the exception of a server that failed.
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
    service: Service, servers: list[_UvicornServer], tasks: Sequence[asyncio.Task[Any]], drain_seconds: float
) -> None:
    """Begin nothing new, let owners release, answer requests under way; return when no owner believes any more."""
    service.shutdown.begin()
    resigned = asyncio.create_task(service.candidates.resign())
    unbelieved = asyncio.create_task(service.keeper.until_unbelieved())
    cut_off = asyncio.get_running_loop().time() + drain_seconds
    # Owners may release in a share of the drain; the rest is for answers on their way.
    await asyncio.wait((unbelieved,), timeout=max(drain_seconds - _ANSWERS_SECONDS, drain_seconds / 2))
    for server in servers:
        server.should_exit = True
    try:
        async with asyncio.timeout_at(cut_off):
            await asyncio.gather(*tasks, return_exceptions=True)
    except TimeoutError:
        _log.warning("not all requests ended within %g s; they are cut off", drain_seconds)
    await asyncio.gather(resigned, unbelieved)


async def _all_listen(servers: list[_UvicornServer]) -> None:
    """Return once all servers accept connections."""
    while not all(server.started for server in servers):
        await asyncio.sleep(0.005)  # uvicorn has no other sign of it than this flag


class _UvicornServer(uvicorn.Server):
    """uvicorn on one socket, without its signal handlers."""

    def __init__(self, app: App, sock: socket.socket, context: ssl.SSLContext | None, room: ConnectionRoom) -> None:
        config = uvicorn.Config(
            app,
            http=HttpProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("x-content-type-options", "nosniff"), *([] if context is None else [_HSTS])],
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_ANSWERS_SECONDS,
        )
        config.load()
        super().__init__(config)
        self.url = url_of(sock, tls=context is not None)
        self._room = room
        self._listen = functools.partial(Listener, sock, context, room)

    async def serve(self, sockets: Any = None) -> None:
        """Serve until `should_exit`."""
        await super().serve([])

    async def startup(self, sockets: Any = None) -> None:
        """Begin to listen, by a Listener in place of asyncio's server."""
        await super().startup([])
        listening: list[Any] = self.servers
        listening.append(self._listen(self._protocol))

    def _protocol(self) -> HttpProtocol:
        return HttpProtocol(self._room, config=self.config, server_state=self.server_state, app_state={})

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: `_signals` handles them once for all servers."""
        yield


@contextmanager
def _signals(end: Callable[[], object], reload: Callable[[], object]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


def _allow_many_connections() -> None:
    """Raise the limit of open files as far as allowed: each waiting request is a connection."""
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))


_BACKLOG = 2048
_SOCKET_UMASK = 0o117
"""A UNIX socket is for its user and group: without tokens, everybody who may write to it may do everything."""


@contextmanager
def bound(address: Address) -> Iterator[socket.socket]:
    """Yield a socket that listens there until the end of the block; then its file is removed. Raises InvalidOption.

    Of two services at one address only one gets so far.
    """
    try:
        sock = _unix(address.path) if address.path is not None else _tcp(address)
    except OSError as error:
        raise InvalidOption(f"can't listen on {address}: {error.strerror or error}") from error
    made = None if address.path is None else _file(address.path)
    try:
        yield sock
    finally:
        sock.close()
        if address.path is not None and _file(address.path) == made:  # else a successor's, which found it stale
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address.path)


def url_of(sock: socket.socket, *, tls: bool) -> str:
    """Return the URL at which clients reach the socket."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def _file(path: str) -> tuple[int, int, int] | None:
    """Identify the file at a path; None where there is none. By its time, too: inode numbers are used again."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _tcp(address: Address) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(_BACKLOG)  # a port that is only bound can be bound by the next one as well
    except BaseException:
        sock.close()
        raise
    return sock


def _unix(path: str) -> socket.socket:
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(_SOCKET_UMASK)
    try:
        sock.bind(path)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock


def _remove_stale(path: str) -> None:
    """Remove the socket of a service that was killed. Raises InvalidOption where somebody listens on it."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise InvalidOption(f"{path} is there, and is no socket: nothing was removed")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise InvalidOption(f"somebody listens on {path} already")
