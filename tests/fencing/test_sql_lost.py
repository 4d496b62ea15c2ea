"""The SQL guard where the database ends the transaction by itself, and the program catches the error and goes on.

Real causes: a deadlock on MariaDB, a conflict clause on SQLite, any error on PostgreSQL. The claim is gone with the
transaction, so a younger holder may have written before the next statement of the block runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias

import psycopg
import pytest
from sqlalchemy import Connection, Engine, NullPool, StaticPool, event, insert, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session

from tenure.errors import StoreRefused
from tenure.fencing.sql import AsyncSQLGuard

from .test_sql_bank import ACCOUNTS, FACES, KINDS, WAIT, Bank, aside, opened
from .test_sql_levels import LEVELS, at_level, fence

Block: TypeAlias = Callable[[Connection], object]

LOST: Final = "the database has ended"
USUAL: Final = {"sqlite": "the driver's", "postgresql": "READ COMMITTED", "mariadb": "REPEATABLE READ"}
_ROWS_OF_A_HEAVY_ONE: Final = 50


class Place:
    """A bank, and an engine at one level and on one face to run blocks of `transaction` with."""

    def __init__(self, bank: Bank, level: str, **options: Any) -> None:
        self.bank = bank
        self._async = bank.face == "asyncio"
        self.engine = at_level(bank, level, lambda **more: self._make(**options | more))

    def _make(self, **options: Any) -> Engine:
        if self._async:
            return create_async_engine(self.bank.url(), **{"poolclass": NullPool} | options).sync_engine
        return self.bank.new_engine(**options)

    def run(self, block: Block, token: int = 1) -> None:
        """`block`, in a `transaction` of the guard for this face."""
        if self._async:
            asyncio.run(self.arun(block, token))
            return
        with self.bank.guard.transaction(self.engine, fence(token), resource=self.bank.resource) as connection:
            block(connection)

    async def arun(self, block: Block, token: int = 1) -> None:
        guard, offered = AsyncSQLGuard(), fence(token)
        async with guard.transaction(AsyncEngine(self.engine), offered, resource=self.bank.resource) as connection:
            await connection.run_sync(block)

    def overtake(self) -> None:
        """A younger holder claims, writes 10 and commits. Without a wait: nobody's claim is in the way."""
        bank = self.bank
        with bank.guard.transaction(bank.engine, fence(2), resource=bank.resource) as connection:
            bank.write(connection, 10)

    def rolled_back(self, connection: Connection) -> None:
        """The block wrote 5 and the database rolled that back; the program catches the error."""
        self.bank.write(connection, 5)
        with pytest.raises(DBAPIError):
            _ROLLED_BACK[self.bank.kind](self.bank, connection)

    def untouched_by_the_block(self) -> bool:
        return (self.bank.balance(), self.bank.seen()) == (10, fence(2))


def _by_conflict_clause(bank: Bank, connection: Connection) -> None:
    again = text("INSERT OR ROLLBACK INTO guarded_accounts (id, balance) VALUES (:number, 0)")
    connection.execute(again, {"number": bank.number})


def _by_any_error(bank: Bank, connection: Connection) -> None:
    connection.execute(text("SELECT 1 / 0"))


def _by_deadlock(bank: Bank, connection: Connection) -> None:
    """InnoDB ends the one that has written less, and that is ours."""
    other, heavy = bank.same_database(), bank.writer()
    rows = [{"id": -number, "balance": 0} for number in range(1, _ROWS_OF_A_HEAVY_ONE)]
    heavy.run(lambda its: its.execute(insert(ACCOUNTS), rows))
    heavy.run(lambda its: other.write(its, 1))
    with aside(lambda: heavy.write(7)) as wrote:
        bank.wait_until_blocked(heavy)
        try:
            other.write(connection, 1)
        finally:
            wrote.result(WAIT)
            heavy.close()


_ROLLED_BACK: Final[dict[str, Callable[[Bank, Connection], None]]] = {
    "sqlite": _by_conflict_clause,
    "postgresql": _by_any_error,
    "mariadb": _by_deadlock,
}


@contextmanager
def placed(request: pytest.FixtureRequest, kind: str, level: str, face: str, **options: Any) -> Iterator[Place]:
    with opened(request, kind, face) as bank:
        yield Place(bank, level, **options)


@pytest.fixture(params=[(*level, face) for level in LEVELS for face in FACES], ids="-".join)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Each database, at each of its levels, on each face."""
    with placed(request, *request.param) as made:
        yield made


@pytest.fixture(params=[(kind, face) for kind in KINDS for face in FACES], ids="-".join)
def usual(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Each database at one level, on each face."""
    kind, face = request.param
    with placed(request, kind, USUAL[kind], face) as made:
        yield made


