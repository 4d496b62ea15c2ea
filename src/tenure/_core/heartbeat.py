"""Heartbeat: the timed renewals of one lease, until its belief ends.

A timer submits each to the backend's renewal thread, which renews all leases of that backend: a store that is away may
block it, but nothing else. No renewal retries: the next one is the retry, soon after one that failed; if none succeeds,
the clock ends the belief.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenure._core.base.clock import Timer
from tenure._core.base.limits import REQUEST_TIMEOUT_DEFAULT, RETRY_PAUSE_FIRST
from tenure._core.base.retry import jittered
from tenure._core.belief import EXPIRED, Belief, provable
from tenure._core.lease import BackendContext, Lease, LeaseState, Workers
from tenure.errors import ClientClosed, StoreWentBack, TenureError

_SOONER: Final = 8
"""After a failure the next renewal comes in this share of the usual time."""


class Heartbeat:
    """Heartbeat of one lease. `keep_alive` renews it once, until a deadline; False: the store has it no more.

    `longest` gives the longest time that one renewal may take.
    """

    def __init__(
        self,
        lease: Lease,
        belief: Belief,
        keep_alive: Callable[[float], bool],
        longest: Callable[[], float],
        context: BackendContext,
        renewal_thread: Workers,
    ) -> None:
        self._lease = lease
        self._belief = belief
        self._keep_alive = keep_alive
        self._longest = longest
        self._context = context
        self._clock = context.clock
        self._renewal_thread = renewal_thread
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin, once the lease is granted."""
        # Callers do so before they believe in it: an interrupt in between must not leave a lease that nobody renews.
        self._after(self._interval)

    def stop(self) -> None:
        """End, with the belief."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _interval(self) -> float:
        # A third: two renewals in a row may fail before the belief is at its end.
        return provable(self._lease.ttl) / 3

    def _after(self, seconds: float) -> None:
        if not self._belief.state.over:
            # First the new timer, then the old one goes: an interrupt in between leaves one too many, never none.
            before, self._timer = self._timer, self._clock.schedule(self._clock.now() + seconds, self._soon)
            if before is not None:
                before.cancel()

    def _soon(self) -> None:
        # On the clock's thread, which serves every timer of the process: the request goes elsewhere.
        try:
            self._renewal_thread.submit(self._beat)
        except ClientClosed:
            pass  # the backend is closed, and the lease with it
        except TenureError as error:  # no thread for it just now
            self._failed(error)

    def _beat(self) -> None:
        if self._belief.state.over:
            return
        # No longer than the belief lasts, as an answer after that comes too late; but for a moment at least, or the
        # last try could not be made at all.
        until = self._clock.now() + min(self._longest(), max(self._belief.remaining(), RETRY_PAUSE_FIRST))
        try:
            alive = self._keep_alive(until)
        except StoreWentBack as error:  # for good: no later renewal could be trusted
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
        self._context.hub.emit("renewal_failed", lease_id=self._lease.id, ttl=self._lease.ttl, reason=str(error))
        self._after(jittered(self._interval / _SOONER))


def end_quietly(end: Callable[[float], None], ttl: float, context: BackendContext) -> None:
    """End at the store, in the background, what this client has stopped believing in: others may wait for it to go."""

    def work() -> None:
        try:
            end(context.clock.now() + min(ttl, REQUEST_TIMEOUT_DEFAULT))  # others want the thread, too
        except TenureError:
            return  # nobody renews it any more: its TTL ends it

    try:
        context.workers.submit(work)
    except TenureError:  # closed, or no thread for it
        return
