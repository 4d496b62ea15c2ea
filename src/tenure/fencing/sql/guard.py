"""SQLGuard and AsyncSQLGuard: what users call. The second runs the first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from sqlalchemy import Connection, Dialect, Engine, MetaData, delete, func, inspect, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.schema import CreateTable

from tenure.errors import UsageError
from tenure.fencing._fence import Fence, FenceLike
from tenure.fencing.sql.checks import (
    DIALECTS,
    checked_async,
    checked_resource,
    is_missing_table,
    refuse_autocommit,
    refuse_other,
    refuse_unknown,
)
from tenure.fencing.sql.claim import ClaimMethod, LockThenDecide, OneStatement, commit_with_claim_only, limit, unlimit
from tenure.fencing.sql.table import MYSQL, fence_in, fence_table, is_key, select_fence

_CREATE_LOCK: Final = 0x74656E757265  # "tenure": one advisory lock of PostgreSQL, for `create`


class SQLGuard:
    """Refuses stale holders within your own transactions. Holds no connection; share one among all threads."""

    def __init__(
        self, table: str = "tenure_fences", *, schema: str | None = None, metadata: MetaData | None = None
    ) -> None:
        self.table: Final = fence_table(table, schema, MetaData() if metadata is None else metadata)
        """The guard's own table, for `metadata.create_all`, Alembic, or a look."""
        self._read: Final = select_fence(self.table)
        self._drop: Final = delete(self.table).where(is_key(self.table))
        self._claims: Final[Mapping[str, ClaimMethod]] = {
            "postgresql": OneStatement(self.table, postgresql.insert(self.table)),
            "sqlite": OneStatement(self.table, sqlite.insert(self.table)),
            **dict.fromkeys(MYSQL, LockThenDecide(self.table)),
        }

    def create(self, bind: Engine | Connection) -> None:
        """Create the table unless it is there. Many programs may do so at once.

        On a Connection it is a part of its transaction; MariaDB and MySQL commit that, as for all DDL. Raises
        InvalidOption for another kind of database, and what SQLAlchemy raises.
        """
        if isinstance(bind, Engine):
            with bind.begin() as connection:
                self.create(connection)
            return
        refuse_other(bind)
        if bind.dialect.name == "postgresql":  # whose IF NOT EXISTS fails when two come at once
            bind.execute(select(func.pg_advisory_xact_lock(_CREATE_LOCK)))
        if not inspect(bind).has_table(self.table.name, schema=self.table.schema):
            bind.execute(CreateTable(self.table, if_not_exists=True))

    def ddl(self, dialect: str | Dialect) -> str:
        """The CREATE TABLE statement for "postgresql", "mysql", "mariadb" or "sqlite". Raises InvalidOption."""
        refuse_unknown(dialect if isinstance(dialect, str) else dialect.name)
        known = DIALECTS[dialect]() if isinstance(dialect, str) else dialect
        return str(CreateTable(self.table).compile(dialect=known)).strip()

    def claim(self, connection: Connection, fence: FenceLike, *, resource: str | None = None) -> None:
        """Register `fence` for `resource` (its own line by default), and lock that until the transaction ends.

        Make it the first statement of the transaction, before the reads. Waits for another transaction's claim as
        long as the database lets it. Raises StaleToken, FenceMismatch for a fence of another line, GuardBusy when
        the transaction's snapshot is too old, StoreRefused for a damaged record, InvalidFence, InvalidOption,
        UsageError in AUTOCOMMIT, and SQLAlchemy's DBAPIError for the database's own conflicts. Roll back after any.

        The claim ends with the transaction, and a database may roll that back by itself, as MariaDB does after a
        deadlock. So after any DBAPIError leave the block and let the transaction be rolled back; never repeat a
        single statement: it would run, and be committed, in a new transaction without the claim. `transaction`
        refuses that. An ORM session shows what it loaded before the claim: take a new one, or `expire_all()` now.
        """
        offered = Fence.of(fence)
        key = checked_resource(offered.line if resource is None else resource)
        refuse_other(connection)
        if not connection.in_transaction():
            connection.begin()  # as `execute` would; before the check, as a hook of yours may send the BEGIN
        refuse_autocommit(connection)
        try:
            self._claims[connection.dialect.name].claim(connection, key, offered)
        except DBAPIError as error:
            if is_missing_table(error):
                raise UsageError(
                    f"this database has no table {self.table.fullname!r}: call guard.create(engine) once, or put "
                    f"guard.ddl({connection.dialect.name!r}) into a migration"
                ) from error
            raise

    @contextmanager
    def transaction(self, engine: Engine, fence: FenceLike, *, resource: str | None = None) -> Iterator[Connection]:
        """A transaction whose first statement is the claim; it commits at the end of the block, or rolls back.

        Give it the hold, not its fence alone: then the database ends the transaction of a process that is stopped
        within the block, and its waits for locks, in the time that the hold has left now (see `limit`).

        Raises what `claim` raises, and LeaseLost, before the block is entered; and StoreRefused instead of a commit,
        if the database ended the transaction within the block and the block went on.
        """
        offered, former = Fence.of(fence), ""
        with engine.connect() as connection:
            try:
                with connection.begin():
                    former = limit(connection, fence)
                    self.claim(connection, offered, resource=resource)
                    commit_with_claim_only(connection)
                    yield connection
            finally:
                unlimit(connection, former)

    def seen(self, connection: Connection, resource: str) -> Fence | None:
        """The youngest fence registered for `resource`, for people who look. It locks nothing and proves nothing.

        Raises InvalidOption, StoreRefused for a damaged record, and what SQLAlchemy raises.
        """
        refuse_other(connection)
        return fence_in(connection.execute(self._read, {"key": checked_resource(resource)}).first())

    def forget(self, connection: Connection, resource: str) -> bool:
        """Drop what was registered for `resource`: was there anything? For an operator who moves it to another lock.

        Until the next claim a stale holder is admitted, so stop the old ones first. Raises InvalidOption, and what
        SQLAlchemy raises.
        """
        refuse_other(connection)
        return connection.execute(self._drop, {"key": checked_resource(resource)}).rowcount > 0


