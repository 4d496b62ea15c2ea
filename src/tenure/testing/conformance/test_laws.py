"""Tests of the laws of tenure/_core/lease.py, on every backend and both faces."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tenure
from tenure import AcquireTimeout, ClientClosed, ForkedClient, HoldState, LeaseLost, LineMismatch
from tenure.testing.conformance.store_world import StoreWorld, eventually, inner, needs

TTL = 2.0
LOSS_SECONDS = TTL + 3.0  # a TTL, the store's own slack, and a machine that does other things too


def lost(hold: Any) -> bool:
    return bool(hold.state is HoldState.LOST)


@needs("cut")
def test_law1_cut_off_holder_stops_believing_before_its_successor_starts(world: StoreWorld) -> None:
    """Holders' belief ends first: a holder that is cut off reads LOST before anybody else can hold."""
    cut_off, other = world.client(ttl=TTL), world.client(ttl=TTL)
    hold = cut_off.lock("a").acquire()
    world.cut(cut_off)
    with ThreadPoolExecutor() as pool:
        successor = pool.submit(lambda: (other.lock("a").acquire(20.0), time.monotonic()))
        believed_until = looked_at = time.monotonic()
        while hold.state is not HoldState.LOST:
            believed_until = looked_at  # before the look: this thread may stand still after it
            time.sleep(0.001)
            looked_at = time.monotonic()
        next_hold, admitted_at = successor.result()
    assert admitted_at > believed_until, "the successor held while the holder still believed"
    assert next_hold.token > hold.token
    assert hold.remaining() == 0.0
    with pytest.raises(LeaseLost):
        hold.check()
    assert next_hold.release()


def test_law2_deadline_counts_from_before_the_request_and_never_exceeds_the_granted_ttl(world: StoreWorld) -> None:
    """remaining() is at most the granted TTL less the time since the proof was asked for."""
    client = world.client(ttl=TTL)
    before = time.monotonic()
    hold = client.lock("a").acquire()
    assert 0.0 < hold.remaining() < hold.ttl
    for _ in range(5):
        hold.renew()
        assert hold.remaining() < hold.ttl
    assert time.monotonic() - before < 60
    hold.release()


def test_law2_renewals_keep_a_hold_for_many_ttls(world: StoreWorld) -> None:
    """A healthy hold never becomes suspect, let alone lost, however long it lasts."""
    client = world.client(ttl=6.0)  # a machine may stand still for long
    states: list[HoldState] = []
    stalls = 0
    with client.lock("a") as hold:
        hold.on_change(states.append)
        began = looked_at = time.monotonic()
        enough = 2 * hold.remaining()  # by then it stands on a renewal that was asked for after its first proof's end
        while looked_at - began + hold.remaining() < enough:
            hold.check()
            time.sleep(0.01)
            before, looked_at = looked_at, time.monotonic()
            stalls += looked_at - before > hold.ttl / 12
        assert len(world.tickets("a")) == 1
    doubts = states.count(HoldState.SUSPECT)
    assert doubts <= stalls, "nothing held its renewals up"
    assert states.count(HoldState.HELD) <= doubts
    assert set(states) <= {HoldState.SUSPECT, HoldState.HELD, HoldState.RELEASED}


def test_law3_lease_lost_while_waiting_ends_the_wait_at_once(world: StoreWorld) -> None:
    """A waiter whose lease ends at the store raises LeaseLost within a TTL; it is never told that it holds."""
    holder, waiter = world.client(ttl=60), world.client(ttl=TTL)
    hold = holder.lock("a").acquire()
    other = waiter.lock("other").acquire()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(waiter.lock("a").acquire)
        assert eventually(lambda: len(world.tickets("a")) == 2)
        started = time.monotonic()
        world.expire(other)
        with pytest.raises(LeaseLost):
            waiting.result(timeout=LOSS_SECONDS)
        assert time.monotonic() - started < LOSS_SECONDS
    assert hold.release()