class TestLost:
    """The transaction of the claim is over before the block is."""

    def test_stale_write_after_a_rollback_by_the_database_is_not_committed(self, place: Place) -> None:
        """The attack: read, rolled back, overtaken, and the write that was computed from the read is sent alone."""

        def block(connection: Connection) -> None:
            balance = place.bank.read(connection)
            place.rolled_back(connection)
            place.overtake()
            with suppress(DBAPIError):  # PostgreSQL's own refusal
                place.bank.write(connection, balance + 1)

        with pytest.raises(StoreRefused, match=LOST):
            place.run(block)
        assert place.untouched_by_the_block()

    def test_stale_write_is_not_committed_by_a_commit_within_the_block(self, place: Place) -> None:
        """`connection.commit()` is looked at like the end of the block."""

        def block(connection: Connection) -> None:
            place.rolled_back(connection)
            place.overtake()
            with suppress(DBAPIError):
                place.bank.write(connection, 1)
            connection.commit()

        with pytest.raises(StoreRefused, match=LOST):
            place.run(block)
        assert place.untouched_by_the_block()

    def test_block_that_lost_all_it_wrote_does_not_end_as_if_it_had_written(self, place: Place) -> None:
        """Nothing was sent after the error: nothing stale, but what came before is gone."""
        with pytest.raises(StoreRefused, match=LOST):
            place.run(place.rolled_back)
        assert (place.bank.balance(), place.bank.seen()) == (0, None)
        place.run(lambda connection: place.bank.write(connection, 5))  # run again, as the message says
        assert (place.bank.balance(), place.bank.seen()) == (5, fence(1))

    def test_refusal_that_is_caught_is_repeated(self, usual: Place) -> None:
        """Whoever catches everything still commits nothing."""

        def block(connection: Connection) -> None:
            usual.rolled_back(connection)
            usual.overtake()
            for _ in range(3):
                with suppress(DBAPIError, StoreRefused):
                    usual.bank.write(connection, 1)

        with pytest.raises(StoreRefused, match=LOST):
            usual.run(block)
        assert usual.untouched_by_the_block()

    def test_session_within_the_block_is_watched_as_well(self, usual: Place) -> None:
        """An ORM session on the block's connection."""

        def block(connection: Connection) -> None:
            with Session(connection) as session:
                usual.rolled_back(connection)
                usual.overtake()
                with suppress(DBAPIError):
                    session.execute(ACCOUNTS.update().where(ACCOUNTS.c.id == usual.bank.number).values(balance=1))
                session.commit()

        with pytest.raises(StoreRefused, match=LOST):
            usual.run(block)
        assert usual.untouched_by_the_block()

    @pytest.mark.parametrize("face", FACES)
    @pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
    def test_nothing_is_left_open_for_the_next_user_of_the_connection(
        self, request: pytest.FixtureRequest, kind: str, face: str
    ) -> None:
        """Also where the pool does not roll back: whoever commits next on this connection commits nothing of ours."""
        never_reset = {"poolclass": StaticPool, "pool_reset_on_return": None}
        with placed(request, kind, USUAL[kind], face, **never_reset) as place:

            def block(connection: Connection) -> None:
                place.rolled_back(connection)
                place.overtake()
                with suppress(DBAPIError):
                    place.bank.write(connection, 1)

            async def one_after_the_other() -> None:
                engine = AsyncEngine(place.engine)
                with pytest.raises(StoreRefused, match=LOST):
                    await place.arun(block)
                async with engine.begin() as connection:
                    await connection.execute(text("SELECT 1"))
                await engine.dispose()

            if face == "asyncio":
                asyncio.run(one_after_the_other())
            else:
                with pytest.raises(StoreRefused, match=LOST):
                    place.run(block)
                with place.engine.begin() as connection:
                    connection.execute(text("SELECT 1"))
            assert place.untouched_by_the_block()

    @pytest.mark.parametrize("face", FACES)
    def test_rollback_that_no_error_tells_is_found_out(self, request: pytest.FixtureRequest, face: str) -> None:
        """A procedure that handles its own deadlock: the client hears nothing, and only the server knows."""
        with placed(request, "mariadb", USUAL["mariadb"], face) as place:
            name = f"gives_up_{place.bank.number}"

            def block(connection: Connection) -> None:
                place.bank.write(connection, 5)
                connection.execute(text(f"CALL {name}()"))
                place.overtake()
                place.bank.write(connection, 1)

            with place.bank.engine.begin() as connection:
                connection.execute(text(f"CREATE PROCEDURE {name}() ROLLBACK"))
            with pytest.raises(StoreRefused, match=LOST):
                place.run(block)
            assert place.untouched_by_the_block()
            with place.bank.engine.begin() as connection:
                connection.execute(text(f"DROP PROCEDURE {name}"))

    @pytest.mark.parametrize("face", FACES)
    def test_statement_that_commits_by_itself_is_told_as_well(self, request: pytest.FixtureRequest, face: str) -> None:
        """On MariaDB a CREATE TABLE ends the claim: what comes after it is rolled back."""
        with placed(request, "mariadb", USUAL["mariadb"], face) as place:
            name = f"made_{place.bank.number}"

            def block(connection: Connection) -> None:
                place.bank.write(connection, 5)
                connection.execute(text(f"CREATE TABLE {name} (id INTEGER)"))
                place.overtake()
                place.bank.write(connection, 1)

            with pytest.raises(StoreRefused, match="CREATE TABLE"):
                place.run(block)
            assert place.untouched_by_the_block()
            with place.bank.engine.begin() as connection:
                connection.execute(text(f"DROP TABLE {name}"))

    def test_postgresql_driver_that_does_not_tell_is_asked(self, request: pytest.FixtureRequest) -> None:
        """As asyncpg: one statement more, which a failed transaction refuses."""
        with placed(request, "postgresql", USUAL["postgresql"], "threads") as place:
            hide = event.listens_for(place.engine, "connect")
            hide(lambda driver, _: setattr(driver, "__class__", _Taciturn))
            with pytest.raises(StoreRefused, match=LOST) as refused:
                place.run(place.rolled_back)
            assert isinstance(refused.value.__cause__, DBAPIError)
            place.run(lambda connection: place.bank.write(connection, 5))
            assert (place.bank.balance(), place.bank.seen()) == (5, fence(1))


