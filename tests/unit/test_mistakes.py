"""Mistakes that are told: waits for oneself, blocking calls on an event loop, holds and loops that are forgotten."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tenure
from tenure import AcquireTimeout, HoldState, aio
from tenure._core.base.limits import LOOP_LOOK_SECONDS
from tenure._core.drivers import blocking
from tenure._core.hold_watch import HELD_HERE
from tenure._core.runtime import runtime_of
from tests.unit.rig import Background, Rig


def line_of_caller(back: int = 0) -> str:
    """File and line of the call, or some lines before it."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno - back}"


@pytest.fixture
def said() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings of a test, each time."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def ways() -> dict[str, Callable[[tenure.Client | aio.Client], tuple[Any, Any]]]:
    """Pairs of which the second can't be had while one thread or task has the first."""
    return {
        "lock": lambda client: (client.lock("a"), client.lock("a")),
        "seats": lambda client: (client.semaphore("a", limit=1), client.semaphore("a", limit=1)),
        "writer": lambda client: (client.rwlock("a").read(), client.rwlock("a").write()),
        "reader": lambda client: (client.rwlock("a").write(), client.rwlock("a").read()),
        "candidate": lambda client: (client.election("a").campaign(), client.election("a").campaign()),
    }


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("way", ways())
def test_thread_that_waits_for_itself_is_warned_at_once(rig: Rig, way: str) -> None:
    """Before it stands in the line, with the place where it acquired."""
    held, wanted = ways()[way](rig.client())
    hold = held.acquire()
    where = line_of_caller(back=1)
    with pytest.raises(RuntimeWarning, match="no lock is re-entrant") as raised:
        wanted.acquire()
    assert where in str(raised.value)
    assert rig.tickets == 1
    hold.release()
    wanted.acquire().release()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("way", ways())
def test_task_that_waits_for_itself_is_warned_at_once(rig: Rig, way: str) -> None:
    """The same for asyncio, where another task of the same thread may wait."""

    async def whole() -> None:
        async with rig.aclient() as client:
            held, wanted = ways()[way](client)
            hold = await held.acquire()
            where = line_of_caller(back=1)
            with pytest.raises(RuntimeWarning, match="thread or task that holds it") as raised:
                await wanted.acquire()
            assert where in str(raised.value)
            other = asyncio.create_task(wanted.acquire())
            await asyncio.to_thread(rig.await_event, "entered", 2)
            await hold.release()
            await (await other).release()

    asyncio.run(whole())


@pytest.mark.filterwarnings("error")
def test_waits_that_may_end_are_not_warned_of(rig: Rig) -> None:
    """Other threads, free seats, readers, tries, time-outs, and what was released."""
    client = rig.client()
    hold, seat, reading = client.lock("a").acquire(), client.semaphore("s", limit=2), client.rwlock("r")
    other = Background(client.lock("a").acquire)
    rig.await_event("entered", 2)
    assert client.lock("a").try_acquire() is None
    with pytest.raises(AcquireTimeout):
        client.lock("a").acquire(timeout=0)
    hold.release()
    other.result().release()
    held = rig.client().lock("w").acquire()  # in virtual time another client stands for another process
    before = len(rig.heard("entered"))

    def release_to_waiter() -> None:
        rig.await_event("entered", before + 1)
        held.release()

    releasing = Background(release_to_waiter)
    client.lock("w").acquire().release()
    releasing.result()
    with seat, seat, reading.read(), reading.read(), client.lock("a"):
        pass


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_time_out_says_that_the_waiter_itself_holds_it(timeout: float) -> None:
    """Thread, client or process; for how long, and where it acquired. After a release nobody here is named."""
    with tenure.connect("memory://itself") as client, tenure.connect("memory://itself") as other:

        def refusal(of: tenure.Client) -> str:
            with pytest.raises(AcquireTimeout) as raised:
                of.lock("a").acquire(timeout=timeout)
            return str(raised.value)

        hold = client.lock("a").acquire()
        place = rf"holds it, acquired \d+\.\d s ago at {re.escape(line_of_caller(back=1))}$"
        said = {
            "the very thread or task that waited": refusal(client),
            "this very client": Background(lambda: refusal(client)).result(),
            "another client of this very process": Background(lambda: refusal(other)).result(),
        }
        for who, text in said.items():
            assert re.search(f"; {who} {place}", text), text
        with pytest.raises(AcquireTimeout) as raised:
            asyncio.run(wait_in_vain(timeout))
        assert re.search(f"; another client of this very process {place}", str(raised.value))
        hold.release()
        assert not HELD_HERE.of(runtime_of(client).store, "a")


async def wait_in_vain(timeout: float) -> None:
    """The same by the other face."""
    async with aio.connect("memory://itself") as client:
        await client.lock("a").acquire(timeout=timeout)


