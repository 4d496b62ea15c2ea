"""The asyncio face: the same names with `await` and `async with`.

    async with tenure.aio.connect("etcd://…") as client:
        async with client.lock("billing-close") as hold: ...

The body of `async with` is cancelled when the hold is lost, and LeaseLost is raised at its edge; or ClientClosed, when
another task closes the client under it. A cancellation from outside stays one. Waiting costs no thread: requests run
on a few shared ones.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, Unpack

from tenure._admin.models import AuditRecord, Explanation, JournalEntry, LineInfo, LinePage
from tenure._admin.operator import LinesWatch
from tenure._core import context
from tenure._core.base import validation
from tenure._core.base.clock import SYSTEM_CLOCK, Clock
from tenure._core.base.limits import RETRY_PAUSE_MAX
from tenure._core.base.options import ConnectOptions, parse
from tenure._core.base.retry import jittered
from tenure._core.base.signals import Signal
from tenure._core.context import Entered
from tenure._core.drivers.asyncio import arun, wait
from tenure._core.guarded_keys import compared
from tenure._core.hold import HoldContext, Holding
from tenure._core.hold_watch import HoldState
from tenure._core.lease import Compare, Delete, Entry, Lease, Put, Record
from tenure._core.recipes import election, lock, rwlock, semaphore
from tenure._core.recipes.election import Leader
from tenure._core.recipes.request import LineRequest
from tenure._core.runtime import Runtime
from tenure._core.turn import Steps, Turn
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
    Raises NotHeld where none was entered here with `async with`, LeaseLost where it can't be proven any longer.
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

    async def close(self) -> None:
        """Give up every hold at once, end waiting calls with ClientClosed. Idempotent, bounded.

        An `async with` body that runs meanwhile in another task is cancelled, and ClientClosed raised at its edge; one
        that called this itself gave its hold up, and goes on.
        """
        closed: Future[None] = Future()
        close = partial(self._runtime.close, by=asyncio.current_task())
        threading.Thread(target=lambda: _resolve(closed, close), name="tenure-close", daemon=True).start()
        await asyncio.shield(asyncio.wrap_future(closed))

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<tenure.aio.Client {self._runtime!r}>"


class Loss:
    """The loss of one hold, as an event. It reads the clock too, so it is right before anything announced it."""

    def __init__(self, holding: Holding, over: Signal, clock: Clock) -> None:
        self._holding = holding
        self._over = over
        self._clock = clock

    def is_set(self) -> bool:
        """True when the hold is lost."""
        return self._holding.state is HoldState.LOST

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the hold is over, at most `timeout` seconds; True when it is lost, False when it was given up."""
        until = None if timeout is None else self._clock.now() + timeout
        if not self.is_set():
            await wait(self._over, until, self._clock)
        return self.is_set()


class Hold(Holding):
    """Hold of a name. An async context manager that releases, and whose body is cancelled on loss.

    Likewise when another task or thread closes the client: then ClientClosed is raised at its edge. A body that
    released before that, or closed the client itself, goes on. A hold whose event loop has ended is given up.
    """

    _body: _Body | None = None

    def __init__(self, turn: Turn, entry: Entry, lease: Lease, runtime: Runtime) -> None:
        super().__init__(turn, entry, lease, runtime)
        runtime.follow_loop(self._watch, asyncio.get_running_loop())

    def _acquirer(self) -> object:
        return _task()

    @property
    def lost(self) -> Loss:
        """An event that is set when the hold is lost: `is_set()` and `await wait(timeout)`."""
        return Loss(self, self._at_end, self._runtime.clock)

    def on_change(self, callback: Callable[[HoldState], None]) -> None:
        """Call `callback(state)` on every change from now on, in order, on the running event loop."""
        loop = asyncio.get_running_loop()
        super().on_change(lambda state: _soon(loop, lambda: callback(state)))

    @property
    def store(self) -> Store:
        """The user's own keys in the same store, guarded by this hold."""
        return Store(self)

    async def renew(self) -> float:
        """Prove the hold now instead of at the next renewal; the new remaining(). Raises LeaseLost, StoreError."""
        return await _drive(self._runtime, self._renewing())

    async def amend(self, value: str) -> None:
        """Change the value that others read. Raises LeaseLost, InvalidOption, StoreError."""
        await _drive(self._runtime, self._amending(value))

    async def release(self) -> bool:
        """Give it up. True when this call removed the ticket, False when it was gone already or goes
        with its client, which is being closed.

        The hold is not held from the first moment of this call. Raises StoreUnavailable when the store did
        not confirm; a background reaper goes on then.
        """
        return await _drive(self._runtime, self._giving_up())

    async def __aenter__(self) -> Hold:
        self._require_for(asyncio.current_task())
        self._body = _Body(self)
        context.enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.leave(self)
        body, self._body = self._body, None
        lost = self.lost.is_set()
        taken = self._taken_from(asyncio.current_task() if body is None else body.task)
        ours = body is not None and body.leave(kind)
        try:
            await self.release()
        except StoreError:
            pass  # the reaper goes on and tells; the body's own outcome matters more here
        except ForkedClient:
            if error is None:
                raise
        if lost and (error is None or ours or isinstance(error, LeaseLost)):
            said = await _drive(self._runtime, self._lost_under_body(error))
            if error is None or ours:
                raise said from error
        if taken and (error is None or ours):
            raise await _drive(self._runtime, self._closed_under_body()) from error


