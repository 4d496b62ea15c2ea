"""Limits of one tenant at one service: requests a second, holds, waiting requests, streams.

Each replica counts for itself. A hold counts until it is released here, or until it would have ended by itself: a
replica does not learn that another one released or renewed it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tenure.service.http.fields import InvalidField
from tenure.service.http.problems import ProblemCode, later
from tenure.service.limits import (
    ADDRESSES_MAX,
    FAILURES_BURST,
    FAILURES_RATE,
    HOLDS_DEFAULT,
    RATE_DEFAULT,
    STREAMS_MAX,
    VALUE_BYTES_DEFAULT,
    WAITING_DEFAULT,
    WRITE_BURST_SECONDS,
    WRITE_RATE_DEFAULT,
)


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """The limits of each tenant."""

    rate: float = RATE_DEFAULT
    """Requests a second; twice as many may come at once. Renewals and releases have as much
    again of their own, so that a tenant that sends too many requests does not lose its holds for it."""
    holds: int = HOLDS_DEFAULT
    waiting: int = WAITING_DEFAULT
    value_bytes: int = VALUE_BYTES_DEFAULT
    """Of one hold's value."""
    write_rate: float = WRITE_RATE_DEFAULT
    """Bytes of names, owners, values and keys a second that are written to the store."""


class Bucket:
    """A token bucket: filled at `rate` tokens a second up to `burst`; a request takes one, or one for each byte."""

    __slots__ = ("_at", "_rate", "burst", "left")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self.burst, self.left, self._at = rate, burst, burst, now

    def take(self, now: float, amount: float = 1.0) -> float:
        """Take tokens and return 0.0; without enough left, return the seconds until there are."""
        amount = min(amount, self.burst)
        self.left = min(self.burst, self.left + (now - self._at) * self._rate)
        self._at = now
        if self.left >= amount:
            self.left -= amount
            return 0.0
        return (amount - self.left) / self._rate


class Usage:
    """The present use of one service by one tenant."""

    def __init__(self, limits: TenantLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._bucket = Bucket(limits.rate, max(1.0, 2 * limits.rate), now())
        self._keeping = Bucket(limits.rate, max(1.0, 2 * limits.rate), now())
        self._written = Bucket(limits.write_rate, WRITE_BURST_SECONDS * limits.write_rate, now())
        self._holds: dict[str, float] = {}  # by id: when they end, unless renewed
        self._acquiring = 0
        self._streams = 0

    def request(self, *, keeps: bool) -> None:
        """Count a request. One that renews or releases (`keeps`) is counted apart. Raises Problem (429)."""
        wait = (self._keeping if keeps else self._bucket).take(self._now())
        if wait:
            raise later(
                ProblemCode.RATE_LIMITED,
                f"this tenant may send {self._limits.rate:g} requests a second; come back later",
                wait,
            )

    def writes(self, value: str, beside: int = 0) -> None:
        """Count what is to be written: a hold's value, and bytes beside. Raises InvalidField, Problem (429)."""
        size, limits = len(value.encode()), self._limits
        if size > limits.value_bytes:
            raise InvalidField(f"value may have at most {limits.value_bytes} bytes here, this one has {size}")
        wait = self._written.take(self._now(), size + beside)
        if wait:
            detail = f"this tenant may have {limits.write_rate:g} bytes a second written to the store; come back later"
            raise later(ProblemCode.RATE_LIMITED, detail, wait)

    @contextmanager
    def acquiring(self) -> Iterator[None]:
        """Count an acquire inside the block. Raises Problem (429)."""
        if self._acquiring >= self._limits.waiting:
            raise later(
                ProblemCode.TOO_MANY_WAITING,
                f"{self._limits.waiting} requests of this tenant wait here already: no more may",
            )
        if len(self._holds) + self._acquiring >= self._limits.holds:
            self._forget_ended()
        if len(self._holds) + self._acquiring >= self._limits.holds:
            raise later(
                ProblemCode.TOO_MANY_HOLDS,
                f"this tenant may have {self._limits.holds} holds here, those that it waits for included: release some",
            )
        self._acquiring += 1
        try:
            yield
        finally:
            self._acquiring -= 1

    def held(self, hold_id: str, seconds: float) -> None:
        """Count a hold, which ends after `seconds` unless it is renewed."""
        self._holds[hold_id] = self._now() + seconds

    def gone(self, hold_id: str) -> None:
        """Count a hold no longer."""
        self._holds.pop(hold_id, None)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Count a stream inside the block. Raises Problem (429)."""
        if self._streams >= STREAMS_MAX:
            raise later(ProblemCode.TOO_MANY_STREAMS, f"{STREAMS_MAX} streams of this tenant are open here: close some")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def figures(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the limits by name, and what is used of each, as of the request that asks."""
        self._forget_ended()
        self._written.take(self._now(), 0.0)  # filled up to now
        allowed, asked, written = self._limits, self._bucket, self._written
        limits = {"requestsAtOnce": asked.burst, "bytesAtOnce": round(written.burst), "valueBytes": allowed.value_bytes}
        limits |= {"holds": allowed.holds, "waiting": allowed.waiting, "streams": STREAMS_MAX}
        used = {"requestsAtOnce": asked.burst - asked.left, "bytesAtOnce": round(written.burst - written.left)}
        return limits, used | {"holds": len(self._holds), "waiting": self._acquiring, "streams": self._streams}

    def _forget_ended(self) -> None:
        now = self._now()
        self._holds = {hold_id: end for hold_id, end in self._holds.items() if end > now}


class Limits:
    """The usage of every tenant, and the failures of every address."""

    def __init__(self, limits: TenantLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._usage: dict[str, Usage] = {}
        self._failures: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, tenant: str) -> Usage:
        """Return the usage of that tenant. There are no more than tenants in the file of tokens."""
        if tenant not in self._usage:
            self._usage[tenant] = Usage(self._limits, self._now)
        return self._usage[tenant]

    def failure(self, address: str) -> float:
        """Count a wrong token from an address. Returns the seconds until the next one is answered; 0.0: at once."""
        bucket = self._failures.pop(address, None) or Bucket(FAILURES_RATE, FAILURES_BURST, self._now())
        self._failures[address] = bucket  # at the end: the one that failed last is forgotten last
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)
        return bucket.take(self._now())