def test_blocking_call_on_a_running_loop_is_warned_of_once(
    said: list[warnings.WarningMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the caller's own line, naming the other face; neither in threads nor without a loop."""
    monkeypatch.setattr(blocking, "_warned", False)
    with tenure.connect("memory://on-a-loop") as client:
        client.lock("a").acquire().release()

        async def whole() -> str:
            await asyncio.to_thread(lambda: client.lock("a").acquire().release())
            assert not said
            client.lock("a").acquire().release()
            where = line_of_caller(back=1)
            client.lock("a").acquire().release()
            return where

        where = asyncio.run(whole())
    (warning,) = said
    assert warning.category is RuntimeWarning
    assert "tenure.aio.connect" in str(warning.message)
    assert f"{warning.filename}:{warning.lineno}" == where


def forget(client: Any) -> str:
    """Acquire and drop the hold at once; where."""
    client.lock("a").acquire()
    return line_of_caller(back=1)


@pytest.mark.parametrize("options", [{}, {"journal": True}])
def test_hold_that_is_forgotten_while_held_is_warned_of_and_kept(
    said: list[warnings.WarningMessage], rig: Rig, options: dict[str, Any]
) -> None:
    """Once, where it was acquired: whoever acquired it may count on it, so it stands until its client is closed."""
    client = rig.client(**options)
    where = forget(client)
    gc.collect()
    (warning,) = said
    assert warning.category is ResourceWarning
    assert f"{warning.filename}:{warning.lineno}" == where
    assert "'a' (token" in str(warning.message)
    assert rig.tickets == 1
    with pytest.raises(AcquireTimeout, match="the very thread or task that waited holds it"):
        client.lock("a").acquire(timeout=0)
    client.close()
    assert rig.tickets == 0


def test_client_that_is_forgotten_is_warned_of_by_what_it_holds(said: list[warnings.WarningMessage]) -> None:
    """A client alone is no loss; its holds are."""
    tenure.connect("memory://forgotten")
    client = tenure.connect("memory://forgotten")
    hold = client.lock("a").acquire()
    where = line_of_caller(back=1)
    runtime = runtime_of(client)
    del client
    gc.collect()
    assert not said
    hold.check()
    del hold
    gc.collect()
    assert [f"{warning.filename}:{warning.lineno}" for warning in said] == [where]
    runtime.close()


def test_holds_that_have_ended_are_no_mistake(said: list[warnings.WarningMessage], rig: Rig) -> None:
    """Released, lost, or closed with their client."""
    client = rig.client(ttl=5)
    client.lock("a").acquire().release()
    with client.lock("a"):
        pass
    lost = client.lock("b").acquire()
    rig.faults(client).cut_off = True
    rig.clock.advance(5)
    assert lost.state is HoldState.LOST
    del lost
    rig.faults(client).cut_off = False
    closed = client.lock("c").acquire()
    client.close()
    assert closed.state is HoldState.RELEASED
    del closed
    gc.collect()
    assert not said


def test_hold_whose_loop_has_ended_is_given_up(said: list[warnings.WarningMessage], rig: Rig) -> None:
    """The next one waits for no TTL, and the hold says why it is over."""
    client = rig.aclient(ttl=30)
    states = list[HoldState]()

    async def acquire() -> tuple[aio.Hold, str]:
        hold = await client.lock("a").acquire()
        hold.on_change(states.append)
        return hold, line_of_caller(back=2)

    hold, where = asyncio.run(acquire())
    hold.check()
    rig.clock.advance(LOOP_LOOK_SECONDS)
    rig.await_event("reaped")
    assert rig.tickets == 0
    assert hold.state is HoldState.RELEASED
    with pytest.raises(tenure.LeaseLost, match="was released: the event loop that it was acquired on has ended"):
        hold.check()
    (warning,) = said
    assert warning.category is ResourceWarning
    assert f"{warning.filename}:{warning.lineno}" == where
    (released,) = rig.heard("released")
    assert released.reason == "the event loop that it was acquired on has ended"
    asyncio.run(client.close())


def test_hold_of_a_living_loop_stays(said: list[warnings.WarningMessage], rig: Rig) -> None:
    """However often it is looked; and once nothing is held, nobody looks any more."""

    async def whole() -> None:
        client = rig.aclient(ttl=30)
        runtime = runtime_of(client)
        async with client.lock("a") as hold:
            for _ in range(3):
                await asyncio.to_thread(rig.clock.advance, LOOP_LOOK_SECONDS)
                assert runtime._looks_at_loops
            hold.check()
        await asyncio.to_thread(rig.clock.advance, LOOP_LOOK_SECONDS)
        assert not runtime._looks_at_loops
        async with client.lock("a"):
            assert runtime._looks_at_loops
        await client.close()

    asyncio.run(whole())
    assert not said
