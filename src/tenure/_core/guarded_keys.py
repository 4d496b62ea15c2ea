"""The guard in the store itself: the user's own keys, read and written only while one ticket stands.

No window is left: the store decides, in the same transaction that writes. Commits of one hold go one at a time, each
sent once. When the answer of one is lost, it may have been carried out, and it may still be, at any later time:

* First the ticket is touched, which moves it on from the version that the commit was tied to. After that the commit
  has been carried out or never will be.
* Under an exclusive hold nobody else writes these keys, so the same commit may be sent again: where it succeeds, what
  was asked for stands, whether the first try did it or not. Where a comparison fails now, the first try may have been
  what changed the key; that is not guessed, the caller hears that the fate is unknown.
* Where the hold is shared the second try could undo what a co-holder wrote upon the first: unknown, too.

A caller that is interrupted or runs out of time leaves the touching to the hold's next exchange.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

from tenure._core.base import validation
from tenure._core.base.limits import COMMIT_BYTES_MAX, COMMIT_KEYS_MAX
from tenure._core.base.signals import Signal
from tenure._core.base.validation import checked_absolute_key, checked_key
from tenure._core.lease import Committed, Compare, Delete, Fate, Lease, Line, Mode, Put, Record, Ticket
from tenure._core.turn import Await, Commit, Read, Steps, Survey, Touch
from tenure.errors import CompareFailed, Happened, InvalidOption, LeaseLost, StaleToken, StoreUnavailable, TenureError
from tenure.fencing._fence import Fence, stale

Outcome = TypeVar("Outcome")


class Keys:
    """Access of one hold to the user's keys. The faces drive its generators, from any thread.

    They stand in the store behind `root`; absolute ones anywhere but in the namespace `lines`, nowhere if that is None.
    """

    def __init__(self, lease: Lease, ticket: Ticket, fence: Callable[[], Fence], root: str, lines: str | None) -> None:
        self._lease = lease
        self._shared = ticket.mode is not Mode.EXCLUSIVE
        self._fence = fence
        self._root, self._lines = root, lines
        self._guard = threading.RLock()  # guards _callers; a signal handler may re-enter
        # One signal per call; the first may commit. Weak: a call that is interrupted anywhere leaves by dying.
        self._callers: list[weakref.ref[Signal]] = []
        # These two belong to the first caller.
        self._ticket = ticket  # as last seen: its version is what a commit is tied to
        self._doubted: int | None = None  # the version to which a commit of unknown fate was tied

    def read(self, keys: Sequence[str], until: float, absolute: bool = False) -> Steps[tuple[Record | None, ...]]:
        """The records at `keys`, None for each that is not there. Raises StaleToken, StoreError."""
        root = self._place(keys, absolute)
        # A commit of unknown fate is settled first: what is read must not be overwritten by it afterwards. Without one
        # readers need not wait for each other, nor for a commit.
        if self._doubted is not None:
            yield from self._alone(self._settle(until), until)
        found: tuple[Record | None, ...] | None = yield Read(
            self._lease, self._ticket, tuple(root + key for key in keys), until
        )
        if found is None:
            raise (yield from self._stale(until))
        return tuple(record and replace(record, key=key) for key, record in zip(keys, found, strict=True))

    def commit(
        self, operations: Sequence[Put | Delete | Compare], until: float, absolute: bool = False
    ) -> Steps[dict[str, int]]:
        """Write all or nothing; the versions of what was put. Raises StaleToken, CompareFailed, StoreError."""
        root = self._place([o.key for o in operations if isinstance(o, (Put, Delete, Compare))], absolute)
        compares, writes = _sorted_out(operations)
        return (yield from self._alone(self._committed(root, compares, writes, until), until))

    def _place(self, keys: Sequence[str], absolute: bool) -> str:
        """Check the keys; what stands before them in the store. Raises InvalidName, InvalidOption."""
        if not absolute:
            for key in keys:
                checked_key(key)
            return self._root
        if self._lines is None:
            raise InvalidOption("absolute keys are not to be had through a service: use `hold.store`")
        for key in keys:
            checked_absolute_key(key, self._lines)
        return ""

    def _committed(
        self, root: str, compares: tuple[Compare, ...], writes: tuple[Put | Delete, ...], until: float
    ) -> Steps[dict[str, int]]:
        there = [replace(o, key=root + o.key) for o in compares], [replace(o, key=root + o.key) for o in writes]
        yield from self._settle(until)  # what an earlier call left behind
        unanswered: StoreUnavailable | None = None
        try:
            while True:  # ends: once `until` has come every exchange raises
                try:
                    done = yield from self._commit(tuple(there[0]), tuple(there[1]), until)
                except StoreUnavailable as error:
                    # First the touch: after it the lost try is done, or never will be. Only then may another be sent.
                    unanswered = error
                    yield from self._settle(until)
                    if self._shared:
                        raise _MayBeDone(
                            "the commit may or may not have been carried out (it will not be from here on), and a "
                            "second try could undo what a co-holder wrote upon it: read, and decide"
                        ) from error
                    continue
                if done.fate is Fate.DONE:
                    return {key[len(root) :]: version for key, version in done.versions.items()}
                if done.fate is Fate.DIFFERS:  # after a lost try the handler below turns this into "unknown"
                    raise _differs(compares)
                # amended meanwhile, which was not this commit's doing: once more, tied to the ticket as it is
        except TenureError as error:
            if unanswered is None or isinstance(error, _MayBeDone):
                raise
            raise self._unknown(error) from error

    def _commit(
        self, compares: tuple[Compare, ...], writes: tuple[Put | Delete, ...], until: float
    ) -> Steps[Committed]:
        ticket = self._ticket
        try:
            done: Committed = yield Commit(self._lease, ticket, compares, writes, until)
        except BaseException as error:  # cancelled, interrupted, unanswered: all the same to the store
            if not isinstance(error, TenureError) or error.happened == "unknown":
                self._doubted = ticket.version
            raise
        if done.fate is Fate.GONE:  # for good: no lost try can be carried out any more either
            raise (yield from self._stale(until))
        if done.ticket is not None:
            self._ticket = done.ticket
        return done

    def _settle(self, until: float) -> Steps[None]:
        """Make sure that no commit of unknown fate is carried out from here on."""
        if self._doubted == self._ticket.version:  # or both are None: no version to tie a commit to is known yet
            touched: Ticket | None = yield Touch(self._lease, self._ticket, until)
            if touched is None:
                raise (yield from self._stale(until))
            self._ticket = touched
        # Also where the ticket has moved on since: the commit was tied to a version that it is not at any more.
        self._doubted = None

    def _alone(self, steps: Steps[Outcome], until: float) -> Steps[Outcome]:
        """Carry out `steps` while no other call of this hold does, in any thread or task. First come, first served."""
        # Not a lock: a task may not block its loop's thread, and an interrupt between taking a lock and the `try` would
        # keep it for ever.
        mine = Signal()
        try:
            self._line_up(mine)
            if self._first() is not mine and not (yield Await(mine, until)):
                raise NotSent("other commits under this hold were in the way until the deadline; this one was not sent")
            return (yield from steps)
        finally:
            self._leave(mine)

    def _line_up(self, mine: Signal) -> None:
        with self._guard:
            self._callers.append(weakref.ref(mine, self._wake_first))

    def _leave(self, mine: Signal) -> None:
        with self._guard:
            self._callers = [caller for caller in self._callers if caller() not in (None, mine)]
        self._wake_first()

    def _first(self) -> Signal | None:
        with self._guard:
            return next((signal for caller in self._callers if (signal := caller()) is not None), None)

    def _wake_first(self, _: object = None) -> None:
        """Wake the first caller."""
        # Set once, stays set: one that was first before is not disturbed.
        first = self._first()
        if first is not None:
            first.set()

    def _stale(self, until: float) -> Steps[StaleToken]:
        """The error that names both tokens, as far as the line tells who came after us."""
        mine = self._fence()
        try:
            line: Line = yield Survey(self._lease, self._ticket.resource, until, front=1)
        except TenureError:
            return stale(None, mine)  # that we are stale matters more than who is not
        first = line.tickets[0].token if line.tickets else None
        younger = first is not None and first > mine.token  # the front of a shared line may be older than we are
        return stale(Fence(mine.line, first, mine.incarnation) if first and younger else None, mine)

    def _unknown(self, error: TenureError) -> TenureError:
        """The error that leaves the fate of an unanswered commit open, whatever asking for it came to."""
        # `happened` must be "unknown", and it is a fact of the class: a StaleToken would say that nothing was written.
        message = (
            f"a commit under {self._ticket.resource!r} went unanswered. Whether it was carried out (or will be "
            f"before this hold's next exchange) is unknown: read, and decide. Asking further came to: {error}"
        )
        return LeaseLost(message) if isinstance(error, (StaleToken, LeaseLost)) else StoreUnavailable(message)


class NotSent(StoreUnavailable):
    """Commit that did not get its turn in time."""

    happened: ClassVar[Happened] = "no"


class _MayBeDone(StoreUnavailable):
    """Commit that went unanswered, where the second try that would settle it must not be made."""


def compared(key: str, version: int | None) -> tuple[Compare, ...]:
    """The condition that `version=` of a put or delete means; none for None."""
    return () if version is None else (Compare(key, version),)


def _sorted_out(operations: Sequence[Put | Delete | Compare]) -> tuple[tuple[Compare, ...], tuple[Put | Delete, ...]]:
    """Conditions and writes, checked. Raises InvalidOption."""
    compares = tuple(o for o in operations if isinstance(o, Compare))
    writes = tuple(o for o in operations if isinstance(o, (Put, Delete)))
    if len(compares) + len(writes) < len(operations):
        raise InvalidOption("a commit takes Put, Delete and Compare, and nothing else")
    if not writes:
        raise InvalidOption("a commit without a Put or Delete would write nothing; get() reads")
    for several in ([c.key for c in compares], [w.key for w in writes]):
        if len({key.removeprefix("/") for key in several}) < len(several):  # one node, on ZooKeeper
            raise InvalidOption("a commit may name each key once in its writes and once in its comparisons")
    if len(operations) > COMMIT_KEYS_MAX:
        raise InvalidOption(f"a commit may have at most {COMMIT_KEYS_MAX} parts, this one has {len(operations)}")
    _check_values(writes)
    _check_versions(compares, {w.key for w in writes if isinstance(w, Put)})
    return compares, writes


def _check_values(writes: tuple[Put | Delete, ...]) -> None:
    size = 0
    for write in writes:
        if isinstance(write, Put):
            if not isinstance(write.value, bytes):
                raise InvalidOption(f"the value of a key is bytes, not {type(write.value).__name__}")
            size += len(write.value)
    if size > COMMIT_BYTES_MAX:
        raise InvalidOption(f"the values of a commit may have {COMMIT_BYTES_MAX} bytes together, these have {size}")


def _check_versions(compares: tuple[Compare, ...], put: set[str]) -> None:
    for compare in compares:
        validation.count(compare.version, "version", minimum=0, maximum=2**63 - 1)
        if compare.version == 0 and compare.key not in put:
            raise InvalidOption(f"version 0 says that {compare.key!r} is new; the same commit has to put it")


def _differs(compares: tuple[Compare, ...]) -> CompareFailed:
    expected = ", ".join(f"{compare.key!r} at version {compare.version}" for compare in compares)
    return CompareFailed(f"the commit was to find {expected}, and did not. Nothing was written; read again.")
