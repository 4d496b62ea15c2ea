"""Lanes: what waits in one goes aside, is woken once, and ends by its own time."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from tenure._core.base import yielding
from tenure._core.base.clock import SYSTEM_CLOCK, VirtualClock
from tenure._core.base.retry import persist
from tenure._core.base.threads import Helpers
from tenure._core.drivers import greenlets as lanes_module
from tenure._core.drivers.asyncio import arun
from tenure._core.drivers.greenlets import ASKER, Lane, Lanes
from tenure._core.lease import Reach
from tenure._core.turn import Enter, Leave, Look, Operate, Renew, Step, Steps, Survey
from tenure._transport import session as session_module
from tenure.errors import StoreUnavailable
from tests.unit.fakes import entry
from tests.unit.test_session import Dialect, session_of

LONG = 30.0
QUICK = Operate(lambda _: None, 0.0)


class Idle:
    """Workers of whom nobody begins anything."""

    crowded = True
    idle = True

    def __init__(self) -> None:
        self.asked: list[Future[Any]] = []

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        self.asked.append(Future())
        return self.asked[-1]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, LONG))


def step(ask: Callable[[yielding.YieldingLane], Any]) -> Operate:
    """What is asked where it runs."""

    def asked(until: float) -> Any:
        lane = yielding.lane()
        assert lane is not None
        return ask(lane)

    return Operate(asked, SYSTEM_CLOCK.now() + LONG)


def test_nothing_is_aside_in_a_thread() -> None:
    """There everything is called right where it stands."""
    assert yielding.lane() is None
    assert yielding.elsewhere(threading.current_thread, LONG) is threading.current_thread()


def test_lane_reads_on_once_something_has_come() -> None:
    """And only then, while the loop does something else: here it sends what is read."""

    async def test() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            lane = Lanes(Idle(), 4).begin(step(lambda lane: (lane.readable(ours, LONG), ours.recv(10))))
            assert not lane.done()
            theirs.send(b"hello")
            assert await lane.ended() == (True, b"hello")

    run(test())


def test_lane_that_nothing_comes_for_goes_on_by_its_time() -> None:
    """The next wait is another one: what comes late for the first does not end it."""
    late: list[Callable[[], None]] = []

    async def test() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:

            def ask(lane: yielding.YieldingLane) -> list[bool]:
                first = [lane.readable(ours, 0.01), lane.called(late.append, 0.01)]
                threading.Thread(target=late[0]).start()  # while it waits for something else
                return [*first, lane.called(late.append, 0.2)]

            assert await Lanes(Idle(), 4).begin(step(ask)).ended() == [False, False, False]

    run(test())


def test_lane_is_told_from_another_thread_or_before_it_waits() -> None:
    """Whichever comes first."""

    async def test() -> None:
        def ask(lane: yielding.YieldingLane) -> list[bool]:
            at_once = lane.called(lambda wake: wake(), LONG)
            return [at_once, lane.called(lambda wake: threading.Timer(0.02, wake).start())]

        assert await Lanes(Idle(), 4).begin(step(ask)).ended() == [True, True]

    run(test())


def test_what_blocks_is_done_by_a_worker() -> None:
    """Its outcome and its error come back, and what no worker has begun in time is never done."""

    async def test() -> None:
        workers = Helpers("test", 1)

        def ask(lane: yielding.YieldingLane) -> tuple[threading.Thread, yielding.YieldingLane | None]:
            with pytest.raises(ZeroDivisionError):
                lane.elsewhere(lambda: 1 // 0, LONG)
            return lane.elsewhere(lambda: (threading.current_thread(), yielding.lane()), LONG)

        thread, lane_there = await Lanes(workers, 4).begin(step(ask)).ended()
        assert thread is not threading.current_thread()
        assert lane_there is None
        workers.close(LONG)

        idle = Idle()
        with pytest.raises(StoreUnavailable, match="not sent"):
            await Lanes(idle, 4).begin(step(lambda lane: lane.elsewhere(lambda: None, 0.01))).ended()
        assert idle.asked[0].cancelled()

    run(test())


def test_work_that_a_worker_has_begun_is_waited_for() -> None:
    """It may have been sent: how it ended has to be known."""

    async def test() -> None:
        idle = Idle()
        lane = Lanes(idle, 4).begin(step(lambda lane: lane.elsewhere(lambda: None, 0.01)))
        idle.asked[0].set_running_or_notify_cancel()
        await asyncio.sleep(0.1)
        assert not lane.done()
        idle.asked[0].set_result("sent")
        assert await lane.ended() == "sent"

    run(test())


def test_whoever_is_cancelled_leaves_the_step_going_on() -> None:
    """As a worker does; what it came to is there for whoever cleans up."""

    async def test() -> None:
        wakes: list[Callable[[], None]] = []
        lane = Lanes(Idle(), 4).begin(step(lambda lane: lane.called(wakes.append)))
        waiting = asyncio.create_task(lane.ended())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not lane.done()
        heard: list[Lane] = []
        lane.add_done_callback(heard.append)
        wakes[0]()
        assert await lane.ended() is True
        assert heard == [lane]

    run(test())


def test_a_few_lanes_at_a_time_and_none_while_workers_are_busy() -> None:
    """Beyond that it is as without them."""

    async def test() -> None:
        workers = Helpers("test", 4)
        lanes, wakes, on = Lanes(workers, 2), list[Callable[[], None]](), list[threading.Thread]()

        def steps() -> Steps[None]:
            yield Operate(lambda _: on.append(threading.current_thread()), SYSTEM_CLOCK.now() + LONG)

        waiting = [lanes.begin(step(lambda lane: lane.called(wakes.append))) for _ in range(2)]
        assert not lanes.take(QUICK)
        await arun(steps(), SYSTEM_CLOCK, workers, lanes)
        wakes[0]()
        await waiting[0].ended()
        while not lanes.take(QUICK):  # the worker is at its end
            await asyncio.sleep(0)
        await arun(steps(), SYSTEM_CLOCK, workers, lanes)
        go_on = threading.Event()
        busy = workers.submit(lambda: go_on.wait(LONG))
        assert not lanes.take(QUICK)
        await arun(steps(), SYSTEM_CLOCK, workers, lanes)
        go_on.set()
        await asyncio.wrap_future(busy)
        wakes[1]()
        await waiting[1].ended()
        workers.close(LONG)
        assert [thread is threading.current_thread() for thread in on] == [False, True, False]

    run(test())


async def moment_of(lanes: Lanes, asker: object, *, answered: bool = True) -> float:
    """What one step was given; its answer had come by then, or it goes aside for it."""
    ASKER.set(asker)

    def ask(lane: yielding.YieldingLane) -> float:
        moment = lane.moment()
        if not answered:
            lane.called(lambda wake: wake())
        return moment

    moment: float = await lanes.begin(step(ask)).ended()
    return moment


def test_moment_is_for_one_who_asks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who ask in turns, or at once, are not kept waiting for each other's answers."""
    clock = VirtualClock()
    monkeypatch.setattr(lanes_module, "time", SimpleNamespace(monotonic=clock.now))

    async def test() -> None:
        lanes, wakes = Lanes(Idle(), 4), list[Callable[[], None]]()
        assert min([await moment_of(lanes, "me"), await moment_of(lanes, "me")]) > 0
        assert [await moment_of(lanes, who) for who in ("you", "me", "you")] == [0.0] * 3
        clock.advance(lanes_module._LATELY_SECONDS * 1.5)
        assert await moment_of(lanes, "me") > 0
        other = lanes.begin(step(lambda lane: lane.called(wakes.append)))
        assert await moment_of(lanes, "me") == 0.0
        wakes[0]()
        await other.ended()
        assert await moment_of(lanes, "me") > 0

    run(test())


