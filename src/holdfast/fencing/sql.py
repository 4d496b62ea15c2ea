"""The guard for what lies in a database: PostgreSQL, MariaDB, MySQL, SQLite, through SQLAlchemy 2.

    guard = SQLGuard()                                   # one small table, one row for each resource
    guard.create(engine)                                 # or put guard.ddl("postgresql") into a migration

    with guard.transaction(engine, hold.fence, resource="ledger") as connection:
        balance = connection.scalar(select(...))         # the claim has been made: read, then write
        connection.execute(update(...))

`transaction` opens the transaction, claims first, and commits or rolls back. `claim` does the same within a
transaction of your own: make it the first statement. With an ORM session that is
`guard.claim(session.connection(), hold.fence)`. `AsyncSQLGuard` has the same words with `await`.

Promised, at every isolation level:

- What `admit` refuses is refused, with StaleToken or FenceMismatch, and the guard's table is as it was.
- A claim locks the resource's row until the transaction ends, also for a token that was seen before. So claims of one
  resource come one after the other: whoever waits for a claim sees what the one before committed.
- Reads register too. Claim, read and commit: from then on a late write of an older holder is refused.
- A claim that was rolled back was never made.
- `transaction` commits with its claim or not at all. A database may end the transaction within the block: MariaDB and
  MySQL roll back after a deadlock (1213), SQLite after ON CONFLICT ROLLBACK or a full disk. The claim's lock is free
  then, and whoever catches the error and goes on would write without it. PostgreSQL answers the COMMIT of a failed
  transaction with a silent ROLLBACK. All of that ends in StoreRefused, and nothing is written.

Not promised:

- Anything about statements *before* the claim. What they read may be out of date, and what they wrote is only taken
  back with the transaction. PostgreSQL, MariaDB and MySQL at REPEATABLE READ read from the snapshot of their first
  read; where that is older than the last claim, the claim is refused: by PostgreSQL with 40001, on the others, which
  do not look by themselves, by this guard with GuardBusy. Two claims in one transaction may meet with the same.
- That a transaction succeeds at first try. Conflicts are answered in the database's own words, as SQLAlchemy's
  DBAPIError: 40001 and 40P01 on PostgreSQL, 1213, 1205 and 1020 on MariaDB and MySQL, "database is locked" on SQLite.
  Then, and for GuardBusy, run the whole transaction again. READ COMMITTED has the fewest: the claim is the lock.
- That `claim` in a transaction of your own lasts until your commit: nobody looks at that. After any DBAPIError leave
  the block and let the transaction be rolled back; never repeat a single statement.
- That an ORM session reads again what it has. Objects that it loaded before the claim go on showing old values, also
  when a query finds them. Take a new Session for each claim, such as `Session(connection)` within `transaction`, or
  call `session.expire_all()` right after the claim.
- Anything for writers that do not claim, in AUTOCOMMIT (refused: the write would be a transaction of its own), after
  a savepoint with the claim was rolled back (on SQLite in the driver's default mode: or released), or after a
  statement that ends the transaction by itself, as CREATE TABLE does on MariaDB and MySQL (`transaction` tells it, but
  what such a statement has committed stays). Nor on a cursor of the driver's that you take from under SQLAlchemy.

The token in a table of your own. One column, `fence BIGINT NOT NULL DEFAULT 0`, and one statement:

    UPDATE accounts SET balance = :balance, fence = :token WHERE id = :id AND fence <= :token

No row matched: the token is stale (or there is no such row). It is enough where the store has one incarnation, holds
exclude each other (no seats, no readers, one lock name for this row), and the write is this one statement. What
you compute from a read needs a claim before that read, in the same transaction or an earlier one:

    UPDATE accounts SET fence = :token WHERE id = :id AND fence <= :token

SQLAlchemy counts matched rows on all three; a bare MySQL driver counts changed ones unless told FOUND_ROWS.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, NoReturn, Protocol

from holdfast.errors import GuardBusy, InvalidFence, InvalidOption, ServerMissing, StoreRefused, UsageError
from holdfast.fence import Fence, admit
from holdfast.limits import FENCE_HOLDERS_MAX, RESOURCE_BYTES_MAX

try:
    from sqlalchemy import (
        BigInteger,
        BindParameter,
        Column,
        ColumnElement,
        Connection,
        DateTime,
        Dialect,
        Engine,
        Integer,
        MetaData,
        Row,
        Select,
        String,
        Table,
        TypeDecorator,
        and_,
        bindparam,
        case,
        delete,
        event,
        func,
        inspect,
        or_,
        select,
        update,
    )
    from sqlalchemy.dialects import mysql, postgresql, sqlite
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
    from sqlalchemy.schema import CreateTable
    from sqlalchemy.sql.dml import ReturningInsert
except ImportError as error:
    raise ServerMissing(
        f"holdfast.fencing.sql needs the package sqlalchemy, 2.0 or later ({error}): pip install holdfast[sql]"
    ) from error

__all__ = ["AsyncSQLGuard", "SQLGuard"]

_LINE_CHARACTERS_MAX: Final = 4096
_IDS_CHARACTERS_MAX: Final = 21 * FENCE_HOLDERS_MAX
_CREATE_LOCK: Final = 0x686F6C6466617374  # "holdfast": one advisory lock of PostgreSQL, for `create`
_NOBODY: Final = "-"  # as a pattern it matches itself only, and no column of ids holds it

_SAVEPOINT: Final = "holdfast_claim"
_FAILED: Final = 3  # libpq's PQTRANS_INERROR

_MYSQL: Final = ("mysql", "mariadb")
_DIALECTS: Final[Mapping[str, Callable[[], Dialect]]] = {
    "postgresql": postgresql.dialect,
    "sqlite": sqlite.dialect,
    **dict.fromkeys(_MYSQL, mysql.dialect),
}


class SQLGuard:
    """Refuses stale holders within your own transactions. Holds no connection; share one among all threads."""

    def __init__(
        self, table: str = "holdfast_fences", *, schema: str | None = None, metadata: MetaData | None = None
    ) -> None:
        self.table: Final = _fence_table(table, schema, MetaData() if metadata is None else metadata)
        """The guard's own table, for `metadata.create_all`, Alembic, or a look."""
        self._read: Final = _select_fence(self.table)
        self._drop: Final = delete(self.table).where(_is_key(self.table))
        self._ways: Final[Mapping[str, _Way]] = {
            "postgresql": _OneStatement(self.table, postgresql.insert(self.table)),
            "sqlite": _OneStatement(self.table, sqlite.insert(self.table)),
            **dict.fromkeys(_MYSQL, _LockThenDecide(self.table)),
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
        _refuse_other(bind)
        if bind.dialect.name == "postgresql":  # whose IF NOT EXISTS fails when two come at once
            bind.execute(select(func.pg_advisory_xact_lock(_CREATE_LOCK)))
        if not inspect(bind).has_table(self.table.name, schema=self.table.schema):
            bind.execute(CreateTable(self.table, if_not_exists=True))

    def ddl(self, dialect: str | Dialect) -> str:
        """The CREATE TABLE statement for "postgresql", "mysql", "mariadb" or "sqlite". Raises InvalidOption."""
        _refuse_unknown(dialect if isinstance(dialect, str) else dialect.name)
        known = _DIALECTS[dialect]() if isinstance(dialect, str) else dialect
        return str(CreateTable(self.table).compile(dialect=known)).strip()

    def claim(self, connection: Connection, fence: Fence | str, *, resource: str | None = None) -> None:
        """Register `fence` for `resource` (its own line, unless told), and lock that until the transaction ends.

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
        key = _checked(offered.line if resource is None else resource)
        _refuse_other(connection)
        if not connection.in_transaction():
            connection.begin()  # as `execute` would; before the check, as a hook of yours may send the BEGIN
        _refuse_autocommit(connection)
        self._ways[connection.dialect.name].claim(connection, key, offered)

    @contextmanager
    def transaction(self, engine: Engine, fence: Fence | str, *, resource: str | None = None) -> Iterator[Connection]:
        """A transaction whose first statement is the claim; it commits at the end of the block, or rolls back.

        Raises what `claim` raises, before the block is entered; and StoreRefused instead of a commit, if the database
        ended the transaction within the block and the block went on.
        """
        with engine.begin() as connection:
            self.claim(connection, fence, resource=resource)
            _commit_with_claim_only(connection)
            yield connection

    def seen(self, connection: Connection, resource: str) -> Fence | None:
        """The youngest fence registered for `resource`, for people who look. It locks nothing and proves nothing.

        Raises InvalidOption, StoreRefused for a damaged record, and what SQLAlchemy raises.
        """
        _refuse_other(connection)
        return _fence(connection.execute(self._read, {"key": _checked(resource)}).first())

    def forget(self, connection: Connection, resource: str) -> bool:
        """Drop what was registered for `resource`: was there anything? For an operator who moves it to another lock.

        Until the next claim a stale holder is admitted, so stop the old ones first. Raises InvalidOption, and what
        SQLAlchemy raises.
        """
        _refuse_other(connection)
        return connection.execute(self._drop, {"key": _checked(resource)}).rowcount > 0


class AsyncSQLGuard:
    """SQLGuard on AsyncEngine and AsyncConnection. Each method runs the sync one, so all said there holds here."""

    def __init__(
        self, table: str = "holdfast_fences", *, schema: str | None = None, metadata: MetaData | None = None
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
            await _async(bind).run_sync(self._guard.create)

    def ddl(self, dialect: str | Dialect) -> str:
        """The CREATE TABLE statement for "postgresql", "mysql", "mariadb" or "sqlite". Raises InvalidOption."""
        return self._guard.ddl(dialect)

    async def claim(self, connection: AsyncConnection, fence: Fence | str, *, resource: str | None = None) -> None:
        """Register `fence` for `resource` (its own line, unless told), and lock that until the transaction ends.

        Make it the first statement of the transaction, and after any DBAPIError let that be rolled back: see
        SQLGuard.claim. Raises as that does.
        """
        await _async(connection).run_sync(self._guard.claim, fence, resource=resource)

    @asynccontextmanager
    async def transaction(
        self, engine: AsyncEngine, fence: Fence | str, *, resource: str | None = None
    ) -> AsyncIterator[AsyncConnection]:
        """A transaction whose first statement is the claim; it commits at the end of the block, or rolls back.

        Raises as SQLGuard.transaction does.
        """
        async with engine.begin() as connection:
            await self.claim(connection, fence, resource=resource)
            await connection.run_sync(_commit_with_claim_only)
            yield connection

    async def seen(self, connection: AsyncConnection, resource: str) -> Fence | None:
        """The youngest fence registered for `resource`, for people who look. Raises as SQLGuard.seen does."""
        return await _async(connection).run_sync(self._guard.seen, resource)

    async def forget(self, connection: AsyncConnection, resource: str) -> bool:
        """Drop what was registered for `resource`; see SQLGuard.forget first. Raises as that does."""
        return await _async(connection).run_sync(self._guard.forget, resource)


class _UTF8(TypeDecorator[str]):
    """A text that MariaDB and MySQL get as the bytes of its UTF-8, whatever the connection's character set.

    They travel as hexadecimal digits: not every driver can send bytes (aiomysql with PyMySQL 1.2.3 can't).
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else value.encode().hex()

    def bind_expression(self, bindvalue: BindParameter[str]) -> ColumnElement[str]:
        return func.unhex(bindvalue)


_RESOURCE: Final = String().with_variant(_UTF8(), *_MYSQL)


class _Way(Protocol):
    """How one kind of database is asked to claim. The decision is `admit`'s on each."""

    def claim(self, connection: Connection, key: str, offered: Fence) -> None: ...


class _OneStatement:
    """PostgreSQL and SQLite: the rule is the condition of an upsert, so a claim is one statement.

    The row is locked also where the condition fails. What is admitted always writes, if only a count: at REPEATABLE
    READ, PostgreSQL would let a waiter go on with its old snapshot after a transaction that only locked the row.
    """

    def __init__(self, table: Table, insert: postgresql.Insert | sqlite.Insert) -> None:
        self._upsert: Final = _upsert_what_is_admitted(table, insert)
        self._read: Final = _select_fence(table)

    def claim(self, connection: Connection, key: str, offered: Fence) -> None:
        mine = f"%.{offered.ids[0]}%" if offered.shared else _NOBODY
        if connection.execute(self._upsert, _offer(key, offered) | {"mine": mine}).first() is None:
            _refuse(_fence(connection.execute(self._read, {"key": key}).first()), offered)


class _LockThenDecide:
    """MariaDB and MySQL, where an upsert has no condition: make sure of the row and lock it, read it, write.

    Not SELECT … FOR UPDATE first: where there is no row yet it locks the gap, and first claims of different
    resources would end each other in deadlocks.

    The read takes a second look at the row through the transaction's snapshot, as the user's reads will. The two
    differ where another claim was committed after the snapshot was taken; `claims` grows with each, so none is
    overlooked. It is written last, for the snapshot also shows a transaction what it wrote itself.
    """

    def __init__(self, table: Table) -> None:
        old = table.alias("old")
        snapshot = select(old.c.claims).where(old.c.resource == table.c.resource).scalar_subquery()
        again = update(table).where(_is_key(table)).values(claims=table.c.claims + 1)
        offered = _offered(table) | {"changed_at": func.utc_timestamp()}
        self._lock: Final = (
            mysql.insert(table).values(offered | {"claims": 0}).on_duplicate_key_update(resource=table.c.resource)
        )
        self._look: Final = (
            _select_fence(table).add_columns(table.c.claims, snapshot.label("snapshot")).with_for_update()
        )
        self._again: Final = again
        self._record: Final = again.values(offered)

    def claim(self, connection: Connection, key: str, offered: Fence) -> None:
        values = _offer(key, offered)
        connection.execute(self._lock, values)
        row = connection.execute(self._look, {"key": key}).one()
        seen = _fence(row)
        younger = admit(seen, offered) != seen
        if row.snapshot != row.claims:
            raise _snapshot_too_old(offered)
        if younger:
            connection.execute(self._record, values | {"key": key})
        else:
            connection.execute(self._again, {"key": key})


def _commit_with_claim_only(connection: Connection) -> None:
    """From here on, a commit of this connection's transaction first proves that it is still the claim's.

    The proof hangs on SQLAlchemy's own event, so that `connection.commit()` within the block is proven like its end.
    The listeners end with the connection, which SQLAlchemy uses for this one transaction.
    """
    if connection.dialect.name == "sqlite":
        _stop_where_sqlite_has_ended(connection)
    elif connection.dialect.name == "postgresql":
        event.listen(connection, "commit", _refuse_failed)
    else:
        # It ends with its transaction, and whatever began since has none of that name. Not a second look at the claim's
        # row, which is one statement less: it looks the same if another transaction of this holder claimed in between.
        connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
        event.listen(connection, "commit", lambda it: _prove(it, f"RELEASE SAVEPOINT {_SAVEPOINT}"))


def _stop_where_sqlite_has_ended(connection: Connection) -> None:
    """Asked before each statement, not only at the end: that may begin anew, or commit by itself. It costs no I/O."""
    driver = connection.connection.driver_connection

    def stop(*_: object) -> None:
        if driver is None or not driver.in_transaction:
            raise _claim_has_ended()

    event.listen(connection, "before_cursor_execute", stop)
    event.listen(connection, "commit", stop)


def _refuse_failed(connection: Connection) -> None:
    """PostgreSQL runs nothing in a failed transaction, but its drivers take the ROLLBACK that answers a COMMIT for one.

    psycopg knows the state without asking the server. Where the driver does not tell it, any statement does.
    """
    state = getattr(getattr(connection.connection.driver_connection, "info", None), "transaction_status", None)
    if state is None:
        _prove(connection, "SELECT 1")
    elif state == _FAILED:
        _leave_nothing_open(connection)
        raise _claim_has_ended()


def _prove(connection: Connection, statement: str) -> None:
    """`statement` works if and only if the claim stands."""
    try:
        connection.exec_driver_sql(statement)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        _leave_nothing_open(connection)
        raise _claim_has_ended() from error


def _leave_nothing_open(connection: Connection) -> None:
    """Not every pool rolls back what is returned to it, and its next user would commit what this block wrote."""
    connection.connection.rollback()  # the driver's: SQLAlchemy takes this transaction for one that it is committing


def _fence_table(name: str, schema: str | None, metadata: MetaData) -> Table:
    if not isinstance(name, str) or not name:
        raise InvalidOption(f"the name of a table is a text, not {name!r}")
    columns = (
        Column("resource", _exact(RESOURCE_BYTES_MAX), primary_key=True),
        Column("line", _ascii(_LINE_CHARACTERS_MAX), nullable=False),
        Column("incarnation", Integer, nullable=False),
        Column("token", BigInteger, nullable=False),
        Column("ids", _ascii(_IDS_CHARACTERS_MAX), nullable=False),
        Column("claims", BigInteger, nullable=False),
        Column("changed_at", DateTime(timezone=True), nullable=False),
    )
    table = Table(
        name,
        metadata,
        *columns,
        schema=schema,
        keep_existing=True,  # a second guard shares it
        mysql_engine="InnoDB",  # no other has the locks
        mariadb_engine="InnoDB",
    )
    if table.c.keys() != [column.name for column in columns]:
        raise InvalidOption(f"this metadata has another table named {table.fullname!r}; give the guard's another name")
    return table


def _exact(length: int) -> String:
    """A text that equals itself only. MySQL's collations overlook case, accents or trailing spaces; bytes don't."""
    exact = String(length).with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")
    return exact.with_variant(mysql.VARBINARY(length), *_MYSQL)


def _ascii(length: int) -> String:
    return String(length).with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), *_MYSQL)


