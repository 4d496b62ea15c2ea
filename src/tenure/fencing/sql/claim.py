"""The claim, one way for each kind of database, and the commit that first proves that the claim stands.

The decision is `admit`'s on each. A database may end a transaction by itself: hence the proof. And it should, where
its client has stopped: hence the limits.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final, NoReturn, Protocol

from sqlalchemy import Connection, Table, and_, bindparam, case, event, func, or_, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.dml import ReturningInsert

from tenure.errors import GuardBusy, StoreRefused
from tenure.fencing._fence import Fence, FenceLike, admit
from tenure.fencing.sql.table import MYSQL, fence_in, is_key, offer, offered_values, select_fence

_NOBODY: Final = "-"  # as a pattern it matches itself only, and no column of ids holds it


class ClaimMethod(Protocol):
    """The way to claim on one kind of database."""

    def claim(self, connection: Connection, key: str, offered: Fence) -> None:
        """Register `offered` for `key`, and lock that. Raises what admit raises, GuardBusy, StoreRefused."""


class OneStatement:
    """PostgreSQL and SQLite: the rule is the condition of an upsert, so a claim is one statement.

    The row is locked also where the condition fails. What is admitted always writes, if only a count: at REPEATABLE
    READ, PostgreSQL would let a waiter go on with its old snapshot after a transaction that only locked the row.
    """

    def __init__(self, table: Table, insert: postgresql.Insert | sqlite.Insert) -> None:
        self._upsert: Final = _upsert_what_is_admitted(table, insert)
        self._read: Final = select_fence(table)

    def claim(self, connection: Connection, key: str, offered: Fence) -> None:
        mine = f"%.{offered.ids[0]}%" if offered.shared else _NOBODY
        if connection.execute(self._upsert, offer(key, offered) | {"mine": mine}).first() is None:
            _refuse(fence_in(connection.execute(self._read, {"key": key}).first()), offered)


class LockThenDecide:
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
        again = update(table).where(is_key(table)).values(claims=table.c.claims + 1)
        offered = offered_values(table) | {"changed_at": func.utc_timestamp()}
        self._lock: Final = (
            mysql.insert(table).values(offered | {"claims": 0}).on_duplicate_key_update(resource=table.c.resource)
        )
        self._look: Final = (
            select_fence(table).add_columns(table.c.claims, snapshot.label("snapshot")).with_for_update()
        )
        self._again: Final = again
        self._record: Final = again.values(offered)

    def claim(self, connection: Connection, key: str, offered: Fence) -> None:
        values = offer(key, offered)
        connection.execute(self._lock, values)
        row = connection.execute(self._look, {"key": key}).one()
        seen = fence_in(row)
        younger = admit(seen, offered) != seen
        if row.snapshot != row.claims:
            raise _snapshot_too_old(offered)
        if younger:
            connection.execute(self._record, values | {"key": key})
        else:
            connection.execute(self._again, {"key": key})


def _upsert_what_is_admitted(table: Table, insert: postgresql.Insert | sqlite.Insert) -> ReturningInsert[tuple[int]]:
    """`admit`, in SQL: it returns a row if and only if the offered fence was admitted."""
    row, offered = table.c, insert.excluded
    same = offered.incarnation == row.incarnation
    younger = or_(offered.incarnation > row.incarnation, and_(same, offered.token > row.token))
    known = and_(same, or_(offered.token == row.token, row.ids.like(bindparam("mine"))))
    kept_unless_younger = {
        name: case((younger, offered[name]), else_=row[name]) for name in ("incarnation", "token", "ids", "changed_at")
    }
    upsert = insert.values(offered_values(table) | {"claims": 1, "changed_at": func.current_timestamp()})
    return upsert.on_conflict_do_update(
        index_elements=[row.resource],
        set_={**kept_unless_younger, "claims": row.claims + 1},
        where=and_(offered.line == row.line, or_(younger, known)),
    ).returning(row.token)


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


_SAVEPOINT: Final = "tenure_claim"
_FAILED: Final = 3  # libpq's PQTRANS_INERROR


def commit_with_claim_only(connection: Connection) -> None:
    """Make every commit of this connection's transaction prove first that it is still the claim's.

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
    """Roll back: not every pool does so with what is returned, and its next user would commit what this block wrote."""
    connection.connection.rollback()  # the driver's: SQLAlchemy takes this transaction for one that it is committing


def _claim_has_ended() -> StoreRefused:
    return StoreRefused(
        "the database has ended the claim's transaction within the block: it rolled back after an error that was "
        "caught, or committed for a statement such as CREATE TABLE (MariaDB, MySQL). What ran after that is not "
        "written, and neither is what ran before, unless such a statement committed it. Let each DBAPIError leave the "
        "block, and run the whole transaction again"
    )


_PG_LIMITS: Final = ("lock_timeout", "idle_in_transaction_session_timeout")
_MYSQL_LIMIT: Final = (
    "SET @tenure_lock = @@innodb_lock_wait_timeout, @tenure_idle = @@wait_timeout, "
    "SESSION innodb_lock_wait_timeout = LEAST(@@innodb_lock_wait_timeout, {0}), "
    "SESSION wait_timeout = LEAST(@@wait_timeout, {0})"
)
_MYSQL_UNLIMIT: Final = "SET SESSION innodb_lock_wait_timeout = @tenure_lock, SESSION wait_timeout = @tenure_idle"


def limit(connection: Connection, given: FenceLike) -> str:
    """Set the database's own limits to what a hold has left; return the statement for `unlimit`, if one is needed.

    Whoever is stopped between two statements would keep the claim's lock for as long: the database ends its connection.
    PostgreSQL has lock_timeout, idle_in_transaction_session_timeout and, from 17 on, transaction_timeout; MariaDB and
    MySQL innodb_lock_wait_timeout and wait_timeout, in whole seconds; SQLite only busy_timeout, for those who wait.
    """
    if isinstance(given, (Fence, str)):  # nobody knows what its hold has left
        return ""
    given.check()
    name, seconds = connection.dialect.name, given.remaining()
    milliseconds = max(1, int(1000 * seconds))
    if name == "postgresql":  # SET, and no SELECT: that would take a snapshot before the claim
        newer = (connection.dialect.server_version_info or ()) >= (17,)
        for setting in (*_PG_LIMITS, "transaction_timeout") if newer else _PG_LIMITS:
            connection.exec_driver_sql(f"SET LOCAL {setting} = {milliseconds}")
    elif name in MYSQL:
        connection.exec_driver_sql(_MYSQL_LIMIT.format(max(1, int(seconds))))
        return _MYSQL_UNLIMIT
    elif name == "sqlite":
        former = int(connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one())
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {min(former, milliseconds)}")
        return f"PRAGMA busy_timeout = {former}"
    return ""


def unlimit(connection: Connection, statement: str) -> None:
    """Give the connection its former limits back; drop it where that fails, or its next user would have ours."""
    if not statement or connection.closed:
        return
    try:
        with closing(connection.connection.cursor()) as cursor:  # the driver's: no transaction of SQLAlchemy's begins
            cursor.execute(statement)
    except Exception:  # each driver has its own; how the block ended matters more
        connection.invalidate()
