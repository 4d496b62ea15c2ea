"""Candidacies of the service, in virtual time: they end when nobody believes in them any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tenure.service.elections.candidates import Candidate, Candidates
from tests.service.keepers import until
from tests.unit.rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


@asynccontextmanager
async def leading(rig: Rig) -> AsyncIterator[tuple[Candidates, Candidate]]:
    """A candidate that leads."""
    async with rig.aclient(ttl=30) as client:
        candidates = Candidates(client, {"scheduler": "one:1"})
        candidate = candidates.get("scheduler")
        assert candidate is not None
        await until(lambda: candidate.proven() is not None)
        yield candidates, candidate


def test_leader_resigns_when_the_last_yes_is_over(rig: Rig) -> None:
    """A client that was answered yes may believe so until then; clients that ask meanwhile are answered no."""

    async def test() -> None:
        async with leading(rig) as (candidates, candidate):
            candidate.promise(9.0)
            candidate.promise(5.0)
            resigning = asyncio.create_task(candidates.resign())
            await until(lambda: candidate.proven() is None)
            rig.clock.advance(8.9)
            await asyncio.sleep(0.05)
            assert not resigning.done()
            assert rig.tickets == 1
            rig.clock.advance(0.2)
            await asyncio.wait_for(resigning, 20)
            assert rig.tickets == 0

    asyncio.run(test())


def test_leader_of_which_nobody_was_told_resigns_at_once(rig: Rig) -> None:
    """Resigning does not wait where no client believes in the leadership."""

    async def test() -> None:
        async with leading(rig) as (candidates, _):
            await asyncio.wait_for(candidates.resign(), 20)
            assert rig.tickets == 0

    asyncio.run(test())


def test_leader_that_is_lost_meanwhile_is_not_waited_for(rig: Rig) -> None:
    """A leadership that can't be proven any more is nobody's to believe in."""

    async def test() -> None:
        async with leading(rig) as (candidates, candidate):
            candidate.promise(29.0)
            resigning = asyncio.create_task(candidates.resign())
            await until(lambda: candidate.proven() is None)
            for lease in rig.store.leases:
                rig.store.expire(lease)
            rig.clock.advance(11.0)
            await asyncio.wait_for(resigning, 20)

    asyncio.run(test())
