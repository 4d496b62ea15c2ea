"""Bank for the SQL guard's tests: an account in a real database, and writers whose steps tests can interleave.

The tests in here are the controls: without the guard, the very scripts of the other files lose an update.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    NullPool,
    Table,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tenure.fencing._fence import Fence
from tenure.fencing.sql import AsyncSQLGuard, SQLGuard
from tenure.testing.conformance.faces import LoopThread
from tests.conformance.store_worlds import eventually

from .conftest import Rivals

T = TypeVar("T")

KINDS: Final = ("sqlite", "postgresql", "mariadb")
FACES: Final = ("threads", "asyncio")
BANKS: Final = tuple(itertools.product(KINDS, FACES))
DRIVERS: Final = {
    ("sqlite", "threads"): "sqlite",
    ("sqlite", "asyncio"): "sqlite+aiosqlite",
    ("postgresql", "threads"): "postgresql+psycopg",
    ("postgresql", "asyncio"): "postgresql+psycopg",
    ("mariadb", "threads"): "mysql+pymysql",
    ("mariadb", "asyncio"): "mysql+aiomysql",
}
WAIT: Final = 20.0
_CONFLICTS: Final = ("40001", "40P01", "(1213,", "(1205,", "(1020,", "database is locked")

_numbers = itertools.count(1)
_tables = MetaData()
ACCOUNTS: Final = Table(
    "guarded_accounts",
    _tables,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("balance", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False, server_default="0"),
    mysql_engine="InnoDB",
)
JOURNAL: Final = Table(
    "guarded_journal",
    _tables,
    Column("id", Integer, primary_key=True),  # given out under the claim's lock, so in the order of commits
    Column("account", Integer, nullable=False),
    Column("token", BigInteger, nullable=False),
    mysql_engine="InnoDB",
)


class Program(Protocol):
    """A connection of SQLAlchemy, on one of the faces; every call blocks."""

    engine: Engine

    def claim(self, fence: Fence | str, resource: str | None) -> None: ...

    def run(self, work: Callable[[Connection], T]) -> T: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...


class ThreadsProgram:
    def __init__(self, guard: SQLGuard, url: str, options: dict[str, Any]) -> None:
        self.engine = create_engine(url, poolclass=NullPool, **options)
        self._guard = guard
        self._connection = self.engine.connect()

    def claim(self, fence: Fence | str, resource: str | None) -> None:
        self._guard.claim(self._connection, fence, resource=resource)

    def run(self, work: Callable[[Connection], T]) -> T:
        return work(self._connection)

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()
        self.engine.dispose()


class AsyncioProgram:
    def __init__(self, guard: SQLGuard, url: str, options: dict[str, Any]) -> None:
        self._guard = AsyncSQLGuard(guard.table.name)
        self._loop = LoopThread()
        self._engine: AsyncEngine = create_async_engine(url, poolclass=NullPool, **options)
        self.engine = self._engine.sync_engine
        try:
            self._connection: AsyncConnection = self._loop.run(self._engine.connect())
        except BaseException:
            self._loop.close()
            raise

    def claim(self, fence: Fence | str, resource: str | None) -> None:
        self._loop.run(self._guard.claim(self._connection, fence, resource=resource))

    def run(self, work: Callable[[Connection], T]) -> T:
        done: T = self._loop.run(self._connection.run_sync(work))
        return done

    def commit(self) -> None:
        self._loop.run(self._connection.commit())

    def close(self) -> None:
        self._loop.run(self._connection.close())
        self._loop.run(self._engine.dispose())
        self._loop.close()


class Writer:
    """A program that works on the bank's account. Nothing commits by itself."""

    def __init__(self, bank: Bank, program: Program) -> None:
        self._ground = bank
        self._program = program
        self._closed = False
        self.waits_as = program.run(bank.session_of)
        self.sent = threading.Event()
        event.listen(program.engine, "before_cursor_execute", lambda *_: self.sent.set())

    def claim(self, fence: Fence | str, resource: str | None = None) -> None:
        self._program.claim(fence, resource or self._ground.resource)

    def read(self) -> int:
        return self.run(self._ground.read)

    def claim_and_read(self, fence: Fence) -> Callable[[], int]:
        def both() -> int:
            self.claim(fence)
            return self.read()

        return both

    def write(self, balance: int) -> None:
        self.run(lambda connection: self._ground.write(connection, balance))

    def run(self, work: Callable[[Connection], T]) -> T:
        return self._program.run(work)

    def commit(self) -> None:
        self._program.commit()

    def close(self) -> None:
        """Close it; what was not committed is rolled back."""
        if not self._closed:
            self._closed = True
            self._program.close()


