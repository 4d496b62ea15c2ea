"""The blocking face. No logic of its own: it names things, and drives in the calling thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from holdfast import checks, context
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.desk import Watch
from holdfast.drivers import run
from holdfast.errors import AcquireTimeout, ClientClosed, ForkedClient, LeaseLost, StoreError, StoreUnavailable
from holdfast.events import Event
from holdfast.hold import Entered, Holding, HoldState
from holdfast.house import House
from holdfast.keys import compared
from holdfast.lease import Compare, Delete, Put, Record
from holdfast.options import parse
from holdfast.recipes import election, lock, rwlock, semaphore
from holdfast.recipes.ask import Ask
from holdfast.recipes.election import Leader
from holdfast.reports import AuditRecord, Explanation, JournalEntry, LineInfo, LinePage
from holdfast.signals import Signal

Result = TypeVar("Result")


def connect(url: str | None = None, *, clock: Clock = SYSTEM_CLOCK, **options: Any) -> Client:
    """A client of the store at `url`, or at HOLDFAST_URL. Talks to nobody yet: the first call does.

    Keyword arguments are the URL's options: ttl, timeout, namespace, owner, tls, ca, cert, key, user,
    password, tick, incarnation, journal. Raises InvalidURL, InvalidOption or InvalidName.
    """
    return Client(House(parse(url, options), clock))


def assert_held(name: str, *, client: Client | None = None) -> Hold:
    """The hold of `name` that was entered around this call, proven at this moment, without asking anybody.

    For code that must not run without it: `hold = assert_held("ledger")`. It looks for the name, so give `client`
    where several clients use one; a seat or the reading side of an rwlock counts as well (`hold.fence.shared` tells).
    Raises NotHeld where none was entered here with `with`, LeaseLost where it can't be proven any longer.
    """
    return context.held_here(name, Hold, None if client is None else client._house)


class Client:
    """One program's connection to one store. Thread-safe; make one and share it.

    Closing it gives up every hold at once. Not usable in a forked child: connect there again.
    """

    def __init__(self, house: House) -> None:
        self._house = house

    def lock(self, name: str, *, ttl: float | None = None, lock_delay: float = 0.0) -> Lock:
        """A lock: one holder at a time. Raises InvalidName, InvalidOption.

        With `lock_delay` the next holder waits that many seconds longer after a holder that crashed or was
        lost, for resources that can check no token; a clean release frees at once. A waiter that crashed counts
        like a holder: from outside nobody can tell.
        """
        return Lock(self._house, lock.lock(*self._house.who(name, ttl), lock_delay))

    def semaphore(self, name: str, *, limit: int, ttl: float | None = None) -> Semaphore:
        """A semaphore of `limit` seats. All clients must give the same limit. Raises InvalidName, InvalidOption."""
        return Semaphore(self._house, *self._house.who(name, ttl), limit=limit)

    def rwlock(self, name: str, *, ttl: float | None = None) -> RWLock:
        """A read/write lock. Raises InvalidName, InvalidOption."""
        return RWLock(self._house, *self._house.who(name, ttl))

    def election(self, name: str, *, value: str = "", ttl: float | None = None, lock_delay: float = 0.0) -> Election:
        """An election; `value` is what others read while this candidate leads. Raises InvalidName, InvalidOption.

        `lock_delay` as for a lock.
        """
        return Election(self._house, *self._house.who(name, ttl), value=value, lock_delay=lock_delay)

    def operator(self) -> Operator:
        """Looking and operating: which lines there are, who stands in them, force releases, audit and journal."""
        return Operator(self._house)

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Hear every event of this client (see holdfast.events); the returned function ends that."""
        return self._house.hub.subscribe(subscriber)

    def statistics(self) -> dict[str, object]:
        """Leases, counts of events and the backend's own numbers, ready for JSON."""
        return self._house.statistics()

    def close(self) -> None:
        """Give up every hold at once, end waiting calls with ClientClosed. Idempotent, bounded.

        A `with` body that runs meanwhile in another thread is told at its edge, by ClientClosed; one that called this
        itself gave its hold up. A signal handler's call counts as one of the main thread's body, where it runs.
        """
        self._house.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<holdfast.Client {self._house!r}>"