def test_law3_waiter_whose_ticket_was_removed_is_not_told_that_it_holds(world: StoreWorld) -> None:
    """A ticket must be seen in the line before "acquired" is said: a removed one raises."""
    holder, waiter = world.client(ttl=10), world.client(ttl=10)
    hold = holder.lock("a").acquire()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(waiter.lock("a").acquire, 20.0)
        assert eventually(lambda: len(world.tickets("a")) == 2)
        world.delete("a", world.tickets("a")[1])
        hold.release()
        with pytest.raises(LeaseLost):
            waiting.result(timeout=20.0)


def test_law4_tokens_grow_strictly_in_order_of_admission(world: StoreWorld) -> None:
    """Over many clients, time-outs and clean releases the tokens of one line only grow."""
    clients = [world.client(ttl=10) for _ in range(3)]
    tokens: list[int] = []

    def work(client: Any) -> None:
        for _ in range(8):
            with client.lock("a") as hold:
                tokens.append(hold.token)

    with ThreadPoolExecutor() as pool:
        list(pool.map(work, clients))
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 24


def test_law5_late_release_never_frees_the_successor(world: StoreWorld) -> None:
    """A release that comes after the loss removes nothing: the successor still holds."""
    late, other = world.client(ttl=TTL), world.client(ttl=10)
    first = late.lock("a").acquire()
    world.expire(first)
    second = other.lock("a").acquire(timeout=10)
    assert eventually(lambda: lost(first), LOSS_SECONDS)
    assert first.release() is False
    second.renew()
    assert len(world.tickets("a")) == 1
    assert other.lock("a").try_acquire() is None
    assert second.release() is True


@needs("lose_answer")
def test_law6_lost_answer_of_enter_is_found_again(world: StoreWorld) -> None:
    """The retry finds the first try's ticket: one ticket, its own token, no deadlock with itself."""
    client = world.client(ttl=10)
    client.lock("a").acquire().release()  # its line is there: the answer that is lost is that of a ticket
    world.lose_answer(client, "enter")
    hold = client.lock("a").acquire(timeout=10)
    assert len(world.tickets("a")) == 1
    hold.check()
    assert hold.release() is True
    assert world.tickets("a") == []


@needs("lose_request")
def test_law6_lost_request_of_enter_is_sent_again(world: StoreWorld) -> None:
    """A request that never arrived is sent again within the same acquire."""
    client = world.client(ttl=10)
    client.lock("a").acquire().release()  # its line is there: the request that is lost is that of a ticket
    world.lose_request(client, "enter")
    with client.lock("a") as hold:
        hold.check()
        assert len(world.tickets("a")) == 1


@needs("lose_answer")
def test_law6_lost_answer_of_release_is_not_an_error(world: StoreWorld) -> None:
    """The retry of a release finds its own work done, and says so."""
    client = world.client(ttl=10)
    hold = client.lock("a").acquire()
    world.lose_answer(client, "leave")
    assert hold.release() is True
    assert world.tickets("a") == []


def test_law7_timed_out_acquire_leaves_no_ticket(world: StoreWorld) -> None:
    """The line after AcquireTimeout is as if the call had never been made."""
    holder, waiter = world.client(ttl=10), world.client(ttl=10)
    hold = holder.lock("a").acquire()
    waiter.lock("b").acquire().release()  # connected: its time is for standing in line
    standing = world.tickets("a")
    with pytest.raises(AcquireTimeout):
        waiter.lock("a").acquire(timeout=1.0)
    assert world.tickets("a") == standing
    assert hold.release() is True
    assert waiter.lock("a").try_acquire().release() is True


@needs("lose_request")
def test_law7_withdrawal_that_fails_is_left_to_the_reaper(world: StoreWorld) -> None:
    """The answer to the withdrawal is lost for longer than the call may take: the reaper removes the ticket."""
    holder, waiter = world.client(ttl=20), world.client(ttl=20)
    hold = holder.lock("a").acquire()
    waiter.lock("b").acquire().release()  # connected: its time is for standing in line
    standing = world.tickets("a")
    world.lose_request(waiter, "leave", times=12)
    with pytest.raises(AcquireTimeout):
        waiter.lock("a").acquire(timeout=1.0)
    assert eventually(lambda: world.tickets("a") == standing)
    assert hold.release() is True
    world.forget(waiter)


