"""Checks of a guard's arguments: connections, dialects and resources. Each refusal says what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Dialect
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from tenure._core.base.limits import RESOURCE_BYTES_MAX
from tenure.errors import InvalidOption, UsageError
from tenure.fencing.sql.table import MYSQL

DIALECTS: Final[Mapping[str, Callable[[], Dialect]]] = {
    "postgresql": postgresql.dialect,
    "sqlite": sqlite.dialect,
    **dict.fromkeys(MYSQL, mysql.dialect),
}


def refuse_autocommit(connection: Connection) -> None:
    """Raise UsageError where each statement would be a transaction of its own."""
    pooled = connection.connection
    if connection.dialect.name == "sqlite":
        commits = _sqlite_commits_by_itself(pooled.driver_connection)
    else:
        commits = _commits_by_itself(pooled.driver_connection, pooled.dbapi_connection)
    if commits:
        raise UsageError(
            "this connection is in AUTOCOMMIT: the claim would not be in one transaction with what it is to protect. "
            'Use another isolation level, such as execution_options(isolation_level="READ COMMITTED")'
        )


def _sqlite_commits_by_itself(driver: Any) -> bool:  # Any: sqlite3's connection, or aiosqlite's
    by_hand = driver.isolation_level is None or getattr(driver, "autocommit", None) is True
    return by_hand and not driver.in_transaction  # an event hook that sends the BEGIN has done so by now


def _commits_by_itself(*connections: Any) -> bool:  # Any: the driver's own, and SQLAlchemy's adapter of it
    for one in connections:
        if hasattr(one, "get_autocommit"):
            return bool(one.get_autocommit())
        if isinstance(commits := getattr(one, "autocommit", None), bool):
            return commits
    raise UsageError("this driver does not tell whether it is in AUTOCOMMIT, and then no claim could be relied on")


def refuse_other(connection: Connection) -> None:
    """Raise InvalidOption for what is no Connection, or one of another kind of database."""
    if not isinstance(connection, Connection):
        raise InvalidOption(
            f"this guard needs a Connection of SQLAlchemy, not {type(connection).__name__}; of an ORM session it is "
            "session.connection(), and an AsyncConnection goes to AsyncSQLGuard"
        )
    refuse_unknown(connection.dialect.name)


def refuse_unknown(dialect: str) -> None:
    """Raise InvalidOption for another kind of database."""
    if dialect not in DIALECTS:
        raise InvalidOption(f"the SQL guard is for PostgreSQL, MariaDB, MySQL and SQLite, not for {dialect!r}")


def is_missing_table(error: DBAPIError) -> bool:
    """True where the database says that a table is not there."""
    origin = error.orig
    known = getattr(origin, "sqlstate", None) == "42P01" or getattr(origin, "args", ())[:1] == (1146,)
    return known or str(origin).startswith("no such table")


def checked_async(connection: AsyncConnection) -> AsyncConnection:
    """`connection`, if it is one of asyncio's. Raises InvalidOption."""
    if not isinstance(connection, AsyncConnection):
        raise InvalidOption(
            f"this guard needs an AsyncConnection of SQLAlchemy, not {type(connection).__name__}; of an ORM session it "
            "is `await session.connection()`, and a Connection goes to SQLGuard"
        )
    return connection


def checked_resource(resource: str) -> str:
    """`resource`, if a row can be its. Raises InvalidOption."""
    if not isinstance(resource, str) or not resource or "\0" in resource:
        raise InvalidOption(f"a resource is a text without NUL, not {str(resource)[:60]!r}")
    try:
        size = len(resource.encode())
    except UnicodeEncodeError as error:
        raise InvalidOption(f"a resource must be encodable as UTF-8: {error}") from error
    if size > RESOURCE_BYTES_MAX:
        raise InvalidOption(
            f"resource {resource[:40]!r}… has {size} bytes, and an index takes at most {RESOURCE_BYTES_MAX}; give a "
            "shorter one with `resource=`"
        )
    return resource
