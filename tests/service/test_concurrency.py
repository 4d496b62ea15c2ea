"""The enter limit: calls wait for a free slot, for a bounded time; with one free they pass at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.signals import Signal
from tenure._core.turn import Await, Steps
from tenure.errors import StoreUnavailable
from tenure.service.holds.concurrency import ENTERING_MAX, EnterLimit

RUNTIME = SimpleNamespace(clock=SYSTEM_CLOCK, request_seconds=0.1, store="a store", workers=None)


def waiting_for(signal: Signal) -> Steps[str]:
    """A call whose ticket does not stand yet."""
    yield Await(signal, None)
    return "through"


def test_who_finds_the_gate_full_is_told_in_time_and_who_finds_it_free_passes() -> None:
    """A store that does not answer keeps the first ones, and nobody behind them for ever."""

    async def test() -> None:
        limit, go_on = EnterLimit(RUNTIME), Signal()  # type: ignore[arg-type]  # as much of a runtime as a limit uses
        first = [asyncio.create_task(limit.run(lambda _: waiting_for(go_on), 0.0)) for _ in range(ENTERING_MAX)]
        await asyncio.sleep(0)
        assert limit.crowded
        with pytest.raises(StoreUnavailable, match="others wait for a store"):
            await asyncio.wait_for(limit.run(lambda _: waiting_for(go_on), 0.0), 30.0)
        go_on.set()
        assert await asyncio.gather(*first) == ["through"] * ENTERING_MAX
        assert not limit.crowded
        assert await limit.run(lambda _: waiting_for(go_on), 0.0) == "through"

    asyncio.run(test())
