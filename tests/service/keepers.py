"""Helpers for the tests of the Keeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tenure.service.holds.keeper import AcquireRequest, Keeper
from tests.conformance.store_worlds import StoreWorld

TIMER = ("memory", "zookeeper")
"""Stores on which holds share the service's lease."""
DELEGATED = ("etcd", "etcd+grpc")
"""Stores on which each hold has a lease of its own."""


def on(*kinds: str) -> pytest.MarkDecorator:
    """The test runs on these stores."""
    return pytest.mark.parametrize("store", kinds, indirect=True)


ALL = on("memory", "etcd", "etcd+grpc", "zookeeper")


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


@asynccontextmanager
async def keeper_of(store: StoreWorld, **options: Any) -> AsyncIterator[Keeper]:
    """A replica of the service, closed at the end."""
    known: dict[str, Any] = {
        "remembers_seconds": 2.0
    }  # what is remembered outlives the service, and must be gone after the test
    known |= {name: options.pop(name) for name in ("address", "remembers_seconds") if name in options}
    asked: dict[str, Any] = {"ttl": 10}
    async with store.client(**(asked | options)) as client:
        keeper = Keeper(client, **known)
        try:
            yield keeper
        finally:
            await keeper.close()


def wanted(resource: str = "a", **facts: Any) -> AcquireRequest:
    asked: dict[str, Any] = {"resource": resource, "owner": "me", "ttl": 10.0}
    return AcquireRequest(**(asked | facts))


async def until(what: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait for a condition. Off the loop: asking a store may block."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(what):
            await asyncio.sleep(0.01)