class Loss:
    """The loss of one hold, as an event. It reads the clock too, so it is right before anything announced it."""

    def __init__(self, holding: Holding, over: Signal, clock: Clock) -> None:
        self._holding = holding
        self._over = over
        self._clock = clock

    def is_set(self) -> bool:
        """Is the hold lost?"""
        return self._holding.state is HoldState.LOST

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the hold is over, at most `timeout` seconds; True when it is lost, False when it was given up."""
        until = None if timeout is None else self._clock.now() + timeout
        if not self.is_set():
            self._clock.wait(self._over, until)
        return self.is_set()


class Hold(Holding):
    """What you got. A context manager that releases; it raises LeaseLost at its end if it was lost meanwhile, and
    ClientClosed if another thread closed the client meanwhile, unless the body raised, or released before that.

    In threads nothing can be cancelled: look at `lost`, call `check()` before each step that matters, or
    register `on_change`. Pass `token` to what you protect.
    """

    @property
    def lost(self) -> Loss:
        """An event that is set when the hold is lost: `is_set()` and `wait(timeout)`."""
        return Loss(self, self._at_end, self._house.clock)

    @property
    def store(self) -> Store:
        """The user's own keys in the same store, guarded by this hold."""
        return Store(self)

    def renew(self) -> float:
        """Prove the hold now instead of at the next renewal; the new remaining(). Raises LeaseLost, StoreError."""
        return run(self._renewing(), self._house.clock)

    def amend(self, value: str) -> None:
        """Change the value that others read. Raises LeaseLost, InvalidOption, StoreError."""
        run(self._amending(value), self._house.clock)

    def release(self) -> bool:
        """Give it up. True when this call removed the ticket, False when it was gone already or goes
        with its client, which is being closed.

        The hold is not held from the first moment of this call. Raises StoreUnavailable when the store did
        not confirm; a background reaper goes on then.
        """
        return run(self._giving_up(), self._house.clock)

    def __enter__(self) -> Hold:
        self._require_for(self._house.caller())
        context.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.leave(self)
        lost, taken = self.lost.is_set(), self._taken_from(self._house.caller())
        try:
            self.release()
        except StoreError:
            pass  # the reaper goes on and tells; the body's own outcome matters more here
        except ForkedClient:
            if error is None:
                raise
        if lost and error is None:
            raise self._lost_error()
        if taken and error is None:
            raise run(self._closed_under_body(), self._house.clock)


class Store:
    """The user's own keys in the store the hold came from: read and written only while this very ticket stands.

    The strongest guard there is: the store itself decides, in the transaction that writes. A key is a str
    (on ZooKeeper the path of a node), its value bytes; keys under the client's namespace are refused. Every
    method raises StaleToken when the ticket is gone (nothing was written), LeaseLost when the hold can't be
    proven, StoreError; StoreUnavailable and LeaseLost leave open whether it was written.
    """

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def get(self, key: str) -> Record | None:
        """What stands at `key`; None for nothing. Raises InvalidName."""
        return run(self._hold._reading((key,)), self._hold._house.clock)[0]

    def put(self, key: str, value: bytes, *, version: int | None = None) -> int:
        """Write `value`, and return its version. With `version=` only if the key still stands at that; 0: if it is new.

        Raises CompareFailed, InvalidName, InvalidOption.
        """
        return self.commit(Put(key, value), *compared(key, version))[key]

    def delete(self, key: str, *, version: int | None = None) -> None:
        """See to it that nothing stands at `key`. With `version=` only if it stands at that. Raises CompareFailed."""
        self.commit(Delete(key), *compared(key, version))

    def commit(self, *operations: Put | Delete | Compare) -> dict[str, int]:
        """All of `operations` or none; the versions of what was put.

        `Compare` is a condition. Raises CompareFailed, InvalidName, InvalidOption.
        """
        return run(self._hold._committing(operations), self._hold._house.clock)

    def __repr__(self) -> str:
        return f"<holdfast.Store under {self._hold!r}>"


