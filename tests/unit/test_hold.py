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

import holdfast
from holdfast import ClientClosed, HoldState, LeaseLost, aio
from holdfast.drivers import run
from holdfast.house import House
from holdfast.lease import Entry, Lease
from holdfast.limits import OWN_WATCH_AFTER, VALUE_BYTES_MAX
from holdfast.turn import Turn
from tests.unit.world import PATIENCE_SECONDS, Background, World, reached

TTL = 12.0
HELD, SUSPECT, LOST, RELEASED = HoldState.HELD, HoldState.SUSPECT, HoldState.LOST, HoldState.RELEASED


def lose(world: World, client: holdfast.Client | aio.Client) -> None:
    """Cut the client off until its lease can't be proven any longer."""
    world.faults(client).cut_off = True
    world.clock.advance(TTL)


# States, by the clock alone.


def test_hold_goes_from_held_to_suspect_to_lost_by_the_clock(world: World) -> None:
    """Law 2: the states of a hold that nobody renews, each at its time."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    world.faults(client).cut_off = True
    seen = [hold.state]
    for _ in range(6):
        world.clock.advance(2.0)
        seen.append(hold.state)
    assert seen == [HELD, HELD, HELD, SUSPECT, SUSPECT, SUSPECT, LOST]


def test_check_and_remaining_after_expiry_need_no_thread_and_no_callback(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 2: time passes, nothing runs; the very first check raises."""
    hold = world.client(ttl=TTL).lock("a").acquire()
    assert hold.remaining() == pytest.approx(TTL - 0.13)
    hold.check()
    monkeypatch.setattr(world.clock, "_now", world.clock.now() + 2 * TTL)  # stopped: no timer has run
    with pytest.raises(LeaseLost, match="can't be proven"):
        hold.check()
    assert hold.remaining() == 0.0
    assert hold.state is LOST
    assert hold.lost.is_set()
    assert hold.lost.wait(0.0)


def test_renewed_hold_lives_as_long_as_it_is_renewed(world: World) -> None:
    """The steady state: a hold outlives its TTL many times over, silently."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    changes: list[HoldState] = []
    hold.on_change(changes.append)
    world.clock.advance(100 * TTL)
    assert hold.state is HELD
    hold.release()
    client.close()
    assert changes == [RELEASED]


def test_hold_that_recovers_is_held_again_and_one_that_was_lost_never_is(world: World) -> None:
    """SUSPECT goes back to HELD; LOST is for good, even when the store is back."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    faults = world.faults(client)
    faults.cut_off = True
    world.clock.advance(7.0)
    assert hold.state is SUSPECT
    faults.cut_off = False
    world.clock.advance(1.0)
    assert hold.state is HELD
    lose(world, client)
    faults.cut_off = False
    world.clock.advance(100.0)
    assert hold.state is LOST


def test_renew_proves_now_and_returns_what_remains(world: World) -> None:
    """A holder about to do something long proves itself first."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    world.clock.advance(3.0)
    assert hold.remaining() < TTL - 3.0
    assert hold.renew() == hold.remaining() == pytest.approx(TTL - 0.13)


def test_renew_of_a_lease_that_the_store_has_ended_raises_and_the_hold_is_lost(world: World) -> None:
    """The store's word ends belief before the clock does."""
    hold = world.client(ttl=TTL).lock("a").acquire()
    world.store.expire(hold.lease_id)
    assert hold.state is HELD
    with pytest.raises(LeaseLost):
        hold.renew()
    assert hold.state is LOST
    assert "expired or was revoked" in hold.reason


def test_hold_whose_ticket_an_administrator_removed_is_lost(world: World) -> None:
    """A hold older than a moment watches its own ticket."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    world.clock.advance(OWN_WATCH_AFTER + 0.01)
    line = world.store.lines["holdfast/a"]
    told = threading.Event()
    hold.on_change(lambda _: told.set())
    assert world.store.leave("holdfast/a", line[0].id, line[0].token)
    reached(told)
    assert hold.state is LOST
    assert "removed from the store" in hold.reason
    with pytest.raises(LeaseLost, match="removed"):
        hold.check()
    assert hold.release() is False


def test_whoever_has_to_stop_is_told_before_anybody_asks_who_did_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 15: the loss goes out at once; who did it is asked for after that, and is an event of its own."""
    asked, answer = threading.Event(), threading.Event()

    def forced_out(*_: object) -> str:
        asked.set()
        reached(answer)
        return "forced: stuck by alice"

    monkeypatch.setattr("holdfast.hold.forced_out", forced_out)
    client = world.client(ttl=TTL)
    events: list[tuple[str, str | None]] = []
    client.subscribe(lambda event: events.append((event.event, event.reason)))
    hold = client.lock("a").acquire()
    world.clock.advance(OWN_WATCH_AFTER + 0.01)
    told, heard = threading.Event(), threading.Event()
    hold.on_change(lambda _: told.set())
    client.subscribe(lambda event: heard.set() if event.event == "forced" else None)
    assert world.store.leave("holdfast/a", hold.id, hold.token)
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


def test_ticket_removed_before_it_was_watched_is_found_gone(world: World) -> None:
    """The watch is from the snapshot: what happened before it began is not missed."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    told = threading.Event()
    hold.on_change(lambda _: told.set())
    assert world.store.leave("holdfast/a", hold.id, hold.token)
    world.clock.advance(OWN_WATCH_AFTER + 0.01)
    reached(told)
    assert hold.state is LOST


def test_own_watch_woken_for_nothing_watches_again(world: World) -> None:
    """Law 11: a watch that ends is a reason to look, never a loss."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    world.clock.advance(OWN_WATCH_AFTER + 0.01)
    backend: Any = client._house._backend
    for _ in range(3):
        backend.heal()  # wakes every watch
    assert hold.renew() > 0.0
    assert hold.state is HELD
    hold.release()
    assert world.tickets == 0


