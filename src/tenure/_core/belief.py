"""Belief: what this process can prove about one lease, and who must hear when that changes.

The whole of law 2 is here. A belief is one number, the deadline, and it ends by the clock alone:
`state` and `remaining()` are computed at every reading, so a process that was stopped for twice the
TTL finds out on its first look. A timer reads the same clock to tell those who do not look.

Once ended a belief never comes back, even if the store later says that the lease had survived:
somebody may have heard "lost" and stopped working.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tenure._core.base.clock import Clock, Timer
from tenure._core.base.signals import Signal
from tenure._core.lease import LeaseState

_log = logging.getLogger("tenure")
StateListener = Callable[[LeaseState, str], None]
_UNPROVEN = "no renewal was answered before its time to live was over"
EXPIRED = "the store says that the lease has expired or was revoked"
SUSPECT_BELOW = 0.5
"""Share of the longest proof so far: with renewals at a third, two in a row went unanswered."""


def provable(ttl: float) -> float:
    """Seconds for which an answer proves a lease of `ttl` granted seconds; less than that, as clocks drift apart."""
    return ttl - min(0.01 + 0.01 * ttl, 0.2 * ttl)


class Belief:
    """State of one lease, computed from its deadline. Thread-safe; readings take no lock."""

    def __init__(self, clock: Clock, ttl: float) -> None:
        self._clock = clock
        self._guard = threading.RLock()  # guards everything below but the deadline's reading
        self._deadline: float | None = None  # None: nothing asked of the store yet
        self._suspect_below = ttl * SUSPECT_BELOW
        self._ended: tuple[LeaseState, str] | None = None
        self._announced = LeaseState.HELD
        self._listeners: dict[object, StateListener] = {}
        self._signals: dict[Signal, None] = {}  # woken in the order in which they came
        self._timer: Timer | None = None

    @property
    def proven(self) -> bool:
        """True once the store has answered for the lease."""
        return self._deadline is not None

    @property
    def deadline(self) -> float | None:
        return self._deadline

    @property
    def state(self) -> LeaseState:
        if self._ended is not None:
            return self._ended[0]
        if self._deadline is None:
            return LeaseState.HELD
        left = self._deadline - self._clock.now()
        if left <= 0.0:
            return LeaseState.LOST
        return LeaseState.SUSPECT if left < self._suspect_below else LeaseState.HELD

    @property
    def reason(self) -> str:
        """Reason of the end; "" before it."""
        if self._ended is not None:
            return self._ended[1]
        return _UNPROVEN if self.state is LeaseState.LOST else ""

    def remaining(self) -> float:
        if self._ended is not None or self._deadline is None:
            return 0.0
        return max(0.0, self._deadline - self._clock.now())

    def prove(self, sent: float, lifetime: float, *, lag: float = 0.0, anew: bool = False) -> bool:
        """An answer proved the lease for `lifetime` seconds from `sent`. False: too late, it has ended.

        `lag` is how old a proof already is, at best, when it arrives. `anew`: the store has granted the lease anew,
        and perhaps for less: what was proven before is void.
        """
        with self._guard:
            # Too late, whatever the answer says: somebody may have read "lost" by now.
            if self.state.over:
                self._announce()
                return False
            before, deadline = self._deadline, sent + lifetime
            if before is not None and anew and deadline < before:
                self._deadline = deadline
                self._forget_timer()  # it would come too late
            else:
                self._deadline = deadline if before is None else max(before, deadline)
            self._suspect_below = (lifetime - lag) * SUSPECT_BELOW
            if before is not None and self._clock.now() >= before:  # a reading meanwhile, without the lock, said "lost"
                self._ended = (LeaseState.LOST, _UNPROVEN)
            self._announce()
            return self._ended is None

    def end(self, state: LeaseState, reason: str) -> None:
        """End the belief, whatever the clock says; unless the clock has ended it before."""
        with self._guard:
            if self._ended is None and self.state is not LeaseState.LOST:
                self._ended = (state, reason)
            self._announce()

    def on_change(self, listener: StateListener) -> Callable[[], None]:
        stop = _StopListening(self)
        with self._guard:
            self._listeners[stop] = listener
        return stop

    def forget(self, stop: object) -> None:
        """Drop the listener for which `on_change` returned `stop`."""
        with self._guard:
            self._listeners.pop(stop, None)

    def add_signal(self, signal: Signal) -> None:
        """Set `signal` when the belief ends."""
        with self._guard:
            if self._ended is None:
                self._signals[signal] = None
                return
        signal.set()

    def drop_signal(self, signal: Signal) -> None:
        with self._guard:
            self._signals.pop(signal, None)

    def _announce(self) -> None:
        """Announce the state the clock shows now, and come back when it would change. Guard held."""
        # One reading for all listeners: two that disagree about the state could not both be right.
        state, reason = self.state, self.reason
        if state is LeaseState.LOST and self._ended is None:
            self._ended = (state, reason)
        if state is not self._announced:
            self._announced = state
            self._forget_timer()
            for listener in list(self._listeners.values()):  # a copy: a listener may stop listening
                self._call(listener, state, reason)
        if self._ended is not None:
            self._forget_timer()
            # Taken first, set second: a callback of one may drop or add another.
            signals, self._signals = self._signals, {}
            for signal in signals:
                signal.set()
        elif self._timer is None and self._deadline is not None:
            # The first moment at which the state could differ from the announced one; a timer that
            # finds the deadline moved on simply comes back later, so renewals need not touch it.
            early = self._deadline - self._suspect_below
            due = self._deadline if state is LeaseState.SUSPECT else early
            self._timer = self._clock.schedule(due + 0.001, self._look_at_clock)

    def _call(self, listener: StateListener, state: LeaseState, reason: str) -> None:
        try:
            listener(state, reason)
        except (Exception, SystemExit):  # one listener's failure must not keep the loss from the others
            _log.exception("a listener to a lease's state failed; please report this")

    def _look_at_clock(self) -> None:
        with self._guard:
            self._timer = None
            self._announce()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _StopListening:
    """Function that drops one listener. An object with one slot, because every hold has one."""

    __slots__ = ("_belief",)

    def __init__(self, belief: Belief) -> None:
        self._belief = belief

    def __call__(self) -> None:
        self._belief.forget(self)
