"""Election: the lock's rule, plus a value that the others read. Who is first in line leads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tenure._core.base import validation
from tenure._core.base.clock import Clock
from tenure._core.base.limits import RETRY_PAUSE_MAX
from tenure._core.base.retry import jittered
from tenure._core.base.signals import Signal
from tenure._core.lease import Lease, LeaseState, Line
from tenure._core.recipes.lock import LOCK_RULE
from tenure._core.recipes.request import LineRequest
from tenure._core.turn import Await, Steps, Survey
from tenure.errors import ClientClosed, LeaseLost, StoreUnavailable


@dataclass(frozen=True, slots=True)
class Leader:
    """Leader of an election, as the store's quorum said at one moment. It may be over by the time you read this."""

    value: str
    owner: str | None
    token: int
    id: str


def candidacy(name: str, value: str, ttl: float, owner: str, lock_delay: float = 0.0) -> LineRequest:
    """Request to lead `name`, and to show `value` meanwhile. Raises InvalidOption."""
    return LineRequest(
        name, LOCK_RULE, ttl, owner, value=validation.text(value), lock_delay=validation.lock_delay(lock_delay)
    )


def leader_of(line: Line) -> Leader | None:
    """The leader by this line: the first of it."""
    if not line.tickets:
        return None
    first = line.tickets[0]
    return Leader(first.value, first.owner, first.token or 0, first.id)


def looking(lease: Lease, name: str, until: float) -> Steps[Leader | None]:
    """Ask the store for the present leader."""
    line: Line = yield Survey(lease, name, until, front=1)
    return leader_of(line)


class Observation:
    """View of an election, for one observer. `next_change` is a generator of steps, one per change.

    Changes come in the order of their tokens and never twice; a leader that came and went
    between two looks may be passed over. A read that is older than the last change (of a lagging
    server, after a reconnect) is dropped.
    """

    def __init__(self, name: str, lease_now: Callable[[], Lease], clock: Clock, request_seconds: float) -> None:
        self._name = name
        self._lease_now = lease_now
        self._clock = clock
        self._request_seconds = request_seconds
        self._last: Leader | None = None
        self._seen_any = False
        self._highest_token = 0
        self._line: Line | None = None

    def next_change(self) -> Steps[Leader | None]:
        """Wait for the next change of leader or of its value; the first call returns the present leader."""
        while True:
            try:
                leader = yield from self._look()
            except (StoreUnavailable, LeaseLost):
                if not self._seen_any:
                    raise
                # a store on its way back: go on asking
                yield Await(Signal(), self._clock.now() + jittered(RETRY_PAUSE_MAX))
                self._line = None
                continue
            if self._is_news(leader):
                self._last, self._seen_any = leader, True
                self._highest_token = leader.token if leader else self._highest_token
                return leader

    def _look(self) -> Steps[Leader | None]:
        lease = self._lease_now()
        if self._line is not None:
            # whoever leads: its departure or a new value; nobody: any arrival
            signal = lease.wait_change(self._line, self._line.tickets[:1], amendments=True)
            try:
                yield Await(signal, None)  # no end: an observer stays until it or its client is closed
            finally:
                signal.close()
            if lease.state is LeaseState.CLOSED:
                raise ClientClosed(f"the client was closed while observing {self._name!r}")
        line: Line = yield Survey(self._lease_now(), self._name, self._clock.now() + self._request_seconds, front=1)
        self._line = line
        return leader_of(line)

    def _is_news(self, leader: Leader | None) -> bool:
        if not self._seen_any:
            return True
        if leader is not None and leader.token < self._highest_token:
            return False
        return leader != self._last