# Hearing of it.


def test_lost_event_wakes_a_waiting_thread(world: World) -> None:
    """Law 15: whoever waits for the loss is woken by it."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    assert hold.lost.is_set() is False
    assert hold.lost.wait(0.0) is False
    waiting = Background(hold.lost.wait)
    lose(world, client)
    assert waiting.result() is True
    assert hold.lost.is_set()


def test_lost_event_of_a_released_hold_is_never_set(world: World) -> None:
    """Giving up is not losing."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    hold.release()
    lose(world, client)
    assert not hold.lost.is_set()
    assert hold.state is RELEASED


def test_on_change_hears_every_change_in_order_on_a_thread_of_its_own(world: World) -> None:
    """Callbacks are called in order, off our threads and off the caller's."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    heard: list[tuple[HoldState, str]] = []
    over = threading.Event()

    def hear(state: HoldState) -> None:
        heard.append((state, threading.current_thread().name))
        if state is LOST:
            over.set()

    hold.on_change(hear)
    faults = world.faults(client)
    faults.cut_off = True
    world.clock.advance(7.0)
    faults.cut_off = False
    world.clock.advance(1.0)
    lose(world, client)
    reached(over)
    assert [state for state, _ in heard] == [SUSPECT, HELD, SUSPECT, LOST]
    assert {name.rpartition("-")[0] for _, name in heard} == {"holdfast-callback"}


def test_several_callbacks_are_called_in_the_order_they_were_given(world: World) -> None:
    """Each of them, once."""
    client = world.client()
    hold = client.lock("a").acquire()
    heard: list[int] = []
    for number in range(5):
        hold.on_change(lambda _, number=number: heard.append(number))  # type: ignore[misc]  # binds now
    hold.release()
    client.close()
    assert heard == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("what", ["release", "acquire", "close", "renew", "statistics"])
def test_callback_that_calls_back_into_the_client_does_not_hang(world: World, what: str) -> None:
    """A callback may block and may call us: nobody waits for it with a lock in hand."""
    client = world.client(ttl=TTL)
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
def test_callback_of_a_loss_that_calls_back_into_the_client_does_not_hang(world: World, what: str) -> None:
    """The same when the callback is told of a loss, with the store away no longer."""
    client = world.client(ttl=TTL)
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
    world.store.expire(hold.lease_id)
    world.clock.advance(TTL / 3)
    reached(over)
    assert outcome in ([False], [None]) or outcome[0] > hold.token


def test_callback_that_raises_is_logged_and_the_next_is_called(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A user's failing callback is theirs to see, not ours to die of."""
    client = world.client()
    hold = client.lock("a").acquire()
    heard: list[HoldState] = []

    def fail(_: HoldState) -> None:
        raise ValueError("told by the test")

    hold.on_change(fail)
    hold.on_change(heard.append)
    with caplog.at_level(logging.ERROR, "holdfast"):
        assert hold.release() is True
        client.close()
    assert heard == [RELEASED]
    assert "told by the test" in caplog.text


def test_client_closed_by_somebody_else_releases_the_hold_and_tells_it(world: World) -> None:
    """Law 16: closing gives up every hold at once, at the store too."""
    client = world.client()
    hold = client.lock("a").acquire()
    heard: list[HoldState] = []
    hold.on_change(heard.append)
    client.close()
    assert (hold.state, hold.remaining(), world.tickets) == (RELEASED, 0.0, 0)
    assert heard == [RELEASED]
    with pytest.raises(LeaseLost, match="was released"):
        hold.check()
    assert hold.release() is False


def test_hold_made_after_its_lease_had_ended_is_told_so(world: World) -> None:
    """Law 15: a lease that ends between the turn and the hold is no loss that nobody hears of."""
    client = world.client(ttl=TTL)
    house = client._house

    def make(turn: Turn, entry: Entry, lease: Lease, of: House) -> holdfast.Hold:
        world.store.expire(lease.id)
        world.clock.advance(TTL / 3)
        return holdfast.Hold(turn, entry, lease, of)

    ask = client.lock("a")._ask
    hold = run(house.holding(ask, house.patience(None), make), world.clock)
    assert hold is not None
    assert hold.state is LOST
    assert hold._at_end.is_set()  # what lost.wait() and the body of an `async with` hang on
    assert len(world.heard("lost")) == 1


def test_who_waits_for_the_loss_of_a_hold_that_was_given_up_is_told_so(world: World) -> None:
    """A thread that only waits for a loss ends with the hold: False, and `lost` stays unset."""
    client = world.client(ttl=TTL)
    for give_up in (holdfast.Hold.release, lambda _: client.close()):
        hold = client.lock("a").acquire()
        waiting = Background(hold.lost.wait)
        give_up(hold)
        assert waiting.result() is False
        assert not hold.lost.is_set()


