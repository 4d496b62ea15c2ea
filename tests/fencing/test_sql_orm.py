"""The SQL guard and ORM sessions: what a session loaded before the claim it does not read again by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session

from tenure.fencing._fence import Fence
from tenure.fencing.sql import AsyncSQLGuard

from .test_sql_bank import ACCOUNTS, KINDS, Bank, opened

Way: TypeAlias = Callable[[Bank, AsyncSQLGuard, AsyncSession], Awaitable[None]]

YOUNGER = Fence("billing/ledger", 2)


class Base(DeclarativeBase):
    pass


class Account(Base):
    __table__ = ACCOUNTS
    if TYPE_CHECKING:
        id: Mapped[int]
        balance: Mapped[int]


@pytest.fixture(params=KINDS)
def bank(request: pytest.FixtureRequest) -> Iterator[Bank]:
    """Each database once."""
    with opened(request, request.param) as made:
        yield made


def other_holder_writes(bank: Bank) -> None:
    with bank.guard.transaction(bank.engine, Fence("billing/ledger", 1), resource=bank.resource) as connection:
        bank.write(connection, 10)


def loaded_before(bank: Bank, session: Session) -> Account:
    """An object that the session has, with a balance of 0; since then another holder wrote 10."""
    account = session.get_one(Account, bank.number)
    assert account.balance == 0
    session.commit()
    other_holder_writes(bank)
    return account


def test_session_shows_after_the_claim_what_it_loaded_before(bank: Bank) -> None:
    """The trap, also for a new query of the object. Only columns are told as they are."""
    with Session(bank.engine, expire_on_commit=False) as session:
        account = loaded_before(bank, session)
        bank.guard.claim(session.connection(), YOUNGER, resource=bank.resource)
        mine = Account.id == bank.number
        assert account.balance == session.get_one(Account, bank.number).balance == 0
        assert session.scalars(select(Account).where(mine)).one().balance == 0
        assert session.scalar(select(Account.balance).where(mine)) == 10


def test_session_that_loads_and_claims_in_one_transaction_shows_the_old_as_well(bank: Bank) -> None:
    """Without `expire_on_commit=False`: the load came before the claim, and no commit between them."""
    engine = bank.new_engine() if bank.kind == "sqlite" else bank.new_engine(isolation_level="READ COMMITTED")
    with Session(engine) as session:
        account = session.get_one(Account, bank.number)
        other_holder_writes(bank)
        bank.guard.claim(session.connection(), YOUNGER, resource=bank.resource)
        assert account.balance == session.get_one(Account, bank.number).balance == 0
        session.expire_all()
        assert account.balance == 10


def test_expire_all_after_the_claim_reads_again(bank: Bank) -> None:
    """The first way out: what is used after it is read under the claim."""
    with Session(bank.engine, expire_on_commit=False) as session:
        account = loaded_before(bank, session)
        bank.guard.claim(session.connection(), YOUNGER, resource=bank.resource)
        session.expire_all()
        account.balance += 5
        session.commit()
    assert (bank.balance(), bank.seen()) == (15, YOUNGER)


def test_new_session_for_the_claim_reads_again(bank: Bank) -> None:
    """The second: a session on the connection of `transaction`. Its commit is a flush, and the block commits."""
    with Session(bank.engine, expire_on_commit=False) as session:
        loaded_before(bank, session)
    with (
        bank.guard.transaction(bank.engine, YOUNGER, resource=bank.resource) as connection,
        Session(connection) as session,
    ):
        session.get_one(Account, bank.number).balance += 5
        session.commit()
        assert connection.in_transaction()
    assert (bank.balance(), bank.seen()) == (15, YOUNGER)


async def _expired(bank: Bank, guard: AsyncSQLGuard, session: AsyncSession) -> None:
    await guard.claim(await session.connection(), YOUNGER, resource=bank.resource)
    assert (await session.get_one(Account, bank.number)).balance == 0  # the trap
    session.expire_all()
    (await session.get_one(Account, bank.number)).balance += 5
    await session.commit()


async def _new_session(bank: Bank, guard: AsyncSQLGuard, session: AsyncSession) -> None:
    engine = create_async_engine(bank.url())
    async with (
        guard.transaction(engine, YOUNGER, resource=bank.resource) as connection,
        AsyncSession(connection) as new,
    ):
        (await new.get_one(Account, bank.number)).balance += 5
        await new.commit()
    await engine.dispose()


@pytest.mark.parametrize("way", [_expired, _new_session])
@pytest.mark.parametrize("kind", KINDS)
def test_asyncio_has_the_same_ways_out(request: pytest.FixtureRequest, kind: str, way: Way) -> None:
    """`expire_all`, and then `get` or a select: an attribute alone can't be awaited. Or a new session."""

    async def both(bank: Bank) -> None:
        engine = create_async_engine(bank.url())
        async with AsyncSession(engine, expire_on_commit=False) as session:
            account = await session.run_sync(lambda its: loaded_before(bank, its))
            await way(bank, AsyncSQLGuard(), session)
            assert account in session  # which forgets objects that nobody else holds
        await engine.dispose()

    with opened(request, kind, "asyncio") as made:
        asyncio.run(both(made))
        assert (made.balance(), made.seen()) == (15, YOUNGER)
