"""Candidacies of the service, in virtual time: they end when nobody believes in them any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.sidecar.candidates import Candidate, Candidates
from tests.sidecar.keepers import until
from tests.unit.world import World


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def leading(world: World) -> AsyncIterator[tuple[Candidates, Candidate]]:
    """A candidate that leads."""
    async with world.aclient(ttl=30) as client:
        candidates = Candidates(client, {"scheduler": "one:1"})
        candidate = candidates.get("scheduler")
        assert candidate is not None
        await until(lambda: candidate.proven() is not None)
        yield candidates, candidate


def test_leader_resigns_when_the_last_yes_is_over(world: World) -> None:
    """Whoever was told so may go on believing until then; whoever asks meanwhile is told no."""

    async def test() -> None:
        async with leading(world) as (candidates, candidate):
            candidate.tell(9.0)
            candidate.tell(5.0)
            resigning = asyncio.create_task(candidates.resign())
            await until(lambda: candidate.proven() is None)
            world.clock.advance(8.9)
            await asyncio.sleep(0.05)
            assert not resigning.done()
            assert world.tickets == 1
            world.clock.advance(0.2)
            await asyncio.wait_for(resigning, 20)
            assert world.tickets == 0

    asyncio.run(test())


def test_leader_of_which_nobody_was_told_resigns_at_once(world: World) -> None:
    """Nobody believes in it: the next one need not wait."""

    async def test() -> None:
        async with leading(world) as (candidates, _):
            await asyncio.wait_for(candidates.resign(), 20)
            assert world.tickets == 0

    asyncio.run(test())


def test_leader_that_is_lost_meanwhile_is_not_waited_for(world: World) -> None:
    """A leadership that can't be proven any more is nobody's to believe in."""

    async def test() -> None:
        async with leading(world) as (candidates, candidate):
            candidate.tell(29.0)
            resigning = asyncio.create_task(candidates.resign())
            await until(lambda: candidate.proven() is None)
            for lease in world.store.leases:
                world.store.expire(lease)
            world.clock.advance(11.0)
            await asyncio.wait_for(resigning, 20)

    asyncio.run(test())