def test_law8_one_deadline_over_all_steps(world: StoreWorld) -> None:
    """Predecessors that leave one by one do not re-arm the time-out."""
    holder, waiter = world.client(ttl=20), world.client(ttl=20)
    hold = holder.lock("a").acquire()
    with ThreadPoolExecutor(max_workers=8) as pool:
        queue = [pool.submit(holder.lock("a").acquire, 2.5 + 0.3 * i) for i in range(4)]
        assert eventually(lambda: holder.statistics()["events"]["entered"] == 5)
        started = time.monotonic()
        with pytest.raises(AcquireTimeout):
            waiter.lock("a").acquire(timeout=4.0)
        assert 4.0 <= time.monotonic() - started < 6.5, "armed anew when the last one left, it would be over 7"
        for waiting in queue:
            with pytest.raises(AcquireTimeout):
                waiting.result()
    hold.release()


def test_law9_first_come_first_served(world: StoreWorld) -> None:
    """Waiters are admitted in the order in which they entered the line."""
    client = world.client(ttl=20)
    hold = client.lock("a").acquire()
    order: list[int] = []

    def wait(number: int) -> None:
        with client.lock("a"):
            order.append(number)

    threads = []
    for number in range(8):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        assert eventually(lambda n=number: len(world.tickets("a")) == n + 2)  # type: ignore[misc]  # default binds now
    hold.release()
    for thread in threads:
        thread.join(20)
    assert order == list(range(8))


@needs("leases")
def test_law10_many_holds_share_one_lease(world: StoreWorld) -> None:
    """A hundred holds of one client cost one lease, and no thread or socket each."""
    client = world.client(ttl=20)
    client.lock("first").acquire()
    leases, threads = world.leases(), threading.active_count()
    holds = [client.lock(f"n{i}").acquire() for i in range(100)]
    assert world.leases() == leases
    assert threading.active_count() <= threads + 8
    assert len({hold.lease_id for hold in holds}) == 1


@needs("reset")
def test_law11_broken_watch_is_a_reason_to_look_never_a_success(world: StoreWorld) -> None:
    """Cutting a waiter's connections does not admit it; it is admitted when its turn comes after all."""
    holder, waiter = world.client(ttl=20), world.client(ttl=20)
    hold = holder.lock("a").acquire()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(waiter.lock("a").acquire, 30.0)
        assert eventually(lambda: len(world.tickets("a")) == 2)
        for _ in range(3):
            world.reset(waiter)
            time.sleep(0.1)
        assert not waiting.done()
        hold.release()
        assert waiting.result().release() is True


@needs("leases")
def test_law12_nothing_is_left_after_many_names(world: StoreWorld) -> None:
    """Taking and releasing many names leaves no key, node or lease; the world's end checks the store."""
    client = world.client(ttl=20)
    leases = world.leases()
    for i in range(200):
        with client.lock(f"name-{i}"):
            pass
    for _ in range(200):
        assert client.lock("held").try_acquire().release() is True
    assert world.leases() <= leases + 1


@needs("leases")
def test_law12_failed_tries_leave_nothing(world: StoreWorld) -> None:
    """Hundreds of failed try_acquire keep the number of leases flat and the line as it was."""
    client = world.client(ttl=20)
    hold = client.lock("a").acquire()
    leases = world.leases()
    for _ in range(200):
        assert client.lock("a").try_acquire() is None
    assert world.leases() == leases
    assert len(world.tickets("a")) == 1
    assert hold.release() is True


def test_law13_objects_of_one_client_exclude_each_other(world: StoreWorld) -> None:
    """Two threads on one lock object, and two objects on one client, exclude each other like two processes."""
    client = world.client(ttl=20)
    shared = client.lock("a")
    inside, maximum = Counter[str](), 0
    guard = threading.Lock()

    def work(lock: Any) -> None:
        nonlocal maximum
        for _ in range(10):
            hold = lock.acquire()
            with guard:
                inside["now"] += 1
                maximum = max(maximum, inside["now"])
            threading.Event().wait(0.002)  # somebody else who is let in meets us here
            with guard:
                inside["now"] -= 1
            hold.release()

    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(work, [shared, shared, client.lock("a"), client.lock("a")]))
    assert maximum == 1


