"""What the winner has: what it may believe, how it hears of the end, and how it gives up."""

# the bodies of holds are what is under test here
from __future__ import annotations

import asyncio
import itertools
import logging
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import tenure
from tenure import ClientClosed, HoldState, LeaseLost, aio
from tenure._core.base.limits import TICKET_WATCH_AFTER, VALUE_BYTES_MAX
from tenure._core.drivers.blocking import run
from tenure._core.lease import Entry, Lease
from tenure._core.runtime import Runtime, runtime_of
from tenure._core.turn import Turn
from tenure.events import Event
from tests.unit.fakes import Interrupted
from tests.unit.rig import PATIENCE_SECONDS, Background, Rig, reached

TTL = 12.0
HELD, SUSPECT, LOST, RELEASED = HoldState.HELD, HoldState.SUSPECT, HoldState.LOST, HoldState.RELEASED


def lose(rig: Rig, client: tenure.Client | aio.Client) -> None:
    """Cut the client off until its lease can't be proven any longer."""
    rig.faults(client).cut_off = True
    rig.clock.advance(TTL)


# States, by the clock alone.


def test_hold_goes_from_held_to_suspect_to_lost_by_the_clock(rig: Rig) -> None:
    """Law 2: the states of a hold that nobody renews, each at its time."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    rig.faults(client).cut_off = True
    seen = [hold.state]
    for _ in range(6):
        rig.clock.advance(2.0)
        seen.append(hold.state)
    assert seen == [HELD, HELD, HELD, SUSPECT, SUSPECT, SUSPECT, LOST]


def test_check_and_remaining_after_expiry_need_no_thread_and_no_callback(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 2: time passes, nothing runs; the very first check raises."""
    hold = rig.client(ttl=TTL).lock("a").acquire()
    assert hold.remaining() == pytest.approx(TTL - 0.13)
    hold.check()
    monkeypatch.setattr(rig.clock, "_now", rig.clock.now() + 2 * TTL)  # stopped: no timer has run
    with pytest.raises(LeaseLost, match="can't be proven"):
        hold.check()
    assert hold.remaining() == 0.0
    assert hold.state is LOST
    assert hold.lost.is_set()
    assert hold.lost.wait(0.0)


def test_renewed_hold_lives_as_long_as_it_is_renewed(rig: Rig) -> None:
    """The steady state: a hold outlives its TTL many times over, silently."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    changes: list[HoldState] = []
    hold.on_change(changes.append)
    rig.clock.advance(100 * TTL)
    assert hold.state is HELD
    hold.release()
    client.close()
    assert changes == [RELEASED]


def test_hold_that_recovers_is_held_again_and_one_that_was_lost_never_is(rig: Rig) -> None:
    """SUSPECT goes back to HELD; LOST is for good, even when the store is back."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    faults = rig.faults(client)
    faults.cut_off = True
    rig.clock.advance(7.0)
    assert hold.state is SUSPECT
    faults.cut_off = False
    rig.clock.advance(1.0)
    assert hold.state is HELD
    lose(rig, client)
    faults.cut_off = False
    rig.clock.advance(100.0)
    assert hold.state is LOST


def test_renew_proves_now_and_returns_what_remains(rig: Rig) -> None:
    """A holder about to do something long proves itself first."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    rig.clock.advance(3.0)
    assert hold.remaining() < TTL - 3.0
    assert hold.renew() == hold.remaining() == pytest.approx(TTL - 0.13)


def test_renew_of_a_lease_that_the_store_has_ended_raises_and_the_hold_is_lost(rig: Rig) -> None:
    """The store's word ends belief before the clock does."""
    hold = rig.client(ttl=TTL).lock("a").acquire()
    rig.store.expire(hold.lease_id)
    assert hold.state is HELD
    with pytest.raises(LeaseLost):
        hold.renew()
    assert hold.state is LOST
    assert "expired or was revoked" in hold.reason


def test_hold_whose_ticket_an_administrator_removed_is_lost(rig: Rig) -> None:
    """A hold older than a moment watches its own ticket."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    rig.clock.advance(TICKET_WATCH_AFTER + 0.01)
    line = rig.store.lines["tenure/a"]
    told = threading.Event()
    hold.on_change(lambda _: told.set())
    assert rig.store.leave("tenure/a", line[0].id, line[0].token)
    reached(told)
    assert hold.state is LOST
    assert "removed from the store" in hold.reason
    with pytest.raises(LeaseLost, match="removed"):
        hold.check()
    assert hold.release() is False


def test_whoever_has_to_stop_is_told_before_anybody_asks_who_did_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 15: the loss goes out at once; who did it is asked for after that, and is an event of its own."""
    asked, answer = threading.Event(), threading.Event()

    def forced_out(*_: object) -> str:
        asked.set()
        reached(answer)
        return "forced: stuck by alice"

    monkeypatch.setattr("tenure._core.hold_watch.forced_out", forced_out)
    client = rig.client(ttl=TTL)
    events: list[tuple[str, str | None]] = []
    client.subscribe(lambda event: events.append((event.event, event.reason)))
    hold = client.lock("a").acquire()
    rig.clock.advance(TICKET_WATCH_AFTER + 0.01)
    told, heard = threading.Event(), threading.Event()
    hold.on_change(lambda _: told.set())
    client.subscribe(lambda event: heard.set() if event.event == "forced" else None)
    assert rig.store.leave("tenure/a", hold.id, hold.token)
    reached(asked)
    try:
        reached(told)
        assert hold.lost.is_set()
        assert events[-1][0] == "lost"
        assert "removed" in hold.reason
        assert not heard.is_set()
    finally:
        answer.set()
    reached(heard)
    assert events[-1] == ("forced", "forced: stuck by alice")
    assert hold.reason == "forced: stuck by alice"


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_edge_of_the_body_waits_until_it_is_known_who_did_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, face: str
) -> None:
    """Law 15: the body is stopped at once; its LeaseLost comes with the reason, once the store has said it."""
    over, client = threading.Event(), rig.client(ttl=TTL) if face == "threads" else rig.aclient(ttl=TTL)

    def forced_out(*_: object) -> str:
        reached(over)  # so the edge comes before the answer
        return "forced: stuck by alice"

    def force_out(hold: Any) -> None:
        rig.clock.advance(TICKET_WATCH_AFTER + 0.01)
        assert rig.store.leave("tenure/a", hold.id, hold.token)

    monkeypatch.setattr("tenure._core.hold_watch.forced_out", forced_out)

    async def body(client: aio.Client) -> None:
        async with client, client.lock("a") as hold:
            force_out(hold)
            try:
                await asyncio.Event().wait()
            finally:
                assert hold.reason.startswith("its ticket was removed")
                over.set()

    with pytest.raises(LeaseLost, match=r"\(token \d+\) can't be proven any longer: forced: stuck by alice\. Stop"):
        if isinstance(client, aio.Client):
            asyncio.run(asyncio.wait_for(body(client), PATIENCE_SECONDS))
        else:
            with client.lock("a") as hold:
                force_out(hold)
                assert hold.lost.wait(PATIENCE_SECONDS)
                over.set()