class _Taciturn(psycopg.Connection[Any]):
    """psycopg's connection, without its `info`."""

    info = None  # type: ignore[assignment]  # what is under test


class TestStanding:
    """Tests of what ends less than the transaction, which is no reason to refuse."""

    def test_error_of_one_statement_does_not_end_the_claim(self, usual: Place) -> None:
        """A row that is there already: caught, and the block goes on; on PostgreSQL with a savepoint."""

        def block(connection: Connection) -> None:
            again = insert(ACCOUNTS).values(id=usual.bank.number, balance=0)
            with pytest.raises(IntegrityError), connection.begin_nested():
                connection.execute(again)
            if usual.bank.kind != "postgresql":
                with pytest.raises(IntegrityError):
                    connection.execute(again)
            usual.bank.write(connection, 5)

        usual.run(block)
        assert (usual.bank.balance(), usual.bank.seen()) == (5, fence(1))

    def test_savepoints_claims_and_a_commit_within_the_block_are_left_alone(self, place: Place) -> None:
        """Kept ones, rolled back ones, a second claim; and a commit that does not wait for the end."""

        def block(connection: Connection) -> None:
            with connection.begin_nested():
                place.bank.write(connection, 5)
            with connection.begin_nested() as given_up:
                place.bank.write(connection, 6)
                given_up.rollback()
            place.bank.guard.claim(connection, fence(3), resource=place.bank.resource)
            connection.commit()

        place.run(block)
        assert (place.bank.balance(), place.bank.seen()) == (5, fence(3))

    def test_block_that_rolls_back_on_purpose_ends_quietly(self, usual: Place) -> None:
        """As with SQLAlchemy's own `begin`."""

        def block(connection: Connection) -> None:
            usual.bank.write(connection, 5)
            connection.rollback()

        usual.run(block)
        assert (usual.bank.balance(), usual.bank.seen()) == (0, None)

    def test_proof_costs_two_statements_on_mariadb_and_none_elsewhere(self, usual: Place) -> None:
        """A savepoint and its release; the other drivers know it without asking."""
        sent: list[str] = []
        event.listen(usual.engine, "before_cursor_execute", lambda *arguments: sent.append(arguments[2]))
        usual.run(lambda connection: None)
        of_the_claim, proof = (3, ["SAVEPOINT", "RELEASE"]) if usual.bank.kind == "mariadb" else (1, [])
        assert [statement.split()[0] for statement in sent[of_the_claim:]] == proof
