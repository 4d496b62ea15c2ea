"""The gate: who comes when it is full waits in front of it, for a bounded time; who comes when it is not passes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StoreUnavailable
from holdfast.sidecar.gate import ENTERING_MAX, Gate
from holdfast.signals import Signal
from holdfast.turn import Await, Steps

HOUSE = SimpleNamespace(clock=SYSTEM_CLOCK, request_seconds=0.1, store="a store", workers=None)


def waiting_for(signal: Signal) -> Steps[str]:
    """Somebody whose ticket does not stand yet."""
    yield Await(signal, None)
    return "through"


def test_who_finds_the_gate_full_is_told_in_time_and_who_finds_it_free_passes() -> None:
    """A store that does not answer keeps the first ones, and nobody behind them for ever."""

    async def test() -> None:
        gate, go_on = Gate(HOUSE), Signal()  # type: ignore[arg-type]  # as much of a house as a gate looks at
        first = [asyncio.create_task(gate.run(lambda _: waiting_for(go_on), 0.0)) for _ in range(ENTERING_MAX)]
        await asyncio.sleep(0)
        assert gate.crowded
        with pytest.raises(StoreUnavailable, match="others wait for a store"):
            await asyncio.wait_for(gate.run(lambda _: waiting_for(go_on), 0.0), 30.0)
        go_on.set()
        assert await asyncio.gather(*first) == ["through"] * ENTERING_MAX
        assert not gate.crowded
        assert await gate.run(lambda _: waiting_for(go_on), 0.0) == "through"

    asyncio.run(test())
