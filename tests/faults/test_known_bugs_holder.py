"""Known bugs on the holder's side: what its process does or suffers while it holds, waits, tries or leads.

The numbers are those of tests/README.md. Stores are real; nothing is asked of them that a user would not ask.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tenure
from tenure import AcquireTimeout, HoldState, LeaseLost, StoreUnavailable, aio
from tests.conformance.store_worlds import eventually
from tests.faults.test_faults import proxied, url
from tests.faults.transports import ALL, BOTH, ETCD, EtcdKind, enters, leaves, until_renewed, wait_until_renewed
from tests.servers import Cluster, FaultProxy

TTL = 1.5
"""Of holds that are to be lost."""
KEPT_TTL = 6.0
"""Of holds that are not, on a machine that stands still now and then."""


def entered(client: tenure.Client, times: int) -> bool:
    return eventually(lambda: client.statistics()["events"].get("entered", 0) >= times)  # type: ignore[attr-defined]


@ALL
def test_seat_of_a_cut_off_holder_is_given_on_only_after_its_belief_ended(
    singles: dict[str, Cluster], kind: str
) -> None:
    """Bug 34: two seats, one holder cut off: never three that believe, and the third gets its seat all the same."""
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy:  # type: ignore[arg-type]  # one of the two kinds
        behind = proxied(cluster, proxy)
        direct = behind.replace(proxy.endpoint, cluster.endpoints[0])
        with tenure.connect(direct, ttl=20) as other, tenure.connect(behind, ttl=TTL) as client:
            stays = other.semaphore("s", limit=2).acquire()
            cut_off = client.semaphore("s", limit=2).acquire()
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(other.semaphore("s", limit=2).acquire, 30.0)
                assert entered(other, 2)
                proxy.blackhole()
                given = waiting.done()
                while cut_off.state is not HoldState.LOST:
                    assert not given, "three holders of two seats"
                    time.sleep(0.001)
                    given = waiting.done()  # before the state is read
                third = waiting.result()
            stays.check()
            assert third.token > cut_off.token
            assert third.release() is True
            assert stays.release() is True
            proxy.heal()


@BOTH
def test_leader_whose_work_never_returns_is_told_of_its_end_before_the_next_one_leads(
    singles: dict[str, Cluster], kind: str
) -> None:
    """Bug 37, peers' 10: work that loops keeps nobody from telling; elected, demoted, elected, with growing tokens."""
    cluster, led = singles[kind], list[tenure.Hold]()
    told: list[tuple[str, int, float]] = []
    stop_looping = threading.Event()

    def lead(hold: tenure.Hold) -> str:
        led.append(hold)
        told.append(("elected", hold.token, time.monotonic()))
        hold.on_change(
            lambda state: told.append(("demoted", hold.token, time.monotonic())) if state is HoldState.LOST else None
        )
        stop_looping.wait(30.0)  # it never looks
        return "done"

    def succeed(client: tenure.Client) -> tuple[tenure.Hold, float]:
        return client.election("e").campaign().acquire(timeout=30.0), time.monotonic()

    with FaultProxy(cluster.endpoints[0], kind) as proxy:  # type: ignore[arg-type]  # one of the two kinds
        behind = proxied(cluster, proxy)
        direct = behind.replace(proxy.endpoint, cluster.endpoints[0])
        with (
            tenure.connect(direct, ttl=20) as other,
            tenure.connect(behind, ttl=TTL) as client,
            ThreadPoolExecutor() as pool,
        ):
            leading = pool.submit(client.election("e").run, lead)
            assert eventually(lambda: len(told) == 1)
            succeeding = pool.submit(succeed, other)
            assert entered(other, 1)
            proxy.blackhole()
            cut_off = believed_until = time.monotonic()
            while (looked_at := time.monotonic()) and led[0].state is not HoldState.LOST:
                believed_until = looked_at
                time.sleep(0.001)
            assert eventually(lambda: len(told) == 2)  # although it loops, and hears nothing
            assert [what for what, _, _ in told] == ["elected", "demoted"]
            assert told[1][2] - cut_off < 4.5, "not by the clock: a request that is not answered takes 5 s"
            successor, admitted = succeeding.result()
            assert believed_until <= admitted, "two leaders"
            with successor:
                assert successor.token > told[0][1]
                proxy.heal()
                stop_looping.set()
            assert leading.result(30.0) == "done"
        assert [what for what, _, _ in told][:3] == ["elected", "demoted", "elected"]
        assert told[2][1] > successor.token


