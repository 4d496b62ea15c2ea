"""The blocking face. No logic of its own: it names things, and drives in the calling thread."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar, Unpack

from tenure._admin.models import AuditRecord, Explanation, JournalEntry, LineInfo, LinePage
from tenure._admin.operator import LinesWatch
from tenure._core import context
from tenure._core.base import validation
from tenure._core.base.clock import SYSTEM_CLOCK, Clock
from tenure._core.base.options import ConnectOptions, parse
from tenure._core.base.signals import Signal
from tenure._core.context import Entered
from tenure._core.drivers.blocking import Stopped, run
from tenure._core.guarded_keys import compared
from tenure._core.hold import Holding
from tenure._core.hold_watch import HoldState
from tenure._core.lease import Compare, Delete, Put, Record
from tenure._core.recipes import election, lock, rwlock, semaphore
from tenure._core.recipes.election import Leader
from tenure._core.recipes.request import LineRequest
from tenure._core.runtime import Runtime
from tenure.errors import AcquireTimeout, ClientClosed, ForkedClient, LeaseLost, StoreError, StoreUnavailable
from tenure.events import Event

Result = TypeVar("Result")


def connect(url: str | None = None, *, clock: Clock = SYSTEM_CLOCK, **options: Unpack[ConnectOptions]) -> Client:
    """A client of the store at `url`, or at TENURE_URL. Talks to nobody yet: the first call does.

    Keyword arguments are the URL's options: ttl, timeout, namespace, owner, tls, ca, cert, key, user,
    password, tick, incarnation, journal, after_fork. Raises InvalidURL, InvalidOption or InvalidName.
    """
    return Client(Runtime(parse(url, options), clock))


def assert_held(name: str, *, client: Client | None = None) -> Hold:
    """The hold of `name` that was entered around this call, proven at this moment, without asking anybody.

    For code that must not run without it: `hold = assert_held("ledger")`. It looks for the name, so give `client`
    where several clients use one; a seat or the reading side of an rwlock counts as well (`hold.fence.shared` tells).
    Raises NotHeld where none was entered here with `with`, LeaseLost where it can't be proven any longer.
    """
    return context.held_here(name, Hold, None if client is None else client._runtime)


class Client:
    """Connection of a program to one store. Thread-safe; make one and share it.

    Closing it gives up every hold at once. In a forked child it works where it was not used before the fork, and is
    refused with ForkedClient where it was; `after_fork="reconnect"` makes it a new one in each process.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def lock(self, name: str, *, ttl: float | None = None, lock_delay: float = 0.0) -> Lock:
        """A lock: one holder at a time. Raises InvalidName, InvalidOption.

        With `lock_delay` the next holder waits that many seconds longer after a holder that crashed or was
        lost, for resources that can check no token; a clean release frees at once. A waiter that crashed counts
        like a holder: from outside nobody can tell.
        """
        return Lock(self._runtime, lock.lock(*self._runtime.terms(name, ttl), lock_delay))

    def semaphore(self, name: str, *, limit: int, ttl: float | None = None) -> Semaphore:
        """A semaphore of `limit` seats. All clients must give the same limit. Raises InvalidName, InvalidOption."""
        return Semaphore(self._runtime, *self._runtime.terms(name, ttl), limit=limit)

    def rwlock(self, name: str, *, ttl: float | None = None) -> RWLock:
        """A read/write lock. Raises InvalidName, InvalidOption."""
        return RWLock(self._runtime, *self._runtime.terms(name, ttl))

    def election(self, name: str, *, value: str = "", ttl: float | None = None, lock_delay: float = 0.0) -> Election:
        """An election; `value` is what others read while this candidate leads. Raises InvalidName, InvalidOption.

        `lock_delay` as for a lock.
        """
        return Election(self._runtime, *self._runtime.terms(name, ttl), value=value, lock_delay=lock_delay)

    def operator(self) -> Operator:
        """Looking and operating: which lines there are, who stands in them, force releases, audit and journal."""
        return Operator(self._runtime)

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Hear every event of this client (see tenure.events); the returned function ends that."""
        return self._runtime.hub.subscribe(subscriber)

    def statistics(self) -> dict[str, object]:
        """Leases, counts of events and the backend's own numbers, ready for JSON."""
        return self._runtime.statistics()

    def close(self) -> None:
        """Give up every hold at once, end waiting calls with ClientClosed. Idempotent, bounded.

        A `with` body that runs meanwhile in another thread hears of it at its edge, by ClientClosed; one that called
        this itself gave its hold up. A signal handler's call counts as one of the main thread's body, where it runs.
        """
        self._runtime.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tenure.Client {self._runtime!r}>"


