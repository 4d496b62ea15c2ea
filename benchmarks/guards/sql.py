"""PostgreSQL, MariaDB and SQLite: a transaction of one UPDATE, and the same after a claim or with a fence column."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

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

from benchmarks.contestants.place import require
from benchmarks.guards.resource import Grounds, Operation, Resource, hold_of
from benchmarks.measure import blocking
from tenure.fencing.sql import SQLGuard

_ACCOUNTS: Final = Table(
    "accounts",
    MetaData(),
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("balance", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False),
    mysql_engine="InnoDB",
)
_BARE_ROW, _CLAIMED_ROW, _FENCED_ROW = 1, 2, 3


def postgresql(grounds: Grounds, stack: ExitStack) -> Resource:
    return _sql("PostgreSQL", grounds.postgresql.url(), grounds, stack)


def mariadb(grounds: Grounds, stack: ExitStack) -> Resource:
    return _sql("MariaDB", grounds.mariadb.url(), grounds, stack)


def sqlite(grounds: Grounds, stack: ExitStack) -> Resource:
    return _sql("SQLite", f"sqlite:///{grounds.directory / 'accounts.sqlite'}", grounds, stack)


def _sql(name: str, url: str, grounds: Grounds, stack: ExitStack) -> Resource:
    """One transaction of one UPDATE, each of a row of its own. The guards change that and nothing else."""
    engine = create_engine(url)
    stack.callback(engine.dispose)
    guard, hold = SQLGuard(), hold_of(grounds.servers, stack)
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
