"""The SQL guard under concurrency, at every isolation level the databases have, and what each says to a conflict."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tenure.errors import GuardBusy, StaleToken
from tenure.fencing._fence import Fence
from tenure.fencing.sql import AsyncSQLGuard

from .test_sql_bank import KINDS, WAIT, Bank, aside, is_conflict, opened

THREADS: Final = 6
INCREMENTS: Final = 15
RACES: Final = 8
TRIES_MAX: Final = 200
LINE: Final = "billing/counter"
ISOLATING: Final = "with innodb_snapshot_isolation"  # MariaDB's default from 11.6 on
LEVELS: Final = (
    *(("postgresql", level) for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")),
    *(("mariadb", level) for level in ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")),
    ("mariadb", ISOLATING),
    *(("sqlite", level) for level in ("the driver's", "BEGIN", "BEGIN IMMEDIATE", "READ UNCOMMITTED", "WAL")),
)
SNAPSHOT_LEVELS: Final = (
    ("postgresql", "REPEATABLE READ"),
    ("postgresql", "SERIALIZABLE"),
    ("mariadb", "REPEATABLE READ"),
    ("mariadb", ISOLATING),
)
PATIENT_LEVELS: Final = (("postgresql", "READ COMMITTED"), *(level for level in LEVELS if level[0] == "mariadb"))
"""Where claims of one resource only wait for each other."""

Level: TypeAlias = tuple[Bank, Engine, str]


@pytest.fixture(params=LEVELS, ids=lambda level: "-".join(level).replace(" ", "_"))
def level(request: pytest.FixtureRequest) -> Iterator[Level]:
    """A database, and an engine whose transactions have one of its levels."""
    kind, name = request.param
    with opened(request, kind) as bank:
        yield bank, at_level(bank, name), name


def at_level(bank: Bank, name: str, make: Callable[..., Engine] | None = None) -> Engine:
    """An engine at one of LEVELS. `make` is the bank's `new_engine`, unless told."""
    make = make or bank.new_engine
    if name == ISOLATING:
        return make(connect_args={"init_command": "SET SESSION innodb_snapshot_isolation = ON"})
    if bank.kind != "sqlite":
        return make(isolation_level=name)
    patient: dict[str, Any] = {"connect_args": {"timeout": WAIT}}
    engine = make(**patient | ({"isolation_level": name} if name == "READ UNCOMMITTED" else {}))
    if name.startswith("BEGIN"):
        begin_with(engine, name)
    if name == "WAL":  # it stays with the file
        with bank.engine.connect() as connection:
            connection.execute(text("PRAGMA journal_mode=WAL"))
    return engine


def begin_with(engine: Engine, statement: str) -> None:
    """SQLAlchemy's documented way to choose SQLite's BEGIN."""

    def by_hand(connection: Any, _: object) -> None:  # Any: the driver's connection
        connection.isolation_level = None

    event.listen(engine, "connect", by_hand)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(statement))


def fence(token: int) -> Fence:
    return Fence(LINE, token)


class Crowd:
    """Threads that increment one balance under rising tokens. They write down what was accepted, as they commit."""

    def __init__(self, bank: Bank, engine: Engine) -> None:
        self.bank = bank
        self.engine = engine
        self.conflicts = 0
        self._tokens = itertools.count(1)
        self._random = random.Random(bank.number)
        self._lock = threading.Lock()  # guards _tokens, _random and conflicts

    def increments(self) -> None:
        """A number of them; each holder is now and then overtaken before it comes to the database."""
        for _ in range(INCREMENTS):
            while not self.once(self._token()):
                pass  # overtaken: it takes the lock anew

    def _token(self) -> int:
        """A new one. Of two holders, the older may be the later."""
        with self._lock:
            tokens = next(self._tokens), next(self._tokens)
            return tokens[self._random.randrange(2)]

    def once(self, token: int) -> bool:
        """Do one increment, tried again and again on a conflict; False for a stale token."""
        for _ in range(TRIES_MAX):
            try:
                self._transaction(token)
            except StaleToken:
                return False
            except DBAPIError as error:
                if not is_conflict(error):
                    raise
                with self._lock:
                    self.conflicts += 1
            else:
                return True
        raise AssertionError(f"{TRIES_MAX} conflicts in a row")

    def _transaction(self, token: int) -> None:
        with self.bank.guard.transaction(self.engine, fence(token), resource=self.bank.resource) as connection:
            balance = self.bank.read(connection)
            self.bank.write(connection, balance + 1)
            self.bank.journal(connection, token)


