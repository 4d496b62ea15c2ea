"""Law 14: after a fork the child's clients and holds are dead with a clear error, the parent's untouched."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import HoldState, aio
from tests.unit.world import Background, World

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


def test_child_is_refused_by_client_lock_and_hold(world: World) -> None:
    """Every call that would touch the parent's lease raises ForkedClient, and says what to do."""
    client = world.client()
    lock, hold = client.lock("a"), client.lock("b").acquire()
    election, semaphore, rwlock = client.election("e"), client.semaphore("s", limit=2), client.rwlock("r")
    lead: Callable[[holdfast.Hold], None] = lambda _: None  # noqa: E731  # never called
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
            with pytest.raises(holdfast.ForkedClient, match=r"forked from.*Connect again in the child") as raised:
                call()
            assert raised.value.happened == "no", number
        assert time.monotonic() - started < 2.0

    in_child(check)
    hold.check()


def test_childs_hold_is_lost_and_shows_it_everywhere(world: World) -> None:
    """The child holds nothing: state, remaining, lost and repr say so without an error."""
    hold = world.client().lock("a").acquire()

    def check() -> None:
        assert hold.state is HoldState.LOST
        assert hold.remaining() == 0.0
        assert hold.lost.is_set()
        assert hold.lost.wait() is True
        assert " lost " in repr(hold)
        assert hold.token > 0

    in_child(check)
    assert hold.state is HoldState.HELD


def test_child_leaving_the_with_block_does_not_release_the_parents_hold(world: World) -> None:
    """Exactly one release: the parent's. The child's way out of the body is an error, not a release."""
    client = world.client()
    with client.lock("a") as hold:

        def check() -> None:
            with pytest.raises(holdfast.ForkedClient):
                hold.__exit__(None, None, None)
            assert not world.heard("released")

        in_child(check)
        hold.check()
        assert world.tickets == 1
    assert len(world.heard("released")) == 1
    assert world.tickets == 0


def test_child_may_close_the_parents_client_and_nothing_happens(world: World) -> None:
    """Nothing of the parent's is the child's to close, so closing it is a no-op and never hangs."""
    client = world.client()
    hold = client.lock("a").acquire()

    def check() -> None:
        client.close()
        with client:
            pass
        assert world.tickets == 1
        assert not world.heard("released")

    in_child(check)
    hold.check()


def test_child_may_connect_again(world: World) -> None:
    """A client of the child's own works, timers and workers included."""
    world.client().lock("a").acquire()

    def check() -> None:
        heard = threading.Event()
        with holdfast.connect("memory://made-in-the-child") as mine:
            hold = mine.lock("a").acquire()
            hold.on_change(lambda _: heard.set())
            assert hold.state is HoldState.HELD
            assert hold.release() is True
            assert heard.wait(CHILD_SECONDS / 2)

    in_child(check)


def test_child_forked_while_other_threads_hold_every_lock_is_still_refused_at_once(world: World) -> None:
    """The child refuses before it takes a lock that no thread will ever give back."""
    client = world.client()
    hold = client.lock("a").acquire()
    house: Any = client._house
    lease: Any = hold._lease
    guards = [house._guard, hold._guard, lease._belief._guard, world.store._guard]
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
            with pytest.raises(holdfast.ForkedClient):
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


def test_waiting_thread_of_the_parent_is_untouched_by_a_fork(world: World) -> None:
    """A wait that was under way when the process forked comes to its turn in the parent, once."""
    client = world.client()
    hold = client.lock("a").acquire()
    waiting = Background(client.lock("a").acquire)
    world.await_event("entered", 2)
    in_child(lambda: None)
    hold.release()
    assert waiting.result().state is HoldState.HELD
    assert len(world.heard("acquired")) == 2


def test_asyncio_face_in_a_child_is_refused(world: World) -> None:
    """The other face refuses the same way, on a loop of the child's own."""

    async def acquire(client: aio.Client) -> aio.Hold:
        return await client.lock("a").acquire()

    async def whole() -> None:
        client = world.aclient()
        hold = await acquire(client)

        def check() -> None:
            asyncio.events._set_running_loop(None)  # the parent's loop is not the child's

            async def refused() -> None:
                with pytest.raises(holdfast.ForkedClient):
                    await acquire(client)
                with pytest.raises(holdfast.ForkedClient):
                    await hold.release()
                assert hold.state is HoldState.LOST

            asyncio.run(refused())

        in_child(check)
        hold.check()
        assert await hold.release() is True
        await client.close()

    asyncio.run(whole())


def test_grandchild_is_refused_too(world: World) -> None:
    """A generation is not a flag: a fork of a fork holds nothing either."""
    hold = world.client().lock("a").acquire()

    def check() -> None:
        with pytest.raises(holdfast.ForkedClient):
            hold.check()

    in_child(lambda: in_child(check))
    hold.check()


def _in_process(hold: holdfast.Hold, lock: holdfast.Lock, results: Any) -> None:
    try:
        lock.acquire(timeout=1)
    except holdfast.ForkedClient as error:
        results.put((type(error).__name__, hold.state.value))


def test_process_made_by_multiprocessing_fork_is_refused(world: World) -> None:
    """The usual way to fork: the same error, and the parent goes on."""
    if sys.platform == "darwin":
        pytest.skip("multiprocessing does not fork there by default")
    context = multiprocessing.get_context("fork")
    client = world.client()
    with client.lock("a") as hold:
        results = context.SimpleQueue()
        process = context.Process(target=_in_process, args=(hold, client.lock("b"), results))
        process.start()
        process.join(CHILD_SECONDS)
        assert process.exitcode == 0
        assert results.get() == ("ForkedClient", "lost")
        results.close()
        hold.check()
    assert len(world.heard("released")) == 1
