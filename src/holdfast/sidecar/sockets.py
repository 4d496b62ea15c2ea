"""The sockets a service listens on, made before anything else is begun: who can't listen says so at once."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

from holdfast.errors import InvalidOption
from holdfast.sidecar.settings import Address

_BACKLOG = 2048
_OTHERS = 0o117
"""A UNIX socket is for its user and group: who may write to it may do everything, where no token is asked for."""


def bound(address: Address) -> socket.socket:
    """A socket that listens there: of two services only one gets so far. Raises InvalidOption."""
    try:
        return _unix(address.path) if address.path is not None else _tcp(address)
    except OSError as error:
        raise InvalidOption(f"can't listen on {address}: {error.strerror or error}") from error


def url_of(sock: socket.socket, *, tls: bool) -> str:
    """How a client calls it."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def removed(sock: socket.socket, address: Address) -> None:
    """Close it, and take its file away."""
    sock.close()
    if address.path is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address.path)


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
    before = os.umask(_OTHERS)
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
    """A socket that nobody listens on, of a service that was killed. Raises InvalidOption where somebody does."""
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
