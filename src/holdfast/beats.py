"""Beats: the timed renewals of one lease, until its belief ends.

A timer submits each to the backend's heart, a thread that renews all leases: a store that is away may block it, but
nobody else. There is no retry within: the next beat is the retry, soon where one failed; if none succeeds, the clock
ends the belief.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.belief import EXPIRED, Belief, provable
from holdfast.clock import Timer
from holdfast.errors import ClientClosed, HoldfastError, StoreWentBack
from holdfast.lease import Lease, LeaseState, Surroundings, Workers
from holdfast.limits import REQUEST_TIMEOUT_DEFAULT, RETRY_PAUSE_FIRST

_SOONER: Final = 8
"""After a failure the next beat comes in a share of the usual time."""


class Beats:
    """Of one lease. `keep_alive` renews it once, until a time, and says whether the store still has it."""

    def __init__(
        self,
        lease: Lease,
        belief: Belief,
        keep_alive: Callable[[float], bool],
        longest: Callable[[], float],
        around: Surroundings,
        heart: Workers,
    ) -> None:
        self._lease = lease
        self._belief = belief
        self._keep_alive = keep_alive
        self._longest = longest
        self._around = around
        self._clock = around.clock
        self._heart = heart
        self._timer: Timer | None = None

    def start(self) -> None:
        """Once the lease is granted. Before it is believed in: an interrupt must not leave one that nobody renews."""
        self._after(self._interval)

    def stop(self) -> None:
        """The belief has ended."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _interval(self) -> float:
        return provable(self._lease.ttl) / 3

    def _after(self, seconds: float) -> None:
        if not self._belief.state.over:
            before, self._timer = self._timer, self._clock.schedule(self._clock.now() + seconds, self._soon)
            if before is not None:
                before.cancel()

    def _soon(self) -> None:
        try:
            self._heart.submit(self._beat)
        except ClientClosed:
            pass  # the backend is closed, and the lease with it
        except HoldfastError as error:  # no thread for it just now
            self._failed(error)

    def _beat(self) -> None:
        if self._belief.state.over:
            return
        until = self._clock.now() + min(self._longest(), max(self._belief.remaining(), RETRY_PAUSE_FIRST))
        try:
            alive = self._keep_alive(until)
        except StoreWentBack as error:
            self._belief.end(LeaseState.LOST, str(error))
            return
        except Exception as error:  # even a bug of ours: the next beat is the retry; the clock ends it if none succeeds
            self._failed(error)
            return
        if alive:
            self._after(self._interval)
        else:
            self._belief.end(LeaseState.LOST, EXPIRED)

    def _failed(self, error: Exception) -> None:
        self._around.hub.emit("renewal_failed", lease_id=self._lease.id, ttl=self._lease.ttl, reason=str(error))
        self._after(self._interval / _SOONER)


def end_quietly(end: Callable[[float], None], ttl: float, around: Surroundings) -> None:
    """In the background: what we stopped believing in should not block others for longer than it must."""

    def work() -> None:
        try:
            end(around.clock.now() + min(ttl, REQUEST_TIMEOUT_DEFAULT))  # others want the thread, too
        except HoldfastError:
            return  # nobody renews it any more: its TTL ends it

    try:
        around.workers.submit(work)
    except HoldfastError:  # closed, or no thread for it
        return