def test_hold_that_an_amendment_found_removed_learns_who_did_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 15: whoever finds the ticket gone first, the reason is looked up."""
    monkeypatch.setattr("tenure._core.hold_watch.forced_out", lambda *_: "forced: stuck by alice")
    client = rig.client(ttl=TTL)
    with pytest.raises(LeaseLost, match="forced: stuck by alice"), client.election("a").campaign() as hold:
        assert rig.store.leave("tenure/a", hold.id, hold.token)
        hold.amend("too late")


def test_ticket_removed_before_it_was_watched_is_found_gone(rig: Rig) -> None:
    """The watch is from the snapshot: what happened before it began is not missed."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    told = threading.Event()
    hold.on_change(lambda _: told.set())
    assert rig.store.leave("tenure/a", hold.id, hold.token)
    rig.clock.advance(TICKET_WATCH_AFTER + 0.01)
    reached(told)
    assert hold.state is LOST


def test_own_watch_woken_for_nothing_watches_again(rig: Rig) -> None:
    """Law 11: a watch that ends is a reason to look, never a loss."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    rig.clock.advance(TICKET_WATCH_AFTER + 0.01)
    backend: Any = runtime_of(client)._backend
    for _ in range(3):
        backend.heal()  # wakes every watch
    assert hold.renew() > 0.0
    assert hold.state is HELD
    hold.release()
    assert rig.tickets == 0


# Hearing of it.


def test_lost_event_wakes_a_waiting_thread(rig: Rig) -> None:
    """Law 15: whoever waits for the loss is woken by it."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    assert hold.lost.is_set() is False
    assert hold.lost.wait(0.0) is False
    waiting = Background(hold.lost.wait)
    lose(rig, client)
    assert waiting.result() is True
    assert hold.lost.is_set()


def test_lost_event_of_a_released_hold_is_never_set(rig: Rig) -> None:
    """Giving up is not losing."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    hold.release()
    lose(rig, client)
    assert not hold.lost.is_set()
    assert hold.state is RELEASED


def test_on_change_hears_every_change_in_order_on_a_thread_of_its_own(rig: Rig) -> None:
    """Callbacks are called in order, off our threads and off the caller's."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    heard: list[tuple[HoldState, str]] = []
    over = threading.Event()

    def hear(state: HoldState) -> None:
        heard.append((state, threading.current_thread().name))
        if state is LOST:
            over.set()

    hold.on_change(hear)
    faults = rig.faults(client)
    faults.cut_off = True
    rig.clock.advance(7.0)
    faults.cut_off = False
    rig.clock.advance(1.0)
    lose(rig, client)
    reached(over)
    assert [state for state, _ in heard] == [SUSPECT, HELD, SUSPECT, LOST]
    assert {name.rpartition("-")[0] for _, name in heard} == {"tenure-callback"}


def test_several_callbacks_are_called_in_the_order_they_were_given(rig: Rig) -> None:
    """Each of them, once."""
    client = rig.client()
    hold = client.lock("a").acquire()
    heard: list[int] = []
    for number in range(5):
        hold.on_change(lambda _, number=number: heard.append(number))  # type: ignore[misc]  # binds now
    hold.release()
    client.close()
    assert heard == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("what", ["release", "acquire", "close", "renew", "statistics"])
def test_callback_that_calls_back_into_the_client_does_not_hang(rig: Rig, what: str) -> None:
    """A callback may block and may call us: nobody waits for it with a lock in hand."""
    client = rig.client(ttl=TTL)
    hold, other = client.lock("a").acquire(), client.lock("b").acquire()
    outcome: list[Any] = []
    over = threading.Event()
    calls: dict[str, Callable[[], Any]] = {
        "release": hold.release,
        "acquire": lambda: client.lock("c").acquire().release(),
        "close": client.close,
        "renew": other.renew,
        "statistics": client.statistics,
    }

    def call_back(_: HoldState) -> None:
        try:
            outcome.append(calls[what]())
        finally:
            over.set()

    hold.on_change(call_back)
    hold.release()
    reached(over)
    assert len(outcome) == 1
    Background(client.close).result()


@pytest.mark.parametrize("what", ["release", "acquire", "close"])
def test_callback_of_a_loss_that_calls_back_into_the_client_does_not_hang(rig: Rig, what: str) -> None:
    """The same when the callback is told of a loss, with the store away no longer."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    over = threading.Event()
    outcome: list[Any] = []
    calls: dict[str, Callable[[], Any]] = {
        "release": hold.release,
        "acquire": lambda: client.lock("c").acquire().token,
        "close": client.close,
    }

    def call_back(state: HoldState) -> None:
        if state is LOST:
            outcome.append(calls[what]())
            over.set()

    hold.on_change(call_back)
    rig.store.expire(hold.lease_id)
    rig.clock.advance(TTL / 3)
    reached(over)
    assert outcome in ([False], [None]) or outcome[0] > hold.token


def test_callback_that_raises_is_logged_and_the_next_is_called(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A user's failing callback is theirs to see, not ours to die of."""
    client = rig.client()
    hold = client.lock("a").acquire()
    heard: list[HoldState] = []

    def fail(_: HoldState) -> None:
        raise ValueError("told by the test")

    hold.on_change(fail)
    hold.on_change(heard.append)
    with caplog.at_level(logging.ERROR, "tenure"):
        assert hold.release() is True
        client.close()
    assert heard == [RELEASED]
    assert "told by the test" in caplog.text


def test_client_closed_by_somebody_else_releases_the_hold_and_tells_it(rig: Rig) -> None:
    """Law 16: closing gives up every hold at once, at the store too."""
    client = rig.client()
    hold = client.lock("a").acquire()
    heard: list[HoldState] = []
    hold.on_change(heard.append)
    client.close()
    assert (hold.state, hold.remaining(), rig.tickets) == (RELEASED, 0.0, 0)
    assert heard == [RELEASED]
    with pytest.raises(LeaseLost, match="was released"):
        hold.check()
    assert hold.release() is False


def test_hold_made_after_its_lease_had_ended_is_told_so(rig: Rig) -> None:
    """Law 15: a lease that ends between the turn and the hold is no loss that nobody hears of."""
    client = rig.client(ttl=TTL)
    runtime = runtime_of(client)

    def make(turn: Turn, entry: Entry, lease: Lease, of: Runtime) -> tenure.Hold:
        rig.store.expire(lease.id)
        rig.clock.advance(TTL / 3)
        return tenure.Hold(turn, entry, lease, of)

    ask = client.lock("a")._request
    hold = run(runtime.holding(ask, runtime.patience(None), make), rig.clock)
    assert hold is not None
    assert hold.state is LOST
    assert hold._at_end.is_set()  # what lost.wait() and the body of an `async with` hang on
    assert len(rig.heard("lost")) == 1


def test_who_waits_for_the_loss_of_a_hold_that_was_given_up_is_told_so(rig: Rig) -> None:
    """A thread that only waits for a loss ends with the hold: False, and `lost` stays unset."""
    client = rig.client(ttl=TTL)
    for give_up in (tenure.Hold.release, lambda _: client.close()):
        hold = client.lock("a").acquire()
        waiting = Background(hold.lost.wait)
        give_up(hold)
        assert waiting.result() is False
        assert not hold.lost.is_set()