def test_step_gets_one_moment_however_many_answers_it_takes() -> None:
    """An answer that comes in bits would keep the thread for as many moments."""

    async def test() -> None:
        lanes = Lanes(Idle(), 4)
        moments = await lanes.begin(step(lambda lane: [lane.moment() for _ in range(4)])).ended()
        assert [moment > 0 for moment in moments] == [True, False, False, False]

    run(test())


def test_store_that_is_far_gets_no_moment_for_a_while() -> None:
    """The longer the more were in vain; one that was not makes it begin anew."""

    async def test() -> None:
        lanes = Lanes(Idle(), 4)

        async def given(times: int, *, answered: bool) -> list[bool]:
            return [await moment_of(lanes, "me", answered=answered) > 0 for _ in range(times)]

        assert await given(7, answered=False) == [True, False, False, True, False, False, False]
        assert await given(1, answered=True) == [False]  # of four
        assert await given(3, answered=True) == [True] * 3
        assert await given(4, answered=False) == [True, False, False, True]

    run(test())


LEASE: Any = None  # nobody asks it
TICKET: Any = None


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        (Enter(LEASE, entry(reach=Reach.PREDECESSOR), 0.0), True),
        (Enter(LEASE, entry(reach=Reach.AHEAD), 0.0), False),
        (Leave(LEASE, TICKET, 0.0), True),
        (Renew(LEASE, 0.0), True),
        (QUICK, True),
        (Look(LEASE, TICKET, Reach.PREDECESSOR, 0.0), False),
        (Survey(LEASE, "a", 0.0), False),
    ],
)
def test_what_may_read_a_long_line_is_a_workers(asked: Step, taken: bool) -> None:
    """Thousands of tickets take a while to be read, and the loop must not stand still for that."""
    assert Lanes(Idle(), 4).take(asked) is taken