def test_law14_forked_child_holds_nothing(world: StoreWorld) -> None:
    """Every call in a child raises ForkedClient at once and the hold reads lost; the parent's is untouched."""
    client = world.client(ttl=20)
    hold = client.lock("a").acquire()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "nothing"
        try:
            signalled = inner(hold)
            said = signalled.state.value
            signalled.check()
        except ForkedClient:
            said += " refused"
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100) == b"lost refused"
    os.close(read)
    os.close(write)
    hold.check()
    assert len(world.tickets("a")) == 1
    assert hold.release() is True


def test_law15_loss_reaches_the_hold_everywhere(world: StoreWorld) -> None:
    """Expiry at the store shows in state, remaining, lost, check, callback and event."""
    client = world.client(ttl=TTL)
    events: list[str] = []
    client.subscribe(lambda event: events.append(event.event))
    hold = client.lock("a").acquire()
    states: list[HoldState] = []
    hold.on_change(states.append)
    world.expire(hold)
    assert hold.lost.wait(LOSS_SECONDS)
    assert hold.state is HoldState.LOST
    assert hold.remaining() == 0.0
    with pytest.raises(LeaseLost):
        hold.check()
    assert eventually(lambda: states[-1:] == [HoldState.LOST])
    assert "lost" in events


def test_law15_admins_removal_of_the_ticket_reaches_the_hold(world: StoreWorld) -> None:
    """The ticket is deleted while its lease lives: the hold hears of it well before a TTL."""
    client = world.client(ttl=30)
    hold = client.lock("a").acquire()
    other = client.lock("b").acquire()
    time.sleep(0.3)
    world.remove(hold)
    assert hold.lost.wait(5.0)
    assert "removed" in hold.reason
    other.check()
    other.release()


def test_law16_closing_the_client_gives_up_at_once(world: StoreWorld) -> None:
    """Closing lets others have it at once: the holds read RELEASED, waiting calls end, and new ones are refused."""
    closing, other = world.client(ttl=30), world.client(ttl=30)
    hold = closing.lock("a").acquire()
    mine = other.lock("b").acquire()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(closing.lock("b").acquire)
        assert eventually(lambda: len(world.tickets("b")) == 2)
        closing.close()
        with pytest.raises(ClientClosed):
            waiting.result(10.0)
    assert hold.state is HoldState.RELEASED
    assert other.lock("a").acquire(timeout=5.0).release() is True
    with pytest.raises(ClientClosed):
        closing.lock("a").acquire()
    assert mine.release() is True


TAKEN: dict[str, Callable[[Any], Any]] = {
    "lock": lambda client: client.lock("a"),
    "seat": lambda client: client.semaphore("a", limit=2),
    "reader": lambda client: client.rwlock("a").read(),
    "writer": lambda client: client.rwlock("a").write(),
    "leader": lambda client: client.election("a").campaign(),
}


@pytest.mark.parametrize("what", TAKEN)
def test_law15_body_whose_client_another_thread_closes_raises_client_closed_at_its_edge(
    world: StoreWorld, what: str
) -> None:
    """The hold is taken from under the body; whoever hears of that finds the line free."""
    client = world.client(ttl=30)
    with ThreadPoolExecutor() as pool:
        with pytest.raises(ClientClosed, match="closed under the `with` body"), TAKEN[what](client) as hold:
            closing = pool.submit(client.close)
            assert hold.lost.wait(10.0) is False
            assert hold.state is HoldState.RELEASED
        assert world.tickets("a") == []
        closing.result(10.0)


def test_law15_body_that_released_before_the_close_ends_quietly(world: StoreWorld) -> None:
    """A hold that was given up can't be lost."""
    client = world.client(ttl=30)
    with ThreadPoolExecutor() as pool, client.lock("a") as hold:
        assert hold.release() is True
        pool.submit(client.close).result(10.0)


