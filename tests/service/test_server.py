"""A service's life from inside: its sockets, failures while it begins, and signals at any time. On the memory store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure import aio
from tenure.errors import InvalidOption
from tenure.service import server
from tenure.service.server import bound
from tenure.service.settings import Address, Settings

PATIENCE_SECONDS = 30.0
SETTINGS = Settings(listen=(Address("127.0.0.1", 0),), access_log=False)


def serve(connect: Callable[[], aio.Client], started: Callable[[list[str]], None]) -> None:
    """Serve as the program does; a service that hangs fails the test."""
    asyncio.run(asyncio.wait_for(server._serve(connect, SETTINGS, None, None, started), PATIENCE_SECONDS))


def end(*_: Any) -> None:
    """End the service as an operator does."""
    os.kill(os.getpid(), signal.SIGTERM)


def test_server_that_fails_ends_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that can serve nobody must not go on, and lead; it says what went wrong."""

    async def fail(_: Any) -> None:
        raise OSError("somebody else listens")

    monkeypatch.setattr(server._UvicornServer, "serve", fail)
    with pytest.raises(OSError, match="somebody else listens"):
        serve(lambda: aio.connect("memory://fails"), end)


def test_signal_ends_a_service_that_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM counts from the first moment, also where it never comes to serving."""
    urls: list[list[str]] = []

    async def never_begin(self: Any) -> None:
        end()
        while not self.should_exit:
            await asyncio.sleep(0.01)

    monkeypatch.setattr(server._UvicornServer, "serve", never_begin)
    serve(lambda: aio.connect("memory://begins"), urls.append)
    assert urls == []


def test_second_signal_hastens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second signal, when all is answered and the client of the store is closing, leaves that to its end."""
    ends: list[str] = []
    close = aio.Client.__aexit__

    async def impatient(client: aio.Client, *error: Any) -> None:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "a second SIGTERM would have killed it here"
        end()
        await close(client, *error)
        ends.append("closed")

    monkeypatch.setattr(aio.Client, "__aexit__", impatient)
    serve(lambda: aio.connect("memory://impatient"), end)
    assert ends == ["closed"]


def test_port_is_taken_before_its_service_has_begun() -> None:
    """Services that are started in one moment: the second is refused at once, and not when it has begun to lead."""
    with bound(Address("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(InvalidOption, match="Address already in use"), bound(Address("127.0.0.1", port)):
            pass


def test_socket_of_a_successor_stays(tmp_path: Path) -> None:
    """A service that listens no longer, and ends later, takes away its own file and no other."""
    path = tmp_path / "tenure.sock"
    address = Address(path=str(path))
    with contextlib.ExitStack() as ending:
        ending.enter_context(bound(address)).close()
        with bound(address):
            ending.close()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
        assert not path.exists()


def test_file_that_was_taken_away_already_is_not_missed(tmp_path: Path) -> None:
    """A file that was removed by others: the service ends all the same."""
    path = tmp_path / "tenure.sock"
    with bound(Address(path=str(path))):
        path.unlink()