class Lock:
    """A place to be had in one line: acquire it, try it, or enter it with `with`.

    Not re-entrant: a second acquire waits for the first like anybody else's. One object may be used by
    many threads; they exclude each other.
    """

    def __init__(self, house: House, ask: Ask) -> None:
        self._house = house
        self._ask = ask
        self._entered: Entered[Hold] = Entered()

    @property
    def resource(self) -> str:
        """The name."""
        return self._ask.resource

    def acquire(self, timeout: float | None = None) -> Hold:
        """Wait for my turn, at most `timeout` seconds, and return the hold.

        Raises AcquireTimeout, LeaseLost (the place in the line was lost), LineMismatch, StoreError.
        """
        return _acquire(self._house, self._ask, timeout)

    def try_acquire(self) -> Hold | None:
        """The hold if it can be had at once, None if not. Raises LineMismatch, StoreError."""
        return _try_acquire(self._house, self._ask)

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
        return f"<holdfast.Lock {self._ask.resource!r} {self._ask.mode.value} ttl={self._ask.ttl:g}>"


class Semaphore:
    """Seats of one semaphore. `with` takes one seat; `acquire(weight=n)` takes n at once or waits."""

    def __init__(self, house: House, name: str, ttl: float, owner: str, *, limit: int) -> None:
        self._house = house
        self._who = (name, ttl, owner)
        self._limit = limit
        self._one = Lock(house, semaphore.seat(name, limit, 1, ttl, owner))

    @property
    def resource(self) -> str:
        """The name."""
        return self._who[0]

    @property
    def limit(self) -> int:
        """How many seats there are."""
        return self._limit

    def acquire(self, timeout: float | None = None, *, weight: int = 1) -> Hold:
        """Wait for `weight` seats. Raises AcquireTimeout, LeaseLost, LineMismatch, InvalidOption, StoreError."""
        return _acquire(self._house, self._ask(weight), timeout)

    def try_acquire(self, *, weight: int = 1) -> Hold | None:
        """`weight` seats if they are free and nobody waits, else None."""
        return _try_acquire(self._house, self._ask(weight))

    def _ask(self, weight: int) -> Ask:
        name, ttl, owner = self._who
        return semaphore.seat(name, self._limit, weight, ttl, owner)

    def __enter__(self) -> Hold:
        return self._one.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._one.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<holdfast.Semaphore {self.resource!r} limit={self._limit}>"


class RWLock:
    """The two sides of one read/write lock; each is used like a Lock."""

    def __init__(self, house: House, name: str, ttl: float, owner: str) -> None:
        self._house = house
        self._who = (name, ttl, owner)

    @property
    def resource(self) -> str:
        """The name."""
        return self._who[0]

    def read(self) -> Lock:
        """The shared side."""
        return Lock(self._house, rwlock.read(*self._who))

    def write(self) -> Lock:
        """The exclusive side."""
        return Lock(self._house, rwlock.write(*self._who))

    def __repr__(self) -> str:
        return f"<holdfast.RWLock {self.resource!r}>"