class Bank:
    """A database, the guard in it, and an account of this test's own with a balance of 0."""

    def __init__(self, kind: str, face: str, urls: Callable[[str], str], undo: ExitStack) -> None:
        self.kind = kind
        self.face = face
        self._urls = urls
        self._undo = undo
        self.guard = SQLGuard()
        self.engine = self.new_engine()
        self.guard.create(self.engine)
        _tables.create_all(self.engine)
        self._open_account()

    def _open_account(self) -> None:
        self.number = next(_numbers)
        self.resource = f"account {self.number}"
        with self.engine.begin() as connection:
            connection.execute(insert(ACCOUNTS).values(id=self.number, balance=0))

    def same_database(self) -> Bank:
        """A bank with another account in the same database; it ends with this one."""
        other = copy(self)
        other._open_account()
        return other

    def url(self, driver: str | None = None) -> str:
        return self._urls(driver or DRIVERS[self.kind, self.face])

    def new_engine(self, **options: Any) -> Engine:
        """A sync engine, whatever the face; disposed of at the end."""
        engine = create_engine(self.url(DRIVERS[self.kind, "threads"]), **options)
        self._undo.callback(engine.dispose)
        return engine

    def writer(self, **options: Any) -> Writer:
        make = ThreadsProgram if self.face == "threads" else AsyncioProgram
        program: Program = make(self.guard, self.url(), options)
        writer = Writer(self, program)
        self._undo.callback(writer.close)
        return writer

    def read(self, connection: Connection) -> int:
        mine = select(ACCOUNTS.c.balance).where(ACCOUNTS.c.id == self.number)
        balance: int = connection.execute(mine).scalar_one()
        return balance

    def write(self, connection: Connection, balance: int) -> None:
        connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.id == self.number).values(balance=balance))

    def journal(self, connection: Connection, token: int) -> None:
        connection.execute(insert(JOURNAL).values(account=self.number, token=token))

    def journalled(self) -> list[int]:
        """The tokens of all that was committed, in that order."""
        mine = select(JOURNAL.c.token).where(JOURNAL.c.account == self.number).order_by(JOURNAL.c.id)
        with self.engine.connect() as connection:
            return list(connection.scalars(mine))

    def balance(self) -> int:
        with self.engine.connect() as connection:
            return self.read(connection)

    def seen(self, resource: str | None = None) -> Fence | None:
        with self.engine.connect() as connection:
            return self.guard.seen(connection, resource or self.resource)

    def session_of(self, connection: Connection) -> int:
        """The name by which the database knows this connection; 0 on SQLite, which knows none."""
        if self.kind == "sqlite":
            return 0
        number: int = connection.execute(
            select(func.pg_backend_pid() if self.kind == "postgresql" else func.connection_id())
        ).scalar_one()
        connection.rollback()
        return number

    def wait_until_blocked(self, writer: Writer) -> None:
        """Wait until the database says that this writer waits for another's lock.

        SQLite can't: until it has sent SQL.
        """
        if self.kind == "sqlite":
            assert writer.sent.wait(WAIT)
            return
        asked = text(_IS_BLOCKED[self.kind].format(session=writer.waits_as))
        with self.new_engine(isolation_level="AUTOCOMMIT").connect() as connection:
            assert eventually(lambda: bool(connection.execute(asked).scalar_one()), WAIT)


_IS_BLOCKED: Final = {
    "postgresql": "SELECT cardinality(pg_blocking_pids({session}))",
    # Of the whole server, on which nobody else is at work. INNODB_TRX tells who, but nothing new to whoever asks it
    # more often than every 0.1 seconds.
    "mariadb": "SELECT variable_value + 0 FROM information_schema.global_status "
    "WHERE variable_name = 'Innodb_row_lock_current_waits'",
}


@contextmanager
def opened(request: pytest.FixtureRequest, kind: str, face: str = "threads") -> Iterator[Bank]:
    """A bank in the run's server of this kind, or in a file. Its writers and engines end with it."""
    if kind == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        urls: Callable[[str], str] = lambda driver: f"{driver}:///{folder / 'bank.db'}"  # noqa: E731
    else:
        urls = request.getfixturevalue(kind).url
    with ExitStack() as undo:
        yield Bank(kind, face, urls, undo)


@contextmanager
def aside(work: Callable[[], T]) -> Iterator[Future[T]]:
    """`work` in a thread of its own, which has ended at the end of the block."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pool.submit(work)


def is_conflict(error: Exception) -> bool:
    """True where the database says: run the transaction again."""
    if not isinstance(error, DBAPIError):
        return False
    said = f"{getattr(error.orig, 'sqlstate', '')} {error.orig}"
    return any(word in said for word in _CONFLICTS)


@pytest.fixture(params=KINDS)
def bank(request: pytest.FixtureRequest) -> Iterator[Bank]:
    """Each database once."""
    with opened(request, request.param) as made:
        yield made


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_without_the_guard_the_write_of_a_stopped_holder_destroys_the_seconds(rivals: Rivals, bank: Bank) -> None:
    """The control: what every test of refusal prevents does happen."""
    first, second = bank.writer(), bank.writer()
    assert first.read() == 0
    first.commit()  # it read, was stopped, and will write what it computed from that
    rivals.depose()
    second.write(second.read() + 10)
    second.commit()
    rivals.resume()
    first.write(0 + 1)
    first.commit()
    assert bank.balance() == 1  # and not 11


def test_without_the_guard_two_increments_at_once_lose_one(bank: Bank) -> None:
    """The control for the counters: the databases' default levels do not help."""
    first, second = bank.writer(), bank.writer()
    balances = first.read(), second.read()
    first.commit()
    second.commit()
    for writer, balance in zip((first, second), balances, strict=True):
        writer.write(balance + 1)
        writer.commit()
    assert bank.balance() == 1