class Loss:
    """The loss of one hold, as an event. It reads the clock too, so it is right before anything announced it."""

    def __init__(self, holding: Holding, over: Signal, clock: Clock) -> None:
        self._holding = holding
        self._over = over
        self._clock = clock

    def is_set(self) -> bool:
        """True when the hold is lost."""
        return self._holding.state is HoldState.LOST

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the hold is over, at most `timeout` seconds; True when it is lost, False when it was given up."""
        until = None if timeout is None else self._clock.now() + timeout
        if not self.is_set():
            self._clock.wait(self._over, until)
        return self.is_set()


class Hold(Holding):
    """Hold of a name. A context manager that releases; it raises LeaseLost at its end if it was lost meanwhile, and
    ClientClosed if another thread closed the client meanwhile, unless the body raised, or released before that.

    In threads nothing can be cancelled: look at `lost`, call `check()` before each step that matters, or
    register `on_change`. Pass `token` to what you protect.
    """

    @property
    def lost(self) -> Loss:
        """An event that is set when the hold is lost: `is_set()` and `wait(timeout)`."""
        return Loss(self, self._at_end, self._runtime.clock)

    @property
    def store(self) -> Store:
        """The user's own keys in the same store, guarded by this hold."""
        return Store(self)

    def renew(self) -> float:
        """Prove the hold now instead of at the next renewal; the new remaining(). Raises LeaseLost, StoreError."""
        return run(self._renewing(), self._runtime.clock)

    def amend(self, value: str) -> None:
        """Change the value that others read. Raises LeaseLost, InvalidOption, StoreError."""
        run(self._amending(value), self._runtime.clock)

    def release(self) -> bool:
        """Give it up. True when this call removed the ticket, False when it was gone already or goes
        with its client, which is being closed.

        The hold is not held from the first moment of this call. Raises StoreUnavailable when the store did
        not confirm; a background reaper goes on then.
        """
        return run(self._giving_up(), self._runtime.clock)

    def __enter__(self) -> Hold:
        self._require_for(self._runtime.caller())
        context.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.leave(self)
        lost, taken = self.lost.is_set(), self._taken_from(self._runtime.caller())
        try:
            self.release()
        except StoreError:
            pass  # the reaper goes on and tells; the body's own outcome matters more here
        except ForkedClient:
            if error is None:
                raise
        if lost and (error is None or isinstance(error, LeaseLost)):
            said = run(self._lost_under_body(error), self._runtime.clock)
            if error is None:
                raise said
        if taken and error is None:
            raise run(self._closed_under_body(), self._runtime.clock)


