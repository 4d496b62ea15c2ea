"""Law 14: after a fork the child's holds are dead with a clear error, and the clients that were used, unless they
reconnect; the parent's are untouched."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import tenure
from tenure import HoldState, aio
from tenure._backends import memory
from tenure._core import runtime as runtime_module
from tenure._core.base.options import parse
from tenure._core.drivers.blocking import perform
from tenure._core.runtime import runtime_of
from tenure._core.turn import Await
from tests.unit.rig import Background, Rig, reached

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
forks_among_threads = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    # 3.12 and later warn of what this file is about: a fork with threads running
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]
CHILD_SECONDS = 20.0


def in_child(check: Callable[[], None]) -> None:
    """Run `check` in a forked child; its assertion fails the test, and a child that hangs is killed and fails it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # kills a child that hangs
            signal.alarm(int(CHILD_SECONDS))
            check()
            status = 0
        except BaseException:  # told to the parent through the pipe
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"child ended with {status}: {told or 'it hung'}"


def test_child_is_refused_by_client_lock_and_hold(rig: Rig) -> None:
    """Every call that would touch the parent's lease raises ForkedClient, and says what to do."""
    client = rig.client()
    lock, hold = client.lock("a"), client.lock("b").acquire()
    election, semaphore, rwlock = client.election("e"), client.semaphore("s", limit=2), client.rwlock("r")
    lead: Callable[[tenure.Hold], None] = lambda _: None  # noqa: E731  # never called
    calls: list[Callable[[], Any]] = [
        lock.acquire,
        lock.try_acquire,
        lambda: lock.acquire(timeout=1),
        lock.__enter__,
        client.lock("new").acquire,
        semaphore.acquire,
        semaphore.try_acquire,
        rwlock.read().acquire,
        rwlock.write().try_acquire,
        election.campaign().acquire,
        election.leader,
        lambda: next(iter(election.observe())),
        lambda: election.run(lead),
        hold.check,
        hold.renew,
        hold.release,
        lambda: hold.amend("x"),
    ]

    def check() -> None:
        started = time.monotonic()
        for number, call in enumerate(calls):
            with pytest.raises(tenure.ForkedClient, match=r"forked from.*Connect again in the child") as raised:
                call()
            assert raised.value.happened == "no", number
        assert time.monotonic() - started < 2.0

    in_child(check)
    hold.check()


def test_childs_hold_is_lost_and_shows_it_everywhere(rig: Rig) -> None:
    """The child holds nothing: state, remaining, lost and repr say so without an error."""
    hold = rig.client().lock("a").acquire()

    def check() -> None:
        assert hold.state is HoldState.LOST
        assert hold.remaining() == 0.0
        assert hold.lost.is_set()
        assert hold.lost.wait() is True
        assert " lost " in repr(hold)
        assert hold.token > 0

    in_child(check)
    assert hold.state is HoldState.HELD


def test_child_leaving_the_with_block_does_not_release_the_parents_hold(rig: Rig) -> None:
    """Exactly one release: the parent's. The child's way out of the body is an error, not a release."""
    client = rig.client()
    with client.lock("a") as hold:

        def check() -> None:
            with pytest.raises(tenure.ForkedClient):
                hold.__exit__(None, None, None)
            assert not rig.heard("released")

        in_child(check)
        hold.check()
        assert rig.tickets == 1
    assert len(rig.heard("released")) == 1
    assert rig.tickets == 0


def test_child_may_close_the_parents_client_and_nothing_happens(rig: Rig) -> None:
    """Nothing of the parent's is the child's to close, so closing it is a no-op and never hangs."""
    client = rig.client()
    hold = client.lock("a").acquire()

    def check() -> None:
        client.close()
        with client:
            pass
        assert rig.tickets == 1
        assert not rig.heard("released")

    in_child(check)
    hold.check()


def test_child_may_connect_again(rig: Rig) -> None:
    """A client of the child's own works, timers and workers included."""
    rig.client().lock("a").acquire()

    def check() -> None:
        heard = threading.Event()
        with tenure.connect("memory://made-in-the-child") as mine:
            hold = mine.lock("a").acquire()
            hold.on_change(lambda _: heard.set())
            assert hold.state is HoldState.HELD
            assert hold.release() is True
            assert heard.wait(CHILD_SECONDS / 2)

    in_child(check)


