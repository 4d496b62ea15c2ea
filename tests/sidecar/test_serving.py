"""A service's life from inside: what goes wrong while it begins, and signals at any time. On the memory store."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import aio
from holdfast.sidecar import serving
from holdfast.sidecar.settings import Address, Settings

PATIENCE_SECONDS = 30.0
SETTINGS = Settings(listen=(Address("127.0.0.1", 0),), access_log=False)


def serve(connect: Callable[[], aio.Client], started: Callable[[list[str]], None]) -> None:
    """As the program does; a service that hangs fails the test."""
    asyncio.run(asyncio.wait_for(serving._serve(connect, SETTINGS, None, None, started), PATIENCE_SECONDS))


def end(*_: Any) -> None:
    """As an operator does."""
    os.kill(os.getpid(), signal.SIGTERM)


def test_server_that_fails_ends_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that can serve nobody must not go on, and lead; it says what went wrong."""

    async def fail(_: Any) -> None:
        raise OSError("somebody else listens")

    monkeypatch.setattr(serving._Server, "serve", fail)
    with pytest.raises(OSError, match="somebody else listens"):
        serve(lambda: aio.connect("memory://fails"), end)


def test_signal_ends_a_service_that_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM counts from the first moment, also where it never comes to serving."""
    told: list[list[str]] = []

    async def never_begin(server: Any) -> None:
        end()
        while not server.should_exit:
            await asyncio.sleep(0.01)

    monkeypatch.setattr(serving._Server, "serve", never_begin)
    serve(lambda: aio.connect("memory://begins"), told.append)
    assert told == []


def test_second_signal_hastens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when all is answered, and the client of the store is closing: that goes to its end."""
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