def test_callback_that_comes_after_the_end_is_told_of_it(world: World) -> None:
    """Law 15: the process stood still between `acquire` and `on_change`, and the end was told to nobody."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    before: list[HoldState] = []
    hold.on_change(before.append)
    lose(world, client)
    after: list[HoldState] = []
    hold.on_change(after.append)
    world.faults(client).cut_off = False
    client.close()
    assert (before[-1], after) == (LOST, [LOST])


def test_body_is_not_entered_without_the_hold(world: World) -> None:
    """Neither after it was lost, nor a second time."""
    client = world.client(ttl=TTL)
    lost, released = client.lock("a").acquire(), client.lock("b").acquire()
    with released:
        pass
    lose(world, client)
    for hold, why in ((released, "was released"), (lost, "can't be proven")):
        with pytest.raises(LeaseLost, match=why), hold:
            pytest.fail("the body was entered")


def test_async_body_is_not_entered_without_the_hold(world: World) -> None:
    """The same in asyncio."""

    async def main() -> None:
        client = world.aclient()
        hold = await client.lock("a").acquire()
        async with hold:
            pass
        with pytest.raises(LeaseLost, match="was released"):
            async with hold:
                pytest.fail("the body was entered")
        await client.close()

    asyncio.run(main())


def test_async_body_that_gives_its_hold_up_early_goes_on(world: World) -> None:
    """It is cancelled for a loss alone."""

    async def main() -> list[int]:
        client, steps = world.aclient(), list[int]()
        async with client.lock("a") as hold:
            assert await hold.release() is True
            for step in range(5):
                await asyncio.sleep(0)
                steps.append(step)
        await client.close()
        return steps

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_block_that_is_left_by_another_thread_gives_up_no_living_hold_of_others(world: World) -> None:
    """It was entered with a hold that was lost; another thread has entered the same lock object since."""
    first, second = world.client(ttl=TTL), world.client(ttl=TTL)
    lock = first.lock("a")
    lost = lock.__enter__()
    lose(world, first)
    world.faults(first).cut_off = False
    assert lost.lost.is_set()
    living = Background(lock.__enter__).result()
    leaving = Background(lambda: lock.__exit__(None, None, None))
    with pytest.raises(LeaseLost, match=f"token {lost.token}"):
        leaving.result()
    living.check()
    assert second.lock("a").try_acquire() is None
    first.close()


def test_fence_of_a_hold_stays_that_of_the_store_that_admitted_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client behind a service hears of another incarnation when it opens another lease there."""
    hold = world.client(ttl=TTL).lock("a").acquire()
    fence = hold.fence
    monkeypatch.setattr(House, "incarnation", property(lambda _: 7))
    assert hold.fence == fence


# Giving up.


def test_release_twice_is_true_then_false(world: World) -> None:
    """The answer says whether this call removed the ticket."""
    hold = world.client().lock("a").acquire()
    assert (hold.release(), hold.release(), hold.state) == (True, False, RELEASED)


def test_release_after_loss_is_false_and_asks_nobody(world: World) -> None:
    """There is nothing of ours left to remove: somebody else may hold it."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    lose(world, client)
    before = sum(world.store.requests.values())
    assert hold.release() is False
    assert sum(world.store.requests.values()) == before
    assert hold.state is LOST


def test_late_release_never_frees_the_next_holder(world: World) -> None:
    """Law 5: a release after the loss leaves whoever holds it now alone."""
    client = world.client(ttl=TTL)
    hold = client.lock("a").acquire()
    lose(world, client)
    world.clock.advance(TTL)
    other = world.client(ttl=TTL).lock("a").acquire()
    hold.release()
    other.check()
    assert [t.token for t in world.store.lines["holdfast/a"]] == [other.token]
    assert other.token > hold.token


def test_hold_is_not_held_from_the_first_moment_of_release(world: World) -> None:
    """Belief ends first, then the ticket goes."""
    hold = world.client().lock("a").acquire()
    seen: list[HoldState] = []
    leave = world.store.leave

    def noting(line: str, ticket_id: str, token: int | None) -> bool:
        seen.append(hold.state)
        return leave(line, ticket_id, token)

    world.store.leave = noting  # type: ignore[method-assign]  # to look from inside the request
    hold.release()
    assert seen == [RELEASED]


def test_interrupted_release_leaves_the_ticket_to_the_reaper(world: World) -> None:
    """Law 7: Ctrl-C in a release is no orphan."""
    hold = world.client().lock("a").acquire()
    leave, calls = world.store.leave, list[int]()

    def interrupted(line: str, ticket_id: str, token: int | None) -> bool:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return leave(line, ticket_id, token)

    world.store.leave = interrupted  # type: ignore[method-assign]  # Ctrl-C while the request is under way
    with pytest.raises(KeyboardInterrupt):
        hold.release()
    world.await_event("reaped")
    assert world.tickets == 0
    assert hold.state is RELEASED


def test_with_block_whose_hold_was_lost_raises_lease_lost_at_its_end(world: World) -> None:
    """A body that did not look hears of the loss at the edge."""
    client = world.client(ttl=TTL)
    with pytest.raises(LeaseLost, match="can't be proven"), client.lock("a"):
        lose(world, client)


def test_with_block_that_raises_keeps_its_own_error_even_when_lost(world: World) -> None:
    """The body's own error matters more than ours."""
    client = world.client(ttl=TTL)
    with pytest.raises(ZeroDivisionError), client.lock("a"):
        lose(world, client)
        raise ZeroDivisionError


def test_with_block_whose_hold_was_released_inside_ends_quietly(world: World) -> None:
    """Releasing early is allowed."""
    with world.client().lock("a") as hold:
        hold.release()
    assert hold.state is RELEASED