def _upsert_what_is_admitted(table: Table, insert: postgresql.Insert | sqlite.Insert) -> ReturningInsert[tuple[int]]:
    """`admit`, in SQL: it returns a row if and only if the offered fence was admitted."""
    row, offered = table.c, insert.excluded
    same = offered.incarnation == row.incarnation
    younger = or_(offered.incarnation > row.incarnation, and_(same, offered.token > row.token))
    known = and_(same, or_(offered.token == row.token, row.ids.like(bindparam("mine"))))
    kept_unless_younger = {
        name: case((younger, offered[name]), else_=row[name]) for name in ("incarnation", "token", "ids", "changed_at")
    }
    upsert = insert.values(_offered(table) | {"claims": 1, "changed_at": func.current_timestamp()})
    return upsert.on_conflict_do_update(
        index_elements=[row.resource],
        set_={**kept_unless_younger, "claims": row.claims + 1},
        where=and_(offered.line == row.line, or_(younger, known)),
    ).returning(row.token)


def _select_fence(table: Table) -> Select[tuple[str, int, int, str]]:
    columns = (table.c.line, table.c.token, table.c.incarnation, table.c.ids)
    return select(*columns).where(_is_key(table))


def _is_key(table: Table) -> ColumnElement[bool]:
    return table.c.resource == bindparam("key", type_=_RESOURCE)


