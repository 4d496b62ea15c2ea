"""People who stand in lines while the command line looks at them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tenure
from tests.cli.program import eventually

Wanted = Callable[[tenure.Client], Any]


@contextmanager
def waiting(url: str, name: str, owner: str = "waiter", wanted: Wanted | None = None) -> Iterator[int]:
    """A waiter `owner` in the line of `name`, for a lock unless `wanted` is given, while this lasts; its token."""
    with tenure.connect(url, ttl=20, owner=owner) as client:
        operator = client.operator()

        def tokens() -> list[int]:
            return [ticket.token for ticket in operator.line(name).tickets if ticket.owner == owner]

        def wait() -> None:
            try:
                (wanted(client) if wanted else client.lock(name)).acquire(timeout=300)
            except tenure.TenureError:  # forced out, or closed below
                pass

        before = tokens()
        thread = threading.Thread(target=wait)
        thread.start()
        try:
            eventually(lambda: len(tokens()) > len(before))
            yield tokens()[-1]
        finally:
            client.close()
            thread.join()


@contextmanager
def crowd(url: str, names: list[str]) -> Iterator[None]:
    """A client that holds all these locks while this lasts."""
    ready, enough = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    async def hold_all() -> None:
        gate = asyncio.Semaphore(64)
        async with tenure.aio.connect(url, ttl=60, timeout=60, owner="crowd") as client:

            async def hold(name: str) -> None:
                async with gate:
                    await client.lock(name).acquire()

            await asyncio.gather(*map(hold, names))
            ready.set()
            await asyncio.to_thread(enough.wait)

    def run() -> None:
        try:
            asyncio.run(hold_all())
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        ready.wait()
        assert not failed, failed
        yield
    finally:
        enough.set()
        thread.join()
