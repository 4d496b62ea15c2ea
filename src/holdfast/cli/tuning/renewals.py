"""How long the store takes to renew a lease, and which TTLs it grants: asked with scratch locks, all given back."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import holdfast
from holdfast.cli.tuning.samples import Samples
from holdfast.errors import LeaseLost, StoreUnavailable

_EVERY_SECONDS: Final = 0.01
_TTL_SECONDS: Final = 15.0
_TTL_SHORT: Final = 1.0
_TTL_LONG: Final = 3600.0

Connect: TypeAlias = Callable[[float], AbstractContextManager[holdfast.Client]]


@dataclass(frozen=True)
class Renewals:
    """What was measured."""

    took: Samples = field(default_factory=Samples)
    failed: list[str] = field(default_factory=list)
    """Why, of each that failed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which TTLs the store grants, in seconds."""

    least: float
    most: float | None
    """None: an hour, and more."""


def scratch_name(what: str) -> str:
    """The name of a line that nobody else uses."""
    return f"holdfast-{what}-{secrets.token_hex(6)}"


def measure_renewals(client: holdfast.Client, seconds: float) -> Renewals:
    """Renew one lease again and again. Raises HoldfastError where that can't even begin, or never once succeeds."""
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
            time.sleep(min(_EVERY_SECONDS, max(0.0, left)))
    finally:
        hold.release()
    if not measured.took:
        raise StoreUnavailable(f"no renewal was answered within {seconds:g} s: {measured.failed[-1]}")
    return measured


def ask_bounds(connect: Connect) -> Bounds:
    """The least and the longest TTL that the store grants, as it answers to ones that are too short and too long.

    `connect` gives a client whose holds have that TTL. Raises HoldfastError.
    """
    least, most = (_granted(connect, ttl) for ttl in (_TTL_SHORT, _TTL_LONG))
    return Bounds(least, None if most >= _TTL_LONG else most)


def _granted(connect: Connect, ttl: float) -> float:
    with connect(ttl) as client:
        hold = client.lock(scratch_name("ttl")).acquire(timeout=_TTL_SECONDS)
        try:
            return hold.ttl
        finally:
            hold.release()
