"""What is protected, what is done to it, and the grounds that it stands on."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tenure
from benchmarks.ground import Servers
from benchmarks.measure import Block
from tests.servers.databases import DatabaseServer, MariaDB, PostgreSQL, Redis, start_database

VALUE: Final = b"x" * 100
FILE_BYTES: Final = b"x" * 4096
_TTL_SECONDS: Final = 60.0  # so that hardly a renewal falls into the measuring


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


def open_grounds(servers: Servers, stack: ExitStack) -> Grounds:
    """Start what the guards need beyond etcd and ZooKeeper. Raises ServersMissing, before anything was measured."""
    postgresql, mariadb, redis_server = (
        stack.enter_context(closing(start_database(database))) for database in (PostgreSQL(), MariaDB(), Redis())
    )
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-benchmarks-"))
    return Grounds(servers, postgresql, mariadb, redis_server, Path(directory))


def client_of(servers: Servers, store: str, stack: ExitStack) -> tenure.Client:
    return stack.enter_context(tenure.connect(servers.of(store).url("guards", ttl=_TTL_SECONDS)))


def hold_of(servers: Servers, stack: ExitStack) -> tenure.Hold:
    """A lock of etcd: its fence is what the guards are shown."""
    return stack.enter_context(client_of(servers, "etcd", stack).lock("ledger"))
