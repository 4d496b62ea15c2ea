"""The SQL guard: what a stale holder meets, on real PostgreSQL, MariaDB and SQLite, on both faces."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, create_engine, event, select, text, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine

from tenure._core.base.limits import RESOURCE_BYTES_MAX
from tenure.errors import FenceMismatch, InvalidFence, InvalidOption, StaleToken, StoreRefused, UsageError
from tenure.fencing._fence import Fence
from tenure.fencing.sql import AsyncSQLGuard, SQLGuard

from .conftest import Rivals
from .test_sql_bank import ACCOUNTS, BANKS, DRIVERS, KINDS, WAIT, Bank, aside, opened

LINE = "billing/ledger"
IDS = tuple(f"{number:020x}" for number in range(10, 16))


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, world: Any) -> Iterator[Bank]:
    """Each database with each store's holds: on asyncio with memory's, on threads with the servers'."""
    with opened(request, request.param, "asyncio" if world.kind == "memory" else "threads") as made:
        yield made


@pytest.fixture(params=BANKS, ids="-".join)
def bank(request: pytest.FixtureRequest) -> Iterator[Bank]:
    """Each database on each face."""
    with opened(request, *request.param) as made:
        yield made


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest) -> Iterator[Bank]:
    """Each database once, for what both faces have in common."""
    with opened(request, request.param) as made:
        yield made


def plain(token: int, incarnation: int = 0) -> Fence:
    return Fence(LINE, token, incarnation)


class TestScripts:
    """The interleavings that fencing is for, with real holds of every store."""

    def test_stopped_holder_that_writes_after_the_second_did_is_refused(self, rivals: Rivals, place: Bank) -> None:
        """A is stopped past its TTL, B writes, A resumes and writes: refused, and B's data intact."""
        first, second = place.writer(), place.writer()
        younger = rivals.depose()
        second.claim(younger.fence)
        second.write(second.read() + 10)
        second.commit()
        rivals.resume()
        with pytest.raises(StaleToken) as refused:
            first.claim(rivals.first.fence)
        assert (refused.value.offered, refused.value.seen) == (str(rivals.first.fence), str(younger.fence))
        assert f"token {rivals.first.token} of" in str(refused.value)
        assert f"token {younger.token} was seen" in str(refused.value)
        first.commit()  # even so nothing was written
        assert place.balance() == 10
        assert place.seen() == younger.fence

    def test_second_waits_for_a_write_in_flight_and_sees_it(self, rivals: Rivals, place: Bank) -> None:
        """A has claimed and written, and not committed: B's claim waits, and B builds on what A wrote."""
        first, second = place.writer(), place.writer()
        first.claim(rivals.first.fence)
        first.write(1)
        younger = rivals.depose()
        second.sent.clear()
        with aside(second.claim_and_read(younger.fence)) as found:
            place.wait_until_blocked(second)
            assert not found.done()
            first.commit()
            assert found.result(WAIT) == 1
        second.write(1 + 10)
        second.commit()
        assert place.balance() == 11

    def test_claim_that_arrives_during_the_seconds_transaction_is_refused(self, rivals: Rivals, place: Bank) -> None:
        """A's claim meets B's open transaction: it waits, and is refused when B has committed."""
        first, second = place.writer(), place.writer()
        younger = rivals.depose()
        second.claim(younger.fence)
        second.write(10)
        rivals.resume()
        first.sent.clear()
        with aside(lambda: first.claim(rivals.first.fence)) as claimed:
            place.wait_until_blocked(first)
            assert not claimed.done()
            second.commit()
            with pytest.raises(StaleToken):
                claimed.result(WAIT)
        assert place.balance() == 10

    def test_late_write_is_refused_where_the_second_only_read(self, rivals: Rivals, place: Bank) -> None:
        """Reads register too: what B read stays true."""
        first, second = place.writer(), place.writer()
        younger = rivals.depose()
        second.claim(younger.fence)
        assert second.read() == 0
        second.commit()
        rivals.resume()
        with pytest.raises(StaleToken):
            first.claim(rivals.first.fence)
        assert place.balance() == 0

    def test_second_may_retry_its_write_whatever_became_of_the_commit(self, rivals: Rivals, place: Bank) -> None:
        """The same fence is accepted again: the answer to B's commit was lost, and it does it all once more."""
        younger = rivals.depose()
        for happened in (False, True):
            second = place.writer()
            second.claim(younger.fence)
            second.write(10)
            if happened:
                second.commit()
            second.close()  # the server rolls back what had not been committed
            again = place.writer()
            again.claim(younger.fence)
            assert again.read() == (10 if happened else 0)
            again.write(10 if happened else 0)
            again.commit()
        assert place.balance() == 10

    def test_own_column_refuses_the_late_write_of_one_statement(self, rivals: Rivals, place: Bank) -> None:
        """The documented pattern: no row matches a stale token, also where the second only read."""
        mine = ACCOUNTS.c.id == place.number

        def matched(token: int, **values: int) -> int:
            writer = place.writer()
            statement = update(ACCOUNTS).where(mine, ACCOUNTS.c.fence <= token).values(fence=token, **values)
            rows = writer.run(lambda connection: connection.execute(statement).rowcount)
            writer.commit()
            return rows

        younger = rivals.depose()
        assert matched(rivals.first.token, balance=1) == 1  # nobody else has read or written yet
        assert matched(younger.token) == 1  # B's read registers
        assert place.balance() == 1
        rivals.resume()
        assert matched(rivals.first.token, balance=2) == 0
        assert [matched(younger.token, balance=10) for _ in range(2)] == [1, 1]  # the same write again
        assert place.balance() == 10


