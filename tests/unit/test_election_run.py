"""`election.run(lead, stop=event)`, and `election.is_leader`: a candidate stops without closing its client."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import tenure
from tenure import aio
from tests.unit.rig import PATIENCE_SECONDS, Background, Rig, reached

TTL = 12.0


def never(hold: Any) -> Any:
    raise AssertionError(f"it led: {hold!r}")


def test_candidate_in_line_is_stopped_by_the_event(rig: Rig) -> None:
    """run returns None, the ticket goes, and the client and its other holds stay."""
    client, stop = rig.client(ttl=TTL), threading.Event()
    other = client.lock("other").acquire()
    leading = client.election("e").campaign().acquire()
    election = client.election("e")
    running = Background(lambda: election.run(never, stop=stop))
    rig.await_event("entered", 3)
    assert not election.is_leader
    stop.set()
    while not running.joined(0.01):
        rig.clock.advance(0.1)
    assert running.result() is None
    rig.await_event("reaped")
    assert rig.tickets == 2
    other.check()
    leading.check()
    assert election.campaign().acquire(timeout=None if leading.release() else 0).release()


def test_stop_that_is_set_before_is_heard_at_once(rig: Rig) -> None:
    """Nobody enters the line."""
    stop = threading.Event()
    stop.set()
    assert rig.client().election("e").run(never, stop=stop) is None
    assert rig.heard("entered") == []


def test_leader_that_looks_at_the_event_resigns(rig: Rig) -> None:
    """In office the event is the leader's own to look at; what it returns is the result."""
    client, stop, leads = rig.client(), threading.Event(), threading.Event()
    election = client.election("e")

    def lead(hold: tenure.Hold) -> str:
        assert election.is_leader
        leads.set()
        reached(stop)
        return "handed over"

    running = Background(lambda: election.run(lead, stop=stop))
    reached(leads)
    assert election.is_leader
    assert not client.election("e").is_leader
    stop.set()
    assert running.result() == "handed over"
    assert not election.is_leader
    assert rig.tickets == 0


def test_leader_that_was_lost_after_the_stop_does_not_campaign_again(rig: Rig) -> None:
    """A loss ends a stopped run like an end of office."""
    client, stop = rig.client(ttl=TTL), threading.Event()

    def lead(hold: tenure.Hold) -> None:
        stop.set()
        rig.faults(client).cut_off = True
        rig.clock.advance(TTL)
        hold.check()

    running = Background(lambda: client.election("e").run(lead, stop=stop))
    while not running.joined(0.01):
        rig.clock.advance(0.1)
    assert running.result() is None
    assert len(rig.heard("acquired")) == 1


def test_store_that_is_away_does_not_keep_a_stopped_candidate(rig: Rig) -> None:
    """Between two tries the event is looked at too."""
    client, stop = rig.client(ttl=TTL), threading.Event()
    rig.faults(client).cut_off = True
    running = Background(lambda: client.election("e").run(never, stop=stop))
    stop.set()
    _advance_until_over(rig, running)
    _advance_until_over(rig, Background(client.close))


def _advance_until_over(rig: Rig, call: Background) -> None:
    while not call.joined(0.01):
        rig.clock.advance(1.0)
    assert call.result() is None


def test_is_leader_is_true_while_the_candidacy_is_held_and_provable(rig: Rig) -> None:
    """Whichever way it was taken; by the clock alone."""
    client = rig.client(ttl=TTL)
    election = client.election("e")
    assert not election.is_leader
    with election.campaign():
        assert election.is_leader
    assert not election.is_leader
    hold = election.campaign().try_acquire()
    assert hold is not None
    assert election.is_leader
    rig.faults(client).cut_off = True
    rig.clock.advance(TTL)
    assert not election.is_leader