class _Body:
    """Body of one `async with`: cancelled once when the hold is lost, or the client closed under it by another task.

    It knows its own cancellation from others."""

    def __init__(self, hold: Hold) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a hold's `async with` needs a running task")
        self.task = task
        self._cancelling_before = task.cancelling()
        self._hold = hold
        self._over = False
        self._cancelled = False
        loop = asyncio.get_running_loop()
        hold._at_end.add_callback(lambda: _soon(loop, self._cancel))

    def _cancel(self) -> None:
        if self._over:
            return
        if self._hold.lost.is_set():
            self._cancelled = self.task.cancel("the hold was lost")
        elif self._hold._taken_from(self.task):
            self._cancelled = self.task.cancel("the client was closed")

    def leave(self, kind: type[BaseException] | None) -> bool:
        """The body is over. True when what ended it was our cancellation and nobody else's."""
        self._over = True
        if not self._cancelled:
            return False
        return self.task.uncancel() <= self._cancelling_before and kind is asyncio.CancelledError


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

    async def get(self, key: str) -> Record | None:
        """The record at `key`, or None. Raises InvalidName."""
        return (await _drive(self._hold._runtime, self._hold._reading((key,), self._absolute)))[0]

    async def put(self, key: str, value: bytes, *, version: int | None = None) -> int:
        """Write `value`, and return its version. With `version=` only if the key still stands at that; 0: if it is new.

        Raises CompareFailed, InvalidName, InvalidOption.
        """
        return (await self.commit(Put(key, value), *compared(key, version)))[key]

    async def delete(self, key: str, *, version: int | None = None) -> None:
        """Delete `key`, if it is there. With `version=` only if it stands at that. Raises CompareFailed."""
        await self.commit(Delete(key), *compared(key, version))

    async def commit(self, *operations: Put | Delete | Compare) -> dict[str, int]:
        """Carry out all of `operations` or none; return the versions of what was put.

        `Compare` is a condition. Raises CompareFailed, InvalidName, InvalidOption.
        """
        return await _drive(self._hold._runtime, self._hold._committing(operations, self._absolute))

    def __repr__(self) -> str:
        return f"<tenure.aio.Store under {self._hold!r}>"


