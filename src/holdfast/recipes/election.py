"""Election: the lock's rule, plus a value that the others read. Who is first in line leads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast import checks
from holdfast.clock import Clock
from holdfast.errors import ClientClosed, LeaseLost, StoreUnavailable
from holdfast.lease import Lease, LeaseState, Line
from holdfast.limits import RETRY_PAUSE_MAX
from holdfast.recipes.ask import Ask
from holdfast.recipes.lock import LOCK_RULE
from holdfast.signals import Signal
from holdfast.turn import Await, Steps, Survey


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, as the store's quorum said at one moment. It may be over by the time you read this."""

    value: str
    owner: str | None
    token: int
    id: str


def candidacy(name: str, value: str, ttl: float, owner: str, lock_delay: float = 0.0) -> Ask:
    """To lead `name`, and show `value` meanwhile. Raises InvalidOption."""
    return Ask(name, LOCK_RULE, ttl, owner, value=checks.text(value), lock_delay=checks.lock_delay(lock_delay))


def leader_of(line: Line) -> Leader | None:
    """The first of the line leads."""
    if not line.tickets:
        return None
    first = line.tickets[0]
    return Leader(first.value, first.owner, first.token or 0, first.id)


def looking(lease: Lease, name: str, until: float) -> Steps[Leader | None]:
    """Who leads now."""
    line: Line = yield Survey(lease, name, until, front=1)
    return leader_of(line)


class Observation:
    """One observer's view of an election. `next_change` is a generator of steps, one per change told.

    Changes are told in the order of their tokens and never twice; a leader that came and went
    between two looks may be passed over. A read that is older than what was told already (a lagging
    server after a reconnect) is dropped.
    """

    def __init__(self, name: str, lease_now: Callable[[], Lease], clock: Clock, request_seconds: float) -> None:
        self._name = name
        self._lease_now = lease_now
        self._clock = clock
        self._request_seconds = request_seconds
        self._told: Leader | None = None
        self._told_any = False
        self._highest_token = 0
        self._line: Line | None = None

    def next_change(self) -> Steps[Leader | None]:
        """Wait for the next change of leader or of its value; the first call tells who leads now."""
        while True:
            try:
                leader = yield from self._look()
            except (StoreUnavailable, LeaseLost):
                if not self._told_any:
                    raise
                yield Await(Signal(), self._clock.now() + RETRY_PAUSE_MAX)  # a store on its way back: go on asking
                self._line = None
                continue
            if self._is_news(leader):
                self._told, self._told_any = leader, True
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
        if not self._told_any:
            return True
        if leader is not None and leader.token < self._highest_token:
            return False
        return leader != self._told
