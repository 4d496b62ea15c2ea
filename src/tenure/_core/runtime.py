"""The runtime of a client: its backend, leases, background threads and clock.

Everything a face does is a generator made here or in a recipe; the face only says which driver
carries it out. Lifetimes: a runtime lives as long as its client; a lease from the first need of its
TTL until it is lost or the runtime closes; a hold from its turn until it is released or lost.

A forked child has its parent's runtime, but not its threads, and its sockets and leases are the parent's. So its first
use of a client makes all of these anew, where the parent had not used it, or `after_fork` says so; else it is refused.

`runtime_of(client)` is the seam for the layers above that need more than a face shows.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast

from tenure._admin.journal import Journal
from tenure._admin.operator import OperatorSteps
from tenure._admin.protocol import HasAdmin, StoreAdmin
from tenure._core.base import validation
from tenure._core.base.clock import SYSTEM_CLOCK, Clock
from tenure._core.base.limits import (
    BACKGROUND_THREADS_MAX,
    EXIT_SECONDS,
    LEASES_MAX,
    LOOP_LOOK_SECONDS,
    RETRY_PAUSE_MAX,
    WORKERS_MAX,
)
from tenure._core.base.options import Options
from tenure._core.base.retry import jittered
from tenure._core.base.signals import Signal
from tenure._core.base.threads import Helpers, generation, refuse_child, warn
from tenure._core.base.validation import encode
from tenure._core.delegation import Delegation, HasDelegation
from tenure._core.hold import HoldContext, Holding
from tenure._core.hold_watch import HELD_HERE, EventLoop, HoldWatch
from tenure._core.lease import Backend, BackendContext, Entry, Lease, LeaseState, Mode, Workers, forwards, goes_aside
from tenure._core.recipes.request import LineRequest
from tenure._core.turn import NeverEntered, Patience, Steps, Turn, emit_abandoned, take_turn
from tenure.backends import open_backend
from tenure.errors import (
    AcquireTimeout,
    ClientClosed,
    ForkedClient,
    InvalidOption,
    StoreRefused,
    StoreUnavailable,
    TenureError,
)
from tenure.events import Hub
from tenure.fencing._fence import line_of

HoldOfFace = TypeVar("HoldOfFace", bound=Holding)
_log = logging.getLogger("tenure")
_open: Final[weakref.WeakSet[Runtime]] = weakref.WeakSet()
"""Clients on real time that nobody has closed; in a forked child the parent's too, which it can't close."""
_of_parents: Final[list[object]] = []
"""Parts of clients that a child has made anew. Kept: finalizing them could wait for a lock that a lost thread had."""
_adopting = threading.RLock()  # guards the making anew


def _lose_adopting() -> None:
    global _adopting
    _adopting = threading.RLock()


os.register_at_fork(after_in_child=_lose_adopting)


class ClosableWorkers(Workers, Protocol):
    """Workers that end with the client; `Helpers` are such."""

    @property
    def idle(self) -> bool:
        """True where none of them has anything to do."""

    def close(self, seconds: float) -> None:
        """Take no more work, finish what was taken, wait for that at most `seconds`."""


class Runtime:
    """Parts that one client of either face is made of. Thread-safe.

    `helpers` makes its background threads from a name and their number; a simulation passes queues of its own.
    `caller` returns the calling thread, or what a simulation has in its place.
    """

    def __init__(
        self,
        options: Options,
        clock: Clock,
        *,
        helpers: Callable[[str, int], ClosableWorkers] = Helpers,
        caller: Callable[[], object] = threading.current_thread,
    ) -> None:
        self.options: Options = options
        self.clock = clock
        self._helpers: Callable[[str, int], ClosableWorkers] = helpers
        self._caller = caller
        self.hub: Hub = Hub(clock.now)
        self.request_seconds: float = options.timeout
        # Owners by default: of this process, and of those before it.
        self._names: set[str] = {validation.checked_owner(None)}
        self._begin()
        if clock is SYSTEM_CLOCK:
            _open.add(self)

    def _begin(self) -> None:
        """Make the parts that belong to one process."""
        options, clock, helpers = self.options, self.clock, self._helpers
        self._workers: ClosableWorkers = helpers("tenure-worker", WORKERS_MAX)
        # Apart from the workers: a silent store may block all of these, and calls must not wait for them.
        self.background: ClosableWorkers = helpers("tenure-background", BACKGROUND_THREADS_MAX)
        # One thread, so that a user's callbacks come in order; and none of ours, as they may block for ever.
        self._callbacks: ClosableWorkers = helpers("tenure-callback", 1)
        self._backend: Backend = open_backend(options, BackendContext(clock, self.hub, self.background))
        self._forwards = forwards(self._backend)  # kept: every hold's fence asks for it
        self._guard = threading.RLock()  # guards _leases, _admin_lease and _looks_at_loops
        self._admin_lease: Lease | None = None
        self._leases: dict[tuple[float, float], Lease] = {}  # by TTL and lock delay
        self._said: set[float] = set()  # TTLs of which it was said that the store grants another one
        self._looks_at_loops = False
        self._closing = Signal()
        self._closed = Signal()
        self._closer: object = None
        self._closed_by: object = None
        self.operator: OperatorSteps = OperatorSteps(self.admin, clock, options.timeout, options.owner)
        self._journal: Journal | None = None
        if options.journal and options.key_places[1] is not None:  # a service keeps it for its clients
            self._journal = Journal(self._admin, clock, self.background, options.timeout)
        self._used = False
        self._born = generation()  # last: a thread that finds it takes no lock

    def _adopt(self) -> None:
        """Make the parent's client one of this process. Raises ForkedClient where the parent has used it, and no
        option says otherwise; ClientClosed where the parent has closed it."""
        if self._born == generation():
            return
        if self._used and self.options.after_fork == "refuse":
            refuse_child(self._born, "the client")
        self._refuse_closed()
        # None of the parent's locks is taken: another thread may have had it at the fork.
        with _adopting:
            if self._born == generation():
                return
            _of_parents.append(vars(self).copy())
            owner = validation.checked_owner(None)
            if self.options.owner in self._names:
                self.options = dataclasses.replace(self.options, owner=owner)
            self._names.add(owner)
            self.hub.counts.clear()
            self._begin()

    def _use(self) -> None:
        """Have the client be of this process, before anything of it is used."""
        self._adopt()
        self._used = True

    def _refuse_closed(self) -> None:
        if self._closing.is_set():
            raise ClientClosed(f"the client of {self.store} is closed; connect again")

    @property
    def workers(self) -> ClosableWorkers:
        if self._born != generation():  # asyncio asks for them before any step that could refuse it
            with contextlib.suppress(ForkedClient, ClientClosed):
                self._adopt()
        return self._workers

    @property
    def closing(self) -> Signal:
        """Set when the client is being closed."""
        return self._closing

    @property
    def closed(self) -> Signal:
        """Set when the client has been closed: the store has heard of it, as far as it answers."""
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
        """The whole name of a line in which a hold of this client stands, as its fence has it."""
        if self._forwards is not None:
            return self._forwards.line_name(resource)
        return line_of(self.namespace, resource)

    @property
    def goes_aside(self) -> bool:
        """True where a service's steps may be carried out in lanes, see lease.goes_aside."""
        return goes_aside(self._backend)

    @property
    def store(self) -> str:
        """The store's name for messages."""
        return self._backend.name

    def lease(self, ttl: float, lock_delay: float = 0.0) -> Lease:
        """The living lease of this TTL and delay; a new one where there is none or it has ended."""
        self._use()
        with self._guard:
            # Under the lock that `close` takes its list of leases with: one opened after that would stay open.
            self._refuse_closed()
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

    def admin(self) -> StoreAdmin:
        """Verbs for operators. Raises StoreRefused where the backend has none."""
        self._use()
        self._refuse_closed()
        return self._admin()

    def _admin(self) -> StoreAdmin:
        """Verbs for operators, by a lease that holds nothing."""
        # A lease apart: an operator's look must not cost anybody a hold, and the journal writes the end of the holds
        # that end with the client after their own leases were closed.
        with self._guard:
            lease = self._admin_lease
            if lease is None or lease.state is LeaseState.LOST:
                lease = self._admin_lease = self._backend.open(self.options.ttl, 0.0)
        if not isinstance(lease, HasAdmin):
            raise StoreRefused(f"the backend of {self.store} has nothing for operators: its leases lack `admin`")
        return lease.admin

    def open_lease(self, ttl: float, lock_delay: float) -> Lease:
        """Open a lease for a remote client of our service, which decides when it ends."""
        # Not among `_leases`, which `close` ends: a remote client may believe in it until its TTL is over, so what is
        # still open when this client closes is left to the store.
        self._use()
        self._refuse_closed()
        return self._backend.open(ttl, lock_delay)

    def delegation(self) -> Delegation | None:
        """Verbs for holds that others renew; None where the store can't have such holds."""
        self._use()
        return self._backend.delegation if isinstance(self._backend, HasDelegation) else None

    def patience(self, timeout: float | None, *, waits: bool = True) -> Patience:
        """The caller's time-out, turned into a deadline once."""
        if timeout == 0:
            return Patience(None, self.request_seconds, waits=False)
        return Patience(None if timeout is None else self.clock.now() + timeout, self.request_seconds, waits)

    def terms(self, name: str, ttl: float | None) -> tuple[str, float, str]:
        """Terms of every recipe, checked: the name, the TTL to ask for, and the owner to show."""
        encode(name)
        return name, self.options.ttl if ttl is None else validation.ttl(ttl), self.options.owner

    def pause(self) -> None:
        """Wait between two tries of something that failed for a while; at most until the client is closed."""
        self.clock.wait(self._closing, self.clock.now() + jittered(RETRY_PAUSE_MAX))

    def request_until(self) -> float:
        return self.clock.now() + self.request_seconds

    def holding(
        self, request: LineRequest, patience: Patience, make: Callable[[Turn, Entry, Lease, Runtime], HoldOfFace]
    ) -> Steps[HoldOfFace | None]:
        """Wait for a turn and `make` the face's hold of it; None where it is not at once and nobody waits."""
        lease, entry = self._begun(request)
        try:
            turn = yield from take_turn(lease, entry, request.rule, patience, self.clock, self.hub)
        except NeverEntered:
            # The lease had died unnoticed since its last use (a suspended machine, a lost server). No
            # place in any line was lost with it, so one new lease may try.
            lease, entry = self._begun(request)
            turn = yield from take_turn(lease, entry, request.rule, patience, self.clock, self.hub)
        if turn is None:
            return None
        if lease.ttl != request.ttl:
            self._say_granted(lease.ttl, request.ttl)
        # From here until the caller has it the ticket has no owner but this frame.
        hold: HoldOfFace | None = None
        try:
            hold = make(turn, entry, lease, self)
            if self._journal is not None:
                self._journal.follow(hold)
        except BaseException as error:  # interrupted just here: nobody would ever release it
            lease.abandon(entry)
            if hold is None:  # a hold that was made has announced itself, and announces its own end
                emit_abandoned(turn, entry, self.hub, error)
            raise
        return hold

    def _begun(self, request: LineRequest) -> tuple[Lease, Entry]:
        """The lease for `request`, and a new entry; by this process's name where an earlier one had given its own."""
        lease, entry = self.lease(request.ttl, request.lock_delay), request.entry()
        if len(self._names) > 1 and entry.owner in self._names:
            entry = dataclasses.replace(entry, owner=self.options.owner)
        return lease, entry

    def warn_of_own(self, request: LineRequest, caller: object) -> None:
        """Warn where `caller`, a thread or task, is about to wait without an end for what it holds itself."""
        own = [watch for watch in self._held_here(request) if watch.origin.by == caller]
        if not own:
            return
        modes = {request.mode, *(watch.ticket.mode for watch in own)}
        seats = request.weight + sum(watch.ticket.weight for watch in own)
        if Mode.EXCLUSIVE in modes or (request.mode is Mode.SEAT and seats > request.limit):
            warn(
                f"{request.resource!r} is waited for without a time-out by the thread or task that holds it, "
                f"{_since(own[0])}: no lock is re-entrant, so this wait ends only if another one gives that hold up",
                RuntimeWarning,
            )

    def name_own(self, error: AcquireTimeout, request: LineRequest, caller: object) -> None:
        """Add to `error` that this process holds the name itself, where it does."""
        own = self._held_here(request)
        for who, some in (
            ("the very thread or task that waited", [watch for watch in own if watch.origin.by == caller]),
            ("this very client", [watch for watch in own if watch.context is self]),
            ("another client of this very process", own),
        ):
            if some:
                error.args = (f"{error}; {who} holds it, {_since(some[0])}",)
                return

    def _held_here(self, request: LineRequest) -> list[HoldWatch]:
        """Holds of this name that the process has. In virtual time another client stands for another process."""
        held, real = HELD_HERE.of(self.store, request.resource), self.clock is SYSTEM_CLOCK
        return [watch for watch in held if real or watch.context is self]

    def follow_loop(self, watch: HoldWatch, loop: EventLoop) -> None:
        """Look now and then whether `loop` has ended; what is held on it then is given up."""
        with self._guard:
            watch.loop = weakref.ref(loop)
            if not self._looks_at_loops:
                self._looks_at_loops = True
                self.clock.schedule(self.clock.now() + LOOP_LOOK_SECONDS, self._look_at_loops)

    def _look_at_loops(self) -> None:
        with self._guard:
            held = HELD_HERE.of_loops(self)
            self._looks_at_loops = bool(held)
            if held:
                self.clock.schedule(self.clock.now() + LOOP_LOOK_SECONDS, self._look_at_loops)
        for watch in held:
            watch.give_up_after_loop()

    def shown(self, request: LineRequest) -> str:
        """The request for people; with the granted TTL, where that is known and not the one that was asked for."""
        lease, ttl = self._leases.get((request.ttl, request.lock_delay)), f"ttl={request.ttl:g}"
        if lease is not None and lease.ttl != request.ttl:
            ttl = f"ttl={lease.ttl:g} (asked for {request.ttl:g})"
        return f"{request.resource!r} {request.mode.value} {ttl}"

    def _say_granted(self, granted: float, asked: float) -> None:
        with self._guard:
            if asked in self._said:
                return
            self._said.add(asked)
        _log.warning(
            "%s granted a ttl of %g s where ttl=%g was asked for: for so long a hold is proven without a renewal, and "
            "others wait for a holder that crashed. Ask for a ttl that this store grants",
            *(self.store, granted, asked),
        )

    def deliver(self, call: Callable[[], None]) -> None:
        """Run a user's callback on a thread of its own: it may block, and may call us back."""
        try:
            self._callbacks.submit(lambda: _guarded(call))
        except ClientClosed:
            # The end that the close itself brought about: it has to be delivered, though the thread for it is gone.
            call_soon = threading.Thread(target=_guarded, args=(call,), name="tenure-last-callback", daemon=True)
            call_soon.start()
        except StoreUnavailable:  # no thread for it just now
            # No jitter: callbacks come in the order of what happened.
            self.clock.schedule(self.clock.now() + RETRY_PAUSE_MAX, lambda: self.deliver(call))

    def statistics(self) -> dict[str, object]:
        self._adopt()
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

    def close(self, *, by: object = None, seconds: float | None = None) -> None:
        """Give up every hold at once and every thread and socket after. Idempotent, bounded.

        `by` is the task that asks for it; none: whoever calls. With `seconds` the process ends after it: no longer
        than that, and no thread is waited for.
        """
        try:
            self._adopt()
        except (ForkedClient, ClientClosed):
            return  # the parent's: nothing here is ours to close
        caller = self.caller()
        # One closer. The lock is not held while it closes: leases end in there, and whoever hears of that may call us.
        with self._guard:
            first = not self._closing.is_set()
            if first:
                self._closed_by = caller if by is None else by  # before any hold ends: their `with` bodies ask
            self._closing.set()
            leases = list(self._leases.values())
        if self._closer is caller:
            return  # a signal handler, within the call that is closing already
        if not first:  # another thread is at it: when this call returns, the holds are given up all the same
            self._closed.wait(2 * self.request_seconds if seconds is None else seconds)
            return
        self._closer = caller
        _open.discard(self)
        try:
            self._close(leases, self.request_seconds if seconds is None else seconds, seconds is None)
        finally:
            self._closer = None

    def _close(self, leases: list[Lease], seconds: float, joins: bool) -> None:
        """Close everything, in this order: delegated holds, leases, admin lease, backend, threads."""
        # An ExitStack, called from the last entry to the first: whatever fails, what comes after it is closed all the
        # same. Leases first, as their holders wait; threads last, as closing a lease may still need them.
        until, for_threads = self.clock.now() + seconds, self.request_seconds if joins else 0.0
        with contextlib.ExitStack() as rest:
            for helpers in (self._callbacks, self._workers, self.background):
                rest.callback(helpers.close, for_threads)
            rest.callback(self._closed.set)
            rest.callback(self._backend.close)
            rest.callback(self._close_admin_lease, until)
            for left, lease in enumerate(leases, 1):  # the last one first: each has its share of the time
                rest.callback(self._close_lease, lease, until, left)
            if isinstance(self._backend, HasDelegation):
                rest.callback(self._backend.delegation.close, until)

    def _close_admin_lease(self, until: float) -> None:
        try:
            if self._journal is not None:
                self._journal.close(until)
        finally:
            if self._admin_lease is not None:
                self._close_lease(self._admin_lease, until, 1)

    def _close_lease(self, lease: Lease, until: float, left: int) -> None:
        """Close one of the `left` leases that are still open, in its share of the time."""
        # Its share only: a server that does not answer for one lease must leave the others an exchange each.
        now = self.clock.now()
        never_granted = lease.state is LeaseState.HELD and not lease.remaining()
        try:
            lease.close(now + max(0.0, until - now) / left)
        except TenureError as error:  # its TTL ends it
            level = logging.DEBUG if never_granted else logging.WARNING
            _log.log(level, "a lease of %s could not be closed: %s", self.store, error)

    def __repr__(self) -> str:
        state = "closed" if self._closing.is_set() else "open"
        return f"{self.options.display} {state} owner={self.options.owner!r}"