class Lock:
    """Lock, or one side of an rwlock, or a candidacy: acquire it, try it, or enter it with `with`.

    Not re-entrant: a second acquire waits for the first like anybody else's, and is warned of where it is the same
    task's and has no time-out. One object may be used by many tasks; they exclude each other.
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

    def acquire(self, timeout: float | None = None) -> _Acquiring:
        """Wait for my turn, at most `timeout` seconds, and return the hold: `await` it, or enter it with `async with`.

        Raises AcquireTimeout, LeaseLost (the place in the line was lost), LineMismatch, StoreError.
        """
        return _Acquiring(_acquire(self._runtime, self._request, timeout, self._make))

    async def try_acquire(self) -> Hold | None:
        """The hold if it can be had at once, None if not. Raises LineMismatch, StoreError."""
        return await _try_acquire(self._runtime, self._request, self._make)

    async def __aenter__(self) -> Hold:
        hold = await self.acquire()
        await hold.__aenter__()
        self._entered.push(asyncio.current_task(), hold)
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold = self._entered.pop(asyncio.current_task())
        await hold.__aexit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<tenure.aio.Lock {self._runtime.shown(self._request)}>"


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

    def acquire(self, timeout: float | None = None, *, weight: int = 1) -> _Acquiring:
        """Wait for `weight` seats. Raises AcquireTimeout, LeaseLost, LineMismatch, InvalidOption, StoreError."""
        return _Acquiring(_acquire(self._runtime, self._request(weight), timeout))

    async def try_acquire(self, *, weight: int = 1) -> Hold | None:
        """`weight` seats if they are free and nobody waits, else None."""
        return await _try_acquire(self._runtime, self._request(weight))

    def _request(self, weight: int) -> LineRequest:
        name, ttl, owner = self._terms
        return semaphore.seat(name, self._limit, weight, ttl, owner)

    async def __aenter__(self) -> Hold:
        return await self._one.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._one.__aexit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<tenure.aio.Semaphore {self.resource!r} limit={self._limit}>"


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
        return f"<tenure.aio.RWLock {self.resource!r}>"


class Operator:
    """Operator of the lines in the client's namespace: look, force out, look back. Each call asks the store.

    Names and prefixes are those of locks, semaphores, rwlocks and elections; other namespaces are other clients'.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def lines(self, prefix: str = "") -> AsyncIterator[LineInfo]:
        """The lines in use whose names begin with `prefix`, a page at a time: 10,000 are not one answer.

        In no order to rely on; each page shows a moment of its own. The time that leases have left is not asked for.
        Raises InvalidName, StoreError.
        """
        after: str | None = ""
        while after is not None:
            page = await _drive(self._runtime, self._runtime.operator.page(prefix, after))
            for line in page.lines:
                yield line
            after = page.after

    async def page(self, prefix: str = "", *, after: str = "") -> LinePage:
        """A page of the same listing, for a caller that hands it on: some lines, and where the next page begins.

        Raises InvalidName, StoreError.
        """
        return await _drive(self._runtime, self._runtime.operator.page(prefix, after))

    async def line(self, name: str) -> LineInfo:
        """The line `name`: who holds it, and who waits, in order; perhaps empty. Raises InvalidName, StoreError."""
        return await _drive(self._runtime, self._runtime.operator.line(name))

    async def watch(self, prefix: str = "") -> AsyncIterator[tuple[LineInfo, ...]]:
        """The lines whose names begin with `prefix` as they are now, and again after each change, woken by the store.

        Changes that come close together are reported as one. Goes on through reconnects; ends when the client is
        closed. Raises InvalidName; StoreError only on the first look, and when the store refuses.
        """
        view = LinesWatch(self._runtime.operator, prefix)
        try:
            while True:
                try:
                    lines = await _drive(self._runtime, view.next_snapshot())
                except ClientClosed:
                    return
                yield lines
        finally:
            view.close()

    async def force_release(self, name: str, *, token: int, reason: str, actor: str | None = None) -> AuditRecord:
        """Remove the ticket with this token from the line, holder or waiter, and leave a record of who did and why.

        The store does both at once or nothing. Whoever held it learns that it is lost, but may be at work until
        then: only a guard that checks tokens keeps it from the resource. `actor` is the client's owner where none is
        given. The same call again finds its own record, so that it may be repeated after StoreUnavailable. Raises
        NoSuchTicket (it says who stands there), InvalidName, InvalidOption, StoreError.
        """
        return await _drive(self._runtime, self._runtime.operator.force_release(name, token, reason, actor))

    async def audit(self, prefix: str = "") -> tuple[AuditRecord, ...]:
        """Records of who was forced out of the lines whose names begin with `prefix`, the oldest first.

        The newest 100 of a line and 1000 in all are kept. Raises InvalidName, StoreError.
        """
        return await _drive(self._runtime, self._runtime.operator.audit(prefix))

    async def history(self, name: str) -> tuple[JournalEntry, ...]:
        """The last holds of this line, the oldest first, as clients with `journal=True` wrote them down.

        Best effort: see tenure/_admin/journal.py. Raises InvalidName, StoreError.
        """
        return await _drive(self._runtime, self._runtime.operator.history(name))

    async def why(self, name: str) -> Explanation:
        """Why the line is as it is: its holders, its waiters, and how the last hold ended.

        `str()` of it says so in sentences. Raises InvalidName, StoreError.
        """
        return await _drive(self._runtime, self._runtime.operator.why(name))

    def __repr__(self) -> str:
        return f"<tenure.aio.Operator of {self._runtime.options.display}>"


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

    async def leader(self) -> Leader | None:
        """The present leader, as the store's quorum says, or None. Raises StoreError."""
        lease = self._runtime.lease(self._runtime.options.ttl)
        return await _drive(self._runtime, election.looking(lease, self.resource, self._runtime.request_until()))

    async def observe(self) -> AsyncIterator[Leader | None]:
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
                leader = await _drive(self._runtime, view.next_change())
            except ClientClosed:
                return
            yield leader

    async def run(
        self, lead: Callable[[Hold], Awaitable[Result]], *, stop: asyncio.Event | None = None
    ) -> Result | None:
        """Campaign and call `lead(hold)`; lead again after every loss; its result when it returns in office.

        `lead` is cancelled when the hold is lost or the client closed; once `stop` is set, likewise, in a task of its
        own: then the hold is released, nobody campaigns any longer, and the result is None. A store that is away is
        waited for; what `lead` raises ends the run, except LeaseLost, and StaleToken of a hold that is lost. Raises
        ClientClosed (also in office), StoreError (refusals).
        """
        if stop is None:
            return await self._run(lead)
        running, stopping = asyncio.create_task(self._run(lead)), asyncio.create_task(stop.wait())
        both, stopped = (running, stopping), False
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            stopped = not running.done()
        finally:  # also where this task is cancelled
            for task in both:
                task.cancel()
            await asyncio.wait(both)
        return None if stopped and running.cancelled() else running.result()

    async def _run(self, lead: Callable[[Hold], Awaitable[Result]]) -> Result:
        while True:
            try:
                hold = await self.campaign().acquire()
            except (LeaseLost, StoreUnavailable):
                await self._pause()
                continue
            try:
                async with hold:
                    result = await lead(hold)
                return result
            except Exception as error:
                if not hold._ended_by(error):
                    raise
                await self._pause()

    async def _pause(self) -> None:
        clock = self._runtime.clock
        await wait(self._runtime.closing, clock.now() + jittered(RETRY_PAUSE_MAX), clock)

    def __repr__(self) -> str:
        return f"<tenure.aio.Election {self.resource!r} value={self._candidacy.value!r}>"


