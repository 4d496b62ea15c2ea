"""The sockets a service listens on, made before anything else is begun: who can't listen says so at once."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import InvalidOption
from holdfast.sidecar.settings import Address

_BACKLOG = 2048
_OTHERS = 0o117
"""A UNIX socket is for its user and group: who may write to it may do everything, where no token is asked for."""


@contextmanager
def bound(address: Address) -> Iterator[socket.socket]:
    """A socket that listens there, until the end of the block, and its file goes with it. Raises InvalidOption.

    Of two services only one gets so far.
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
        if address.path is not None and _file(address.path) == made:  # else a successor's, who found nobody listening
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address.path)


def url_of(sock: socket.socket, *, tls: bool) -> str:
    """How a client calls it."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def _file(path: str) -> tuple[int, int, int] | None:
    """Which file stands there; None where none does. By its time, too: numbers of files are used again."""
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