def test_callback_that_comes_after_the_end_is_told_of_it(rig: Rig) -> None:
    """Law 15: the process stood still between `acquire` and `on_change`, and the end was told to nobody."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    before: list[HoldState] = []
    hold.on_change(before.append)
    lose(rig, client)
    after: list[HoldState] = []
    hold.on_change(after.append)
    rig.faults(client).cut_off = False
    client.close()
    assert (before[-1], after) == (LOST, [LOST])


def test_body_is_not_entered_without_the_hold(rig: Rig) -> None:
    """Neither after it was lost, nor a second time."""
    client = rig.client(ttl=TTL)
    lost, released = client.lock("a").acquire(), client.lock("b").acquire()
    with released:
        pass
    lose(rig, client)
    for hold, why in ((released, "was released"), (lost, "can't be proven")):
        with pytest.raises(LeaseLost, match=why), hold:
            pytest.fail("the body was entered")


def test_async_body_is_not_entered_without_the_hold(rig: Rig) -> None:
    """The same in asyncio."""

    async def main() -> None:
        client = rig.aclient()
        hold = await client.lock("a").acquire()
        async with hold:
            pass
        with pytest.raises(LeaseLost, match="was released"):
            async with hold:
                pytest.fail("the body was entered")
        await client.close()

    asyncio.run(main())


def test_async_body_that_gives_its_hold_up_early_goes_on(rig: Rig) -> None:
    """It is cancelled for a loss alone."""

    async def main() -> list[int]:
        client, steps = rig.aclient(), list[int]()
        async with client.lock("a") as hold:
            assert await hold.release() is True
            for step in range(5):
                await asyncio.sleep(0)
                steps.append(step)
        await client.close()
        return steps

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_block_that_is_left_by_another_thread_gives_up_no_living_hold_of_others(rig: Rig) -> None:
    """It was entered with a hold that was lost; another thread has entered the same lock object since."""
    first, second = rig.client(ttl=TTL), rig.client(ttl=TTL)
    lock = first.lock("a")
    lost = lock.__enter__()
    lose(rig, first)
    rig.faults(first).cut_off = False
    assert lost.lost.is_set()
    living = Background(lock.__enter__).result()
    leaving = Background(lambda: lock.__exit__(None, None, None))
    with pytest.raises(LeaseLost, match=f"token {lost.token}"):
        leaving.result()
    living.check()
    assert second.lock("a").try_acquire() is None
    first.close()


def test_fence_of_a_hold_stays_that_of_the_store_that_admitted_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client behind a service hears of another incarnation when it opens another lease there."""
    hold = rig.client(ttl=TTL).lock("a").acquire()
    fence = hold.fence
    monkeypatch.setattr(Runtime, "incarnation", property(lambda _: 7))
    assert hold.fence == fence


# Giving up.


def test_release_twice_is_true_then_false(rig: Rig) -> None:
    """The answer says whether this call removed the ticket."""
    hold = rig.client().lock("a").acquire()
    assert (hold.release(), hold.release(), hold.state) == (True, False, RELEASED)


def test_release_after_loss_is_false_and_asks_nobody(rig: Rig) -> None:
    """There is nothing of ours left to remove: somebody else may hold it."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    lose(rig, client)
    before = sum(rig.store.requests.values())
    assert hold.release() is False
    assert sum(rig.store.requests.values()) == before
    assert hold.state is LOST


def test_late_release_never_frees_the_next_holder(rig: Rig) -> None:
    """Law 5: a release after the loss leaves whoever holds it now alone."""
    client = rig.client(ttl=TTL)
    hold = client.lock("a").acquire()
    lose(rig, client)
    rig.clock.advance(TTL)
    other = rig.client(ttl=TTL).lock("a").acquire()
    hold.release()
    other.check()
    assert [t.token for t in rig.store.lines["tenure/a"]] == [other.token]
    assert other.token > hold.token


def test_hold_is_not_held_from_the_first_moment_of_release(rig: Rig) -> None:
    """Belief ends first, then the ticket goes."""
    hold = rig.client().lock("a").acquire()
    seen: list[HoldState] = []
    leave = rig.store.leave

    def noting(line: str, ticket_id: str, token: int | None) -> bool:
        seen.append(hold.state)
        return leave(line, ticket_id, token)

    rig.store.leave = noting  # type: ignore[method-assign]  # to look from inside the request
    hold.release()
    assert seen == [RELEASED]


def test_interrupted_release_leaves_the_ticket_to_the_reaper(rig: Rig) -> None:
    """Law 7: Ctrl-C in a release is no orphan."""
    hold = rig.client().lock("a").acquire()
    leave, calls = rig.store.leave, list[int]()

    def interrupted(line: str, ticket_id: str, token: int | None) -> bool:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return leave(line, ticket_id, token)

    rig.store.leave = interrupted  # type: ignore[method-assign]  # Ctrl-C while the request is under way
    with pytest.raises(KeyboardInterrupt):
        hold.release()
    rig.await_event("reaped")
    assert rig.tickets == 0
    assert hold.state is RELEASED


def test_with_block_whose_hold_was_lost_raises_lease_lost_at_its_end(rig: Rig) -> None:
    """A body that did not look hears of the loss at the edge."""
    client = rig.client(ttl=TTL)
    with pytest.raises(LeaseLost, match="can't be proven"), client.lock("a"):
        lose(rig, client)


def test_with_block_that_raises_keeps_its_own_error_even_when_lost(rig: Rig) -> None:
    """The body's own error matters more than ours."""
    client = rig.client(ttl=TTL)
    with pytest.raises(ZeroDivisionError), client.lock("a"):
        lose(rig, client)
        raise ZeroDivisionError


def test_with_block_whose_hold_was_released_inside_ends_quietly(rig: Rig) -> None:
    """Releasing early is allowed."""
    with rig.client().lock("a") as hold:
        hold.release()
    assert hold.state is RELEASED


def test_with_block_releases_on_error(rig: Rig) -> None:
    """The ticket goes however the body ends."""
    client = rig.client()
    with pytest.raises(ZeroDivisionError), client.lock("a"):
        raise ZeroDivisionError
    assert rig.tickets == 0


def test_with_block_that_could_not_confirm_its_release_ends_quietly_and_the_reaper_goes_on(rig: Rig) -> None:
    """A store silent at the edge does not hide the body's success."""
    client = rig.client(timeout=0.05)

    def body() -> str:
        with client.lock("a"):
            rig.faults(client).cut_off = True
            inside.set()
        return "done"

    inside = threading.Event()
    block = Background(body)
    reached(inside)
    while not block.joined(0.001):
        rig.clock.advance(0.01)
    assert block.result() == "done"
    rig.faults(client).cut_off = False
    for _ in range(1000):
        if rig.heard("reaped"):
            break
        rig.clock.advance(0.05)
        threading.Event().wait(0.001)  # real time for the worker's thread, not a condition
    assert rig.tickets == 0


# The client is closed by somebody else while the body runs.


def lock(client: Any) -> Any:
    return client.lock("a")


TAKEN: dict[str, Callable[[Any], Any]] = {
    "lock": lock,
    "seat": lambda client: client.semaphore("a", limit=2),
    "reader": lambda client: client.rwlock("a").read(),
    "writer": lambda client: client.rwlock("a").write(),
    "leader": lambda client: client.election("a").campaign(),
}


@pytest.mark.parametrize("what", TAKEN)
def test_body_whose_client_another_thread_closes_raises_client_closed_at_its_end(rig: Rig, what: str) -> None:
    """Law 15: the hold was taken from under the body, which may not have looked."""
    client = rig.client()
    with pytest.raises(ClientClosed, match=r"closed under the `with` body that had 'a'"), TAKEN[what](client) as hold:
        Background(client.close).result()
        assert (hold.state, hold.lost.is_set(), hold.lost.wait()) == (RELEASED, False, False)
    assert rig.tickets == 0


