"""The database's own limits, taken from the hold: a stopped process's transaction keeps its successor no longer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

import tenure
from tenure import InvalidFence, LeaseLost, UsageError
from tenure.fencing._fence import Fence
from tenure.fencing.file import FileGuard
from tenure.fencing.sql import AsyncSQLGuard, SQLGuard
from tenure.testing.conformance.faces import LoopThread

from .test_sql_bank import BANKS, WAIT, Bank, opened

LEFT = 2.0
LINE = "billing/ledger"
LIMITS = {
    "postgresql": ("SHOW lock_timeout", "SHOW idle_in_transaction_session_timeout"),
    "mariadb": ("SELECT @@innodb_lock_wait_timeout", "SELECT @@wait_timeout"),
    "sqlite": ("PRAGMA busy_timeout",),
}


class Holding:
    """A hold with that much time left, of any face."""

    def __init__(self, token: int, left: float = LEFT) -> None:
        self.fence = Fence(LINE, token)
        self._left = left

    def remaining(self) -> float:
        return self._left

    def check(self) -> None:
        if not self._left:
            raise LeaseLost("it is over")


@pytest.fixture(params=BANKS, ids="-".join)
def bank(request: pytest.FixtureRequest) -> Iterator[Bank]:
    """Each database on each face."""
    with opened(request, *request.param) as made:
        yield made


class Guarded:
    """Transactions behind a guard on one connection of a pool, on the bank's face; every call blocks."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._loop = None if bank.face == "threads" else LoopThread()
        url = bank.url()
        self.engine: Any = (
            create_engine(url, pool_size=1) if self._loop is None else create_async_engine(url, pool_size=1)
        )
        self._guard: Any = SQLGuard() if self._loop is None else AsyncSQLGuard()

    @contextmanager
    def transaction(self, fence: Any) -> Iterator[Any]:
        """A function that runs work on the transaction's connection."""
        entered = self._guard.transaction(self.engine, fence, resource=self._bank.resource)
        if self._loop is None:
            with entered as connection:
                yield lambda work: work(connection)
            return
        loop = self._loop
        connection = loop.run(entered.__aenter__())
        try:
            yield lambda work: loop.run(connection.run_sync(work))
        except BaseException as error:
            if not loop.run(entered.__aexit__(type(error), error, None)):
                raise
        else:
            loop.run(entered.__aexit__(None, None, None))

    def limits(self, run: Any = None) -> list[str]:
        """What the connection's limits are, within a transaction or in a new one without a hold."""
        if run is None:
            with self.transaction(Fence(LINE, 1)) as run:
                return self.limits(run)
        return [
            str(run(lambda c, asked=asked: c.execute(text(asked)).scalar_one())) for asked in LIMITS[self._bank.kind]
        ]

    def close(self) -> None:
        if self._loop is None:
            self.engine.dispose()
        else:
            self._loop.run(self.engine.dispose())
            self._loop.close()


@pytest.fixture
def first(bank: Bank) -> Iterator[Guarded]:
    """The one that is stopped."""
    made = Guarded(bank)
    yield made
    made.close()


@pytest.fixture
def second(bank: Bank) -> Iterator[Guarded]:
    """Its successor."""
    made = Guarded(bank)
    yield made
    made.close()


def test_open_transaction_of_a_stopped_process_keeps_its_successor_no_longer_than_its_hold(
    bank: Bank, first: Guarded, second: Guarded
) -> None:
    """The database ends it; what it wrote is gone, and its commit fails. SQLite can't, and says so to who waits."""

    def successor() -> float:
        started = time.monotonic()
        with second.transaction(Holding(2)) as run:
            run(lambda connection: bank.write(connection, bank.read(connection) + 10))
        return time.monotonic() - started

    with ThreadPoolExecutor() as pool, pytest.raises(DBAPIError), first.transaction(Holding(1)) as run:
        run(lambda connection: bank.write(connection, 1))  # and now it is stopped
        waiting = pool.submit(successor)
        if bank.kind == "sqlite":
            with pytest.raises(DBAPIError, match="database is locked"):
                waiting.result(WAIT)
            raise DBAPIError("", None, Exception("stopped"))  # nobody but itself can end it
        assert waiting.result(WAIT) < LEFT + 5.0
    assert bank.balance() == (0 if bank.kind == "sqlite" else 10)


def test_limits_are_the_transactions_and_the_connections_own_ones_come_back(first: Guarded, bank: Bank) -> None:
    """The next user of a pooled connection does not have the hold's; a failed block gives them back as well."""
    before = first.limits()
    with first.transaction(Holding(1)) as run:
        assert first.limits(run) == {"postgresql": ["2s", "2s"], "mariadb": ["2", "2"], "sqlite": ["2000"]}[bank.kind]
    assert first.limits() == before
    with pytest.raises(ZeroDivisionError), first.transaction(Holding(1, 0.5)):
        raise ZeroDivisionError
    assert first.limits() == before


def test_wait_for_anothers_claim_ends_with_the_own_hold(bank: Bank, first: Guarded, second: Guarded) -> None:
    """Whoever waits hears of it in the database's words, while the other one is still at work."""

    def wait() -> None:
        with second.transaction(Holding(2, 1.0)):
            raise AssertionError("entered")

    with ThreadPoolExecutor() as pool, first.transaction(Holding(1, 60.0)) as run:
        run(lambda connection: bank.write(connection, 1))
        assert isinstance(pool.submit(wait).exception(5.0), DBAPIError)
    assert bank.balance() == 1


def test_hold_that_is_lost_begins_no_transaction(first: Guarded, bank: Bank) -> None:
    """Nothing is claimed for it."""
    with pytest.raises(LeaseLost), first.transaction(Holding(1, 0.0)):
        raise AssertionError("entered")
    assert bank.seen() is None


def test_guard_without_its_table_says_how_to_create_it(bank: Bank) -> None:
    """Instead of the database's words for it."""
    guard = SQLGuard("not_there")
    with pytest.raises(UsageError, match=r"no table 'not_there': call guard\.create\(engine\)"):
        bank.writer().run(lambda connection: guard.claim(connection, Holding(1)))


@pytest.mark.parametrize("wrong", [33, None, object(), tenure.connect])
def test_what_is_no_hold_is_refused_by_every_guard_with_a_hint(wrong: Any) -> None:
    """The token alone does not say in which line it counts."""
    with pytest.raises(InvalidFence, match=r"pass hold\.fence"):
        FileGuard("/tmp/x").claim(wrong)
    with pytest.raises(InvalidFence, match=r"pass hold\.fence"):
        Fence.of("33")


def test_guards_take_a_hold_for_its_fence(tmp_path: Any) -> None:
    """A real one, of either face."""
    with tenure.connect("memory://limits") as client, client.lock("a") as hold:
        guard = FileGuard(tmp_path / "file")
        guard.replace(hold, b"1")
        assert guard.seen() == hold.fence
