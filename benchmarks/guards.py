"""What a guard costs: each operation bare and through its guards, in turns, over the same client where there is one.

The guarded side is what the guard's manual shows, `hold.fence` included, under a lock of etcd (for the guard in
ZooKeeper: of ZooKeeper) whose fence was seen before: a holder's first claim is only one of many. What is not part of
the operation is made before the clock starts.

Servers that answer at once, in the same machine, hide nothing of what a guard adds: behind a network or a disk that
everybody waits for, the ratios come down towards that of the round trips.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import redis
from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Integer,
    MetaData,
    Table,
    Update,
    bindparam,
    create_engine,
    insert,
    update,
)

import holdfast
from benchmarks.contestants import Servers, kazoo_client, require
from benchmarks.measure import Block, Plan, Results, blocking, interleave, tasked
from holdfast.fencing.file import FileGuard
from holdfast.fencing.http import HEADER, FencingMiddleware, Receive, Scope, Send, afenced
from holdfast.fencing.redis import RedisGuard
from holdfast.fencing.sql import SQLGuard
from tests.servers.databases import DatabaseServer, MariaDB, PostgreSQL, Redis, start_database

PACKAGES: Final = ("sqlalchemy", "psycopg", "pymysql", "redis", "httpx")
DISK: Final = "SQLite and the file wait for their disk; PostgreSQL, MariaDB and Redis do not"
_TTL_SECONDS: Final = 60.0  # so that hardly a renewal falls into the measuring
_VALUE: Final = b"x" * 100
_FILE_BYTES: Final = b"x" * 4096
_ACCOUNTS: Final = Table(
    "accounts",
    MetaData(),
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("balance", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False),
    mysql_engine="InnoDB",
)
_BARE_ROW, _CLAIMED_ROW, _FENCED_ROW = 1, 2, 3


@dataclass(frozen=True)
class Grounds:
    """Where the resources are."""

    servers: Servers
    postgresql: DatabaseServer
    mariadb: DatabaseServer
    redis: DatabaseServer
    directory: Path


@dataclass(frozen=True)
class Operation:
    """One thing that is done to a resource, and the same through guards, by name."""

    name: str
    bare: Block
    guarded: Mapping[str, Block]


@dataclass(frozen=True)
class Resource:
    """What is protected, with its version, and what is done to it."""

    name: str
    operations: Sequence[Operation]


@dataclass(frozen=True)
class Costs:
    """What was measured of one resource; `pairs` are a guarded operation and the bare one that it is compared with."""

    resource: str
    pairs: Sequence[tuple[str, str]]
    results: Results


def open_grounds(servers: Servers, stack: ExitStack) -> Grounds:
    """Start what the guards need beyond etcd and ZooKeeper. Raises ServersMissing, before anything was measured."""
    postgresql, mariadb, redis_server = (
        stack.enter_context(closing(start_database(database))) for database in (PostgreSQL(), MariaDB(), Redis())
    )
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-benchmarks-"))
    return Grounds(servers, postgresql, mariadb, redis_server, Path(directory))


def compare(grounds: Grounds, plan: Plan, shuffler: random.Random, tell: Callable[[str], None]) -> list[Costs]:
    """Every guard of every resource. Ratios mean something within one resource only."""
    return [_costs(make, grounds, plan, shuffler, tell) for make in _RESOURCES]


def _costs(
    make: MakeResource, grounds: Grounds, plan: Plan, shuffler: random.Random, tell: Callable[[str], None]
) -> Costs:
    with ExitStack() as stack:
        resource = make(grounds, stack)
        blocks: dict[str, Block] = {}
        for operation in resource.operations:
            blocks |= {operation.name: operation.bare, **operation.guarded}
        results = interleave(blocks, plan, shuffler, lambda progress: tell(f"{resource.name}: {progress}"))
    pairs = [(guarded, operation.name) for operation in resource.operations for guarded in operation.guarded]
    return Costs(resource.name, pairs, results)


# The resources.

MakeResource: TypeAlias = Callable[[Grounds, ExitStack], Resource]


def _postgresql(grounds: Grounds, stack: ExitStack) -> Resource:
    return _sql("PostgreSQL", grounds.postgresql.url(), grounds, stack)


def _mariadb(grounds: Grounds, stack: ExitStack) -> Resource:
    return _sql("MariaDB", grounds.mariadb.url(), grounds, stack)


def _sqlite(grounds: Grounds, stack: ExitStack) -> Resource:
    return _sql("SQLite", f"sqlite:///{grounds.directory / 'accounts.sqlite'}", grounds, stack)


def _sql(name: str, url: str, grounds: Grounds, stack: ExitStack) -> Resource:
    """One transaction of one UPDATE, each of a row of its own. The guards change that and nothing else."""
    engine = create_engine(url)
    stack.callback(engine.dispose)
    guard, hold = SQLGuard(), _hold(grounds.servers, stack)
    guard.create(engine)
    _open_accounts(engine)
    bare, claimed = _add_one(_BARE_ROW), _add_one(_CLAIMED_ROW)

    def plain() -> None:
        with engine.begin() as connection:
            require(connection.execute(bare).rowcount)

    def after_a_claim() -> None:
        with guard.transaction(engine, hold.fence) as connection:
            require(connection.execute(claimed).rowcount)

    def with_a_column() -> None:
        with engine.begin() as connection:
            require(connection.execute(_FENCED, {"token": hold.token}).rowcount)

    guarded = {"claim, UPDATE, commit": blocking(after_a_claim), "UPDATE with a fence column": blocking(with_a_column)}
    return Resource(f"{name} {_version(engine)}", [Operation("UPDATE, commit", blocking(plain), guarded)])


def _redis(grounds: Grounds, stack: ExitStack) -> Resource:
    client = redis.Redis.from_url(grounds.redis.url())
    stack.callback(client.close)
    guard, hold = RedisGuard(client), _hold(grounds.servers, stack)
    increment = guard.wrap("return redis.call('INCR', KEYS[1])")
    set_guarded = blocking(lambda: guard.set(hold.fence, "guarded", _VALUE))
    increment_guarded = blocking(lambda: require(increment(hold.fence, keys=["guarded count"])))
    return Resource(
        f"Redis {client.info('server')['redis_version']}",
        [
            Operation("SET", blocking(lambda: require(client.set("bare", _VALUE))), {"guard.set": set_guarded}),
            Operation(
                "INCR", blocking(lambda: require(client.incr("bare count"))), {"wrapped INCR": increment_guarded}
            ),
        ],
    )


def _file(grounds: Grounds, stack: ExitStack) -> Resource:
    """4 KiB, in a directory for each contestant: the guard lists its own. A first claim also writes the record."""
    hold = _hold(grounds.servers, stack)
    paths = [grounds.directory / name / "ledger.json" for name in ("bare", "same", "new")]
    for path in paths:
        path.parent.mkdir()
    bare, (same, new) = paths[0], map(FileGuard, paths[1:])
    tokens = itertools.count(hold.token)
    guarded = {
        "FileGuard.replace": lambda: same.replace(hold.fence, _FILE_BYTES),
        "the same, a new fence each time": lambda: new.replace(replace(hold.fence, token=next(tokens)), _FILE_BYTES),
    }
    blocks = {name: blocking(cycle) for name, cycle in guarded.items()}
    return Resource("file", [Operation("atomic replace", blocking(lambda: _replace(bare, _FILE_BYTES)), blocks)])


def _http(grounds: Grounds, stack: ExitStack) -> Resource:
    """In one process and without a socket, so that nothing is measured but the two sides of the protocol."""
    hold = _hold(grounds.servers, stack)
    runner = stack.enter_context(asyncio.Runner())

    def request(app: Any, **options: Any) -> Block:  # Any: httpx has types of its own for ASGI, and many options
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bench", **options)
        stack.callback(lambda: runner.run(client.aclose()))

        async def cycle() -> None:
            answer = await client.post("/ledger", content=_VALUE)
            require(answer.status_code == 204)

        return tasked(runner, cycle)

    protected = FencingMiddleware(_no_content, line=hold.fence.line)
    guarded = {
        "FencingMiddleware": request(protected, headers={HEADER: str(hold.fence)}),
        "the same, and httpx's hooks": request(protected, event_hooks=afenced(hold)),
    }
    return Resource(f"HTTP, httpx {version('httpx')}", [Operation("POST", request(_no_content), guarded)])


def _etcd(grounds: Grounds, stack: ExitStack) -> Resource:
    """Bare requests go over the same client's wire."""
    client = _client(grounds.servers, "etcd", stack)
    hold = stack.enter_context(client.lock("ledger"))
    backend: Any = client._house._backend
    key, value = (base64.b64encode(raw).decode() for raw in (b"bare", _VALUE))

    def call(path: str, **request: str) -> Any:
        return backend._wire.call(path, request, client._house.request_until())

    put = blocking(lambda: call("/kv/put", key=key, value=value))
    get = blocking(lambda: require(call("/kv/range", key=key)["kvs"]))
    release = call("/maintenance/status")["version"]
    return Resource(f"etcd {release}", _store_operations("put", put, "get", get, hold))