def together(*works: Callable[[], object]) -> None:
    """Run all at once, in threads that have ended afterwards. The first error is raised."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        start.wait(WAIT)
        work()

    with ThreadPoolExecutor(max_workers=len(works)) as pool:
        for done in [pool.submit(run, work) for work in works]:
            done.result(60)


def test_increments_of_many_threads_lose_none_and_accept_no_stale_token(level: Level) -> None:
    """Every committed increment counts, and the tokens of the commits never fall."""
    bank, engine, name = level
    crowd = Crowd(bank, engine)
    together(*[crowd.increments] * THREADS)
    tokens = bank.journalled()
    assert bank.balance() == len(tokens) == THREADS * INCREMENTS
    assert tokens == sorted(tokens)
    assert bank.seen() == fence(tokens[-1])
    assert crowd.once(1) is False
    if (bank.kind, name) in PATIENT_LEVELS:
        assert crowd.conflicts == 0


def test_first_claims_that_race_leave_the_youngest(level: Level) -> None:
    """No row yet, all at once: in the order of commits the tokens rise, up to the youngest."""
    bank, engine, _ = level
    for race in range(RACES):
        of_this_race = bank.same_database()
        crowd = Crowd(of_this_race, engine)
        together(*[lambda token=token, crowd=crowd: crowd.once(token) for token in range(1, THREADS + 1)])
        tokens = of_this_race.journalled()
        assert tokens == sorted(tokens), f"in race {race}"
        assert tokens[-1] == THREADS
        assert of_this_race.seen() == fence(THREADS)
        assert of_this_race.balance() == len(tokens)


def test_first_claims_of_different_resources_do_not_meet(request: pytest.FixtureRequest) -> None:
    """On MariaDB a search that locks would lock the gaps between rows, and they would end in deadlocks."""
    with opened(request, "mariadb") as bank:
        engine = at_level(bank, "REPEATABLE READ")

        def claims(mine: int) -> None:
            for number in range(10):
                with bank.guard.transaction(engine, fence(1), resource=f"{bank.number} {number} of {mine}"):
                    pass

        together(*[lambda mine=mine: claims(mine) for mine in range(THREADS)])


@pytest.mark.parametrize("kind", KINDS)
def test_increments_of_many_tasks_lose_none(request: pytest.FixtureRequest, kind: str) -> None:
    """The same on asyncio, at the level each database has by itself."""

    async def increment(engine: AsyncEngine, token: int) -> bool:
        for _ in range(TRIES_MAX):
            try:
                async with guard.transaction(engine, fence(token), resource=bank.resource) as connection:
                    balance = await connection.run_sync(bank.read)
                    await connection.run_sync(bank.write, balance + 1)
                    await connection.run_sync(bank.journal, token)
            except StaleToken:
                return False
            except DBAPIError as error:
                if not is_conflict(error):
                    raise
            else:
                return True
        raise AssertionError(f"{TRIES_MAX} conflicts in a row")

    async def all_atonce() -> int:
        engine = create_async_engine(bank.url())
        try:
            return sum(await asyncio.gather(*[increment(engine, token) for token in range(20, 0, -1)]))
        finally:
            await engine.dispose()

    guard = AsyncSQLGuard()
    with opened(request, kind, "asyncio") as bank:
        accepted = asyncio.run(all_atonce())
        tokens = bank.journalled()
        assert bank.balance() == len(tokens) == accepted
        assert tokens == sorted(tokens)
        assert tokens[-1] == 20


def read_then_claim(bank: Bank, engine: Engine, between: Callable[[], None]) -> int:
    """The value read by a transaction that claims too late."""
    with engine.begin() as connection:
        balance = bank.read(connection)
        between()
        bank.guard.claim(connection, fence(2), resource=bank.resource)
        assert bank.read(connection) == balance
    return balance


@pytest.mark.parametrize(("kind", "name"), SNAPSHOT_LEVELS)
@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_snapshot_older_than_the_last_claim_is_refused(
    request: pytest.FixtureRequest, kind: str, name: str, earlier: int
) -> None:
    """A transaction that read before its claim, while another's claim was committed, would read and write old news.

    Also where nothing had been claimed before, or under this very fence.
    """
    with opened(request, kind) as bank:
        engine = at_level(bank, name)

        def other(balance: int) -> None:
            with bank.guard.transaction(engine, fence(2), resource=bank.resource) as connection:
                bank.write(connection, balance)

        for balance in range(earlier):
            other(balance)
        with pytest.raises((GuardBusy, DBAPIError)) as refused:
            read_then_claim(bank, engine, lambda: other(7))
        told_by_guard = (kind, name) == ("mariadb", "REPEATABLE READ")
        assert isinstance(refused.value, GuardBusy) if told_by_guard else is_conflict(refused.value)
        assert read_then_claim(bank, engine, lambda: None) == 7


@pytest.mark.parametrize(("kind", "name"), SNAPSHOT_LEVELS)
def test_snapshot_is_not_refused_for_claims_of_others_or_its_own(
    request: pytest.FixtureRequest, kind: str, name: str
) -> None:
    """Other resources' claims, its own earlier one, and one that was rolled back: the snapshot is as good as new."""
    with opened(request, kind) as bank:
        engine = at_level(bank, name)

        def others() -> None:
            with bank.guard.transaction(engine, fence(9), resource=f"{bank.resource} other"):
                pass
            with engine.connect() as connection:
                bank.guard.claim(connection, fence(9), resource=bank.resource)

        with engine.begin() as connection:
            bank.guard.claim(connection, fence(1), resource=bank.resource)
            assert bank.read(connection) == 0
            for token in (1, 2, 2):
                bank.guard.claim(connection, fence(token), resource=bank.resource)
        assert read_then_claim(bank, engine, others) == 0


