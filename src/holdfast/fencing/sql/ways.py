"""The claim itself, one way for each kind of database. The decision is `admit`'s on each."""

from __future__ import annotations

from typing import Final, NoReturn, Protocol

from sqlalchemy import Connection, Table, and_, bindparam, case, func, or_, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert

from holdfast.errors import GuardBusy, StoreRefused
from holdfast.fence import Fence, admit
from holdfast.fencing.sql.table import fence_in, is_key, offer, offered_values, select_fence

_NOBODY: Final = "-"  # as a pattern it matches itself only, and no column of ids holds it


class Way(Protocol):
    """How one kind of database is asked to claim."""

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