def test_with_block_releases_on_error(world: World) -> None:
    """The ticket goes however the body ends."""
    client = world.client()
    with pytest.raises(ZeroDivisionError), client.lock("a"):
        raise ZeroDivisionError
    assert world.tickets == 0


def test_with_block_that_could_not_confirm_its_release_ends_quietly_and_the_reaper_goes_on(world: World) -> None:
    """A store silent at the edge does not hide the body's success."""
    client = world.client(timeout=0.05)

    def body() -> str:
        with client.lock("a"):
            world.faults(client).cut_off = True
            inside.set()
        return "done"

    inside = threading.Event()
    block = Background(body)
    reached(inside)
    while not block.joined(0.001):
        world.clock.advance(0.01)
    assert block.result() == "done"
    world.faults(client).cut_off = False
    for _ in range(1000):
        if world.heard("reaped"):
            break
        world.clock.advance(0.05)
        threading.Event().wait(0.001)  # real time for the worker's thread, not a condition
    assert world.tickets == 0


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
def test_body_whose_client_another_thread_closes_raises_client_closed_at_its_end(world: World, what: str) -> None:
    """Law 15: the hold was taken from under the body, which may not have looked."""
    client = world.client()
    with pytest.raises(ClientClosed, match=r"closed under the `with` body that had 'a'"), TAKEN[what](client) as hold:
        Background(client.close).result()
        assert (hold.state, hold.lost.is_set(), hold.lost.wait()) == (RELEASED, False, False)
    assert world.tickets == 0


def test_body_of_an_acquired_hold_hears_of_the_close_at_its_end(world: World) -> None:
    """`with lock.acquire() as hold`."""
    client = world.client()
    with pytest.raises(ClientClosed), client.lock("a").acquire():
        Background(client.close).result()


def test_body_that_comes_after_the_close_is_not_entered(world: World) -> None:
    """Closed between the turn and the body: the same error as a moment before or after it."""
    client = world.client()
    hold = client.lock("a").acquire()
    Background(client.close).result()
    with pytest.raises(ClientClosed, match="nothing of it was run"), hold:
        pytest.fail("the body was entered")


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_body_that_raises_keeps_its_own_error_though_its_client_was_closed(
    world: World, error: type[BaseException]
) -> None:
    """The body's own outcome matters more."""
    client = world.client()
    with pytest.raises(error), client.lock("a"):
        Background(client.close).result()
        raise error


def test_body_that_closes_its_own_client_ends_quietly(world: World) -> None:
    """It gave the hold up itself, as by an early release; whoever closes again changes nothing of that."""
    client = world.client()
    with client.lock("a") as hold:
        client.close()
        Background(client.close).result()
    assert hold.state is RELEASED


def test_body_that_closes_its_client_after_another_thread_did_is_told(world: World) -> None:
    """Who was first counts."""
    client = world.client()
    with pytest.raises(ClientClosed), client.lock("a"):
        Background(client.close).result()
        client.close()


def test_body_that_released_before_the_close_ends_quietly(world: World) -> None:
    """What was given up can't be taken."""
    client = world.client()
    with client.lock("a") as hold:
        assert hold.release() is True
        Background(client.close).result()


def test_body_that_releases_after_the_close_is_told(world: World) -> None:
    """What was taken can't be given up."""
    client = world.client()
    with pytest.raises(ClientClosed), client.lock("a") as hold:
        Background(client.close).result()
        assert hold.release() is False


def test_hold_lost_before_the_close_is_lost_at_the_edge(world: World) -> None:
    """The first end counts."""
    client = world.client(ttl=TTL)
    with pytest.raises(LeaseLost, match="can't be proven"), client.lock("a"):
        lose(world, client)
        world.faults(client).cut_off = False
        Background(client.close).result()


@pytest.mark.parametrize("news", ["first", "late"])
def test_body_whose_release_is_under_way_when_the_client_is_closed_ends_quietly(world: World, news: str) -> None:
    """A release has begun, and its lease ends by the close before it has said so."""
    client = world.client()
    with client.lock("a") as hold:
        finish = hold._finish

        def closed_before(*how: Any) -> None:
            hold._finish = finish  # type: ignore[method-assign]  # once
            if news == "late":
                hold._unsubscribe()
            Background(client.close).result()
            finish(*how)

        hold._finish = closed_before  # type: ignore[assignment,method-assign]  # the moment that is meant
        assert hold.release() is False


@pytest.mark.parametrize("released", [True, False])
def test_close_whose_news_are_late_is_known_at_the_edge(world: World, released: bool) -> None:
    """The lease says that it has ended before its listeners are told: then a release of the body's own still counts."""
    client = world.client(journal=True)
    told: list[str | None] = []
    client.subscribe(lambda event: told.append(event.ending) if event.event == "released" else None)

    def body() -> None:
        with client.lock("a") as hold:
            hold._unsubscribe()
            Background(client.close).result()
            if released:
                assert hold.release() is False

    if released:
        body()
    else:
        with pytest.raises(ClientClosed):
            body()
    assert told == ["closed"]


def test_body_whose_client_is_closed_hears_of_it_once_the_store_has(world: World) -> None:
    """Whoever catches it finds the line free."""
    client = world.client()
    expire, asked, go_on = world.store.expire, threading.Event(), threading.Event()

    def slow(lease_id: str) -> None:
        asked.set()
        reached(go_on)
        expire(lease_id)

    world.store.expire = slow  # type: ignore[method-assign]  # to look while the close is under way
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
    assert world.tickets == 1
    go_on.set()
    with pytest.raises(ClientClosed):
        block.result()
    assert world.tickets == 0
    closing.result()


