"""The measurements of `tenure tune`, and the advice made of them. Knows no click and no screen.

`measuring_pauses` tells how late a thread and an event loop are woken, `measure_renewals` how long the store takes to
renew a lease, `ask_bounds` which TTLs it grants. `advise` is the rule: from these numbers to a TTL that outlasts what
is to be expected, and a renewal interval that leaves time for two more tries.

    ttl > p99 pause + p99 renewal + margin          renew <= ttl / 3

A hold that is renewed at a third of its TTL has two thirds left when the renewal is due; so the TTL is taken half as
long again as the sum. The margin is what can't be measured on a good day: a change of the store's leader, which takes
one or two election time-outs (etcd's is 1 s unless configured); and never less than the worst that was seen today.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import tenure
from tenure._core.belief import provable
from tenure.errors import LeaseLost, StoreUnavailable

MARGIN_SECONDS: Final = 2.0
_TAIL: Final = 0.99
_TTL_MIN: Final = 1.0
_LEFT_WHEN_DUE: Final = 2 / 3
_WAKE_EVERY_SECONDS: Final = 0.005
_BEGIN_SECONDS: Final = 5.0
_END_SECONDS: Final = 5.0
_RENEW_EVERY_SECONDS: Final = 0.01
_TTL_SECONDS: Final = 15.0
_TTL_SHORT: Final = 1.0
_TTL_LONG: Final = 3600.0
_BOUNDS: Final = tuple(
    milliseconds / 1000
    for milliseconds in (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
)

Connect: TypeAlias = Callable[[float], AbstractContextManager[tenure.Client]]
"""A client whose holds have that TTL."""


# Durations that were measured.


class Samples:
    """Durations in seconds, their quantiles and their distribution. One thread adds; reading is for after."""

    def __init__(self) -> None:
        self._seconds: list[float] = []

    def add(self, seconds: float) -> None:
        """Add one; none is below zero, whatever the clock's grain."""
        self._seconds.append(max(0.0, seconds))

    def __len__(self) -> int:
        return len(self._seconds)

    @property
    def worst(self) -> float:
        """The longest; 0.0 where there is none."""
        return max(self._seconds, default=0.0)

    def quantile(self, share: float) -> float:
        """The duration that so large a share did not exceed; the longest where there are too few to say."""
        ordered = sorted(self._seconds)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0

    def distribution(self) -> Sequence[tuple[float, int]]:
        """Upper bounds and how many fell between one and the next, from the first that has any to the last."""
        counts = [0] * (len(_BOUNDS) + 1)
        for seconds in self._seconds:
            counts[next((i for i, bound in enumerate(_BOUNDS) if seconds <= bound), len(_BOUNDS))] += 1
        used = [i for i, count in enumerate(counts) if count]
        return list(zip((*_BOUNDS, math.inf), counts, strict=True))[used[0] : used[-1] + 1] if used else []


@dataclass(frozen=True)
class MeasuredPauses:
    """Delays with which a thread and an event loop of this process were woken."""

    thread: Samples = field(default_factory=Samples)
    loop: Samples = field(default_factory=Samples)


@dataclass(frozen=True)
class Renewals:
    """Durations of the renewals of one lease."""

    took: Samples = field(default_factory=Samples)
    failed: list[str] = field(default_factory=list)
    """Reasons of the renewals that failed."""


@dataclass(frozen=True, slots=True)
class GrantedTtls:
    """The TTLs that the store grants, in seconds."""

    minimum: float
    maximum: float | None
    """Seconds, or None for an hour and more."""


# The rule.


@dataclass(frozen=True, slots=True)
class Advice:
    """The TTL to ask for, and the figures that it follows from. Seconds."""

    ttl: float
    renew: float
    pause: float
    renewal: float
    margin: float
    by_server: bool
    """The server grants no shorter one; the rule alone would allow it."""
    refused: bool
    """The server does not grant so long a one."""


