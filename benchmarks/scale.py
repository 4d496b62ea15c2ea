"""What the servers count: requests per cycle, and requests and watch messages per hand-over.

The counters are the server's own, so nothing a client forgets to mention is left out. They count everybody: only the
client under test may be connected. A hand-over is one waiter's admission; with law 10 it costs the same whether 10 or
200 stand in the line.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, Protocol

import holdfast
from benchmarks.contestants import recipes
from holdfast.limits import OWN_WATCH_AFTER
from tests.servers import Cluster, etcd_counters, zk_four_letter

CYCLES: Final = 200
SEATS: Final = 3
FEW, MANY = 10, 200
_TTL_SECONDS: Final = 60.0  # so that hardly a renewal falls into the counting
_STILL_SECONDS: Final = OWN_WATCH_AFTER + 0.1
_STILL_TRIES_MAX: Final = 40
_TURN_SECONDS_MAX: Final = 60.0
_CALIBRATIONS: Final = 5


@dataclass(frozen=True)
class Counts:
    """What the server has done."""

    transactions: float
    other_requests: float
    watch_messages: float
    """etcd: both ways, requests to watch among them. ZooKeeper: events; requests to watch are other requests."""

    def plus(self, more: Counts, times: int = 1) -> Counts:
        return Counts(
            self.transactions + more.transactions * times,
            self.other_requests + more.other_requests * times,
            self.watch_messages + more.watch_messages * times,
        )

    def since(self, earlier: Counts) -> Counts:
        return self.plus(earlier, -1)

    def per(self, times: int) -> Counts:
        return Counts(self.transactions / times, self.other_requests / times, self.watch_messages / times)

    @property
    def all(self) -> float:
        return self.transactions + self.other_requests + self.watch_messages


class Place(Protocol):
    """Where a task can stand in line: a lock or a semaphore of the asyncio face."""

    def acquire(self, timeout: float | None = None) -> Awaitable[holdfast.aio.Hold]: ...


@dataclass(frozen=True)
class HandOvers:
    """Work per hand-over (one leaves, goes to the end, the next is admitted); what process and order looked like."""

    waiters: int
    work: Counts
    threads_max: int
    in_order: bool


def per_cycle(cluster: Cluster) -> dict[str, Counts]:
    """What each recipe's uncontended cycle asks of the server."""
    meter = Meter(cluster)
    found: dict[str, Counts] = {}
    for name, recipe in recipes().items():
        with holdfast.connect(cluster.url("count", ttl=_TTL_SECONDS)) as client:
            lock = recipe(client)
            lock.acquire().release()
            before = asyncio.run(meter.still())
            for _ in range(CYCLES):
                lock.acquire().release()
            found[name] = meter.now().since(before).per(CYCLES)
    return found


def hand_overs(cluster: Cluster, seats: int, waiters: int, times: int) -> HandOvers:
    """`times` hand-overs while `waiters` tasks of one process stand in line; of a lock where there is one seat."""
    return asyncio.run(_hand_overs(cluster, seats, waiters, times))


async def _hand_overs(cluster: Cluster, seats: int, waiters: int, times: int) -> HandOvers:
    meter = Meter(cluster)
    client = holdfast.aio.connect(cluster.url("scale", ttl=_TTL_SECONDS), timeout=_TURN_SECONDS_MAX)
    place: Place = client.lock("lock") if seats == 1 else client.semaphore("semaphore", limit=seats)
    line = _Line(place, seats, waiters, times)
    client.subscribe(line.hear)
    tasks = [asyncio.create_task(line.stand()) for _ in range(seats + waiters)]
    try:
        await asyncio.wait_for(line.formed.wait(), _TURN_SECONDS_MAX)
        before = await meter.still()
        line.begin.set()
        await asyncio.wait_for(line.over.wait(), _TURN_SECONDS_MAX)
        work = (await meter.still()).since(before)
    finally:
        await client.close()
        await asyncio.gather(*tasks, return_exceptions=True)  # who still waited is told that the client was closed
    return HandOvers(waiters, work.per(times), line.threads_max, line.in_order)