def test_body_waits_for_a_close_that_does_not_end_for_one_request_at_most(world: World) -> None:
    """A store that says nothing keeps nobody at the edge for ever."""
    client = world.client(timeout=3.0)
    asked, go_on = threading.Event(), threading.Event()

    def silent(lease_id: str) -> None:
        asked.set()
        reached(go_on)

    world.store.expire = silent  # type: ignore[method-assign]  # the store takes the request and says nothing
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
        world.clock.advance(1.0)
    with pytest.raises(ClientClosed):
        block.result()
    assert not closing.ended
    go_on.set()
    closing.result()


def test_body_that_is_left_within_the_close_does_not_wait_for_it(world: World) -> None:
    """A subscriber that leaves the block, on the thread that closes: it would wait for itself."""
    client = world.client()
    block = client.lock("a")
    block.__enter__()
    client.subscribe(lambda event: block.__exit__(None, None, None) if event.event == "lease_closed" else None)
    Background(client.close).result()
    assert len(block._entered) == 0


def test_nested_bodies_whose_client_is_closed_are_told_once(world: World) -> None:
    """By the inner edge; for the outer body that is an error like any other."""
    client = world.client()
    with pytest.raises(ClientClosed, match="had 'b'"), client.lock("a"), client.lock("b"):
        Background(client.close).result()


def test_signal_handler_that_closes_the_client_under_the_main_threads_body_counts_as_the_body(world: World) -> None:
    """It runs on the body's thread, where nothing tells it from the body."""
    client = world.client()
    before = signal.signal(signal.SIGUSR1, lambda *_: client.close())
    try:
        with client.lock("a") as hold:
            signal.raise_signal(signal.SIGUSR1)
            with pytest.raises(LeaseLost, match="was released"):
                hold.check()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_election_run_raises_client_closed_when_the_client_is_closed_in_office(world: World) -> None:
    """Whether `lead` looks at its hold, or goes on to its end."""
    for looks in (True, False):
        client = world.client()

        def lead(hold: holdfast.Hold, client: holdfast.Client = client, looks: bool = looks) -> str:
            Background(client.close).result()
            if looks:
                hold.check()
            return "done"

        with pytest.raises(ClientClosed):
            client.election("e").run(lead)


class _Entry:
    """One `with` in a race against a close: what its body saw last, and how it ended."""

    def __init__(self, world: World, lots: random.Random) -> None:
        self.client = world.client()
        self.taken = self.released = self.entered = False
        self._world = world
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


def test_bodies_raced_by_a_close_end_in_client_closed_exactly_when_they_were_taken(world: World) -> None:
    """Whatever the moment: beginning, middle, release, end."""
    lots, seen = random.Random(4), Counter[str]()
    for _ in range(400):
        entry = _Entry(world, lots)
        body, closing = Background(entry.run), Background(entry.close)
        how = body.result()
        closing.result()
        assert how != "closed, and a ticket left"
        if how == "quiet":
            assert entry.entered
            assert not entry.taken
        assert not (entry.released and how != "quiet")
        seen[f"{how}, entered" if entry.entered else how] += 1
    assert seen["quiet, entered"] > 10, seen
    assert seen["closed, and the line free, entered"] > 10, seen


def test_hold_from_acquire_is_a_context_manager_itself(world: World) -> None:
    """`with lock.acquire(timeout=5) as hold`."""
    with world.client().lock("a").acquire(timeout=5) as hold:
        assert hold.state is HELD
    assert hold.state is RELEASED


def test_one_lock_object_entered_by_two_threads_gives_each_its_own_hold(world: World) -> None:
    """Law 13: one object may be shared; its holds may not be mixed up."""
    lock = world.client().lock("a")
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