class TestRule:
    """`admit`, as the databases see it."""

    def test_rolled_back_claim_was_never_made(self, bank: Bank) -> None:
        """A's claim waits for B's, and is good when B gives up."""
        first, second = bank.writer(), bank.writer()
        second.claim(plain(34))
        first.sent.clear()
        with aside(lambda: first.claim(plain(33))) as claimed:
            bank.wait_until_blocked(first)
            second.run(lambda connection: connection.rollback())
            claimed.result(WAIT)
        first.commit()
        assert bank.seen() == plain(33)

    def test_claim_for_a_token_seen_before_locks_as_well(self, bank: Bank) -> None:
        """Two transactions of one holder come one after the other."""
        first, second = bank.writer(), bank.writer()
        first.claim(plain(33))
        first.commit()
        first.claim(plain(33))
        first.write(1)
        second.sent.clear()
        with aside(second.claim_and_read(plain(33))) as found:
            bank.wait_until_blocked(second)
            assert not found.done()
            first.commit()
            assert found.result(WAIT) == 1

    def test_sqlite_lets_nobody_claim_while_a_claim_is_open(self, request: pytest.FixtureRequest) -> None:
        """The proof that waiting is what SQLite does: without patience, the second is turned away at once."""
        with opened(request, "sqlite") as bank:
            first = bank.writer()
            second = bank.writer(connect_args={"timeout": 0})
            first.claim(plain(33))
            with pytest.raises(OperationalError, match="locked"):
                second.claim(plain(34))
            first.commit()
            second.claim(plain(34))

    def test_higher_incarnation_is_younger_whatever_the_tokens(self, database: Bank) -> None:
        """The operator raised the incarnation: low tokens are young again, and the old ones are stale."""
        writer = database.writer()
        writer.claim(plain(500))
        writer.claim(plain(3, incarnation=1))
        with pytest.raises(StaleToken, match="incarnation 1") as refused:
            writer.claim(plain(501))
        assert refused.value.seen == "1.3@billing/ledger"

    def test_fence_of_another_line_is_refused_until_an_operator_forgets(self, database: Bank) -> None:
        """One lock name for one resource; moving it is an explicit act."""
        writer = database.writer()
        writer.claim(plain(33))
        other = Fence("billing/other", 99)
        with pytest.raises(FenceMismatch, match="billing/other"):
            writer.claim(other)
        assert writer.run(lambda connection: database.guard.forget(connection, database.resource)) is True
        assert writer.run(lambda connection: database.guard.forget(connection, database.resource)) is False
        writer.claim(other)
        writer.commit()
        assert database.seen() == other

    def test_largest_fence_fits(self, database: Bank) -> None:
        """64 bits, a long line, and as many co-holders as a fence can name."""
        line = "n/" + "x" * 4094
        largest = Fence(line, 2**63 - 1, 2**31 - 1, tuple(f"{number:020x}" for number in range(128)))
        writer = database.writer()
        writer.claim(largest)
        writer.claim(str(largest))
        writer.claim(Fence(line, 1, 2**31 - 1, (f"{127:020x}",)))
        writer.commit()
        assert database.seen() == largest

    def test_co_holder_is_found_by_its_whole_id_only(self, database: Bank) -> None:
        """A ticket that was not held together with the youngest is stale, however much its id resembles one."""
        writer = database.writer()
        writer.claim(Fence(LINE, 40, ids=("a" * 20, "b" * 20)))
        writer.claim(Fence(LINE, 30, ids=("b" * 20,)))
        for stranger in ("c" * 20, "a" * 10 + "b" * 10):
            with pytest.raises(StaleToken):
                writer.claim(Fence(LINE, 30, ids=(stranger,)))
        with pytest.raises(StaleToken):
            writer.claim(Fence(LINE, 30))
        writer.commit()
        assert database.seen() == Fence(LINE, 40, ids=("a" * 20, "b" * 20))

    def test_seats_alternate_and_a_dead_one_is_refused_after_a_newer_claimed(self, world: Any, database: Bank) -> None:
        """Co-holders write in any order; who is gone when the next is seated may write no more."""
        one, two, three = (world.client(owner=owner, ttl=60) for owner in ("one", "two", "three"))
        first, second = (client.semaphore("seats", limit=2).acquire(timeout=10) for client in (one, two))
        writer = database.writer()
        for hold in (first, second, first, second, first):
            writer.claim(hold.fence)
            writer.commit()
        assert database.seen() == second.fence
        world.cut(one)
        world.expire(first)
        third = three.semaphore("seats", limit=2).acquire(timeout=20)
        writer.claim(first.fence)  # nobody younger has come to the database yet
        writer.claim(third.fence)
        with pytest.raises(StaleToken):
            writer.claim(first.fence)
        for hold in (second, third, second):
            writer.claim(hold.fence)
        world.heal(one)

    def test_each_spelling_is_a_resource_of_its_own(self, database: Bank) -> None:
        """Case, accents, spaces at the end, normal forms: names are compared byte by byte."""
        name = f"names {database.number} "
        names = [name + one for one in ("a", "A", "a ", " a", "a\t", "á", "a\u0301", "ß", "ss", "ſs", "%", "_", "\\")]
        names += ["x" * RESOURCE_BYTES_MAX, "x" * (RESOURCE_BYTES_MAX - 1), "😀" * (RESOURCE_BYTES_MAX // 4), name]
        writer = database.writer()
        for token, resource in enumerate(names, start=1):
            writer.claim(plain(token), resource=resource)
        writer.commit()
        assert [database.seen(resource) for resource in names] == [plain(token) for token in range(1, len(names) + 1)]

    def test_resource_is_the_fences_line_unless_told(self, database: Bank) -> None:
        """The lock's name names the resource."""
        line = f"billing/{database.number}"
        with database.guard.transaction(database.engine, f"0.33@{line}"):
            pass
        assert database.seen(line) == Fence(line, 33)

    def test_row_that_somebody_damaged_is_reported_as_such(self, database: Bank) -> None:
        """Not as a mistake of the caller's."""
        line, rows = f"billing/{database.number}", database.guard.table
        with database.guard.transaction(database.engine, Fence(line, 33), resource=database.resource) as connection:
            connection.execute(update(rows).where(rows.c.line == line).values(line="no line"))
        with pytest.raises(StoreRefused, match="damaged"):
            database.writer().claim(Fence(line, 34))
        with pytest.raises(StoreRefused, match="damaged"):
            database.seen()


class TestTransaction:
    """`transaction`: the claim first, then the block, then the commit."""

    def test_transaction_commits_claim_and_write_together(self, database: Bank) -> None:
        """At the end of the block both are there."""
        with database.guard.transaction(database.engine, plain(33), resource=database.resource) as connection:
            database.write(connection, 5)
        assert (database.balance(), database.seen()) == (5, plain(33))

    def test_transaction_that_raises_leaves_neither(self, database: Bank) -> None:
        """The claim goes with the write."""
        with pytest.raises(ZeroDivisionError):
            with database.guard.transaction(database.engine, plain(33), resource=database.resource) as connection:
                database.write(connection, 5)
                raise ZeroDivisionError
        assert (database.balance(), database.seen()) == (0, None)

    def test_stale_transaction_never_enters_its_block(self, database: Bank) -> None:
        """Refused before anything of the user's ran."""
        with database.guard.transaction(database.engine, plain(34), resource=database.resource):
            pass
        with pytest.raises(StaleToken):
            with database.guard.transaction(database.engine, plain(33), resource=database.resource):
                pytest.fail("the block ran")

    @pytest.mark.parametrize("kind", KINDS)
    def test_asyncio_has_the_same_words(self, request: pytest.FixtureRequest, kind: str) -> None:
        """create, transaction, claim, seen, forget; and a cancelled block leaves nothing."""
        with opened(request, kind, "asyncio") as bank:
            asyncio.run(self._use_all_words(bank))
            assert bank.balance() == 5

    async def _use_all_words(self, bank: Bank) -> None:
        guard, engine, resource = AsyncSQLGuard(), create_async_engine(bank.url()), bank.resource
        await guard.create(engine)
        async with guard.transaction(engine, plain(33), resource=resource) as connection:
            await connection.run_sync(bank.write, 5)
        with pytest.raises(StaleToken):
            async with guard.transaction(engine, plain(32), resource=resource):
                pytest.fail("the block ran")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), guard.transaction(engine, plain(34), resource=resource) as connection:
                await connection.run_sync(bank.write, 6)
                await asyncio.Event().wait()
        async with engine.begin() as connection:
            await guard.create(connection)
            assert await guard.seen(connection, resource) == plain(33)
            await guard.claim(connection, str(plain(35)), resource=resource)
            assert await guard.forget(connection, resource)
            assert await guard.seen(connection, resource) is None
        await engine.dispose()

    def test_claim_costs_the_stated_number_of_statements(self, database: Bank) -> None:
        """One where the rule fits into an upsert, three elsewhere; a refusal reads once more, or writes once less."""
        line, rows = f"billing/{database.number}", database.guard.table
        counts: list[int] = []
        with database.engine.begin() as connection:
            sent: list[str] = []
            event.listen(database.engine, "before_cursor_execute", lambda *arguments: sent.append(arguments[2]))
            for token in (33, 33, 34, 33):
                sent.clear()
                with pytest.raises(StaleToken) if len(counts) == 3 else nullcontext():
                    database.guard.claim(connection, Fence(line, token))
                counts.append(len(sent))
            assert connection.scalar(select(rows.c.claims).where(rows.c.line == line)) == 3  # the accepted ones
        assert counts == ([3, 3, 3, 2] if database.kind == "mariadb" else [1, 1, 1, 2])


def _autocommit_engine(bank: Bank) -> Connection:
    return bank.new_engine(isolation_level="AUTOCOMMIT").connect()


def _autocommit_option(bank: Bank) -> Connection:
    return bank.engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def _autocommit_driver(bank: Bank) -> Connection:
    option = {"isolation_level": None} if bank.kind == "sqlite" else {"autocommit": True}
    return bank.new_engine(connect_args=option).connect()


class TestRefused:
    """Calls that are wrong, and are told so before anything is written."""

    @pytest.mark.parametrize("connect", [_autocommit_engine, _autocommit_option, _autocommit_driver])
    def test_autocommit_is_refused(self, database: Bank, connect: Callable[[Bank], Connection]) -> None:
        """However it was switched on: the write would be a transaction of its own."""
        with connect(database) as connection:
            with pytest.raises(UsageError, match="AUTOCOMMIT"):
                database.guard.claim(connection, plain(33), resource=database.resource)
        assert database.seen() is None

    def test_autocommit_is_refused_on_asyncio(self, bank: Bank) -> None:
        """The same through the drivers' adapters."""
        with pytest.raises(UsageError, match="AUTOCOMMIT"):
            bank.writer(isolation_level="AUTOCOMMIT").claim(plain(33))
        assert bank.seen() is None

    @pytest.mark.parametrize("resource", ["", "a\0b", "\ud800", "x" * (RESOURCE_BYTES_MAX + 1), "é" * 800, 7, b"a"])
    def test_resource_that_no_column_can_hold_is_refused(self, database: Bank, resource: Any) -> None:
        """Empty, NUL, not Unicode, too long for an index, not a text."""
        with database.engine.begin() as connection:
            for use in (database.guard.seen, database.guard.forget):
                with pytest.raises(InvalidOption):
                    use(connection, resource)
            with pytest.raises(InvalidOption):
                database.guard.claim(connection, plain(1), resource=resource)

    @pytest.mark.parametrize("fence", ["33", "0.33", "", "0.33@a", "0.0@a/b", None, 33])
    def test_what_is_no_fence_is_refused(self, database: Bank, fence: Any) -> None:
        """Nothing is guessed."""
        with database.engine.begin() as connection, pytest.raises(InvalidFence):
            database.guard.claim(connection, fence)

    def test_connection_of_another_kind_is_refused(self, database: Bank) -> None:
        """With the word for what it should have been."""
        with pytest.raises(InvalidOption, match="an ORM session"):
            SQLGuard().claim(database.engine, plain(1))  # type: ignore[arg-type]  # the mistake under test
        with database.engine.connect() as connection, pytest.raises(InvalidOption, match="SQLGuard"):
            asyncio.run(AsyncSQLGuard().claim(connection, plain(1)))  # type: ignore[arg-type]  # the same

    def test_other_databases_are_refused(self) -> None:
        """Their upserts and locks are unknown to us."""
        guard = SQLGuard()
        for dialect in ("oracle", "postgres", DefaultDialect()):
            with pytest.raises(InvalidOption, match="PostgreSQL, MariaDB, MySQL and SQLite"):
                guard.ddl(dialect)
        engine = create_engine("sqlite://")
        with engine.connect() as connection:
            connection.dialect.name = "oracle"
            with pytest.raises(InvalidOption, match="oracle"):
                guard.claim(connection, plain(1))
        engine.dispose()

    def test_missing_sqlalchemy_is_told_with_the_remedy(self) -> None:
        """`pip install 'tenure[sql]'`, as one of tenure's own errors."""
        program = (
            "import sys; sys.modules['sqlalchemy'] = None\n"
            "import tenure, tenure.fencing\n"
            "try:\n    import tenure.fencing.sql\n"
            "except tenure.ServerMissing as error:\n    print(error)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
        assert "pip install 'tenure[sql]'" in done.stdout


class TestTable:
    """The guard's table: made on an explicit call, or shown."""

    def test_ddl_makes_a_table_that_serves_and_create_leaves_it(self, database: Bank) -> None:
        """A migration and `create` come to the same."""
        guard = SQLGuard(f"fences_{database.number}_shown")
        dialect = {"mariadb": "mysql"}.get(database.kind, database.kind)
        with database.engine.begin() as connection:
            connection.execute(text(guard.ddl(dialect)))
        assert guard.ddl(dialect) == guard.ddl(database.engine.dialect)
        with guard.transaction(database.engine, plain(33), resource="r"):
            pass
        guard.create(database.engine)
        with database.engine.begin() as connection:
            guard.create(connection)
            assert guard.seen(connection, "r") == plain(33)
            guard.table.drop(connection)

    def test_programs_that_start_together_all_create(self, database: Bank) -> None:
        """None of them fails because another was faster."""
        for attempt in range(3):
            guard = SQLGuard(f"fences_{database.number}_{attempt}")
            with ThreadPoolExecutor(max_workers=4) as pool:
                list(pool.map(guard.create, [database.engine] * 4))
            guard.table.drop(database.engine)

    def test_table_of_another_schema(self, request: pytest.FixtureRequest) -> None:
        """`schema=` goes wherever the table is named."""
        with opened(request, "postgresql") as bank:
            guard = SQLGuard("fences", schema="guards")
            with bank.engine.begin() as connection:
                connection.execute(text("CREATE SCHEMA IF NOT EXISTS guards"))
                guard.create(connection)
            with guard.transaction(bank.engine, plain(33)) as connection:
                assert connection.scalar(text("SELECT token FROM guards.fences")) == 33
                guard.forget(connection, LINE)
            assert guard.ddl("postgresql").startswith("CREATE TABLE guards.fences (")

    def test_metadata_of_the_applications_own_knows_the_table(self) -> None:
        """As Alembic wants it; a guard for each face may share it, and another table of that name is told."""
        metadata = MetaData()
        guard = SQLGuard(metadata=metadata)
        assert metadata.tables["tenure_fences"] is guard.table
        assert AsyncSQLGuard(metadata=metadata).table is guard.table
        assert AsyncSQLGuard(metadata=metadata).ddl("mysql") == guard.ddl("mariadb")
        Table("orders", metadata, Column("id", Integer))
        with pytest.raises(InvalidOption, match="orders"):
            SQLGuard("orders", metadata=metadata)
        with pytest.raises(InvalidOption):
            SQLGuard("")
        assert guard.ddl(sqlite.dialect()).startswith("CREATE TABLE tenure_fences (")

    def test_mariadb_by_its_own_name(self, request: pytest.FixtureRequest) -> None:
        """`mariadb+pymysql://` is the same database under another dialect's name."""
        with opened(request, "mariadb") as bank:
            engine = create_engine(bank.url(DRIVERS["mariadb", "threads"].replace("mysql+", "mariadb+")))
            guard = SQLGuard(f"fences_{bank.number}")
            guard.create(engine)
            for token in (33, 34):
                with guard.transaction(engine, plain(token)):
                    pass
            with pytest.raises(StaleToken), guard.transaction(engine, plain(33)):
                pytest.fail("the block ran")
            guard.table.drop(engine)
            engine.dispose()