def test_memory_store_warns_once_in_a_forked_child(caplog: pytest.LogCaptureFixture) -> None:
    """Workers that take it for a shared store do not exclude each other: that has to be seen in the log."""

    def check() -> None:
        for name in ("one", "other"):
            with tenure.connect(f"memory://{name}") as mine, mine.lock("a"):
                pass
        (warning,) = [record.getMessage() for record in caplog.records if "memory://" in record.getMessage()]
        assert "in a forked child" in warning

    in_child(check)
    assert not [record for record in caplog.records if "memory://" in record.getMessage()]


def test_memory_store_warns_once_outside_of_tests() -> None:
    """A program that is no test, and one that is."""
    code = "import sys{}, tenure\nfor _ in 1, 2:\n    with tenure.connect('memory://x') as c, c.lock('a'): pass"
    said = [
        subprocess.run([sys.executable, "-c", code.format(also)], capture_output=True, text=True, check=True).stderr
        for also in ("", ", unittest")
    ]
    assert said[0].count("outside of tests") == 1, said
    assert said[1] == ""


def test_child_forked_while_other_threads_hold_every_lock_is_still_refused_at_once(rig: Rig) -> None:
    """The child refuses before it takes a lock that no thread will ever give back."""
    client = rig.client()
    hold = client.lock("a").acquire()
    runtime: Any = runtime_of(client)
    lease: Any = hold._lease
    guards = [runtime._guard, hold._watch.guard, lease._belief._guard, rig.store._guard]
    taken, forked = threading.Event(), threading.Event()

    def hold_all() -> None:
        for guard in guards:
            guard.acquire()
        taken.set()
        forked.wait(CHILD_SECONDS)
        for guard in guards:
            guard.release()

    holder = Background(hold_all)
    assert taken.wait(CHILD_SECONDS)

    def check() -> None:
        for call in (client.lock("b").acquire, client.lock("b").try_acquire, hold.check, hold.release, hold.renew):
            with pytest.raises(tenure.ForkedClient):
                call()
        assert hold.state is HoldState.LOST
        assert hold.remaining() == 0.0
        repr(client)
        client.close()

    try:
        in_child(check)
    finally:
        forked.set()
        holder.result()


def test_waiting_thread_of_the_parent_is_untouched_by_a_fork(rig: Rig) -> None:
    """A wait that was under way when the process forked comes to its turn in the parent, once."""
    client = rig.client()
    hold = client.lock("a").acquire()
    waiting = Background(client.lock("a").acquire)
    rig.await_event("entered", 2)
    in_child(lambda: None)
    hold.release()
    assert waiting.result().state is HoldState.HELD
    assert len(rig.heard("acquired")) == 2


def test_asyncio_face_in_a_child_is_refused(rig: Rig) -> None:
    """The other face refuses the same way, on a loop of the child's own."""

    async def acquire(client: aio.Client) -> aio.Hold:
        return await client.lock("a").acquire()

    async def whole() -> None:
        client = rig.aclient()
        hold = await acquire(client)

        def check() -> None:
            asyncio.events._set_running_loop(None)  # the parent's loop is not the child's

            async def refused() -> None:
                with pytest.raises(tenure.ForkedClient):
                    await acquire(client)
                with pytest.raises(tenure.ForkedClient):
                    await hold.release()
                assert hold.state is HoldState.LOST

            asyncio.run(refused())

        in_child(check)
        hold.check()
        assert await hold.release() is True
        await client.close()

    asyncio.run(whole())


def test_grandchild_is_refused_too(rig: Rig) -> None:
    """A generation is not a flag: a fork of a fork holds nothing either."""
    hold = rig.client().lock("a").acquire()

    def check() -> None:
        with pytest.raises(tenure.ForkedClient):
            hold.check()

    in_child(lambda: in_child(check))
    hold.check()


def _in_process(hold: tenure.Hold, lock: tenure.Lock, results: Any) -> None:
    try:
        lock.acquire(timeout=1)
    except tenure.ForkedClient as error:
        results.put((type(error).__name__, hold.state.value))