def test_lane_of_a_loop_that_is_gone_is_dropped_without_a_word() -> None:
    """What it waited for may come late, from any thread."""
    wakes: list[Callable[[], None]] = []

    async def test() -> None:
        Lanes(Idle(), 4).begin(step(lambda lane: lane.called(wakes.append, LONG)))

    asyncio.run(test())
    wakes[0]()


class Where(Dialect):
    """It writes down on which threads connections are made, and are spoken over."""

    def __init__(self, clock: VirtualClock, *, goes_aside: bool) -> None:
        super().__init__(clock)
        self.goes_aside = goes_aside  # type: ignore[misc]  # final elsewhere
        self.threads: list[threading.Thread] = []

    def connect(self, *given: Any) -> Any:
        self.threads.append(threading.current_thread())
        connection = super().connect(*given)
        exchange = connection.exchange

        def noted(*asked: Any) -> Any:
            self.threads.append(threading.current_thread())
            return exchange(*asked)

        connection.exchange = noted  # type: ignore[assignment,method-assign]
        return connection


@pytest.mark.parametrize(
    ("goes_aside", "size", "here"), [(True, 10, [False, True]), (True, 100_000, [False] * 2), (False, 10, [False] * 2)]
)
def test_what_may_block_in_an_exchange_is_a_workers(goes_aside: bool, size: int, here: list[bool]) -> None:
    """Connecting always; sending much; all of it with gRPC, TLS or a sign-in. The loop must wait for none of those."""

    async def test() -> None:
        clock, workers = VirtualClock(), Helpers("test", 1)
        dialect = Where(clock, goes_aside=goes_aside)
        session = session_of(dialect, clock)
        await Lanes(workers, 4).begin(step(lambda _: session.ask("/", b"x" * size, clock.now() + LONG))).ended()
        assert [thread is threading.current_thread() for thread in dialect.threads] == here
        workers.close(LONG)

    run(test())


class Unresolved(Dialect):
    """There is no such name."""

    goes_aside = True  # type: ignore[misc]  # final elsewhere

    def connect(self, *given: Any) -> Any:
        raise socket.gaierror(-3, "no such name")