def _fence(row: Row[Any] | None) -> Fence | None:  # Any: two kinds of selects begin with these columns
    if row is None:
        return None
    try:
        return Fence(row.line, row.token, row.incarnation, tuple(row.ids.split(".")[1:]))
    except InvalidFence as error:
        raise StoreRefused(
            f"the record of token {row.token} of {row.line[:60]!r} in the guard's table is damaged ({error}). Nothing "
            "was written. Mend the row, or `forget` the resource"
        ) from error


def _offered(table: Table) -> dict[str, object]:
    types = {name: table.c[name].type for name in ("line", "incarnation", "token", "ids")}
    return {name: bindparam(f"offered_{name}", type_=kind) for name, kind in ({"resource": _RESOURCE} | types).items()}


def _offer(key: str, offered: Fence) -> dict[str, object]:
    """The values for `_offered`. Each id has a dot before it, so that a pattern finds it."""
    return {
        "offered_resource": key,
        "offered_line": offered.line,
        "offered_incarnation": offered.incarnation,
        "offered_token": offered.token,
        "offered_ids": "".join(f".{one}" for one in offered.ids),
    }


def _refuse(seen: Fence | None, offered: Fence) -> NoReturn:
    if seen is not None:
        admit(seen, offered)
    raise StoreRefused(
        f"the database neither recorded {offered} nor has it a reason to refuse it; is there a trigger or a row "
        "policy on the guard's table?"
    )