@BOTH
def test_wall_clock_that_jumps_to_and_fro_changes_nothing(
    singles: dict[str, Cluster], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug 38: an hour forth and back at every reading: the hold stays, the waiter's time-out and turn come as ever."""
    hours, right = itertools.count(), time.time
    monkeypatch.setattr(time, "time", lambda: right() + (3600.0 if next(hours) % 2 else -3600.0))
    with tenure.connect(url(singles[kind]), ttl=KEPT_TTL) as client:
        hold = client.lock("a").acquire()

        def time_out() -> float:
            began = time.monotonic()
            with pytest.raises(AcquireTimeout):
                client.lock("a").acquire(timeout=4.0)
            return time.monotonic() - began

        with ThreadPoolExecutor() as pool:
            timing_out = [pool.submit(time_out) for _ in range(4)]
            for _ in until_renewed(hold, 3):
                hold.check()
                assert 0 < hold.remaining() <= KEPT_TTL + 0.5
            assert all(4.0 <= future.result(30.0) < 30.0 for future in timing_out)
            waiting = pool.submit(client.lock("a").acquire, 10.0)
            assert hold.release() is True
            assert waiting.result().release() is True


@BOTH
def test_first_check_after_the_interpreter_stood_still_says_no(singles: dict[str, Cluster], kind: str) -> None:
    """Bug 40: one C call keeps the interpreter's lock for longer than the TTL, so no thread of ours ran meanwhile."""
    stand_still = ctypes.PyDLL(None).sleep  # PyDLL: without giving the lock up
    with tenure.connect(url(singles[kind]), ttl=TTL) as client:
        hold = client.lock("a").acquire()
        assert stand_still(3) == 0
        with pytest.raises(LeaseLost):
            hold.check()
        assert hold.remaining() == 0.0
        assert hold.release() is False


@BOTH
def test_event_loop_that_is_blocked_does_not_starve_the_renewals(singles: dict[str, Cluster], kind: str) -> None:
    """Bug 40: whoever blocks the loop for three renewals delays his own tasks, and loses no hold."""

    async def block() -> None:
        async with aio.connect(url(singles[kind]), ttl=KEPT_TTL) as client:
            hold = await client.lock("a").acquire()
            wait_until_renewed(hold, 3)  # this is the bug of the program that is looked at
            hold.check()
            assert await hold.release() is True

    asyncio.run(block())


@ETCD
def test_etcd_requests_without_an_answer_do_not_starve_the_renewals(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """Bug 40: every helper thread waits for an answer that does not come; another hold is renewed meanwhile."""
    cluster = singles[kind]

    async def wait(proxy: FaultProxy) -> None:
        async with aio.connect(proxied(cluster, proxy, timeout=30), ttl=KEPT_TTL) as client:
            kept = await client.lock("kept").acquire()
            held = [proxy.hold_answer(enters) for _ in range(6)]
            entering = [asyncio.create_task(client.lock(f"n{number}").acquire()) for number in range(6)]
            while not all(answer.arrived.is_set() for answer in held[:4]):
                await asyncio.sleep(0.02)
            await asyncio.to_thread(wait_until_renewed, kept, 3)
            kept.check()
            for answer in held:
                answer.release()
            for hold in await asyncio.gather(*entering):
                assert await hold.release() is True
            assert await kept.release() is True

    with FaultProxy(cluster.endpoints[0], kind) as proxy:
        asyncio.run(wait(proxy))


@BOTH
def test_block_is_never_entered_without_the_hold(singles: dict[str, Cluster], kind: str) -> None:
    """Peers' 1, 16: not while another one holds, not when the store is silent; and `as` gives the hold."""
    cluster, inside = singles[kind], list[int]()

    def enter(client: tenure.Client) -> None:
        with client.lock("a") as hold:
            inside.append(hold.token)
            hold.check()

    with FaultProxy(cluster.endpoints[0], kind) as proxy:  # type: ignore[arg-type]  # one of the two kinds
        with tenure.connect(proxied(cluster, proxy, timeout=0.5), ttl=20) as client:
            hold = client.lock("a").acquire()
            entering = threading.Thread(target=enter, args=(client,))
            entering.start()
            assert entered(client, 2)
            entering.join(0.3)
            assert inside == []
            assert hold.release() is True
            entering.join(10.0)
            assert len(inside) == 1
            assert inside[0] > hold.token
            proxy.blackhole()
            with pytest.raises(StoreUnavailable):
                enter(client)
            assert len(inside) == 1
            proxy.heal()


@ALL
def test_try_whose_withdrawal_is_lost_blocks_nobody(singles: dict[str, Cluster], kind: str) -> None:
    """Peers' 12: the failed try could not take its ticket back at once; whoever comes next gets the lock."""
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy:  # type: ignore[arg-type]  # one of the two kinds
        behind = proxied(cluster, proxy)
        direct = behind.replace(proxy.endpoint, cluster.endpoints[0])
        with tenure.connect(direct, ttl=60) as other, tenure.connect(behind, ttl=60) as client:
            client.lock("warm").acquire().release()
            hold = other.lock("a").acquire()
            lost = proxy.lose_request(_leaves_zookeeper if kind == "zookeeper" else leaves, times=3)
            assert client.lock("a").try_acquire() is None
            assert hold.release() is True
            assert lost.wait(10.0), "no withdrawal was lost: the scene was not set"
            assert other.lock("a").acquire(timeout=15.0).release() is True


def _leaves_zookeeper(opcode: int, frame: bytes) -> bool:
    return opcode == 2 and b"-lock-" in frame


@ALL
def test_every_call_into_a_black_hole_ends_in_time(singles: dict[str, Cluster], kind: str) -> None:
    """Peers' 14: nothing answers, and nobody has said that the connection is gone: each call ends by its own bound."""
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy:  # type: ignore[arg-type]  # one of the two kinds
        client = tenure.connect(proxied(cluster, proxy, timeout=0.5), ttl=30)
        hold = client.lock("a").acquire()
        proxy.blackhole()
        silent: list[Callable[[], Any]] = [
            client.election("e").leader,
            client.lock("b").try_acquire,
            lambda: client.lock("b").acquire(timeout=0.3),
            hold.renew,
            lambda: hold.store.get(f"{cluster.kind}-of-nobody"),
            hold.release,
        ]
        for call in silent:
            started = time.monotonic()
            with pytest.raises((StoreUnavailable, AcquireTimeout)):
                call()
            assert time.monotonic() - started < 4.5, "not by its own bound: 5 s is that of a client that sets none"
        started = time.monotonic()
        client.close()
        assert time.monotonic() - started < 10.0
        proxy.heal()