def advise(pauses: MeasuredPauses, renewals: Renewals, bounds: GrantedTtls, margin: float = MARGIN_SECONDS) -> Advice:
    """The shortest TTL, in whole seconds, that the rule allows and the server grants."""
    pause = max(pauses.thread.quantile(_TAIL), pauses.loop.quantile(_TAIL))
    renewal = renewals.took.quantile(_TAIL)
    worst = max(pauses.thread.worst, pauses.loop.worst) + renewals.took.worst
    margin = max(margin, worst - pause - renewal)
    needed = (pause + renewal + margin) / _LEFT_WHEN_DUE
    by_rule = max(_TTL_MIN, float(math.ceil(needed)))
    while provable(by_rule) * _LEFT_WHEN_DUE < pause + renewal + margin:  # less the margin for clocks that drift
        by_rule += 1.0
    ttl = max(by_rule, float(math.ceil(bounds.minimum)))
    return Advice(
        ttl=ttl,
        renew=provable(ttl) / 3,
        pause=pause,
        renewal=renewal,
        margin=margin,
        by_server=ttl > by_rule,
        refused=bounds.maximum is not None and ttl > bounds.maximum,
    )


# Pauses. What comes late here comes late to renewals too: other programs on the processors, the interpreter's lock, a
# frozen container. This process does nothing else; a busy program of the user's makes longer pauses itself.


@contextmanager
def measuring_pauses() -> Iterator[MeasuredPauses]:
    """Measure both, each in a thread of its own, for as long as the block lasts: not before both have begun."""
    import asyncio  # not above: `tenure doctor` asks for the bounds only

    pauses, stop, begun = MeasuredPauses(), threading.Event(), (threading.Event(), threading.Event())
    threads = [
        threading.Thread(target=_sleep, args=(pauses.thread, stop, begun[0]), name="tune-thread", daemon=True),
        threading.Thread(
            target=lambda: asyncio.run(_alarms(pauses.loop, stop, begun[1])), name="tune-loop", daemon=True
        ),
    ]
    for thread in threads:
        thread.start()
    try:
        for each in begun:
            each.wait(_BEGIN_SECONDS)
        yield pauses
    finally:
        stop.set()
        for thread in threads:
            thread.join(_END_SECONDS)


def _sleep(late: Samples, stop: threading.Event, begun: threading.Event) -> None:
    while not stop.is_set():
        due = time.monotonic() + _WAKE_EVERY_SECONDS
        time.sleep(_WAKE_EVERY_SECONDS)  # not `stop.wait`: its lock would be measured too
        late.add(time.monotonic() - due)
        begun.set()


async def _alarms(late: Samples, stop: threading.Event, begun: threading.Event) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    while not stop.is_set():
        due, rung = loop.time() + _WAKE_EVERY_SECONDS, asyncio.Event()
        loop.call_at(due, rung.set)
        await rung.wait()
        late.add(loop.time() - due)
        begun.set()


# The store, asked with scratch locks that are all given back.


def scratch_name(what: str) -> str:
    """The name of a line that nobody else uses."""
    return f"tenure-{what}-{secrets.token_hex(6)}"


def measure_renewals(client: tenure.Client, seconds: float) -> Renewals:
    """Renew one lease again and again. Raises TenureError where that can't even begin, or never once succeeds."""
    measured, until = Renewals(), time.monotonic() + seconds
    lock = client.lock(scratch_name("tune"), ttl=_TTL_SECONDS)
    hold = lock.acquire(timeout=_TTL_SECONDS)
    try:
        while (left := until - time.monotonic()) > 0:
            started = time.monotonic()
            try:
                hold.renew()
            except LeaseLost as error:
                measured.failed.append(str(error))
                hold = lock.acquire(timeout=_TTL_SECONDS)
            except StoreUnavailable as error:
                measured.failed.append(str(error))
            else:
                measured.took.add(time.monotonic() - started)
            time.sleep(min(_RENEW_EVERY_SECONDS, max(0.0, left)))
    finally:
        hold.release()
    if not measured.took:
        raise StoreUnavailable(f"no renewal was answered within {seconds:g} s: {measured.failed[-1]}")
    return measured


def ask_bounds(connect: Connect) -> GrantedTtls:
    """The shortest and the longest TTL that the store grants, as it answers to a too short and to a too long one.

    Raises TenureError.
    """
    minimum, maximum = (_granted(connect, ttl) for ttl in (_TTL_SHORT, _TTL_LONG))
    return GrantedTtls(minimum, None if maximum >= _TTL_LONG else maximum)


def _granted(connect: Connect, ttl: float) -> float:
    with connect(ttl) as client:
        hold = client.lock(scratch_name("ttl")).acquire(timeout=_TTL_SECONDS)
        try:
            return hold.ttl
        finally:
            hold.release()