def test_over_long_value_is_refused_before_anything_is_sent(world: World) -> None:
    """64 KiB is the bound, in bytes of UTF-8, and exact."""
    client = world.client()
    for value in ("x" * (VALUE_BYTES_MAX + 1), "\u00e9" * (VALUE_BYTES_MAX // 2 + 1), "\ud800"):
        with pytest.raises(holdfast.InvalidOption):
            client.election("e", value=value)
    assert sum(world.store.requests.values()) == 0
    hold = client.election("e", value="x" * VALUE_BYTES_MAX).campaign().acquire()
    before = sum(world.store.requests.values())
    with pytest.raises(holdfast.InvalidOption):
        hold.amend("x" * (VALUE_BYTES_MAX + 1))
    assert sum(world.store.requests.values()) == before


@pytest.mark.parametrize("value", [b"x", 7, None, ["x"]])
def test_value_that_is_no_text_is_refused(world: World, value: str) -> None:
    """Election values are str."""
    with pytest.raises(holdfast.InvalidOption, match="str"):
        world.client().election("e", value=value)


def test_amended_value_is_what_others_and_the_hold_show(world: World) -> None:
    """A leader that moves tells its new address."""
    client = world.client()
    with client.election("e", value="old").campaign() as hold:
        hold.amend("new")
        leader = client.election("e").leader()
        assert leader is not None
        assert (leader.value, hold.value, leader.token, leader.id) == ("new", "new", hold.token, hold.id)


def test_amend_after_the_ticket_was_removed_raises_lease_lost(world: World) -> None:
    """The store's no is a loss."""
    hold = world.client().election("e", value="old").campaign().acquire()
    world.store.leave("holdfast/e", hold.id, hold.token)
    with pytest.raises(LeaseLost, match="removed"):
        hold.amend("new")
    assert hold.state is LOST


def test_hold_shows_its_facts(world: World) -> None:
    """Everything a log line, a guard or a metric asks for."""
    client = world.client(owner="me", ttl=TTL)
    hold = client.lock("a b").acquire()
    ticket = world.store.lines["holdfast/a b"][0]
    assert (hold.token, hold.id, hold.resource, hold.owner) == (ticket.token, ticket.id, "a b", "me")
    assert (hold.ttl, hold.lease_id, hold.value, hold.reason) == (TTL, ticket.lease_id, "", "")


def test_repr_of_a_hold_says_what_it_is_in_every_state(world: World) -> None:
    """CLI, sidecar and logs read it: the text is specified."""
    client = world.client(owner="me", ttl=TTL)
    hold = client.lock("a").acquire()
    assert repr(hold) == f"<holdfast.Hold 'a' token={hold.token} held remaining=11.9 owner='me'>"
    hold.release()
    assert repr(hold) == f"<holdfast.Hold 'a' token={hold.token} released remaining=0.0 owner='me'>"


def test_repr_of_client_and_recipes_says_what_they_are(world: World) -> None:
    """The same for whatever a user may print."""
    client = world.client(owner="me")
    store = f"memory://{world.name}/holdfast"
    assert repr(client) == f"<holdfast.Client {store} open owner='me'>"
    assert repr(client.lock("a", ttl=3)) == "<holdfast.Lock 'a' exclusive ttl=3>"
    assert repr(client.rwlock("a", ttl=3).read()) == "<holdfast.Lock 'a' read ttl=3>"
    assert repr(client.semaphore("a", limit=3)) == "<holdfast.Semaphore 'a' limit=3>"
    assert repr(client.rwlock("a")) == "<holdfast.RWLock 'a'>"
    assert repr(client.election("a", value="v")) == "<holdfast.Election 'a' value='v'>"
    client.close()
    assert repr(client) == f"<holdfast.Client {store} closed owner='me'>"


def test_statistics_have_their_fields(world: World) -> None:
    """Metrics read these names: leases, counts of events, and the backend's own."""
    client = world.client(ttl=TTL)
    client.lock("a").acquire()
    found: Any = client.statistics()
    assert set(found) == {"store", "leases", "events", "backend"}
    assert found["store"] == f"memory://{world.name}/holdfast"
    lease = found["leases"][0]
    assert set(lease) == {"id", "ttl", "state", "remaining"}
    assert (lease["ttl"], lease["state"], lease["id"]) == (TTL, "held", world.store.leases[0])


def test_many_holds_share_one_lease(world: World) -> None:
    """Law 10: leases don't grow with the number of holds."""
    client = world.client()
    holds = [client.lock(str(i)).acquire() for i in range(50)]
    assert len({h.lease_id for h in holds}) == len(world.store.leases) == 1
    client.close()
    assert world.tickets == len(world.store.leases) == 0


# asyncio: the body is cancelled on loss.


def arun(world: World, main: Callable[[aio.Client], Any]) -> Any:
    async def whole() -> Any:
        client = world.aclient(ttl=TTL)
        try:
            return await asyncio.wait_for(main(client), PATIENCE_SECONDS)
        finally:
            world.faults(client).cut_off = False
            await client.close()

    return asyncio.run(whole())


FOREVER = 3600.0


def test_async_body_is_cancelled_on_loss_and_lease_lost_is_raised_at_the_edge(world: World) -> None:
    """Law 15: in asyncio a loss stops the body."""

    async def main(client: aio.Client) -> None:
        ended: list[str] = []
        with pytest.raises(LeaseLost, match="can't be proven"):
            async with client.lock("a"):
                lose(world, client)
                try:
                    await asyncio.sleep(FOREVER)
                except asyncio.CancelledError as error:
                    ended.append(str(error))
                    raise
        assert ended == ["the hold was lost"]
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    arun(world, main)


def test_async_body_cancelled_from_outside_stays_cancelled(world: World) -> None:
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

    arun(world, main)
    assert world.tickets == 0


@pytest.mark.parametrize("first", ["loss", "outside"])
def test_async_body_lost_and_cancelled_at_once_stays_cancelled(world: World, first: str) -> None:
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
            lose(world, client)
            task.cancel()
        else:
            task.cancel()
            lose(world, client)
        with pytest.raises(asyncio.CancelledError):
            await task

    arun(world, main)


def test_async_body_that_swallows_the_cancellation_still_ends_in_lease_lost(world: World) -> None:
    """A body that goes on hears of the loss at the edge."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(LeaseLost):
            async with client.lock("a"):
                lose(world, client)
                try:
                    await asyncio.sleep(FOREVER)
                except asyncio.CancelledError:
                    pass
        await asyncio.sleep(0)  # nothing is left to be thrown

    arun(world, main)


def test_async_body_that_never_awaits_is_not_cancelled_afterwards(world: World) -> None:
    """A loss in the last moment cancels nothing behind the edge."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(LeaseLost):
            async with client.lock("a"):
                lose(world, client)
        for _ in range(5):
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    arun(world, main)


def test_async_body_that_raises_on_loss_keeps_its_own_error(world: World) -> None:
    """What the body raises comes out."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(ZeroDivisionError):
            async with client.lock("a"):
                lose(world, client)
                try:
                    await asyncio.sleep(FOREVER)
                except asyncio.CancelledError:
                    raise ZeroDivisionError from None

    arun(world, main)


# asyncio: the body is cancelled when another task closes the client.


@pytest.mark.parametrize("what", TAKEN)
def test_async_body_is_cancelled_when_another_task_closes_its_client(world: World, what: str) -> None:
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
        assert world.tickets == 0
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await closing

    arun(world, main)


def test_async_body_whose_client_another_thread_closes_is_cancelled(world: World) -> None:
    """From outside of the loop."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(ClientClosed):
            async with client.lock("a"):
                closing = Background(client._house.close)
                await asyncio.sleep(FOREVER)
        closing.result()

    arun(world, main)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_async_body_that_raises_keeps_its_own_error_though_its_client_was_closed(
    world: World, error: type[BaseException]
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
        arun(world, main)


def test_async_body_that_swallows_its_cancellation_hears_of_the_close_at_the_edge(world: World) -> None:
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

    arun(world, main)


def test_async_body_that_closes_its_own_client_goes_on_and_ends_quietly(world: World) -> None:
    """It gave the hold up itself."""

    async def main() -> list[int]:
        steps: list[int] = []
        async with world.aclient() as client, client.lock("a") as hold:
            await client.close()
            await asyncio.create_task(client.close())
            for step in range(5):
                await asyncio.sleep(0)
                steps.append(step)
            assert hold.state is RELEASED
        return steps

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_async_body_that_released_before_the_close_goes_on(world: World) -> None:
    """What was given up can't be taken."""

    async def main(client: aio.Client) -> str:
        async with client.lock("a") as hold:
            assert await hold.release() is True
            await asyncio.create_task(client.close())
            await asyncio.sleep(0)
            return "went on"

    assert arun(world, main) == "went on"


def test_async_hold_lost_before_the_close_is_lost_at_the_edge(world: World) -> None:
    """The first end counts."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(LeaseLost, match="can't be proven"):
            async with client.lock("a"):
                lose(world, client)
                world.faults(client).cut_off = False
                closing = asyncio.create_task(client.close())
                await asyncio.sleep(FOREVER)
        await closing

    arun(world, main)


@pytest.mark.parametrize("first", ["close", "outside"])
def test_async_body_closed_and_cancelled_at_once_stays_cancelled(world: World, first: str) -> None:
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
        Background(client._house.close).result()
        if first == "close":
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    arun(world, main)


def test_async_body_cancelled_while_its_edge_waits_for_the_close_stays_cancelled(world: World) -> None:
    """The wait at the edge ends like any other."""

    async def main(client: aio.Client) -> None:
        expire, asked, go_on = world.store.expire, threading.Event(), threading.Event()

        def slow(lease_id: str) -> None:
            asked.set()
            reached(go_on)
            expire(lease_id)

        world.store.expire = slow  # type: ignore[method-assign]  # to look while the close is under way
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

    arun(world, main)


def test_async_nested_bodies_whose_client_is_closed_are_told_and_left_uncancelled(world: World) -> None:
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
        arun(world, main)


def test_task_group_in_a_body_one_of_whose_tasks_closes_the_client_is_cancelled_as_a_whole(world: World) -> None:
    """A task of the body's own is another task; the edge raises ClientClosed and no group."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(ClientClosed):
            async with client.lock("a"), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(FOREVER))
                group.create_task(client.close())

    arun(world, main)


def test_async_election_run_raises_client_closed_when_the_client_is_closed_in_office(world: World) -> None:
    """`lead` is cancelled, and `run` says why."""

    async def main(client: aio.Client) -> None:
        async def lead(_: aio.Hold) -> None:
            tasks.append(asyncio.create_task(client.close()))
            await asyncio.sleep(FOREVER)

        tasks: list[asyncio.Task[None]] = []
        with pytest.raises(ClientClosed):
            await client.election("e").run(lead)
        await tasks[0]

    arun(world, main)


def test_async_bodies_raced_by_a_close_end_in_client_closed_or_quietly_and_are_never_cancelled_later(
    world: World,
) -> None:
    """Whatever the moment: the edge's own answer is all that comes of it."""

    async def once(lots: random.Random) -> str:
        client, pauses = world.aclient(), [lots.randrange(6) for _ in range(3)]
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
            assert (gone, world.tickets) == (False, 0)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await closing
        await asyncio.sleep(0)
        return how

    async def main() -> Counter[str]:
        lots = random.Random(5)
        return Counter([await once(lots) for _ in range(200)])

    seen = asyncio.run(main())
    assert seen["quiet"] > 10, seen
    assert seen["closed"] > 10, seen


def test_async_timeout_around_a_hold_stays_a_timeout(world: World) -> None:
    """asyncio.timeout is a cancellation from outside."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(0.01), client.lock("a"):
                await asyncio.sleep(FOREVER)
        assert not isinstance(raised.value, holdfast.HoldfastError)

    arun(world, main)
    assert world.tickets == 0


def test_async_timeout_around_a_lost_hold_does_not_hide_the_loss(world: World) -> None:
    """A loss inside a time-out that has not come is the loss."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(LeaseLost):
            async with asyncio.timeout(FOREVER), client.lock("a"):
                lose(world, client)
                await asyncio.sleep(FOREVER)

    arun(world, main)


def test_async_timeout_and_loss_at_once_are_a_timeout(world: World) -> None:
    """Both at once: the one from outside is told, and the task is left uncancelled."""

    async def main(client: aio.Client) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit, client.lock("a"):
                lose(world, client)
                limit.reschedule(0.0)
                await asyncio.sleep(FOREVER)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    arun(world, main)


def test_async_timeout_inside_a_body_still_works(world: World) -> None:
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

    assert arun(world, main) == "went on"


def test_task_group_in_a_lost_body_is_cancelled_as_a_whole(world: World) -> None:
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
                lose(world, client)
        assert sorted(cancelled) == [0, 1, 2]

    arun(world, main)


def test_lost_hold_in_a_task_group_fails_the_group_with_lease_lost(world: World) -> None:
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
                lose(world, client)
        assert [type(e) for e in raised.value.exceptions] == [LeaseLost]
        assert sibling.cancelled()

    arun(world, main)


def test_loss_exactly_during_release_is_no_error_and_cancels_nobody(world: World) -> None:
    """The body was done while the hold was provable: that it ended meanwhile is the store's business."""

    async def main(client: aio.Client) -> None:
        leave = world.store.leave

        def losing(line: str, ticket_id: str, token: int | None) -> bool:
            world.store.expire(world.store.leases[0])
            return leave(line, ticket_id, token)

        world.store.leave = losing  # type: ignore[method-assign]  # the lease ends while the release is under way
        async with client.lock("a") as hold:
            pass
        assert hold.state is RELEASED
        for _ in range(5):
            await asyncio.sleep(0)

    arun(world, main)
    assert world.tickets == 0


def test_async_cancelled_during_release_leaves_no_ticket(world: World) -> None:
    """Law 7: cancelled at the edge, the ticket goes all the same."""

    async def main(client: aio.Client) -> None:
        leave = world.store.leave
        entered, go_on = threading.Event(), threading.Event()

        def slow(line: str, ticket_id: str, token: int | None) -> bool:
            entered.set()
            go_on.wait(PATIENCE_SECONDS)
            return leave(line, ticket_id, token)

        hold = await client.lock("a").acquire()
        world.store.leave = slow  # type: ignore[method-assign]  # to cancel while the request is under way
        task = asyncio.create_task(hold.release())
        await asyncio.to_thread(reached, entered)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    arun(world, main)
    assert world.tickets == 0


def test_async_lost_event_is_awaited_on_the_clients_clock(world: World) -> None:
    """`await hold.lost.wait(timeout)`: True when lost, False when the time came first."""

    async def main(client: aio.Client) -> None:
        hold = await client.lock("a").acquire()
        waiting = asyncio.create_task(hold.lost.wait(5.0))
        await asyncio.sleep(0)
        world.clock.advance(5.0)
        assert await waiting is False
        waiting = asyncio.create_task(hold.lost.wait())
        await asyncio.sleep(0)
        lose(world, client)
        assert await waiting is True
        assert hold.lost.is_set()

    arun(world, main)


def test_async_hold_amends_and_renews(world: World) -> None:
    """The same verbs, awaited."""

    async def main(client: aio.Client) -> None:
        async with client.election("e", value="old").campaign() as hold:
            await hold.amend("new")
            leader = await client.election("e").leader()
            assert leader is not None
            assert leader.value == "new"
            assert await hold.renew() > 0.0

    arun(world, main)


def test_async_election_run_leads_again_after_a_loss(world: World) -> None:
    """`run` campaigns again after every loss and returns what `lead` returns in office."""

    async def main(client: aio.Client) -> str:
        terms: list[int] = []

        async def lead(hold: aio.Hold) -> str:
            terms.append(hold.token)
            if len(terms) == 1:
                world.store.expire(hold.lease_id)
                world.clock.advance(TTL / 3)
                await asyncio.sleep(FOREVER)
            return "done"

        running = asyncio.create_task(client.election("e").run(lead))
        while not running.done():
            await asyncio.sleep(0.001)  # real time for the workers; virtual time for the pause between terms
            world.clock.advance(0.05)
        assert len(terms) == 2
        assert terms[0] < terms[1]
        return await running

    assert arun(world, main) == "done"


# Signal handlers run between any two steps of the main thread.


@pytest.mark.parametrize("what", ["release", "acquire", "close", "check", "renew", "statistics"])
def test_call_in_a_signal_handler_does_not_hang(world: World, what: str) -> None:
    """Law 16: SIGTERM's handler may release, close and look, while the main thread is anywhere in holdfast."""
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
    client, other = world.client(), world.client()
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


def test_signal_that_does_not_wake_the_main_thread_ends_its_wait_all_the_same(world: World) -> None:
    """Law 16: the kernel may give the signal to any thread, but Python's handler waits for the main one."""
    client = world.client()
    hold = world.client().lock("a").acquire()
    ended = threading.Event()

    def tell() -> None:
        world.await_event("entered", 2)
        assert not ended.wait(0.1)  # the main thread sleeps by now
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: client.close())
    telling = Background(tell)
    try:
        with pytest.raises(holdfast.ClientClosed):
            client.lock("a").acquire()
    finally:
        ended.set()
        telling.result()
        signal.signal(signal.SIGUSR1, before)
    hold.check()


def test_signal_handler_that_closes_the_client_ends_the_main_threads_wait(world: World) -> None:
    """Law 16: a process told to stop while it waits stops waiting."""
    client = world.client()
    hold = world.client().lock("a").acquire()

    def handle(_signal: int, _frame: object) -> None:
        client.close()

    def tell() -> None:
        world.await_event("entered", 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    telling = Background(tell)
    try:
        with pytest.raises(holdfast.ClientClosed):
            client.lock("a").acquire()
    finally:
        telling.result()
        signal.signal(signal.SIGUSR1, before)
    hold.check()
    assert world.tickets == 1
