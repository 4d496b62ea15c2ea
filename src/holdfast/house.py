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
from holdfast.desk import Desk
from holdfast.entrusting import Entrusting, Entrusts
from holdfast.errors import ClientClosed, HoldfastError, InvalidOption, StoreRefused, StoreUnavailable
from holdfast.events import Hub
from holdfast.fence import line_of
from holdfast.forks import generation, refuse_child
from holdfast.helpers import Helpers
from holdfast.hold import Holding
from holdfast.journal import Journal
from holdfast.lease import Backend, Entry, Lease, LeaseState, Surroundings, Workers, forwards, goes_aside
from holdfast.limits import CHORES_MAX, LEASES_MAX, RETRY_PAUSE_MAX, WORKERS_MAX
from holdfast.names import encode
from holdfast.operating import Operable, Operating
from holdfast.options import Options
from holdfast.recipes.ask import Ask
from holdfast.signals import Signal
from holdfast.turn import NeverEntered, Patience, Steps, Turn, take_turn, tell_abandoned

HoldOfFace = TypeVar("HoldOfFace", bound=Holding)
_log = logging.getLogger("holdfast")


class Crew(Workers, Protocol):
    """Workers that can be sent home; `Helpers` are such."""

    @property
    def idle(self) -> bool:
        """Has none of them anything to do?"""

    def close(self, seconds: float) -> None:
        """Take no more work, finish what was taken, wait for that at most `seconds`."""