@pytest.mark.parametrize("delay_ms", [0, 0.5, 1, 2, 3, 5, 8])
def test_law15_body_raced_by_a_close_is_told_or_had_its_hold_to_the_end(world: StoreWorld, delay_ms: float) -> None:
    """Closed at its beginning, within, or at its end: quiet only where the hold still stood."""
    client = world.client(ttl=30)
    client.lock("a").acquire().release()
    had: list[HoldState] = []

    def close() -> None:
        time.sleep(delay_ms / 1000)
        client.close()

    with ThreadPoolExecutor() as pool:
        closing = pool.submit(close)
        try:
            with client.lock("a") as hold:
                time.sleep(0.002)
                had.append(hold.state)
        except (ClientClosed, LeaseLost) as error:
            assert isinstance(error, ClientClosed) or not had
            if had:  # a call that only waited is told at once, while the close goes on
                assert world.tickets("a") == []
        else:
            assert had != [HoldState.RELEASED]
        closing.result(10.0)
    assert world.tickets("a") == []


def test_rule_try_and_timeout_zero_do_not_wait(world: StoreWorld) -> None:
    """try_acquire gives None, and acquire(timeout=0) raises, at once and without a trace."""
    client = world.client(ttl=10)
    with client.lock("a"):
        assert client.lock("a").try_acquire() is None
        with pytest.raises(AcquireTimeout):
            client.lock("a").acquire(timeout=0)
        assert len(world.tickets("a")) == 1


def test_rule_other_limit_gets_an_error_not_a_seat(world: StoreWorld) -> None:
    """Clients that disagree on the limit: the later one is refused, and the seats stay as they were."""
    client = world.client(ttl=10)
    with client.semaphore("s", limit=2):
        with pytest.raises(LineMismatch, match="limit of 2"):
            client.semaphore("s", limit=3).acquire(timeout=5)
        assert len(world.tickets("s")) == 1


@pytest.mark.parametrize(
    "name", ["a/b", "..", ".", "/lead", "trail/", "100%", "%2F", "with space", "zäöü", "🔒", "a:b", "x" * 512]
)
def test_names_are_one_line_each_and_round_trip(world: StoreWorld, name: str) -> None:
    """Any allowed name is its own line and comes back as it was."""
    client, name = world.client(ttl=10), name[: world.name_bytes_max]
    with client.lock(name) as hold:
        assert hold.resource == name
        assert client.lock(name).try_acquire() is None
        other = client.lock("another").try_acquire()
        assert other is not None
        other.release()
        leader = client.election(name).leader()
        assert leader is not None
        assert leader.token == hold.token


def test_module_level_names_exist() -> None:
    """Names that the tests import are there for users."""
    assert tenure.LeaseLost is LeaseLost


@pytest.mark.parametrize("delay_ms", [0, 0.3, 0.6, 1, 1.5, 2, 3])
def test_law16_close_during_an_acquire_leaves_nothing(world: StoreWorld, delay_ms: float) -> None:
    """close() while an acquire is on its way: nothing stays, neither its ticket nor its line."""
    client = world.client(ttl=20)
    client.lock("a").acquire().release()
    with ThreadPoolExecutor() as pool:
        entering = pool.submit(client.lock("a").acquire)
        time.sleep(delay_ms / 1000)
        client.close()
        with contextlib.suppress(ClientClosed, LeaseLost):
            assert entering.result(10).state is HoldState.RELEASED
    assert world.tickets("a") == []


def test_law16_second_close_returns_only_when_the_holds_are_given_up(world: StoreWorld) -> None:
    """Two threads close one client: after either call the lock is free."""
    client, other = world.client(ttl=20), world.client(ttl=20)
    client.lock("a").acquire()
    with ThreadPoolExecutor() as pool:
        for closing in [pool.submit(client.close) for _ in range(2)]:
            closing.result(10)
            hold = other.lock("a").try_acquire()
            assert hold is not None
            assert hold.release() is True