def test_body_of_an_acquired_hold_hears_of_the_close_at_its_end(rig: Rig) -> None:
    """`with lock.acquire() as hold`."""
    client = rig.client()
    with pytest.raises(ClientClosed), client.lock("a").acquire():
        Background(client.close).result()


def test_body_that_comes_after_the_close_is_not_entered(rig: Rig) -> None:
    """Closed between the turn and the body: the same error as a moment before or after it."""
    client = rig.client()
    hold = client.lock("a").acquire()
    Background(client.close).result()
    with pytest.raises(ClientClosed, match="nothing of it was run"), hold:
        pytest.fail("the body was entered")


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_body_that_raises_keeps_its_own_error_though_its_client_was_closed(
    rig: Rig, error: type[BaseException]
) -> None:
    """The body's own outcome matters more."""
    client = rig.client()
    with pytest.raises(error), client.lock("a"):
        Background(client.close).result()
        raise error


def test_body_that_closes_its_own_client_ends_quietly(rig: Rig) -> None:
    """It gave the hold up itself, as by an early release; whoever closes again changes nothing of that."""
    client = rig.client()
    with client.lock("a") as hold:
        client.close()
        Background(client.close).result()
    assert hold.state is RELEASED


def test_body_that_closes_its_client_after_another_thread_did_is_told(rig: Rig) -> None:
    """Who was first counts."""
    client = rig.client()
    with pytest.raises(ClientClosed), client.lock("a"):
        Background(client.close).result()
        client.close()


def test_body_that_released_before_the_close_ends_quietly(rig: Rig) -> None:
    """What was given up can't be taken."""
    client = rig.client()
    with client.lock("a") as hold:
        assert hold.release() is True
        Background(client.close).result()


def test_body_that_releases_after_the_close_is_told(rig: Rig) -> None:
    """What was taken can't be given up."""
    client = rig.client()
    with pytest.raises(ClientClosed), client.lock("a") as hold:
        Background(client.close).result()
        assert hold.release() is False


def test_hold_lost_before_the_close_is_lost_at_the_edge(rig: Rig) -> None:
    """The first end counts."""
    client = rig.client(ttl=TTL)
    with pytest.raises(LeaseLost, match="can't be proven"), client.lock("a"):
        lose(rig, client)
        rig.faults(client).cut_off = False
        Background(client.close).result()


@pytest.mark.parametrize("news", ["first", "late"])
def test_body_whose_release_is_under_way_when_the_client_is_closed_ends_quietly(rig: Rig, news: str) -> None:
    """A release has begun, and its lease ends by the close before it has said so."""
    client = rig.client()
    with client.lock("a") as hold:
        finish = hold._watch.finish

        def closed_before(*how: Any) -> None:
            hold._watch.finish = finish  # type: ignore[method-assign]  # once
            if news == "late":
                hold._watch.unsubscribe()
            Background(client.close).result()
            finish(*how)

        hold._watch.finish = closed_before  # type: ignore[assignment,method-assign]  # the moment that is meant
        assert hold.release() is False


@pytest.mark.parametrize("released", [True, False])
def test_close_whose_news_are_late_is_known_at_the_edge(rig: Rig, released: bool) -> None:
    """The lease says that it has ended before its listeners are told: then a release of the body's own still counts."""
    client = rig.client(journal=True)
    told: list[str | None] = []
    client.subscribe(lambda event: told.append(event.ending) if event.event == "released" else None)

    def body() -> None:
        with client.lock("a") as hold:
            hold._watch.unsubscribe()
            Background(client.close).result()
            if released:
                assert hold.release() is False

    if released:
        body()
    else:
        with pytest.raises(ClientClosed):
            body()
    assert told == ["closed"]


def test_body_whose_client_is_closed_hears_of_it_once_the_store_has(rig: Rig) -> None:
    """Whoever catches it finds the line free."""
    client = rig.client()
    expire, asked, go_on = rig.store.expire, threading.Event(), threading.Event()

    def slow(lease_id: str) -> None:
        asked.set()
        reached(go_on)
        expire(lease_id)

    rig.store.expire = slow  # type: ignore[method-assign]  # to look while the close is under way
    inside = threading.Event()

    def body() -> None:
        with client.lock("a"):
            inside.set()
            reached(asked)

    block = Background(body)
    reached(inside)
    closing = Background(client.close)
    reached(asked)
    assert not block.joined(0.05)
    assert rig.tickets == 1
    go_on.set()
    with pytest.raises(ClientClosed):
        block.result()
    assert rig.tickets == 0
    closing.result()


def test_body_waits_for_a_close_that_does_not_end_for_one_request_at_most(rig: Rig) -> None:
    """A store that says nothing keeps nobody at the edge for ever."""
    client = rig.client(timeout=3.0)
    asked, go_on = threading.Event(), threading.Event()

    def silent(lease_id: str) -> None:
        asked.set()
        reached(go_on)

    rig.store.expire = silent  # type: ignore[method-assign]  # the store takes the request and says nothing
    inside = threading.Event()

    def body() -> None:
        with client.lock("a"):
            inside.set()
            reached(asked)

    block = Background(body)
    reached(inside)
    closing = Background(client.close)
    reached(asked)
    while not block.joined(0.001):
        rig.clock.advance(1.0)
    with pytest.raises(ClientClosed):
        block.result()
    assert not closing.ended
    go_on.set()
    closing.result()


def test_body_that_is_left_within_the_close_does_not_wait_for_it(rig: Rig) -> None:
    """A subscriber that leaves the block, on the thread that closes: it would wait for itself."""
    client = rig.client()
    block = client.lock("a")
    block.__enter__()
    client.subscribe(lambda event: block.__exit__(None, None, None) if event.event == "lease_closed" else None)
    Background(client.close).result()
    assert len(block._entered) == 0


def test_nested_bodies_whose_client_is_closed_are_told_once(rig: Rig) -> None:
    """By the inner edge; for the outer body that is an error like any other."""
    client = rig.client()
    with pytest.raises(ClientClosed, match="had 'b'"), client.lock("a"), client.lock("b"):
        Background(client.close).result()


def test_signal_handler_that_closes_the_client_under_the_main_threads_body_counts_as_the_body(rig: Rig) -> None:
    """It runs on the body's thread, where nothing tells it from the body."""
    client = rig.client()
    before = signal.signal(signal.SIGUSR1, lambda *_: client.close())
    try:
        with client.lock("a") as hold:
            signal.raise_signal(signal.SIGUSR1)
            with pytest.raises(LeaseLost, match="was released"):
                hold.check()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_election_run_raises_client_closed_when_the_client_is_closed_in_office(rig: Rig) -> None:
    """Whether `lead` looks at its hold, or goes on to its end."""
    for looks in (True, False):
        client = rig.client()

        def lead(hold: tenure.Hold, client: tenure.Client = client, looks: bool = looks) -> str:
            Background(client.close).result()
            if looks:
                hold.check()
            return "done"

        with pytest.raises(ClientClosed):
            client.election("e").run(lead)