class House:
    """What one client is made of. Thread-safe.

    `helpers` makes its background threads from a name and their number; a simulation passes queues of its own.
    `caller` says who calls: a thread, or what a simulation has in its place.
    """

    def __init__(
        self,
        options: Options,
        clock: Clock,
        *,
        helpers: Callable[[str, int], Crew] = Helpers,
        caller: Callable[[], object] = threading.current_thread,
    ) -> None:
        self.options = options
        self.clock = clock
        self._caller = caller
        self.hub = Hub(clock.now)
        self.request_seconds = options.timeout
        self.workers = helpers("holdfast-worker", WORKERS_MAX)
        self.chores = helpers("holdfast-chore", CHORES_MAX)  # apart: a silent store must not keep calls behind these
        self._callbacks = helpers("holdfast-callback", 1)
        self._backend: Backend = open_backend(options, Surroundings(clock, self.hub, self.chores))
        self._forwards = forwards(self._backend)  # asked of it for every hold
        self._born = generation()
        self._guard = threading.RLock()  # guards _leases and _own_lease
        self._own_lease: Lease | None = None
        self._leases: dict[tuple[float, float], Lease] = {}  # by TTL and lock delay
        self._closing = Signal()
        self._closed = Signal()
        self._closer: object = None
        self._closed_by: object = None
        self.desk = Desk(self.operating, clock, options.timeout, options.owner)
        self._journal: Journal | None = None
        if options.journal:
            self._journal = Journal(self._operating, clock, self.chores, options.timeout)

    @property
    def closing(self) -> Signal:
        """Set when the client is being closed."""
        return self._closing

    @property
    def closed(self) -> Signal:
        """Set when it has been: what could be told to the store was."""
        return self._closed

    @property
    def closed_by(self) -> object:
        """The thread or task that was the first to close it; None before."""
        return self._closed_by

    def caller(self) -> object:
        return self._caller()

    @property
    def namespace(self) -> str:
        return self.options.namespace

    @property
    def incarnation(self) -> int:
        return self.options.incarnation if self._forwards is None else self._forwards.incarnation

    def line_name(self, resource: str) -> str:
        """The whole name of a line in which somebody of this house stands, as its fence has it."""
        if self._forwards is not None:
            return self._forwards.line_name(resource)
        return line_of(self.namespace, resource)

    @property
    def goes_aside(self) -> bool:
        """May steps on what a service uses of it be carried out in lanes? See lease.py."""
        return goes_aside(self._backend)

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
            if lease is None or lease.state.over:
                lease = self._leases[ttl, lock_delay] = self._backend.open(ttl, lock_delay)
            return lease

    def operating(self) -> Operating:
        """What operators need of the store. Raises StoreRefused where the backend has nothing of it."""
        refuse_child(self._born, "the client")
        if self._closing.is_set():
            raise ClientClosed(f"the client of {self.store} is closed; connect again")
        return self._operating()

    def _operating(self) -> Operating:
        """Over a lease of the house's own, that holds nothing: looking must not cost anybody a hold, and what is to be
        written down of the holds that end with the client is written after their leases were closed."""
        with self._guard:
            lease = self._own_lease
            if lease is None or lease.state is LeaseState.LOST:
                lease = self._own_lease = self._backend.open(self.options.ttl, 0.0)
        if not isinstance(lease, Operable):
            raise StoreRefused(f"the backend of {self.store} has nothing for operators: its leases lack `operating`")
        return lease.operating

    def lend(self, ttl: float, lock_delay: float) -> Lease:
        """A lease for somebody behind this client, who says when it ends. What is not closed by then is left to the
        store when the client closes: it must not end before those who believe in it have stopped."""
        refuse_child(self._born, "the client")
        if self._closing.is_set():
            raise ClientClosed(f"the client of {self.store} is closed; connect again")
        return self._backend.open(ttl, lock_delay)

    def entrusting(self) -> Entrusting | None:
        """Holds that others renew; None where the store can't have such."""
        refuse_child(self._born, "the client")
        return self._backend.entrusting if isinstance(self._backend, Entrusts) else None

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
        hold: HoldOfFace | None = None
        try:
            hold = make(turn, entry, lease, self)
            if self._journal is not None:
                self._journal.follow(hold)
        except BaseException as error:  # interrupted just here: nobody would ever release it
            lease.abandon(entry)
            if hold is None:
                tell_abandoned(turn, entry, self.hub, error)
            raise
        return hold

    def deliver(self, call: Callable[[], None]) -> None:
        """Run a user's callback on a thread of its own: it may block, and may call us back."""
        try:
            self._callbacks.submit(lambda: _guarded(call))
        except ClientClosed:
            call_soon = threading.Thread(target=_guarded, args=(call,), name="holdfast-last-callback", daemon=True)
            call_soon.start()
        except StoreUnavailable:  # no thread for it just now
            self.clock.schedule(self.clock.now() + RETRY_PAUSE_MAX, lambda: self.deliver(call))

    def statistics(self) -> dict[str, object]:
        refuse_child(self._born, "the client")
        with self._guard:
            leases = list(self._leases.values())
        journal = {} if self._journal is None else {"journal": self._journal.statistics()}
        return {
            "store": self.store,
            "leases": [
                {"id": lease.id, "ttl": lease.ttl, "state": lease.state.value, "remaining": lease.remaining()}
                for lease in leases
            ],
            "events": dict(self.hub.counts),
            "backend": self._backend.statistics(),
            **journal,
        }

    def close(self, *, by: object = None) -> None:
        """Give up every hold at once and every thread and socket after. Idempotent, bounded.

        `by` is the task that asks for it; none: whoever calls.
        """
        if self._born != generation():
            return  # the parent's: nothing here is ours to close
        caller = self.caller()
        with self._guard:
            first = not self._closing.is_set()
            if first:
                self._closed_by = caller if by is None else by  # before any hold ends: their bodies ask
            self._closing.set()
            leases = list(self._leases.values())
        if self._closer is caller:
            return  # a signal handler, within the call that is closing already
        if not first:  # another thread is at it: when this call returns, the holds are given up all the same
            self._closed.wait(2 * self.request_seconds)
            return
        self._closer = caller
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
            rest.callback(self._close_own, until)
            for of, lease in enumerate(leases, 1):  # the last one first: each has its share of the time
                rest.callback(self._close_lease, lease, until, of)
            if isinstance(self._backend, Entrusts):
                rest.callback(self._backend.entrusting.close, until)

    def _close_own(self, until: float) -> None:
        try:
            if self._journal is not None:
                self._journal.close(until)
        finally:
            if self._own_lease is not None:
                self._close_lease(self._own_lease, until, 1)

    def _close_lease(self, lease: Lease, until: float, of: int) -> None:
        """One of so many that are to be closed yet: a server that says nothing costs the others no exchange."""
        now = self.clock.now()
        try:
            lease.close(now + max(0.0, until - now) / of)
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