def test_process_made_by_multiprocessing_fork_is_refused(rig: Rig) -> None:
    """The usual way to fork: the same error, and the parent goes on."""
    if sys.platform == "darwin":
        pytest.skip("multiprocessing does not fork there by default")
    context = multiprocessing.get_context("fork")
    client = rig.client()
    with client.lock("a") as hold:
        results = context.SimpleQueue()
        process = context.Process(target=_in_process, args=(hold, client.lock("b"), results))
        process.start()
        process.join(CHILD_SECONDS)
        assert process.exitcode == 0
        assert results.get() == ("ForkedClient", "lost")
        results.close()
        hold.check()
    assert len(rig.heard("released")) == 1


@needs_fork
@forks_among_threads
def test_child_that_drops_the_parents_waiting_turn_asks_the_store_nothing(rig: Rig) -> None:
    """Law 14: what the collector does to the parent's tasks in a child leaves the parent's ticket where it stands."""
    client = rig.client()
    runtime = runtime_of(client)
    hold = client.lock("a").acquire()
    lease: Any = hold._lease
    steps = runtime.holding(client.lock("a")._request, runtime.patience(None), tenure.Hold)
    assert isinstance(steps.send(perform(next(steps))), Await)

    def check() -> None:
        steps.close()
        assert lease.reaping == 0
        assert rig.store.requests["leave"] == 0

    in_child(check)
    assert rig.tickets == 2
    steps.close()
    rig.await_event("reaped")
    assert rig.tickets == 1


@needs_fork
@forks_among_threads
def test_statistics_in_a_child_forked_while_the_client_was_busy_raise_forked_client(rig: Rig) -> None:
    """Law 14: the child refuses before it takes a lock that no thread will ever give back."""
    client = rig.client()
    client.lock("a").acquire()
    taken, forked = threading.Event(), threading.Event()

    def be_busy() -> None:
        with runtime_of(client)._guard:
            taken.set()
            reached(forked)

    def check() -> None:
        with pytest.raises(tenure.ForkedClient):
            client.statistics()

    busy = Background(be_busy)
    reached(taken)
    try:
        in_child(check)
    finally:
        forked.set()
        busy.result()


def connected(**options: Any) -> tenure.Client:
    """A client on real time, as programs have; the stores of a child are its own."""
    return tenure.connect("memory://forks", **options)


def test_client_that_was_never_used_works_in_the_child() -> None:
    """What was only connected before the fork is the child's as it is the parent's, with what was made of it."""
    client, heard = connected(), list[str]()
    lock, election = client.lock("a"), client.election("e")
    client.subscribe(lambda event: heard.append(event.event))

    def check() -> None:
        with lock as hold:
            assert hold.renew() > 0
            assert hold.owner == runtime_of(client).options.owner
            assert hold.owner.endswith(f":{os.getpid()}")
            assert lock.try_acquire() is None
            changed = threading.Event()
            hold.on_change(lambda _: changed.set())
        assert changed.wait(CHILD_SECONDS / 2)
        assert election.leader() is None
        assert "acquired" in heard
        in_child(check_grandchild)
        client.close()
        with pytest.raises(tenure.ClientClosed):
            lock.acquire()

    def check_grandchild() -> None:
        with pytest.raises(tenure.ForkedClient):
            lock.acquire()

    in_child(check)
    in_child(lambda: in_child(check))
    assert not heard
    with lock as hold:
        assert hold.owner.endswith(f":{os.getpid()}")
    client.close()


def test_client_that_was_only_looked_at_works_in_the_child() -> None:
    """Statistics, names and terms are no use; an owner that was given stays."""
    client = connected(owner="me")
    client.statistics()
    repr(client.lock("a"))

    def check() -> None:
        assert client.statistics()["leases"] == []
        with client.lock("a") as hold:
            assert hold.owner == "me"

    in_child(check)
    client.close()


def test_client_that_reconnects_after_a_fork_is_a_new_one_in_each_process() -> None:
    """Leases, holds and counts are the process's own; what the parent holds is refused to the child."""
    client = connected(after_fork="reconnect", journal=True)
    lock, hold = client.lock("a"), client.lock("held").acquire()

    def check() -> None:
        before = client.statistics()
        assert (before["leases"], before["events"]) == ([], {})
        for call in (hold.check, hold.renew, hold.release, lambda: hold.__exit__(None, None, None)):
            with pytest.raises(tenure.ForkedClient, match="acquired again"):
                call()
        with lock as mine:
            assert mine.renew() > 0
            assert mine.lease_id
            assert hold.state is HoldState.LOST
            assert client.operator().line("a").holders[0].owner == mine.owner
        in_child(check_grandchild)
        assert lock.acquire().release() is True

    def check_grandchild() -> None:
        with client, lock as mine:
            assert mine.owner.endswith(f":{os.getpid()}")

    in_child(check)
    in_child(check)
    assert hold.renew() > 0
    assert hold.release() is True
    client.close()


