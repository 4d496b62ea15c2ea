"""What the servers count, and what a process of ours takes: memory, threads, sockets.

The servers' counters leave out nothing that a client forgets to mention. They count everybody: only the client under
test may be connected.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenure._core.base.limits import TICKET_WATCH_AFTER
from tenure.testing.servers import etcd_counters, zk_four_letter

_STILL_SECONDS: Final = TICKET_WATCH_AFTER + 0.1
_STILL_TRIES_MAX: Final = 120
_CALIBRATIONS: Final = 5
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MEGA: Final = 1e6


@dataclass(frozen=True)
class Counts:
    """What the server has done."""

    transactions: float
    keep_alives: float
    """etcd only; ZooKeeper counts pings among its packets, and so among the other requests."""
    other_requests: float
    watch_messages: float
    """etcd: both ways, requests to watch among them. ZooKeeper: events; requests to watch are other requests."""

    def plus(self, more: Counts, times: float = 1) -> Counts:
        return Counts(
            self.transactions + more.transactions * times,
            self.keep_alives + more.keep_alives * times,
            self.other_requests + more.other_requests * times,
            self.watch_messages + more.watch_messages * times,
        )

    def since(self, earlier: Counts) -> Counts:
        return self.plus(earlier, -1)

    def per(self, times: float) -> Counts:
        return _NOTHING.plus(self, 1 / times)

    @property
    def all(self) -> float:
        return self.transactions + self.keep_alives + self.other_requests + self.watch_messages


_NOTHING: Final = Counts(0.0, 0.0, 0.0, 0.0)


class Meter:
    """The server's counters, less what asking for them adds."""

    def __init__(self, store: str, endpoint: str) -> None:
        self._store = store
        self._endpoint = endpoint
        self._asked = 0
        readings = [self._read() for _ in range(_CALIBRATIONS)]
        self._asking = min((b.since(a) for a, b in itertools.pairwise(readings)), key=lambda counts: counts.all)

    def now(self) -> Counts:
        """What the server has done for others since some fixed moment."""
        self._asked += 1
        return self._read().plus(self._asking, -self._asked)

    async def still(self) -> Counts:
        """The same, once the server has nothing more to do for us. It tells nobody when: ask until it stays so.

        A keep-alive now and then is no work in hand.
        """
        before = self.now()
        for _ in range(_STILL_TRIES_MAX):
            await asyncio.sleep(_STILL_SECONDS)
            now = self.now()
            if now.since(before).all <= 1.0:
                return now
            before = now
        raise RuntimeError(f"{self._endpoint} did not come to rest: is somebody else connected to it?")

    def _read(self) -> Counts:
        if self._store == "etcd":
            return _etcd(etcd_counters(self._endpoint))
        return _zookeeper(zk_four_letter(self._endpoint, "srvr"))


def _etcd(counters: dict[str, float]) -> Counts:
    """Of a stream each message is a request: one may carry keep-alives for as long as its client lives."""
    unary = {name: n for name, n in counters.items() if name.startswith("started:")}
    unary.pop("started:Watch", None)
    unary.pop("started:LeaseKeepAlive", None)
    transactions = unary.pop("started:Txn", 0.0)
    watch_messages = counters.get("received:Watch", 0.0) + counters.get("sent:Watch", 0.0)
    return Counts(transactions, counters.get("received:LeaseKeepAlive", 0.0), sum(unary.values()), watch_messages)


def _zookeeper(report: str) -> Counts:
    """It tells packets only. Each one received is a request and answered by one; what is sent beyond is watch events.

    From `srvr` and not `mntr`: the same counters, but an answer of one packet, so that asking always adds the same.
    """
    lines = dict(line.split(": ", 1) for line in report.splitlines() if ": " in line)
    received, sent = float(lines["Received"]), float(lines["Sent"])
    return Counts(0.0, 0.0, received, sent - received)


@dataclass(frozen=True)
class Footprint:
    """What a process takes at one moment."""

    memory_megabytes: float
    threads: int
    sockets: int
    """Connections of TCP. An event loop's own pair to wake it is none."""
    descriptors: int


def footprint() -> Footprint:
    """Of this process, after the garbage has gone."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE_BYTES / _MEGA
    connections = _tcp_inodes()
    descriptors = os.listdir("/proc/self/fd")
    sockets = sum(_inode(number) in connections for number in descriptors)
    return Footprint(resident, threading.active_count(), sockets, len(descriptors) - 1)  # one lists them


def _tcp_inodes() -> set[str]:
    tables = [Path(f"/proc/self/net/{kind}") for kind in ("tcp", "tcp6")]
    return {line.split()[9] for table in tables if table.exists() for line in table.read_text("ascii").splitlines()[1:]}


def _inode(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}").removeprefix("socket:[").removesuffix("]")
    except OSError:
        return ""
