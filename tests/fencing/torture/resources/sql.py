"""Three tables and the SQL guard. Each worker has an isolation level of its own, drawn by lot."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    NullPool,
    String,
    Table,
    create_engine,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from tenure import Hold
from tenure.fencing.sql import SQLGuard
from tests.fencing.torture.check import Contents, Entry
from tests.fencing.torture.events import What

from . import end_of_ours

_WHOLE_SHARE: Final = 0.15  # of the turns have read and write in one transaction, which holds the claim's lock
_LOCK_SECONDS: Final = 20  # longer than anybody is stopped while it has a lock
_CONFLICTS: Final = ("40001", "40P01", "(1213,", "(1205,", "(1020,", "database is locked")
_LEVELS: Final = {
    "postgresql": ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"),
    "mysql": ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"),
    "sqlite": ("SERIALIZABLE",),
}
_metadata = MetaData()
_guard = SQLGuard("torture_fences", metadata=_metadata)
_counter = Table("torture_counter", _metadata, Column("number", Integer, nullable=False), mysql_engine="InnoDB")
_elements = Table("torture_elements", _metadata, Column("element", String(40), primary_key=True), mysql_engine="InnoDB")
_journal = Table(
    "torture_journal",
    _metadata,
    Column("id", Integer, primary_key=True),  # given out behind the claim or the counter's lock: the order of commits
    Column("number", Integer, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("element", String(40), nullable=False),
    mysql_engine="InnoDB",
)


class SQLResource:
    """Most turns claim and read in one transaction, and claim and write in the next; some do all in one."""

    def __init__(self, address: str, *, guarded: bool) -> None:
        self._engine = _engine(address)
        self._guarded = guarded
        self._open: Connection | None = None
        self._transaction = ExitStack()

    def read(self, hold: Hold) -> int:
        connection = self._begin(hold)
        count: int = connection.scalars(select(_counter.c.number)).one()
        if random.random() >= _WHOLE_SHARE:
            connection.commit()
            self.turn_over()
        return count

    def write(self, hold: Hold, count: int, element: str) -> None:
        connection = self._open or self._begin(hold)
        connection.execute(update(_counter).values(number=count))
        connection.execute(insert(_elements).values(element=element))
        connection.execute(insert(_journal).values(number=count, token=hold.token, element=element))
        connection.commit()

    def turn_over(self) -> None:
        self._open = None
        self._transaction.close()

    def end_of(self, error: Exception) -> What | None:
        if isinstance(error, DBAPIError):
            return What.FAIL if _is_conflict(error) else What.INFO
        return end_of_ours(error)

    def close(self) -> None:
        self._engine.dispose()

    def _begin(self, hold: Hold) -> Connection:
        self._open = self._transaction.enter_context(self._engine.connect())
        if self._guarded:
            _guard.claim(self._open, hold.fence, resource="counter")
        return self._open


class SQLTarget:
    """The tables, made new."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._engine = create_engine(address, poolclass=NullPool)
        _metadata.drop_all(self._engine)
        _guard.create(self._engine)
        _metadata.create_all(self._engine)
        with self._engine.begin() as connection:
            connection.execute(insert(_counter).values(number=0))

    def contents(self) -> Contents:
        written = select(_journal.c.number, _journal.c.token, _journal.c.element).order_by(_journal.c.id)
        with self._engine.connect() as connection:
            return Contents(
                connection.scalars(select(_counter.c.number)).one(),
                frozenset(connection.scalars(select(_elements.c.element))),
                tuple(Entry(*row) for row in connection.execute(written)),
            )

    def close(self) -> None:
        _metadata.drop_all(self._engine)
        self._engine.dispose()


def _engine(address: str) -> Engine:
    dialect = address.partition(":")[0].partition("+")[0]
    seconds = {"timeout": _LOCK_SECONDS} if dialect == "sqlite" else {}
    return create_engine(address, isolation_level=random.choice(_LEVELS[dialect]), connect_args=seconds)


def _is_conflict(error: DBAPIError) -> bool:
    """True where the database says: run the transaction again. Then it was rolled back."""
    said = f"{getattr(error.orig, 'sqlstate', '')} {error.orig}"
    return any(word in said for word in _CONFLICTS)