class AsyncSQLGuard:
    """SQLGuard on AsyncEngine and AsyncConnection. Each method runs the sync one, so all said there holds here."""

    def __init__(
        self, table: str = "tenure_fences", *, schema: str | None = None, metadata: MetaData | None = None
    ) -> None:
        self._guard: Final = SQLGuard(table, schema=schema, metadata=metadata)
        self.table: Final = self._guard.table
        """The guard's own table, for `metadata.create_all`, Alembic, or a look."""

    async def create(self, bind: AsyncEngine | AsyncConnection) -> None:
        """Create the table unless it is there. Raises as SQLGuard.create does."""
        if isinstance(bind, AsyncEngine):
            async with bind.begin() as connection:
                await connection.run_sync(self._guard.create)
        else:
            await checked_async(bind).run_sync(self._guard.create)

    def ddl(self, dialect: str | Dialect) -> str:
        """The CREATE TABLE statement for "postgresql", "mysql", "mariadb" or "sqlite". Raises InvalidOption."""
        return self._guard.ddl(dialect)

    async def claim(self, connection: AsyncConnection, fence: FenceLike, *, resource: str | None = None) -> None:
        """Register `fence` for `resource` (its own line by default), and lock that until the transaction ends.

        Make it the first statement of the transaction, and after any DBAPIError let that be rolled back: see
        SQLGuard.claim. Raises as that does.
        """
        await checked_async(connection).run_sync(self._guard.claim, fence, resource=resource)

    @asynccontextmanager
    async def transaction(
        self, engine: AsyncEngine, fence: FenceLike, *, resource: str | None = None
    ) -> AsyncIterator[AsyncConnection]:
        """A transaction whose first statement is the claim; it commits at the end of the block, or rolls back.

        With the hold itself as `fence`, in the time it has left. Raises as SQLGuard.transaction does.
        """
        offered, former = Fence.of(fence), ""
        async with engine.connect() as connection:
            try:
                async with connection.begin():
                    former = await connection.run_sync(limit, fence)
                    await self.claim(connection, offered, resource=resource)
                    await connection.run_sync(commit_with_claim_only)
                    yield connection
            finally:
                if former:
                    await connection.run_sync(unlimit, former)

    async def seen(self, connection: AsyncConnection, resource: str) -> Fence | None:
        """The youngest fence registered for `resource`, for people who look. Raises as SQLGuard.seen does."""
        return await checked_async(connection).run_sync(self._guard.seen, resource)

    async def forget(self, connection: AsyncConnection, resource: str) -> bool:
        """Drop what was registered for `resource`; see SQLGuard.forget first. Raises as that does."""
        return await checked_async(connection).run_sync(self._guard.forget, resource)