class _Acquiring(Coroutine[Any, Any, Hold]):
    """Acquire that has not begun: `await` it for the hold, or enter it with `async with`, which releases the hold."""

    _hold: Hold

    def __init__(self, coroutine: Coroutine[Any, Any, Hold]) -> None:
        self._coroutine = coroutine

    # A whole coroutine: asyncio.create_task takes nothing less.

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Hold]:
        return self._coroutine.__await__()

    async def __aenter__(self) -> Hold:
        self._hold = await self._coroutine
        return await self._hold.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._hold.__aexit__(kind, error, trace)


context.refuse_other_with((Client, Hold, Lock, Semaphore, _Acquiring), "async with", "with", "tenure.connect")


async def _acquire(
    runtime: Runtime, request: LineRequest, timeout: float | None, make: Callable[..., Hold] = Hold
) -> Hold:
    patience, caller = runtime.patience(validation.timeout(timeout)), _task()
    if timeout is None:
        runtime.warn_of_own(request, caller)
    try:
        hold = await _drive(runtime, runtime.holding(request, patience, make))
        if hold is None:
            raise AcquireTimeout(f"{request.resource!r} could not be had at once, and the time-out was 0")
    except AcquireTimeout as error:
        runtime.name_own(error, request, caller)
        raise
    return hold


def _task() -> object:
    """The running task, to be compared; as a reference, for its outcome may be the very hold that remembers it."""
    task = asyncio.current_task()
    return None if task is None else weakref.ref(task)


async def _try_acquire(runtime: Runtime, request: LineRequest, make: Callable[..., Hold] = Hold) -> Hold | None:
    return await _drive(runtime, runtime.holding(request, runtime.patience(None, waits=False), make))


async def _drive(runtime: HoldContext, steps: Steps[Result]) -> Result:
    return await arun(steps, runtime.clock, runtime.workers)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        pass  # the loop is closed: there is no body left to cancel


def _resolve(future: Future[None], work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException as error:  # carried over to the awaiting task, whatever it is
        future.set_exception(error)
    else:
        future.set_result(None)