class _Line:
    """A line that stays as long as it is: whoever has had a turn goes to its end, until all hand-overs are made.

    So no hand-over is cheaper for being the last of a line, and lines of different lengths can be compared.
    """

    def __init__(self, place: Place, seats: int, waiters: int, times: int) -> None:
        self.formed, self.begin, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.threads_max = 0
        self._place = place
        self._seats = seats
        self._tickets = seats + waiters
        self._left = times
        self._entered: list[int] = []
        self._admitted: list[int] = []
        self._kept: list[holdfast.aio.Hold] = []
        self._loop = asyncio.get_running_loop()

    async def stand(self) -> None:
        while True:
            hold = await self._place.acquire()
            self._admitted.append(hold.token)
            self.threads_max = max(self.threads_max, threading.active_count())
            await self.begin.wait()  # no end of its own: the task is given up with its client
            if self._left == 0:
                self._kept.append(hold)
                if len(self._kept) == self._seats:
                    self.over.set()
                return
            self._left -= 1
            await hold.release()

    def hear(self, event: holdfast.Event) -> None:
        """Told on whichever thread it happens; counted on the loop's."""
        if event.event == "entered" and event.token is not None:
            self._loop.call_soon_threadsafe(self._count, event.token)

    def _count(self, token: int) -> None:
        self._entered.append(token)
        if len(self._entered) == self._tickets:
            self.formed.set()

    @property
    def in_order(self) -> bool:
        """Was nobody admitted before its turn? Seats given at once may be noted in any order among themselves."""
        waiting = sorted(self._entered)
        for token in self._admitted:
            if waiting.index(token) >= self._seats:
                return False
            waiting.remove(token)
        return True


class Meter:
    """The server's counters, less what asking for them adds."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked = 0
        self._asking = Counts(0.0, 0.0, 0.0)
        readings = [self._read() for _ in range(_CALIBRATIONS)]
        self._asking = min((b.since(a) for a, b in itertools.pairwise(readings)), key=lambda counts: counts.all)
        self._asked = 0

    def now(self) -> Counts:
        """What the server has done for others since some fixed moment."""
        self._asked += 1
        return self._read().plus(self._asking, -self._asked)

    async def still(self) -> Counts:
        """The same, once the server has nothing more to do for us. It tells nobody when: ask until it stays so."""
        before = self.now()
        for _ in range(_STILL_TRIES_MAX):
            await asyncio.sleep(_STILL_SECONDS)
            now = self.now()
            if now.since(before).all == 0.0:
                return now
            before = now
        raise RuntimeError(f"{self._cluster} did not come to rest: is somebody else connected to it?")

    def _read(self) -> Counts:
        endpoint = self._cluster.members[0].metrics_endpoint
        if self._cluster.kind == "etcd":
            return _etcd(etcd_counters(endpoint))
        return _zookeeper(zk_four_letter(endpoint, "srvr"))


def _etcd(counters: dict[str, float]) -> Counts:
    unary = {name: n for name, n in counters.items() if name.startswith("started:") and name != "started:Watch"}
    transactions = unary.pop("started:Txn", 0.0)
    watch_messages = counters.get("received:Watch", 0.0) + counters.get("sent:Watch", 0.0)
    return Counts(transactions, sum(unary.values()), watch_messages)


def _zookeeper(report: str) -> Counts:
    """It tells packets only. Each one received is a request and answered by one; what is sent beyond is watch events.

    From `srvr` and not `mntr`: the same counters, but an answer of one packet, so that asking always adds the same.
    """
    lines = dict(line.split(": ", 1) for line in report.splitlines() if ": " in line)
    received, sent = float(lines["Received"]), float(lines["Sent"])
    return Counts(0.0, received, sent - received)
