"""The bytes of answers: head and body leave at once, everything else as it was written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from tenure.service.http.connection import JoiningTransport


class Wire(asyncio.Transport):
    """Notes each call that would be one of the system's."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closing
        self.sent.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closing


def over(scenario: Callable[[JoiningTransport, Wire], Awaitable[None]]) -> None:
    async def run() -> None:
        wire = Wire()
        await scenario(JoiningTransport(wire, asyncio.get_running_loop()), wire)

    asyncio.run(run())


@pytest.mark.parametrize("size", [0, 2, 16 * 1024, 1024 * 1024])
def test_head_and_body_leave_at_once(size: int) -> None:
    """However big it is."""

    async def scenario(joining: JoiningTransport, wire: Wire) -> None:
        for _ in range(3):
            joining.write(b"head")
            joining.write(b"b" * size)
        assert wire.sent == [b"head" + b"b" * size] * 3
        await asyncio.sleep(0)
        assert len(wire.sent) == 3

    over(scenario)


def test_what_is_alone_leaves_as_soon_as_the_loop_goes_on() -> None:
    """An event of a stream, or a head without a body: it waits for nobody, and keeps its place."""

    async def scenario(joining: JoiningTransport, wire: Wire) -> None:
        for event in (b"one", b"two"):
            joining.write(event)
            await asyncio.sleep(0)
        assert wire.sent == [b"one", b"two"]
        for part in (b"a", b"b", b"c"):
            joining.write(part)
        await asyncio.sleep(0)
        assert b"".join(wire.sent) == b"onetwoabc"

    over(scenario)


@pytest.mark.parametrize("parts", [[b"head"], [b"head", b"body"]])
def test_what_was_written_leaves_before_the_connection_ends(parts: list[bytes]) -> None:
    """`Connection: close`, and a refusal."""

    async def scenario(joining: JoiningTransport, wire: Wire) -> None:
        for part in parts:
            joining.write(part)
        joining.close()
        assert joining.is_closing()
        assert wire.sent == [b"".join(parts)]
        await asyncio.sleep(0)
        assert len(wire.sent) == 1

    over(scenario)


@pytest.mark.parametrize("how", ["aborted", "gone"])
def test_nothing_is_written_to_a_connection_that_has_ended(how: str) -> None:
    """Cut off here, or by the client between the two."""

    async def scenario(joining: JoiningTransport, wire: Wire) -> None:
        joining.write(b"head")
        if how == "aborted":
            joining.abort()
        else:
            wire.closing = True
        await asyncio.sleep(0)
        for size in (1, 1024 * 1024):
            joining.write(b"head")
            joining.write(b"b" * size)
        joining.close()
        assert wire.sent == []

    over(scenario)