def _zookeeper(grounds: Grounds, stack: ExitStack) -> Resource:
    hold = stack.enter_context(_client(grounds.servers, "zookeeper", stack).lock("ledger"))
    client = kazoo_client(grounds.servers, stack)
    client.ensure_path("/bare")
    put, get = blocking(lambda: client.set("/bare", _VALUE)), blocking(lambda: require(client.get("/bare")))
    release = ".".join(map(str, client.server_version()))
    return Resource(f"ZooKeeper {release}", _store_operations("kazoo set", put, "kazoo get", get, hold))


_RESOURCES: Final[Sequence[MakeResource]] = (
    _postgresql,
    _mariadb,
    _sqlite,
    _redis,
    _file,
    _http,
    _etcd,
    _zookeeper,
)


# What several have in common.


def _client(servers: Servers, store: str, stack: ExitStack) -> holdfast.Client:
    return stack.enter_context(holdfast.connect(servers.of(store).url("guards", ttl=_TTL_SECONDS)))


def _hold(servers: Servers, stack: ExitStack) -> holdfast.Hold:
    return stack.enter_context(_client(servers, "etcd", stack).lock("ledger"))


def _store_operations(put: str, bare_put: Block, get: str, bare_get: Block, hold: holdfast.Hold) -> list[Operation]:
    hold.store.put("guarded", _VALUE)
    guarded_put = blocking(lambda: hold.store.put("guarded", _VALUE))
    guarded_get = blocking(lambda: require(hold.store.get("guarded")))
    return [
        Operation(put, bare_put, {"hold.store.put": guarded_put}),
        Operation(get, bare_get, {"hold.store.get": guarded_get}),
    ]


def _open_accounts(engine: Engine) -> None:
    _ACCOUNTS.create(engine)
    with engine.begin() as connection:
        rows = [{"id": row, "balance": 0, "fence": 0} for row in (_BARE_ROW, _CLAIMED_ROW, _FENCED_ROW)]
        connection.execute(insert(_ACCOUNTS), rows)


def _add_one(row: int) -> Update:
    """Another value each time, as MariaDB writes none that is the same."""
    return update(_ACCOUNTS).where(_ACCOUNTS.c.id == row).values(balance=_ACCOUNTS.c.balance + 1)


def _version(engine: Engine) -> str:
    """As its first connection has found out."""
    numbers: tuple[object, ...] = engine.dialect.server_version_info or ()
    return ".".join(map(str, numbers[:3]))


_FENCED: Final = _add_one(_FENCED_ROW).where(_ACCOUNTS.c.fence <= bindparam("token")).values(fence=bindparam("token"))


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