class HasRuntime(Protocol):
    """Client of either face, or a hold of it."""

    @property
    def _runtime(self) -> HoldContext: ...


def runtime_of(owner: HasRuntime) -> Runtime:
    """The runtime of a client or of a hold: the one seam below the two faces.

    For our own layers above them, which need what no face shows: the service (holds for others, by steps of its own),
    the test kit (faults, recording), the tests and the benchmarks. It is not promised to users: what it gives may
    change with every release.
    """
    return cast(Runtime, owner._runtime)  # a hold knows only what it needs of it


@atexit.register
def close_open_clients() -> None:
    """Close the clients that nobody has closed, in EXIT_SECONDS together: at the end of the interpreter."""
    runtimes = [runtime for runtime in _open if runtime._born == generation()]
    until = SYSTEM_CLOCK.now() + EXIT_SECONDS
    for left, runtime in zip(range(len(runtimes), 0, -1), runtimes, strict=True):
        try:  # its share of the time: one store that is silent leaves the others theirs
            runtime.close(seconds=min(runtime.request_seconds, max(0.0, until - SYSTEM_CLOCK.now()) / left))
        except Exception:  # the end of the process is the end of the rest, too
            _log.exception("the client of %s could not be closed at the end of the process", runtime.store)


def on_sigterm() -> None:
    """Close every client of this process, of both faces, when SIGTERM comes; then SIGTERM does what it did before.

    Holds are given up at once, in some seconds where a store is silent, and mostly the process ends right after: `with`
    bodies don't get to their end. For programs that have no shutdown of their own; call it once, before servers and
    frameworks set their handlers. Without it SIGTERM ends Python as a crash does, and the TTL ends the holds. Raises
    ValueError outside of the main thread, as `signal.signal` does.
    """
    before = signal.getsignal(signal.SIGTERM)

    def close_and_end(number: int, frame: Any) -> None:  # Any: a frame object, handed on
        close_open_clients()
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    if before is not signal.SIG_IGN:  # whoever is not to be ended by it keeps its holds
        signal.signal(signal.SIGTERM, close_and_end)


def _since(watch: HoldWatch) -> str:
    seconds = watch.context.clock.now() - watch.since
    return f"acquired {seconds:.1f} s ago at {watch.origin.file}:{watch.origin.line}"


def _guarded(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # a user's callback: its failure is theirs to see, not ours to die of
        _log.exception("an on_change callback failed")