class Operator:
    """What operators look at and do: the lines of the client's namespace. Everything is asked of the store, each time.

    Names and prefixes are those of locks, semaphores, rwlocks and elections; other namespaces are other clients'.
    """

    def __init__(self, house: House) -> None:
        self._house = house

    def lines(self, prefix: str = "") -> Iterator[LineInfo]:
        """The lines in use whose names begin with `prefix`, a page at a time: 10,000 are not one answer.

        In no order to rely on; each page shows a moment of its own. The time that leases have left is not asked for.
        Raises InvalidName, StoreError.
        """
        after: str | None = ""
        while after is not None:
            page = run(self._house.desk.page(prefix, after), self._house.clock)
            yield from page.lines
            after = page.after

    def page(self, prefix: str = "", *, after: str = "") -> LinePage:
        """The same a page at a time, for who hands it on: some lines, and what to ask for the next ones with.

        Raises InvalidName, StoreError.
        """
        return run(self._house.desk.page(prefix, after), self._house.clock)

    def line(self, name: str) -> LineInfo:
        """One line: who holds it, and who waits, in order. Empty where nobody does. Raises InvalidName, StoreError."""
        return run(self._house.desk.line(name), self._house.clock)

    def watch(self, prefix: str = "") -> Iterator[tuple[LineInfo, ...]]:
        """The lines whose names begin with `prefix` as they are now, and again after each change, woken by the store.

        Changes that come close together are told as one. Goes on through reconnects; ends when the client is closed.
        Raises InvalidName; StoreError only on the first look, and when the store refuses.
        """
        view = Watch(self._house.desk, prefix)
        try:
            while True:
                try:
                    lines = run(view.next_snapshot(), self._house.clock)
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
        return run(self._house.desk.force_release(name, token, reason, actor), self._house.clock)

    def audit(self, prefix: str = "") -> tuple[AuditRecord, ...]:
        """Who was forced out of the lines whose names begin with `prefix`, the oldest first.

        The newest 100 of a line and 1000 in all are kept. Raises InvalidName, StoreError.
        """
        return run(self._house.desk.audit(prefix), self._house.clock)

    def history(self, name: str) -> tuple[JournalEntry, ...]:
        """The last holds of this line, the oldest first, as clients with `journal=True` wrote them down.

        Best effort: see holdfast/journal.py. Raises InvalidName, StoreError.
        """
        return run(self._house.desk.history(name), self._house.clock)

    def why(self, name: str) -> Explanation:
        """Why the line is as it is: its holders, its waiters, and how the last hold ended.

        `str()` of it says so in sentences. Raises InvalidName, StoreError.
        """
        return run(self._house.desk.why(name), self._house.clock)

    def __repr__(self) -> str:
        return f"<holdfast.Operator of {self._house.options.display}>"


class Election:
    """One candidate's view of one election."""

    def __init__(self, house: House, name: str, ttl: float, owner: str, *, value: str, lock_delay: float = 0.0) -> None:
        self._house = house
        self._who = (name, ttl, owner)
        self._candidacy = election.candidacy(name, value, ttl, owner, lock_delay)

    @property
    def resource(self) -> str:
        """The name."""
        return self._who[0]

    def campaign(self) -> Lock:
        """My candidacy: acquire it, or enter it with `with`. Releasing the hold resigns."""
        return Lock(self._house, self._candidacy)

    def leader(self) -> Leader | None:
        """Who leads now, as the store's quorum says. Raises StoreError."""
        lease = self._house.lease(self._house.options.ttl)
        return run(election.looking(lease, self.resource, self._house.request_until()), self._house.clock)

    def observe(self) -> Iterator[Leader | None]:
        """Who leads now, then every change of leader or value; ends when the client is closed.

        Never a stale leader after a newer one. Goes on through reconnects. Raises StoreError only on
        the first look, and when the store refuses.
        """
        default = self._house.options.ttl
        view = election.Observation(
            self.resource, lambda: self._house.lease(default), self._house.clock, self._house.request_seconds
        )
        while True:
            try:
                leader = run(view.next_change(), self._house.clock)
            except ClientClosed:
                return
            yield leader

    def run(self, lead: Callable[[Hold], Result]) -> Result:
        """Campaign and call `lead(hold)`; lead again after every loss; its result when it returns in office.

        `lead` must look at the hold: nothing can stop a thread. A store that is away is waited for; what
        `lead` raises ends the run, except LeaseLost. Raises ClientClosed (also in office), StoreError (refusals).
        """
        while True:
            try:
                hold = self.campaign().acquire()
            except (LeaseLost, StoreUnavailable):
                self._house.pause()
                continue
            try:
                with hold:
                    result = lead(hold)
                return result
            except LeaseLost:
                self._house.pause()

    def __repr__(self) -> str:
        return f"<holdfast.Election {self.resource!r} value={self._candidacy.value!r}>"


def _acquire(house: House, ask: Ask, timeout: float | None) -> Hold:
    hold = run(house.holding(ask, house.patience(checks.timeout(timeout)), Hold), house.clock)
    if hold is None:
        raise AcquireTimeout(f"{ask.resource!r} could not be had at once, and the time-out was 0")
    return hold


def _try_acquire(house: House, ask: Ask) -> Hold | None:
    return run(house.holding(ask, house.patience(None, waits=False), Hold), house.clock)