class Store:
    """The user's own keys in the store the hold came from: read and written only while this very ticket stands.

    The strongest guard there is: the store itself decides, in the transaction that writes. A key is a str, its value
    bytes; key `k` of namespace `n` is `n/%data/k` in the store, so other namespaces have keys of their own. Every
    method raises StaleToken when the ticket is gone (nothing was written), LeaseLost when the hold can't be
    proven, StoreError; StoreUnavailable and LeaseLost leave open whether it was written.
    """

    def __init__(self, hold: Hold, *, absolute: bool = False) -> None:
        self._hold = hold
        self._absolute = absolute

    @property
    def absolute(self) -> Store:
        """The same for absolute keys: etcd's keys and ZooKeeper's paths as they stand, outside of the namespace.

        Other programs and namespaces see the same keys. Not through a service: each call raises InvalidOption there.
        """
        return Store(self._hold, absolute=True)

    def get(self, key: str) -> Record | None:
        """The record at `key`, or None. Raises InvalidName."""
        return run(self._hold._reading((key,), self._absolute), self._hold._runtime.clock)[0]

    def put(self, key: str, value: bytes, *, version: int | None = None) -> int:
        """Write `value`, and return its version. With `version=` only if the key still stands at that; 0: if it is new.

        Raises CompareFailed, InvalidName, InvalidOption.
        """
        return self.commit(Put(key, value), *compared(key, version))[key]

    def delete(self, key: str, *, version: int | None = None) -> None:
        """Delete `key`, if it is there. With `version=` only if it stands at that. Raises CompareFailed."""
        self.commit(Delete(key), *compared(key, version))

    def commit(self, *operations: Put | Delete | Compare) -> dict[str, int]:
        """Carry out all of `operations` or none; return the versions of what was put.

        `Compare` is a condition. Raises CompareFailed, InvalidName, InvalidOption.
        """
        return run(self._hold._committing(operations, self._absolute), self._hold._runtime.clock)

    def __repr__(self) -> str:
        return f"<tenure.Store under {self._hold!r}>"


class Lock:
    """Lock, or one side of an rwlock, or a candidacy: acquire it, try it, or enter it with `with`.

    Not re-entrant: a second acquire waits for the first like anybody else's, and is warned of where it is the same
    thread's and has no time-out. One object may be used by many threads; they exclude each other.
    """

    def __init__(self, runtime: Runtime, request: LineRequest, make: Callable[..., Hold] | None = None) -> None:
        self._runtime = runtime
        self._request = request
        self._make = make or Hold
        self._entered: Entered[Hold] = Entered()

    @property
    def resource(self) -> str:
        """The name."""
        return self._request.resource

    def acquire(self, timeout: float | None = None) -> Hold:
        """Wait for my turn, at most `timeout` seconds, and return the hold.

        Raises AcquireTimeout, LeaseLost (the place in the line was lost), LineMismatch, StoreError.
        """
        return _acquire(self._runtime, self._request, timeout, self._make)

    def try_acquire(self) -> Hold | None:
        """The hold if it can be had at once, None if not. Raises LineMismatch, StoreError."""
        return _try_acquire(self._runtime, self._request, self._make)

    def __enter__(self) -> Hold:
        hold = self.acquire()
        hold.__enter__()
        self._entered.push(threading.current_thread(), hold)
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold = self._entered.pop(threading.current_thread())
        hold.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<tenure.Lock {self._runtime.shown(self._request)}>"


class Semaphore:
    """Seats of one semaphore. `with` takes one seat; `acquire(weight=n)` takes n at once or waits."""

    def __init__(self, runtime: Runtime, name: str, ttl: float, owner: str, *, limit: int) -> None:
        self._runtime = runtime
        self._terms = (name, ttl, owner)
        self._limit = limit
        self._one = Lock(runtime, semaphore.seat(name, limit, 1, ttl, owner))

    @property
    def resource(self) -> str:
        """The name."""
        return self._terms[0]

    @property
    def limit(self) -> int:
        """The number of seats."""
        return self._limit

    def acquire(self, timeout: float | None = None, *, weight: int = 1) -> Hold:
        """Wait for `weight` seats. Raises AcquireTimeout, LeaseLost, LineMismatch, InvalidOption, StoreError."""
        return _acquire(self._runtime, self._request(weight), timeout)

    def try_acquire(self, *, weight: int = 1) -> Hold | None:
        """`weight` seats if they are free and nobody waits, else None."""
        return _try_acquire(self._runtime, self._request(weight))

    def _request(self, weight: int) -> LineRequest:
        name, ttl, owner = self._terms
        return semaphore.seat(name, self._limit, weight, ttl, owner)

    def __enter__(self) -> Hold:
        return self._one.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._one.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<tenure.Semaphore {self.resource!r} limit={self._limit}>"


