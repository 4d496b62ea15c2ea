"""The house both faces live in: one backend, its leases, its helpers' threads, its clock.

Everything a face does is a generator made here or in a recipe; the face only says which driver
carries it out. Lifetimes: a house lives as long as its client; a lease from the first need of its
TTL until it is lost or the house closes; a hold from its turn until it is released or lost.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from holdfast import checks
from holdfast.backends import open_backend
from holdfast.clock import Clock
from holdfast.errors import ClientClosed, HoldfastError, InvalidOption
from holdfast.events import Hub
from holdfast.forks import generation, refuse_child
from holdfast.helpers import Helpers
from holdfast.hold import Holding
from holdfast.lease import Backend, Entry, Lease, LeaseState, Surroundings, Workers
from holdfast.limits import CHORES_MAX, LEASES_MAX, RETRY_PAUSE_MAX, WORKERS_MAX
from holdfast.names import encode
from holdfast.options import Options
from holdfast.recipes.ask import Ask
from holdfast.signals import Signal
from holdfast.turn import NeverEntered, Patience, Steps, Turn, take_turn

HoldOfFace = TypeVar("HoldOfFace", bound=Holding)
_log = logging.getLogger("holdfast")


class Crew(Workers, Protocol):
    """Workers that can be sent home; `Helpers` are such."""

    def close(self, seconds: float) -> None:
        """Take no more work, finish what was taken, wait for that at most `seconds`."""


class House:
    """What one client is made of. Thread-safe.

    `helpers` makes its background threads from a name and their number; a simulation passes queues of its own.
    """

    def __init__(self, options: Options, clock: Clock, *, helpers: Callable[[str, int], Crew] = Helpers) -> None:
        self.options = options
        self.clock = clock
        self.hub = Hub(clock.now)
        self.request_seconds = options.timeout
        self.workers = helpers("holdfast-worker", WORKERS_MAX)
        self.chores = helpers("holdfast-chore", CHORES_MAX)  # apart: a silent store must not keep calls behind these
        self._callbacks = helpers("holdfast-callback", 1)
        self._backend: Backend = open_backend(options, Surroundings(clock, self.hub, self.chores))
        self._born = generation()
        self._guard = threading.RLock()  # guards _leases
        self._leases: dict[tuple[float, float], Lease] = {}  # by TTL and lock delay
        self._closing = Signal()
        self._closed = Signal()
        self._closer: int | None = None

    @property
    def closing(self) -> Signal:
        """Set when the client is being closed."""
        return self._closing

    @property
    def namespace(self) -> str:
        return self.options.namespace

    @property
    def incarnation(self) -> int:
        return self.options.incarnation

    @property
    def store(self) -> str:
        """The store's name for messages."""
        return self._backend.name

    def lease(self, ttl: float, lock_delay: float = 0.0) -> Lease:
        """The living lease of this TTL and delay; a new one where there is none or it has ended."""
        refuse_child(self._born, "the client")
        with self._guard:
            if self._closing.is_set():
                raise ClientClosed(f"the client of {self.store} is closed; connect again")
            lease = self._leases.get((ttl, lock_delay))
            if lease is None and len(self._leases) >= LEASES_MAX:
                known = ", ".join(
                    f"{known:g}+{delay:g}" if delay else f"{known:g}" for known, delay in sorted(self._leases)
                )
                raise InvalidOption(
                    f"a client keeps one lease per ttl and lock_delay, and at most {LEASES_MAX}: ttl={ttl:g} would "
                    f"be one more. Use a few fixed values (in use: {known})"
                )
            if lease is None or lease.state in (LeaseState.LOST, LeaseState.CLOSED):
                lease = self._leases[ttl, lock_delay] = self._backend.open(ttl, lock_delay)
            return lease

    def patience(self, timeout: float | None, *, waits: bool = True) -> Patience:
        """The caller's time-out, turned into a deadline once."""
        if timeout == 0:
            return Patience(None, self.request_seconds, waits=False)
        return Patience(None if timeout is None else self.clock.now() + timeout, self.request_seconds, waits)

    def who(self, name: str, ttl: float | None) -> tuple[str, float, str]:
        """What every recipe needs, checked: the name, the TTL to ask for, and the owner to show."""
        encode(name)
        return name, self.options.ttl if ttl is None else checks.ttl(ttl), self.options.owner

    def pause(self) -> None:
        """Between two tries of something that failed for a while; ends early when the client is closed."""
        self.clock.wait(self._closing, self.clock.now() + RETRY_PAUSE_MAX)

    def request_until(self) -> float:
        return self.clock.now() + self.request_seconds

    def holding(
        self, ask: Ask, patience: Patience, make: Callable[[Turn, Entry, Lease, House], HoldOfFace]
    ) -> Steps[HoldOfFace | None]:
        """Wait for a turn and `make` the face's hold of it; None where it is not at once and nobody waits."""
        lease, entry = self.lease(ask.ttl, ask.lock_delay), ask.entry()
        try:
            turn = yield from take_turn(lease, entry, ask.rule, patience, self.clock, self.hub)
        except NeverEntered:
            # The lease had died unnoticed since its last use (a suspended machine, a lost server). No
            # place in any line was lost with it, so one new lease may try.
            lease, entry = self.lease(ask.ttl, ask.lock_delay), ask.entry()
            turn = yield from take_turn(lease, entry, ask.rule, patience, self.clock, self.hub)
        if turn is None:
            return None
        try:
            return make(turn, entry, lease, self)
        except BaseException:  # interrupted just here: nobody would ever release it
            lease.abandon(entry)
            raise

    def deliver(self, call: Callable[[], None]) -> None:
        """Run a user's callback on a thread of its own: it may block, and may call us back."""
        try:
            self._callbacks.submit(lambda: _guarded(call))
        except ClientClosed:
            call_soon = threading.Thread(target=_guarded, args=(call,), name="holdfast-last-callback", daemon=True)
            call_soon.start()

    def statistics(self) -> dict[str, object]:
        refuse_child(self._born, "the client")
        with self._guard:
            leases = list(self._leases.values())
        return {
            "store": self.store,
            "leases": [
                {"id": lease.id, "ttl": lease.ttl, "state": lease.state.value, "remaining": lease.remaining()}
                for lease in leases
            ],
            "events": dict(self.hub.counts),
            "backend": self._backend.statistics(),
        }

    def close(self) -> None:
        """Give up every hold at once and every thread and socket after. Idempotent, bounded."""
        if self._born != generation():
            return  # the parent's: nothing here is ours to close
        with self._guard:
            first = not self._closing.is_set()
            self._closing.set()
            leases = list(self._leases.values())
        if self._closer == threading.get_ident():
            return  # a signal handler, within the call that is closing already
        if not first:  # another thread is at it: when this call returns, the holds are given up all the same
            self._closed.wait(2 * self.request_seconds)
            return
        self._closer = threading.get_ident()
        try:
            self._close(leases)
        finally:
            self._closer = None

    def _close(self, leases: list[Lease]) -> None:
        """Whatever fails, what comes after it is closed all the same."""
        until = self.request_until()
        with contextlib.ExitStack() as rest:
            rest.callback(self._callbacks.close, self.request_seconds)
            rest.callback(self.workers.close, self.request_seconds)
            rest.callback(self.chores.close, self.request_seconds)
            rest.callback(self._closed.set)
            rest.callback(self._backend.close)
            for lease in leases:
                rest.callback(self._close_lease, lease, until)

    def _close_lease(self, lease: Lease, until: float) -> None:
        try:
            lease.close(until)
        except HoldfastError as error:  # its TTL ends it
            _log.warning("a lease of %s could not be closed: %s", self.store, error)

    def __repr__(self) -> str:
        state = "closed" if self._closing.is_set() else "open"
        return f"{self.options.display} {state} owner={self.options.owner!r}"


def _guarded(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # a user's callback: its failure is theirs to see, not ours to die of
        _log.exception("an on_change callback failed")
