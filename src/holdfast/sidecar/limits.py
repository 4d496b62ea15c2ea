"""What one tenant may ask of one service: requests a second, holds, waiting requests, streams.

Counted by each replica for itself. A hold counts until it is released here, or until it would have ended by itself: of
one that another replica releases or renews, this one does not hear.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.sidecar.bounds import (
    ADDRESSES_MAX,
    FAILURES_BURST,
    FAILURES_RATE,
    HOLDS_DEFAULT,
    RATE_DEFAULT,
    STREAMS_MAX,
    WAITING_DEFAULT,
)
from holdfast.sidecar.problems import Code, later


@dataclass(frozen=True, slots=True)
class Most:
    """The limits of each tenant."""

    rate: float = RATE_DEFAULT
    """Requests a second; twice as many may come at once. As many again that keep holds or give them up: who asks too
    often is not to lose what it holds for it."""
    holds: int = HOLDS_DEFAULT
    waiting: int = WAITING_DEFAULT


class Bucket:
    """Tokens that come at a `rate` into a bucket for `burst` of them; each request takes one."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst, self._left, self._at = rate, burst, burst, now

    def take(self, now: float) -> float:
        """0.0 where one was there and has been taken; else the seconds until one is."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._rate


class Usage:
    """What one tenant has of this service now."""

    def __init__(self, most: Most, now: Callable[[], float]) -> None:
        self._most = most
        self._now = now
        self._bucket = Bucket(most.rate, max(1.0, 2 * most.rate), now())
        self._keeping = Bucket(most.rate, max(1.0, 2 * most.rate), now())
        self._holds: dict[str, float] = {}  # by id: when they end, unless renewed
        self._asking = 0
        self._streams = 0

    def request(self, *, keeps: bool) -> None:
        """One request more; what `keeps` or gives up a hold is counted apart. Raises Problem (429)."""
        wait = (self._keeping if keeps else self._bucket).take(self._now())
        if wait:
            raise later(
                Code.RATE_LIMITED, f"this tenant may send {self._most.rate:g} requests a second; come back later", wait
            )

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While an acquire is under way. Raises Problem (429)."""
        if self._asking >= self._most.waiting:
            raise later(
                Code.TOO_MANY_WAITING, f"{self._most.waiting} requests of this tenant wait here already: no more may"
            )
        if len(self._holds) + self._asking >= self._most.holds:
            self._forget_ended()
        if len(self._holds) + self._asking >= self._most.holds:
            raise later(
                Code.TOO_MANY_HOLDS,
                f"this tenant may have {self._most.holds} holds here, those that it waits for included: release some",
            )
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    def held(self, hold_id: str, seconds: float) -> None:
        """It holds, for so long from now."""
        self._holds[hold_id] = self._now() + seconds

    def gone(self, hold_id: str) -> None:
        """It holds no longer."""
        self._holds.pop(hold_id, None)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """While a stream is open. Raises Problem (429)."""
        if self._streams >= STREAMS_MAX:
            raise later(Code.TOO_MANY_STREAMS, f"{STREAMS_MAX} streams of this tenant are open here: close some")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def _forget_ended(self) -> None:
        now = self._now()
        self._holds = {hold_id: end for hold_id, end in self._holds.items() if end > now}


class Limits:
    """The usage of all tenants, and the failures of all addresses."""

    def __init__(self, most: Most, now: Callable[[], float]) -> None:
        self._most = most
        self._now = now
        self._usage: dict[str, Usage] = {}
        self._failures: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, tenant: str) -> Usage:
        """What that tenant uses. There are as many as the file of tokens names."""
        usage = self._usage.get(tenant)
        if usage is None:
            usage = self._usage[tenant] = Usage(self._most, self._now)
        return usage

    def failure(self, address: str) -> float:
        """Somebody there sent a wrong token: seconds to wait before the next try is worth an answer; 0.0: none."""
        bucket = self._failures.pop(address, None) or Bucket(FAILURES_RATE, FAILURES_BURST, self._now())
        self._failures[address] = bucket  # the last one heard of is forgotten last
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)
        return bucket.take(self._now())