@pytest.mark.parametrize("free", [True, False])
def test_why_the_first_connection_failed_is_looked_into_by_a_worker(
    monkeypatch: pytest.MonkeyPatch, *, free: bool
) -> None:
    """That looks the name up again, and connects. Where no worker comes free for it the failure is told as it was."""
    threads, workers = list[threading.Thread](), Helpers("test", 1)

    def looked(*_: object) -> bool:
        threads.append(threading.current_thread())
        return False

    monkeypatch.setattr(session_module, "speaks_tls", looked)
    if not free:
        refused: Future[Any] = Future()
        monkeypatch.setattr(session_module, "PROBE_SECONDS", 0.01)
        begin = workers.submit
        asked = list[Callable[[], Any]]()

        def submit(work: Callable[[], Any]) -> Future[Any]:
            asked.append(work)
            return begin(work) if len(asked) == 1 else refused  # the first is to connect

        monkeypatch.setattr(workers, "submit", submit)

    async def test() -> None:
        clock = VirtualClock()
        session = session_of(Unresolved(clock), clock)
        with pytest.raises(StoreUnavailable, match="no such name"):
            await Lanes(workers, 4).begin(step(lambda _: session.ask("/", b"x", clock.now() + LONG))).ended()
        session.close()

    run(test())
    workers.close(LONG)
    assert len(threads) == free
    assert threading.current_thread() not in threads


class Late(Idle):
    """Workers that come free after a while."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future = super().submit(work)
        self._clock.advance(0.9)
        future.set_result(work())
        return future


class Timed(Dialect):
    """It writes down how long connecting may take."""

    goes_aside = True  # type: ignore[misc]  # final elsewhere

    def connect(self, endpoint: tuple[str, int], tls: Any, seconds: float) -> Any:
        self.given.append(seconds)
        return super().connect(endpoint, tls, seconds)


def test_connecting_gets_what_waiting_for_a_worker_has_left() -> None:
    """Law 8: one deadline over all steps, also where each of them takes its time."""

    async def test() -> None:
        clock = VirtualClock()
        dialect = Timed(clock)
        session = session_of(dialect, clock)
        await Lanes(Late(clock), 4).begin(step(lambda _: session.ask("/", b"x", clock.now() + 1.0))).ended()
        assert dialect.given == [pytest.approx(0.1)] * 2
        session.close()

    run(test())


DEEP = """
import asyncio, socket, uvloop
from tenure._core.base import yielding as aside
from tenure._core.base.threads import Helpers
from tenure._core.drivers.greenlets import Lanes
from tenure._core.turn import Operate

def deep(number):
    return number and (lambda *a, **k: deep(*a, **k))(*(number - 1,), **{})

async def nested(number, call):
    return call() if not number else await nested(number - 1, call)

async def main():
    ours, theirs = socket.socketpair()

    def ask(_):
        lane = aside.lane()
        for number in range(5, 40, 5):
            assert lane.readable(ours, 5.0)
            ours.recv(1)
            deep(number)
            lane.readable(ours, 0.0)
        return "done"

    for awaits in range(24):
        lane = await nested(awaits, lambda: Lanes(Helpers("test", 1), 4).begin(Operate(ask, 0.0)))
        while not lane.done():
            theirs.send(b"x")
            await asyncio.sleep(0.001)
        assert await lane.ended() == "done"
        ours.setblocking(False)
        try:
            while ours.recv(100):
                pass
        except BlockingIOError:
            ours.setblocking(True)

uvloop.run(main())
print("well")
"""


def test_lane_is_not_resumed_in_the_midst_of_uvloops_poll() -> None:
    """What the poll keeps on the stack would lie under what the lane does next, and the process would die of it."""
    done = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "well\n", "")


def test_pause_before_another_try_keeps_nobody_waiting() -> None:
    """Until then the step is aside."""

    async def test() -> None:
        tries: list[None] = []

        def attempt() -> str:
            tries.append(None)
            if len(tries) < 3:  # the second is made at once
                raise StoreUnavailable("not yet")
            return "done"

        lane = Lanes(Idle(), 4).begin(step(lambda _: persist(attempt, SYSTEM_CLOCK.now() + LONG, SYSTEM_CLOCK)))
        assert not lane.done()
        assert await lane.ended() == "done"

    run(test())
