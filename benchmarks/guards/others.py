"""Redis, a file, and HTTP without a socket, each bare and through its guard."""

from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import redis

from benchmarks.contestants.place import require
from benchmarks.guards.resource import FILE_BYTES, VALUE, Grounds, Operation, Resource, hold_of
from benchmarks.measure import Block, blocking, tasked
from tenure.fencing.file import FileGuard
from tenure.fencing.http import HEADER, FencingMiddleware, Receive, Scope, Send, afenced
from tenure.fencing.redis import RedisGuard


def redis_scripts(grounds: Grounds, stack: ExitStack) -> Resource:
    client = redis.Redis.from_url(grounds.redis.url())
    stack.callback(client.close)
    guard, hold = RedisGuard(client), hold_of(grounds.servers, stack)
    increment = guard.wrap("return redis.call('INCR', KEYS[1])")
    set_guarded = blocking(lambda: guard.set(hold.fence, "guarded", VALUE))
    increment_guarded = blocking(lambda: require(increment(hold.fence, keys=["guarded count"])))
    return Resource(
        f"Redis {client.info('server')['redis_version']}",
        [
            Operation("SET", blocking(lambda: require(client.set("bare", VALUE))), {"guard.set": set_guarded}),
            Operation(
                "INCR", blocking(lambda: require(client.incr("bare count"))), {"wrapped INCR": increment_guarded}
            ),
        ],
    )


def file(grounds: Grounds, stack: ExitStack) -> Resource:
    """4 KiB, in a directory for each contestant: the guard lists its own. A first claim also writes the record."""
    hold = hold_of(grounds.servers, stack)
    paths = [grounds.directory / name / "ledger.json" for name in ("bare", "same", "new")]
    for path in paths:
        path.parent.mkdir()
    bare, (same, new) = paths[0], map(FileGuard, paths[1:])
    tokens = itertools.count(hold.token)
    guarded = {
        "FileGuard.replace": lambda: same.replace(hold.fence, FILE_BYTES),
        "the same, a new fence each time": lambda: new.replace(replace(hold.fence, token=next(tokens)), FILE_BYTES),
    }
    blocks = {name: blocking(cycle) for name, cycle in guarded.items()}
    return Resource("file", [Operation("atomic replace", blocking(lambda: _replace(bare, FILE_BYTES)), blocks)])


def http(grounds: Grounds, stack: ExitStack) -> Resource:
    """In one process and without a socket, so that nothing is measured but the two sides of the protocol."""
    hold = hold_of(grounds.servers, stack)
    runner = stack.enter_context(asyncio.Runner())

    def request(app: Any, **options: Any) -> Block:  # Any: httpx has types of its own for ASGI, and many options
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bench", **options)
        stack.callback(lambda: runner.run(client.aclose()))

        async def cycle() -> None:
            answer = await client.post("/ledger", content=VALUE)
            require(answer.status_code == 204)

        return tasked(runner, cycle)

    protected = FencingMiddleware(_no_content, line=hold.fence.line)
    guarded = {
        "FencingMiddleware": request(protected, headers={HEADER: str(hold.fence)}),
        "the same, and httpx's hooks": request(protected, event_hooks=afenced(hold)),
    }
    return Resource(f"HTTP, httpx {version('httpx')}", [Operation("POST", request(_no_content), guarded)])


def _replace(path: Path, content: bytes) -> None:
    """An atomic replace as everybody writes it: a temporary file, on disk, renamed, and the directory on disk."""
    new = path.with_suffix(".new")
    with open(new, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


async def _no_content(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that reads the request and answers 204."""
    await receive()
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})