def _snapshot_too_old(offered: Fence) -> GuardBusy:
    return GuardBusy(
        f"token {offered.token} of {offered.line} is good, but this transaction reads from a snapshot that is older "
        "than the last claim. Roll back and run it again, with the claim before the reads (or use `transaction`)"
    )


def _claim_has_ended() -> StoreRefused:
    return StoreRefused(
        "the database has ended the claim's transaction within the block: it rolled back after an error that was "
        "caught, or committed for a statement such as CREATE TABLE (MariaDB, MySQL). What ran after that is not "
        "written, and neither is what ran before, unless such a statement committed it. Let each DBAPIError leave the "
        "block, and run the whole transaction again"
    )


def _refuse_autocommit(connection: Connection) -> None:
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


def _refuse_other(connection: Connection) -> None:
    if not isinstance(connection, Connection):
        raise InvalidOption(
            f"this guard needs a Connection of SQLAlchemy, not {type(connection).__name__}; of an ORM session it is "
            "session.connection(), and an AsyncConnection goes to AsyncSQLGuard"
        )
    _refuse_unknown(connection.dialect.name)


def _refuse_unknown(dialect: str) -> None:
    if dialect not in _DIALECTS:
        raise InvalidOption(f"the SQL guard is for PostgreSQL, MariaDB, MySQL and SQLite, not for {dialect!r}")


def _async(connection: AsyncConnection) -> AsyncConnection:
    if not isinstance(connection, AsyncConnection):
        raise InvalidOption(
            f"this guard needs an AsyncConnection of SQLAlchemy, not {type(connection).__name__}; of an ORM session it "
            "is `await session.connection()`, and a Connection goes to SQLGuard"
        )
    return connection


def _checked(resource: str) -> str:
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