class RWLock:
    """The two sides of one read/write lock; each is used like a Lock."""

    def __init__(self, runtime: Runtime, name: str, ttl: float, owner: str) -> None:
        self._runtime = runtime
        self._terms = (name, ttl, owner)

    @property
    def resource(self) -> str:
        """The name."""
        return self._terms[0]

    def read(self) -> Lock:
        """The shared side."""
        return Lock(self._runtime, rwlock.read(*self._terms))

    def write(self) -> Lock:
        """The exclusive side."""
        return Lock(self._runtime, rwlock.write(*self._terms))

    def __repr__(self) -> str:
        return f"<tenure.RWLock {self.resource!r}>"


class Operator:
    """Operator of the lines in the client's namespace: look, force out, look back. Each call asks the store.

    Names and prefixes are those of locks, semaphores, rwlocks and elections; other namespaces are other clients'.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def lines(self, prefix: str = "") -> Iterator[LineInfo]:
        """The lines in use whose names begin with `prefix`, a page at a time: 10,000 are not one answer.

        In no order to rely on; each page shows a moment of its own. The time that leases have left is not asked for.
        Raises InvalidName, StoreError.
        """
        after: str | None = ""
        while after is not None:
            page = run(self._runtime.operator.page(prefix, after), self._runtime.clock)
            yield from page.lines
            after = page.after

    def page(self, prefix: str = "", *, after: str = "") -> LinePage:
        """A page of the same listing, for a caller that hands it on: some lines, and where the next page begins.

        Raises InvalidName, StoreError.
        """
        return run(self._runtime.operator.page(prefix, after), self._runtime.clock)

    def line(self, name: str) -> LineInfo:
        """The line `name`: who holds it, and who waits, in order; perhaps empty. Raises InvalidName, StoreError."""
        return run(self._runtime.operator.line(name), self._runtime.clock)

    def watch(self, prefix: str = "") -> Iterator[tuple[LineInfo, ...]]:
        """The lines whose names begin with `prefix` as they are now, and again after each change, woken by the store.

        Changes that come close together are reported as one. Goes on through reconnects; ends when the client is
        closed. Raises InvalidName; StoreError only on the first look, and when the store refuses.
        """
        view = LinesWatch(self._runtime.operator, prefix)
        try:
            while True:
                try:
                    lines = run(view.next_snapshot(), self._runtime.clock)
                except ClientClosed:
                    return
                yield lines
        finally:
            view.close()

    def force_release(self, name: str, *, token: int, reason: str, actor: str | None = None) -> AuditRecord:
        """Remove the ticket with this token from the line, holder or waiter, and leave a record of who did and why.

        The store does both at once or nothing. Whoever held it learns that it is lost, but may be at work until
        then: only a guard that checks tokens keeps it from the resource. `actor` is the client's owner where none is
        given. The same call again finds its own record, so that it may be repeated after StoreUnavailable. Raises
        NoSuchTicket (it says who stands there), InvalidName, InvalidOption, StoreError.
        """
        return run(self._runtime.operator.force_release(name, token, reason, actor), self._runtime.clock)

    def audit(self, prefix: str = "") -> tuple[AuditRecord, ...]:
        """Records of who was forced out of the lines whose names begin with `prefix`, the oldest first.

        The newest 100 of a line and 1000 in all are kept. Raises InvalidName, StoreError.
        """
        return run(self._runtime.operator.audit(prefix), self._runtime.clock)

    def history(self, name: str) -> tuple[JournalEntry, ...]:
        """The last holds of this line, the oldest first, as clients with `journal=True` wrote them down.

        Best effort: see tenure/_admin/journal.py. Raises InvalidName, StoreError.
        """
        return run(self._runtime.operator.history(name), self._runtime.clock)

    def why(self, name: str) -> Explanation:
        """Why the line is as it is: its holders, its waiters, and how the last hold ended.

        `str()` of it says so in sentences. Raises InvalidName, StoreError.
        """
        return run(self._runtime.operator.why(name), self._runtime.clock)

    def __repr__(self) -> str:
        return f"<tenure.Operator of {self._runtime.options.display}>"


class Election:
    """Election, as one candidate sees it."""

    def __init__(
        self, runtime: Runtime, name: str, ttl: float, owner: str, *, value: str, lock_delay: float = 0.0
    ) -> None:
        self._runtime = runtime
        self._terms = (name, ttl, owner)
        self._candidacy = election.candidacy(name, value, ttl, owner, lock_delay)
        self._led: weakref.WeakSet[Hold] = weakref.WeakSet()

    @property
    def resource(self) -> str:
        """The name."""
        return self._terms[0]

    def campaign(self) -> Lock:
        """The candidacy: acquire it, or enter it with `with`. Releasing the hold resigns."""
        return Lock(self._runtime, self._candidacy, self._elected)

    @property
    def is_leader(self) -> bool:
        """True while this very object's candidacy is held and can be proven. Asks nobody."""
        return any(self._led)

    def _elected(self, *parts: Any) -> Hold:
        hold = Hold(*parts)
        self._led.add(hold)
        return hold

    def leader(self) -> Leader | None:
        """The present leader, as the store's quorum says, or None. Raises StoreError."""
        lease = self._runtime.lease(self._runtime.options.ttl)
        return run(election.looking(lease, self.resource, self._runtime.request_until()), self._runtime.clock)

    def observe(self) -> Iterator[Leader | None]:
        """Yield the present leader, then every change of leader or value; end when the client is closed.

        Never a stale leader after a newer one. Goes on through reconnects. Raises StoreError only on
        the first look, and when the store refuses.
        """
        default = self._runtime.options.ttl
        view = election.Observation(
            self.resource, lambda: self._runtime.lease(default), self._runtime.clock, self._runtime.request_seconds
        )
        while True:
            try:
                leader = run(view.next_change(), self._runtime.clock)
            except ClientClosed:
                return
            yield leader

    def run(self, lead: Callable[[Hold], Result], *, stop: threading.Event | None = None) -> Result | None:
        """Campaign and call `lead(hold)`; lead again after every loss; its result when it returns in office.

        `lead` must look at the hold, and at `stop`: nothing can stop a thread. Once `stop` is set, nobody campaigns any
        longer, and the result is None where `lead` gave none; a request that is under way is answered before. A store
        that is away is waited for; what `lead` raises ends the run, except LeaseLost, and StaleToken of a hold that is
        lost. Raises ClientClosed (also in office), StoreError (refusals).
        """
        while stop is None or not stop.is_set():
            try:
                hold = _acquire(
                    self._runtime, self._candidacy, None, self._elected, None if stop is None else stop.is_set
                )
            except Stopped:
                break
            except (LeaseLost, StoreUnavailable):
                self._runtime.pause()
                continue
            try:
                with hold:
                    result = lead(hold)
                return result
            except Exception as error:
                if not hold._ended_by(error):
                    raise
                self._runtime.pause()
        return None

    def __repr__(self) -> str:
        return f"<tenure.Election {self.resource!r} value={self._candidacy.value!r}>"


context.refuse_other_with((Client, Hold, Lock, Semaphore), "with", "async with", "tenure.aio.connect")


def _acquire(
    runtime: Runtime,
    request: LineRequest,
    timeout: float | None,
    make: Callable[..., Hold] = Hold,
    stopped: Callable[[], bool] | None = None,
) -> Hold:
    patience, caller = runtime.patience(validation.timeout(timeout)), runtime.caller()
    if timeout is None:
        runtime.warn_of_own(request, caller)
    try:
        hold = run(runtime.holding(request, patience, make), runtime.clock, stopped)
        if hold is None:
            raise AcquireTimeout(f"{request.resource!r} could not be had at once, and the time-out was 0")
    except AcquireTimeout as error:
        runtime.name_own(error, request, caller)
        raise
    return hold


def _try_acquire(runtime: Runtime, request: LineRequest, make: Callable[..., Hold] = Hold) -> Hold | None:
    return run(runtime.holding(request, runtime.patience(None, waits=False), make), runtime.clock)