def test_sqlite_refuses_to_write_from_an_old_snapshot(request: pytest.FixtureRequest) -> None:
    """With a BEGIN that is sent, reading first and claiming late is SQLite's own conflict."""
    with opened(request, "sqlite") as bank:
        engine = at_level(bank, "WAL")
        begin_with(engine, "BEGIN")
        engine.dispose()  # for connections that have heard of it

        def other() -> None:
            with bank.guard.transaction(bank.engine, fence(2), resource=bank.resource) as connection:
                bank.write(connection, 7)

        with pytest.raises(DBAPIError, match="locked"):
            read_then_claim(bank, engine, other)


@pytest.mark.parametrize(
    ("kind", "name"), [level for level in LEVELS if level[0] != "sqlite" and level[1] != ISOLATING]
)
def test_stale_claim_that_waited_is_not_accepted(request: pytest.FixtureRequest, kind: str, name: str) -> None:
    """It waits for the younger one's commit; then it is refused, by the database or by the guard, and again later."""
    with opened(request, kind) as bank:
        younger, stale = bank.writer(isolation_level=name), bank.writer(isolation_level=name)
        younger.claim(fence(2))
        with aside(lambda: stale.claim(fence(1))) as claimed:
            bank.wait_until_blocked(stale)
            younger.commit()
            with pytest.raises((StaleToken, DBAPIError)) as refused:
                claimed.result(WAIT)
        assert isinstance(refused.value, StaleToken) or is_conflict(refused.value)
        stale.run(lambda connection: connection.rollback())
        with pytest.raises(StaleToken):
            stale.claim(fence(1))


def test_claim_that_begins_the_transaction_itself_begins_as_the_engine_does(request: pytest.FixtureRequest) -> None:
    """Commit as you go: the engine's own BEGIN comes before the claim, and is no AUTOCOMMIT."""
    with opened(request, "sqlite") as bank:
        with at_level(bank, "BEGIN IMMEDIATE").connect() as connection:
            bank.guard.claim(connection, fence(1), resource=bank.resource)
            bank.write(connection, 5)
            assert bank.balance() == 0
            connection.commit()
        assert (bank.balance(), bank.seen()) == (5, fence(1))