def test_client_that_reconnects_takes_none_of_the_locks_of_lost_threads() -> None:
    """The fork may come while other threads are in the midst of anything."""
    client = connected(after_fork="reconnect")
    hold = client.lock("a").acquire()
    runtime: Any = runtime_of(client)
    lease: Any = hold._lease
    guards = [runtime._guard, hold._watch.guard, lease._belief._guard, memory.server._stores_guard]
    guards += [runtime_module._adopting, runtime._workers._guard, runtime.background._guard]
    taken, forked = threading.Event(), threading.Event()

    def hold_all() -> None:
        with contextlib.ExitStack() as stack:
            for guard in guards:
                stack.enter_context(guard)
            taken.set()
            reached(forked)

    def check() -> None:
        with client.lock("a") as mine:
            mine.check()
        client.close()

    holder = Background(hold_all)
    reached(taken)
    try:
        in_child(check)
    finally:
        forked.set()
        holder.result()
    client.close()


def test_threads_of_a_child_make_one_client_of_it_together() -> None:
    """The first uses come at once: they exclude each other, by one lease."""
    client = connected()

    def check() -> None:
        together, inside = threading.Barrier(8), list[int]()

        def work() -> None:
            together.wait(CHILD_SECONDS / 2)
            with client.lock("a"):
                inside.append(1)
                assert len(inside) == 1
                inside.clear()

        for worker in [Background(work) for _ in range(8)]:
            worker.result()
        leases = client.statistics()["leases"]
        assert isinstance(leases, list)
        assert len(leases) == 1
        client.close()

    in_child(check)
    client.close()


@pytest.mark.parametrize("after_fork", ["refuse", "reconnect"])
def test_client_that_the_parent_closed_is_closed_in_the_child(after_fork: str) -> None:
    """Closing is for good, whoever asks later."""
    client = connected(after_fork=after_fork)
    client.close()

    def check() -> None:
        with pytest.raises(tenure.ClientClosed):
            client.lock("a").acquire()
        client.close()

    in_child(check)


def test_child_that_closes_a_client_it_has_not_used_can_not_use_it_later() -> None:
    """The child's close is its own: the parent's client stays open."""
    client = connected()

    def check() -> None:
        client.close()
        with pytest.raises(tenure.ClientClosed):
            client.lock("a").acquire()

    in_child(check)
    client.lock("a").acquire().release()
    client.close()


@pytest.mark.parametrize("after_fork", ["refuse", "reconnect"])
def test_asyncio_client_works_in_the_child(after_fork: str) -> None:
    """The other face, on a loop of the child's own: never used before the fork, or told to reconnect."""
    client = aio.connect("memory://forks", after_fork=after_fork)  # type: ignore[arg-type]  # one of the two

    async def use() -> None:
        async with client.lock("a") as hold:
            assert await hold.renew() > 0

    async def whole() -> None:
        hold = await client.lock("held").acquire() if after_fork == "reconnect" else None

        def check() -> None:
            asyncio.events._set_running_loop(None)  # the parent's loop is not the child's

            async def child() -> None:
                await use()
                if hold is not None:
                    with pytest.raises(tenure.ForkedClient):
                        await hold.release()
                await client.close()

            asyncio.run(child())

        in_child(check)
        await use()
        assert hold is None or await hold.release() is True
        await client.close()

    asyncio.run(whole())


def test_after_fork_is_checked() -> None:
    """The two words, as an argument and in the URL; anything else is refused with both."""
    for connect in (tenure.connect, aio.connect):
        with pytest.raises(tenure.InvalidOption, match="'refuse' or 'reconnect'"):
            connect("memory://x", after_fork="always")  # type: ignore[arg-type]
    assert parse("memory://x?after_fork=reconnect", {}).after_fork == "reconnect"
    assert parse("memory://x?after_fork=reconnect", {"after_fork": "refuse"}).after_fork == "refuse"