class _Entry:
    """One `with` in a race against a close: what its body saw last, and how it ended."""

    def __init__(self, rig: Rig, lots: random.Random) -> None:
        self.client = rig.client()
        self.taken = self.released = self.entered = False
        self._world = rig
        self._release = lots.random() < 0.3
        self._pauses = [lots.random() * 0.0006 for _ in range(3)]

    def run(self) -> str:
        try:
            with self.client.lock("a") as hold:
                self.entered = True
                time.sleep(self._pauses[0])
                if self._release:
                    self.released = hold.release()
                time.sleep(self._pauses[1])
                self.taken = hold.state is RELEASED and not self._release
        except ClientClosed:
            return "closed, and the line free" if self._world.tickets == 0 else "closed, and a ticket left"
        return "quiet"

    def close(self) -> None:
        time.sleep(2.5 * self._pauses[2])
        self.client.close()


def test_bodies_raced_by_a_close_end_in_client_closed_exactly_when_they_were_taken(rig: Rig) -> None:
    """Whatever the moment: beginning, middle, release, end; until both endings were seen, however busy the machine."""
    lots, seen = random.Random(4), Counter[str]()
    while seen.total() < 400 or not _seen_both(seen, "quiet, entered", "closed, and the line free, entered"):
        entry = _Entry(rig, lots)
        body, closing = Background(entry.run), Background(entry.close)
        how = body.result()
        closing.result()
        assert how != "closed, and a ticket left"
        if how == "quiet":
            assert entry.entered
            assert not entry.taken
        assert not (entry.released and how != "quiet")
        seen[f"{how}, entered" if entry.entered else how] += 1


def _seen_both(seen: Counter[str], *endings: str) -> bool:
    assert seen.total() < 20_000, f"one of {endings} hardly ever comes: {seen}"
    return all(seen[how] > 10 for how in endings)


def test_hold_from_acquire_is_a_context_manager_itself(rig: Rig) -> None:
    """`with lock.acquire(timeout=5) as hold`."""
    with rig.client().lock("a").acquire(timeout=5) as hold:
        assert hold.state is HELD
    assert hold.state is RELEASED


def test_one_lock_object_entered_by_two_threads_gives_each_its_own_hold(rig: Rig) -> None:
    """Law 13: one object may be shared; its holds may not be mixed up."""
    lock = rig.client().lock("a")
    tokens: list[int] = []

    def enter() -> None:
        for _ in range(20):
            with lock as hold:
                assert hold.state is HELD
                tokens.append(hold.token)

    for thread in [Background(enter) for _ in range(4)]:
        thread.result()
    assert len(set(tokens)) == 80
    assert tokens == sorted(tokens)
    assert len(lock._entered) == 0


# Values, facts, numbers.