@pytest.mark.parametrize("in_office", [False, True])
def test_asyncio_candidate_is_stopped_by_the_event(rig: Rig, in_office: bool) -> None:
    """In line it leaves the line; in office `lead` is cancelled and the hold released. Both return None."""

    async def test() -> None:
        stop, leads, cleaned = asyncio.Event(), asyncio.Event(), asyncio.Event()
        async with rig.aclient() as client:
            election, other = client.election("e"), client.election("e")

            async def lead(hold: aio.Hold) -> str:
                assert election.is_leader
                leads.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    cleaned.set()
                return "never"

            before = None if in_office else await other.campaign().acquire()
            running = asyncio.create_task(election.run(lead, stop=stop))
            if in_office:
                await leads.wait()
            else:
                await asyncio.to_thread(rig.await_event, "entered", 2)
            stop.set()
            assert await running is None
            assert not election.is_leader
            assert cleaned.is_set() == in_office
            if before is not None:
                await asyncio.to_thread(rig.await_event, "reaped")
                assert await before.release()
            assert rig.tickets == 0

    asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))


def test_asyncio_run_with_a_stop_that_is_cancelled_is_cancelled(rig: Rig) -> None:
    """A cancellation from outside stays one, and the hold is released before it leaves."""

    async def test() -> None:
        leads = asyncio.Event()
        async with rig.aclient() as client:

            async def lead(_: aio.Hold) -> None:
                leads.set()
                await asyncio.Event().wait()

            running = asyncio.create_task(client.election("e").run(lead, stop=asyncio.Event()))
            await leads.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert rig.tickets == 0

    asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))


def test_asyncio_run_with_a_stop_returns_and_raises_what_lead_does(rig: Rig) -> None:
    """The event changes nothing as long as it is not set."""

    async def test() -> None:
        async with rig.aclient() as client:

            async def lead(hold: aio.Hold) -> int:
                return hold.token

            async def fail(_: aio.Hold) -> int:
                raise ValueError("a bug")

            election = client.election("e")
            assert await election.run(lead, stop=asyncio.Event()) == 1
            with pytest.raises(ValueError, match="a bug"):
                await election.run(fail, stop=asyncio.Event())

    asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))


def deposed(hold: Any, client: tenure.Client) -> tenure.StaleToken:
    """What a guard says to a leader whom an operator has forced out."""
    client.operator().force_release("e", token=hold.token, reason="a test")
    return tenure.StaleToken("a younger leader was seen")


def test_leader_who_hears_of_its_loss_from_a_guard_campaigns_again(rig: Rig) -> None:
    """A guard may know before the hold does. While the hold stands, a refusal is no loss, and ends the run."""
    client, operator = rig.client(ttl=TTL), rig.client()
    terms: list[int] = []

    def lead(hold: tenure.Hold) -> None:
        terms.append(hold.token)
        if len(terms) == 1:
            error = deposed(hold, operator)
            assert hold.lost.wait(PATIENCE_SECONDS)
            raise error
        raise tenure.StaleToken("another line's")

    running = Background(lambda: client.election("e").run(lead))
    while not running.joined(0.01):
        rig.clock.advance(0.1)
    with pytest.raises(tenure.StaleToken, match="another line's"):
        running.result()
    assert len(terms) == 2


def test_asyncio_leader_who_hears_of_its_loss_from_a_guard_campaigns_again(rig: Rig) -> None:
    """The same in asyncio, where the body is cancelled and may raise what it knows."""
    operator = rig.client()
    terms: list[int] = []

    async def test() -> None:
        async with rig.aclient(ttl=TTL) as client:

            async def lead(hold: aio.Hold) -> None:
                terms.append(hold.token)
                if len(terms) == 1:
                    error = deposed(hold, operator)
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        raise error from None
                raise tenure.StaleToken("another line's")

            running = asyncio.create_task(client.election("e").run(lead))
            while not running.done():
                rig.clock.advance(0.1)
                await asyncio.sleep(0)
            with pytest.raises(tenure.StaleToken, match="another line's"):
                await running

    asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))
    assert len(terms) == 2