def test_over_long_value_is_refused_before_anything_is_sent(rig: Rig) -> None:
    """64 KiB is the bound, in bytes of UTF-8, and exact."""
    client = rig.client()
    for value in ("x" * (VALUE_BYTES_MAX + 1), "\u00e9" * (VALUE_BYTES_MAX // 2 + 1), "\ud800"):
        with pytest.raises(tenure.InvalidOption):
            client.election("e", value=value)
    assert sum(rig.store.requests.values()) == 0
    hold = client.election("e", value="x" * VALUE_BYTES_MAX).campaign().acquire()
    before = sum(rig.store.requests.values())
    with pytest.raises(tenure.InvalidOption):
        hold.amend("x" * (VALUE_BYTES_MAX + 1))
    assert sum(rig.store.requests.values()) == before


@pytest.mark.parametrize("value", [b"x", 7, None, ["x"]])
def test_value_that_is_no_text_is_refused(rig: Rig, value: str) -> None:
    """Election values are str."""
    with pytest.raises(tenure.InvalidOption, match="str"):
        rig.client().election("e", value=value)


def test_amended_value_is_what_others_and_the_hold_show(rig: Rig) -> None:
    """A leader that moves tells its new address."""
    client = rig.client()
    with client.election("e", value="old").campaign() as hold:
        hold.amend("new")
        leader = client.election("e").leader()
        assert leader is not None
        assert (leader.value, hold.value, leader.token, leader.id) == ("new", "new", hold.token, hold.id)


def test_amend_after_the_ticket_was_removed_raises_lease_lost(rig: Rig) -> None:
    """The store's no is a loss."""
    hold = rig.client().election("e", value="old").campaign().acquire()
    rig.store.leave("tenure/e", hold.id, hold.token)
    with pytest.raises(LeaseLost, match="removed"):
        hold.amend("new")
    assert hold.state is LOST


def test_hold_shows_its_facts(rig: Rig) -> None:
    """Everything a log line, a guard or a metric asks for."""
    client = rig.client(owner="me", ttl=TTL)
    hold = client.lock("a b").acquire()
    ticket = rig.store.lines["tenure/a b"][0]
    assert (hold.token, hold.id, hold.resource, hold.owner) == (ticket.token, ticket.id, "a b", "me")
    assert (hold.ttl, hold.lease_id, hold.value, hold.reason) == (TTL, ticket.lease_id, "", "")


def test_repr_of_a_hold_says_what_it_is_in_every_state(rig: Rig) -> None:
    """CLI, sidecar and logs read it: the text is specified."""
    client = rig.client(owner="me", ttl=TTL)
    hold = client.lock("a").acquire()
    assert repr(hold) == f"<tenure.Hold 'a' token={hold.token} held remaining=11.9 owner='me'>"
    hold.release()
    assert repr(hold) == f"<tenure.Hold 'a' token={hold.token} released remaining=0.0 owner='me'>"


def test_repr_of_client_and_recipes_says_what_they_are(rig: Rig) -> None:
    """The same for whatever a user may print."""
    client = rig.client(owner="me")
    store = f"memory://{rig.name}/tenure"
    assert repr(client) == f"<tenure.Client {store} open owner='me'>"
    assert repr(client.lock("a", ttl=3)) == "<tenure.Lock 'a' exclusive ttl=3>"
    assert repr(client.rwlock("a", ttl=3).read()) == "<tenure.Lock 'a' read ttl=3>"
    assert repr(client.semaphore("a", limit=3)) == "<tenure.Semaphore 'a' limit=3>"
    assert repr(client.rwlock("a")) == "<tenure.RWLock 'a'>"
    assert repr(client.election("a", value="v")) == "<tenure.Election 'a' value='v'>"
    client.close()
    assert repr(client) == f"<tenure.Client {store} closed owner='me'>"


def test_statistics_have_their_fields(rig: Rig) -> None:
    """Metrics read these names: leases, counts of events, and the backend's own."""
    client = rig.client(ttl=TTL)
    client.lock("a").acquire()
    found: Any = client.statistics()
    assert set(found) == {"store", "leases", "events", "backend"}
    assert found["store"] == f"memory://{rig.name}/tenure"
    lease = found["leases"][0]
    assert set(lease) == {"id", "ttl", "state", "remaining"}
    assert (lease["ttl"], lease["state"], lease["id"]) == (TTL, "held", rig.store.leases[0])


def test_many_holds_share_one_lease(rig: Rig) -> None:
    """Law 10: leases don't grow with the number of holds."""
    client = rig.client()
    holds = [client.lock(str(i)).acquire() for i in range(50)]
    assert len({h.lease_id for h in holds}) == len(rig.store.leases) == 1
    client.close()
    assert rig.tickets == len(rig.store.leases) == 0


# asyncio: the body is cancelled on loss.


def arun(rig: Rig, main: Callable[[aio.Client], Any]) -> Any:
    async def whole() -> Any:
        client = rig.aclient(ttl=TTL)
        try:
            return await asyncio.wait_for(main(client), PATIENCE_SECONDS)
        finally:
            rig.faults(client).cut_off = False
            await client.close()

    return asyncio.run(whole())


FOREVER = 3600.0


def test_async_body_is_cancelled_on_loss_and_lease_lost_is_raised_at_the_edge(rig: Rig) -> None:
    """Law 15: in asyncio a loss stops the body."""

    async def main(client: aio.Client) -> None:
        ended: list[str] = []
        with pytest.raises(LeaseLost, match="can't be proven"):
            async with client.lock("a"):
                lose(rig, client)
                try:
                    await asyncio.sleep(FOREVER)
                except asyncio.CancelledError as error:
                    ended.append(str(error))
                    raise
        assert ended == ["the hold was lost"]
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    arun(rig, main)


def test_async_body_cancelled_from_outside_stays_cancelled(rig: Rig) -> None:
    """A cancellation from outside stays one, and the ticket goes."""

    async def main(client: aio.Client) -> None:
        inside = asyncio.Event()

        async def body() -> None:
            async with client.lock("a"):
                inside.set()
                await asyncio.sleep(FOREVER)

        task = asyncio.create_task(body())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        hold = await client.lock("a").acquire(timeout=0)
        await hold.release()

    arun(rig, main)
    assert rig.tickets == 0


@pytest.mark.parametrize("first", ["loss", "outside"])
def test_async_body_lost_and_cancelled_at_once_stays_cancelled(rig: Rig, first: str) -> None:
    """Who cancels from outside is obeyed, whichever came first."""

    async def main(client: aio.Client) -> None:
        inside = asyncio.Event()

        async def body() -> None:
            async with client.lock("a"):
                inside.set()
                await asyncio.sleep(FOREVER)

        task = asyncio.create_task(body())
        await inside.wait()
        if first == "loss":
            lose(rig, client)
            task.cancel()
        else:
            task.cancel()
            lose(rig, client)
        with pytest.raises(asyncio.CancelledError):
            await task

    arun(rig, main)


def test_async_body_that_swallows_the_cancellation_still_ends_in_lease_lost(rig: Rig) -> None:
    """A body that goes on hears of the loss at the edge."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(LeaseLost):
            async with client.lock("a"):
                lose(rig, client)
                try:
                    await asyncio.sleep(FOREVER)
                except asyncio.CancelledError:
                    pass
        await asyncio.sleep(0)  # nothing is left to be thrown

    arun(rig, main)


def test_async_body_that_never_awaits_is_not_cancelled_afterwards(rig: Rig) -> None:
    """A loss in the last moment cancels nothing behind the edge."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(LeaseLost):
            async with client.lock("a"):
                lose(rig, client)
        for _ in range(5):
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    arun(rig, main)


def test_async_body_that_raises_on_loss_keeps_its_own_error(rig: Rig) -> None:
    """What the body raises comes out."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(ZeroDivisionError):
            async with client.lock("a"):
                lose(rig, client)
                try:
                    await asyncio.sleep(FOREVER)
                except asyncio.CancelledError:
                    raise ZeroDivisionError from None

    arun(rig, main)


# asyncio: the body is cancelled when another task closes the client.


@pytest.mark.parametrize("what", TAKEN)
def test_async_body_is_cancelled_when_another_task_closes_its_client(rig: Rig, what: str) -> None:
    """Law 15: as for a loss, and ClientClosed is raised at the edge."""

    async def main(client: aio.Client) -> None:
        ended: list[str] = []
        with pytest.raises(ClientClosed, match=r"closed under the `with` body that had 'a'") as raised:
            async with TAKEN[what](client) as hold:
                closing = asyncio.create_task(client.close())
                try:
                    await asyncio.sleep(FOREVER)
                except asyncio.CancelledError as error:
                    ended.append(str(error))
                    raise
        assert ended == ["the client was closed"]
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)
        assert (hold.state, hold.lost.is_set(), await hold.lost.wait()) == (RELEASED, False, False)
        assert rig.tickets == 0
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await closing

    arun(rig, main)


def test_async_body_whose_client_another_thread_closes_is_cancelled(rig: Rig) -> None:
    """From outside of the loop."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(ClientClosed):
            async with client.lock("a"):
                closing = Background(runtime_of(client).close)
                await asyncio.sleep(FOREVER)
        closing.result()

    arun(rig, main)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_async_body_that_raises_keeps_its_own_error_though_its_client_was_closed(
    rig: Rig, error: type[BaseException]
) -> None:
    """What the body raises comes out."""

    async def main(client: aio.Client) -> None:
        async with client.lock("a"):
            closing = asyncio.create_task(client.close())
            try:
                await asyncio.sleep(FOREVER)
            except asyncio.CancelledError:
                await closing
                raise error from None

    with pytest.raises(error):
        arun(rig, main)


def test_async_body_that_swallows_its_cancellation_hears_of_the_close_at_the_edge(rig: Rig) -> None:
    """It is cancelled once."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(ClientClosed):
            async with client.lock("a"):
                closing = asyncio.create_task(client.close())
                try:
                    await asyncio.sleep(FOREVER)
                except asyncio.CancelledError:
                    await closing
        await asyncio.sleep(0)  # nothing is left to be thrown

    arun(rig, main)


def test_async_body_that_closes_its_own_client_goes_on_and_ends_quietly(rig: Rig) -> None:
    """It gave the hold up itself."""

    async def main() -> list[int]:
        steps: list[int] = []
        async with rig.aclient() as client, client.lock("a") as hold:
            await client.close()
            await asyncio.create_task(client.close())
            for step in range(5):
                await asyncio.sleep(0)
                steps.append(step)
            assert hold.state is RELEASED
        return steps

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_async_body_that_released_before_the_close_goes_on(rig: Rig) -> None:
    """What was given up can't be taken."""

    async def main(client: aio.Client) -> str:
        async with client.lock("a") as hold:
            assert await hold.release() is True
            await asyncio.create_task(client.close())
            await asyncio.sleep(0)
            return "went on"

    assert arun(rig, main) == "went on"


def test_async_hold_lost_before_the_close_is_lost_at_the_edge(rig: Rig) -> None:
    """The first end counts."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(LeaseLost, match="can't be proven"):
            async with client.lock("a"):
                lose(rig, client)
                rig.faults(client).cut_off = False
                closing = asyncio.create_task(client.close())
                await asyncio.sleep(FOREVER)
        await closing

    arun(rig, main)


@pytest.mark.parametrize("first", ["close", "outside"])
def test_async_body_closed_and_cancelled_at_once_stays_cancelled(rig: Rig, first: str) -> None:
    """Who cancels from outside is obeyed, whichever came first."""

    async def main(client: aio.Client) -> None:
        inside = asyncio.Event()

        async def body() -> None:
            async with client.lock("a"):
                inside.set()
                await asyncio.sleep(FOREVER)

        task = asyncio.create_task(body())
        await inside.wait()
        if first == "outside":
            task.cancel()
        Background(runtime_of(client).close).result()
        if first == "close":
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    arun(rig, main)


def test_async_body_cancelled_while_its_edge_waits_for_the_close_stays_cancelled(rig: Rig) -> None:
    """The wait at the edge ends like any other."""

    async def main(client: aio.Client) -> None:
        expire, asked, go_on = rig.store.expire, threading.Event(), threading.Event()

        def slow(lease_id: str) -> None:
            asked.set()
            reached(go_on)
            expire(lease_id)

        rig.store.expire = slow  # type: ignore[method-assign]  # to look while the close is under way
        inside, stopped = asyncio.Event(), asyncio.Event()

        async def body() -> None:
            async with client.lock("a"):
                inside.set()
                try:
                    await asyncio.sleep(FOREVER)
                finally:
                    stopped.set()

        task = asyncio.create_task(body())
        await inside.wait()
        closing = asyncio.create_task(client.close())
        await stopped.wait()
        await asyncio.to_thread(reached, asked)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        await closing

    arun(rig, main)


def test_async_nested_bodies_whose_client_is_closed_are_told_and_left_uncancelled(rig: Rig) -> None:
    """Each of them cancels; what comes out is ClientClosed, and nothing is left to be thrown."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(ClientClosed):
            async with client.lock("a"), client.lock("b"), client.lock("c"):
                closing = asyncio.create_task(client.close())
                await asyncio.sleep(FOREVER)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await closing
        await asyncio.sleep(0)

    for _ in range(20):
        arun(rig, main)


def test_task_group_in_a_body_one_of_whose_tasks_closes_the_client_is_cancelled_as_a_whole(rig: Rig) -> None:
    """A task of the body's own is another task; the edge raises ClientClosed and no group."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(ClientClosed):
            async with client.lock("a"), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(FOREVER))
                group.create_task(client.close())

    arun(rig, main)


def test_async_election_run_raises_client_closed_when_the_client_is_closed_in_office(rig: Rig) -> None:
    """`lead` is cancelled, and `run` says why."""

    async def main(client: aio.Client) -> None:
        async def lead(_: aio.Hold) -> None:
            tasks.append(asyncio.create_task(client.close()))
            await asyncio.sleep(FOREVER)

        tasks: list[asyncio.Task[None]] = []
        with pytest.raises(ClientClosed):
            await client.election("e").run(lead)
        await tasks[0]

    arun(rig, main)


def test_async_bodies_raced_by_a_close_end_in_client_closed_or_quietly_and_are_never_cancelled_later(
    rig: Rig,
) -> None:
    """Whatever the moment: the edge's own answer is all that comes of it; until both endings were seen."""

    async def once(lots: random.Random) -> str:
        client, pauses = rig.aclient(), [lots.randrange(6) for _ in range(3)]
        release, gone = lots.random() < 0.3, False

        async def close() -> None:
            for _ in range(2 * pauses[2]):
                await asyncio.sleep(0.0001)
            await client.close()

        closing = asyncio.create_task(close())
        try:
            async with client.lock("a") as hold:
                for _ in range(pauses[0]):
                    await asyncio.sleep(0.0001)
                if release:
                    gone = await hold.release()
                for _ in range(pauses[1]):
                    await asyncio.sleep(0.0001)
                taken = hold.state is RELEASED and not release
            how = "quiet"
            assert not taken
        except ClientClosed:
            how = "closed"
            assert (gone, rig.tickets) == (False, 0)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await closing
        await asyncio.sleep(0)
        return how

    async def main() -> None:
        lots, seen = random.Random(5), Counter[str]()
        while seen.total() < 200 or not _seen_both(seen, "quiet", "closed"):
            seen[await once(lots)] += 1

    asyncio.run(main())


def test_async_timeout_around_a_hold_stays_a_timeout(rig: Rig) -> None:
    """asyncio.timeout is a cancellation from outside."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(0.01), client.lock("a"):
                await asyncio.sleep(FOREVER)
        assert not isinstance(raised.value, tenure.TenureError)

    arun(rig, main)
    assert rig.tickets == 0


def test_async_timeout_around_a_lost_hold_does_not_hide_the_loss(rig: Rig) -> None:
    """A loss inside a time-out that has not come is the loss."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(LeaseLost):
            async with asyncio.timeout(FOREVER), client.lock("a"):
                lose(rig, client)
                await asyncio.sleep(FOREVER)

    arun(rig, main)


def test_async_timeout_and_loss_at_once_are_a_timeout(rig: Rig) -> None:
    """Both at once: the one from outside is told, and the task is left uncancelled."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit, client.lock("a"):
                lose(rig, client)
                limit.reschedule(0.0)
                await asyncio.sleep(FOREVER)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    arun(rig, main)


def test_async_timeout_inside_a_body_still_works(rig: Rig) -> None:
    """A time-out of the body's own is handled in the body."""

    async def main(client: aio.Client) -> str:
        async with client.lock("a") as hold:
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(FOREVER)
            except TimeoutError:
                hold.check()
                return "went on"
        return "?"

    assert arun(rig, main) == "went on"


def test_task_group_in_a_lost_body_is_cancelled_as_a_whole(rig: Rig) -> None:
    """The body's children stop with it, and the edge raises LeaseLost and no group."""

    async def main(client: aio.Client) -> None:
        cancelled: list[int] = []

        async def child(number: int) -> None:
            try:
                await asyncio.sleep(FOREVER)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise

        with pytest.raises(LeaseLost):
            async with client.lock("a"), asyncio.TaskGroup() as group:
                for number in range(3):
                    group.create_task(child(number))
                await asyncio.sleep(0)
                lose(rig, client)
        assert sorted(cancelled) == [0, 1, 2]

    arun(rig, main)


def test_lost_hold_in_a_task_group_fails_the_group_with_lease_lost(rig: Rig) -> None:
    """A child that loses its hold takes its siblings down like any failing child."""

    async def main(client: aio.Client) -> None:
        inside = asyncio.Event()

        async def holder() -> None:
            async with client.lock("a"):
                inside.set()
                await asyncio.sleep(FOREVER)

        with pytest.raises(ExceptionGroup) as raised:
            async with asyncio.TaskGroup() as group:
                group.create_task(holder())
                sibling = group.create_task(asyncio.sleep(FOREVER))
                await inside.wait()
                lose(rig, client)
        assert [type(e) for e in raised.value.exceptions] == [LeaseLost]
        assert sibling.cancelled()

    arun(rig, main)


def test_loss_exactly_during_release_is_no_error_and_cancels_nobody(rig: Rig) -> None:
    """The body was done while the hold was provable: that it ended meanwhile is the store's business."""

    async def main(client: aio.Client) -> None:
        leave = rig.store.leave

        def losing(line: str, ticket_id: str, token: int | None) -> bool:
            rig.store.expire(rig.store.leases[0])
            return leave(line, ticket_id, token)

        rig.store.leave = losing  # type: ignore[method-assign]  # the lease ends while the release is under way
        async with client.lock("a") as hold:
            pass
        assert hold.state is RELEASED
        for _ in range(5):
            await asyncio.sleep(0)

    arun(rig, main)
    assert rig.tickets == 0


def test_async_cancelled_during_release_leaves_no_ticket(rig: Rig) -> None:
    """Law 7: cancelled at the edge, the ticket goes all the same."""

    async def main(client: aio.Client) -> None:
        leave = rig.store.leave
        entered, go_on = threading.Event(), threading.Event()

        def slow(line: str, ticket_id: str, token: int | None) -> bool:
            entered.set()
            go_on.wait(PATIENCE_SECONDS)
            return leave(line, ticket_id, token)

        hold = await client.lock("a").acquire()
        rig.store.leave = slow  # type: ignore[method-assign]  # to cancel while the request is under way
        task = asyncio.create_task(hold.release())
        await asyncio.to_thread(reached, entered)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    arun(rig, main)
    assert rig.tickets == 0


def test_async_lost_event_is_awaited_on_the_clients_clock(rig: Rig) -> None:
    """`await hold.lost.wait(timeout)`: True when lost, False when the time came first."""

    async def main(client: aio.Client) -> None:
        hold = await client.lock("a").acquire()
        waiting = asyncio.create_task(hold.lost.wait(5.0))
        await asyncio.sleep(0)
        rig.clock.advance(5.0)
        assert await waiting is False
        waiting = asyncio.create_task(hold.lost.wait())
        await asyncio.sleep(0)
        lose(rig, client)
        assert await waiting is True
        assert hold.lost.is_set()

    arun(rig, main)


def test_async_hold_amends_and_renews(rig: Rig) -> None:
    """The same verbs, awaited."""

    async def main(client: aio.Client) -> None:
        async with client.election("e", value="old").campaign() as hold:
            await hold.amend("new")
            leader = await client.election("e").leader()
            assert leader is not None
            assert leader.value == "new"
            assert await hold.renew() > 0.0

    arun(rig, main)


def test_async_election_run_leads_again_after_a_loss(rig: Rig) -> None:
    """`run` campaigns again after every loss and returns what `lead` returns in office."""

    async def main(client: aio.Client) -> str | None:
        terms: list[int] = []

        async def lead(hold: aio.Hold) -> str:
            terms.append(hold.token)
            if len(terms) == 1:
                rig.store.expire(hold.lease_id)
                rig.clock.advance(TTL / 3)
                await asyncio.sleep(FOREVER)
            return "done"

        running = asyncio.create_task(client.election("e").run(lead))
        while not running.done():
            await asyncio.sleep(0.001)  # real time for the workers; virtual time for the pause between terms
            rig.clock.advance(0.05)
        assert len(terms) == 2
        assert terms[0] < terms[1]
        return await running

    assert arun(rig, main) == "done"


# Signal handlers run between any two steps of the main thread.


@pytest.mark.parametrize("what", ["release", "acquire", "close", "check", "renew", "statistics"])
def test_call_in_a_signal_handler_does_not_hang(rig: Rig, what: str) -> None:
    """Law 16: SIGTERM's handler may release, close and look, while the main thread is anywhere in tenure."""
    done: list[int] = []
    inside: list[int] = []

    def handle(_signal: int, _frame: object) -> None:
        if inside:
            return  # one handler at a time, as a program that blocks the signal in its handler has it
        inside.append(1)
        call()
        inside.pop()
        done.append(1)

    def call() -> None:
        if what == "release":
            holds[-1].release()
        elif what == "acquire":
            hold = client.lock(f"handler-{next(numbers)}").try_acquire()
            assert hold is not None
            hold.release()
        elif what == "close":
            other.close()
        elif what == "check":
            assert holds[-1].state in (HELD, RELEASED)
            holds[-1].remaining()
        elif what == "renew" and holds[-1].state is HELD:
            holds[-1].renew()
        elif what == "statistics":
            client.statistics()

    numbers = itertools.count()
    client, other = rig.client(), rig.client()
    other.lock("o").acquire()
    holds = [client.lock("a").acquire()]
    before = signal.signal(signal.SIGVTALRM, handle)  # not SIGALRM, which bounds the tests themselves
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005, 0.0005)
        while len(done) < 60:
            holds[-1].release()
            holds.append(client.lock("a").acquire())
            del holds[:-2]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
    assert holds[-1].state in (HELD, RELEASED)


def test_signal_that_does_not_wake_the_main_thread_ends_its_wait_all_the_same(rig: Rig) -> None:
    """Law 16: the kernel may give the signal to any thread, but Python's handler waits for the main one."""
    client = rig.client()
    hold = rig.client().lock("a").acquire()
    ended = threading.Event()

    def tell() -> None:
        rig.await_event("entered", 2)
        assert not ended.wait(0.1)  # the main thread sleeps by now
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: client.close())
    telling = Background(tell)
    try:
        with pytest.raises(tenure.ClientClosed):
            client.lock("a").acquire()
    finally:
        ended.set()
        telling.result()
        signal.signal(signal.SIGUSR1, before)
    hold.check()


def test_signal_handler_that_closes_the_client_ends_the_main_threads_wait(rig: Rig) -> None:
    """Law 16: a process told to stop while it waits stops waiting."""
    client = rig.client()
    hold = rig.client().lock("a").acquire()

    def handle(_signal: int, _frame: object) -> None:
        client.close()

    def tell() -> None:
        rig.await_event("entered", 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    telling = Background(tell)
    try:
        with pytest.raises(tenure.ClientClosed):
            client.lock("a").acquire()
    finally:
        telling.result()
        signal.signal(signal.SIGUSR1, before)
    hold.check()
    assert rig.tickets == 1


def test_lost_wait_in_a_thread_ends_by_the_clients_clock(rig: Rig) -> None:
    """The clock is injected: virtual time ends `hold.lost.wait(timeout)` as it ends every other wait."""
    hold = rig.client(ttl=TTL).lock("a").acquire()
    waiting = Background(lambda: hold.lost.wait(FOREVER))
    for _ in range(200):
        if waiting.joined(0.002):
            break
        rig.clock.advance(FOREVER)
    ended = waiting.ended
    rig.store.expire(hold.lease_id)
    rig.clock.advance(TTL)  # lost: ends a wait that virtual time did not
    assert ended
    assert waiting.result() is False


def test_lost_wait_in_a_task_again_and_again_leaves_nothing_behind(rig: Rig) -> None:
    """Law 12, in a process: a loop that asks `await hold.lost.wait(...)` for days grows nothing."""

    async def main() -> None:
        client = rig.aclient()
        hold = await client.lock("a").acquire()
        before = len(hold._at_end._callbacks)
        for _ in range(50):
            waiting = asyncio.create_task(hold.lost.wait(0.001))
            await asyncio.sleep(0)
            rig.clock.advance(0.001)
            assert await waiting is False
        assert len(hold._at_end._callbacks) == before
        await client.close()

    asyncio.run(main())


def test_release_interrupted_before_its_request_leaves_the_ticket_to_the_reaper(rig: Rig) -> None:
    """Law 7: Ctrl-C between the end of belief and the request drops no ticket, though no later release removes it."""
    client = rig.client()
    hold = client.lock("a").acquire()

    def interrupt(event: Event) -> None:
        if event.event == "released":
            raise Interrupted

    stop = client.subscribe(interrupt)
    with pytest.raises(Interrupted):
        hold.release()
    stop()
    assert hold.release() is False
    rig.await_event("reaped")
    assert rig.tickets == 0


def test_with_block_left_on_another_thread_releases(rig: Rig) -> None:
    """A block may be left by another thread than entered it, as an exit stack handed over does."""
    lock = rig.client().lock("a")
    hold = lock.__enter__()
    Background(lambda: lock.__exit__(None, None, None)).result()
    assert hold.state is HoldState.RELEASED
    assert rig.tickets == 0


def test_async_with_block_left_in_another_task_releases(rig: Rig) -> None:
    """A fixture's set-up and tear-down run in two tasks; the block is left all the same."""

    async def main() -> None:
        client = rig.aclient()
        lock = client.lock("a")
        hold: aio.Hold = await asyncio.create_task(lock.__aenter__())
        await asyncio.create_task(lock.__aexit__(None, None, None))
        assert hold.state is HoldState.RELEASED
        assert rig.tickets == 0
        await client.close()

    asyncio.run(main())
