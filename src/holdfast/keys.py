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
from typing import ClassVar, TypeVar

from holdfast import checks
from holdfast.errors import (
    CompareFailed,
    Happened,
    HoldfastError,
    InvalidOption,
    LeaseLost,
    StaleToken,
    StoreUnavailable,
)
from holdfast.fence import Fence, stale
from holdfast.lease import Committed, Compare, Delete, Fate, Lease, Line, Mode, Put, Record, Ticket
from holdfast.limits import COMMIT_BYTES_MAX, COMMIT_KEYS_MAX
from holdfast.names import checked_key
from holdfast.signals import Signal
from holdfast.turn import Await, Commit, Read, Steps, Survey, Touch

Outcome = TypeVar("Outcome")


class Keys:
    """The user's keys, as far as one hold may touch them. Its generators are driven by the faces, from any thread."""

    def __init__(self, lease: Lease, ticket: Ticket, fence: Callable[[], Fence], namespace: str) -> None:
        self._lease = lease
        self._shared = ticket.mode is not Mode.EXCLUSIVE
        self._fence = fence
        self._namespace = namespace
        self._guard = threading.RLock()  # guards _turns; a signal handler may re-enter
        # Who stands first may commit. Weak: a caller interrupted anywhere gives up its place by dying.
        self._turns: list[weakref.ref[Signal]] = []
        # These belong to whoever stands first.
        self._ticket = ticket  # as last seen: its version is what a commit is tied to
        self._doubted: int | None = None  # the version to which a commit of unknown fate was tied

    def read(self, keys: Sequence[str], until: float) -> Steps[tuple[Record | None, ...]]:
        """What stands at `keys`, or None for each that is not there. Raises StaleToken, StoreError."""
        checked = tuple(checked_key(key, self._namespace) for key in keys)
        if self._doubted is not None:
            yield from self._alone(self._settle(until), until)
        found: tuple[Record | None, ...] | None = yield Read(self._lease, self._ticket, checked, until)
        if found is None:
            raise (yield from self._stale(until))
        return found

    def commit(self, operations: Sequence[Put | Delete | Compare], until: float) -> Steps[dict[str, int]]:
        """Write all or nothing; the versions of what was put. Raises StaleToken, CompareFailed, StoreError."""
        compares, writes = _sorted_out(operations, self._namespace)
        return (yield from self._alone(self._committed(compares, writes, until), until))

    def _committed(
        self, compares: tuple[Compare, ...], writes: tuple[Put | Delete, ...], until: float
    ) -> Steps[dict[str, int]]:
        yield from self._settle(until)
        unanswered: StoreUnavailable | None = None
        try:
            while True:
                try:
                    done = yield from self._commit(compares, writes, until)
                except StoreUnavailable as error:
                    unanswered = error
                    yield from self._settle(until)
                    if self._shared:
                        raise _MayBeDone(
                            "the commit may or may not have been carried out (it will not be from here on), and a "
                            "second try could undo what a co-holder wrote upon it: read, and decide"
                        ) from error
                    continue
                if done.fate is Fate.DONE:
                    return dict(done.versions)
                if done.fate is Fate.DIFFERS:
                    raise _differs(compares)
                # amended meanwhile, which was not this commit's doing: once more, tied to the ticket as it is
        except HoldfastError as error:
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
            if not isinstance(error, HoldfastError) or error.happened == "unknown":
                self._doubted = ticket.version
            raise
        if done.fate is Fate.GONE:
            raise (yield from self._stale(until))
        if done.ticket is not None:
            self._ticket = done.ticket
        return done

    def _settle(self, until: float) -> Steps[None]:
        """See to it that a commit of unknown fate is not carried out from here on."""
        if self._doubted == self._ticket.version:  # or both are None: no version to tie a commit to is known yet
            touched: Ticket | None = yield Touch(self._lease, self._ticket, until)
            if touched is None:
                raise (yield from self._stale(until))
            self._ticket = touched
        self._doubted = None

    def _alone(self, steps: Steps[Outcome], until: float) -> Steps[Outcome]:
        """Carry out `steps` while nobody else of this hold does, in any thread or task. First come, first served."""
        place = Signal()
        try:
            self._line_up(place)
            if self._first() is not place and not (yield Await(place, until)):
                raise NotSent("other commits under this hold were in the way until the deadline; this one was not sent")
            return (yield from steps)
        finally:
            self._leave(place)

    def _line_up(self, place: Signal) -> None:
        with self._guard:
            self._turns.append(weakref.ref(place, self._wake_first))

    def _leave(self, place: Signal) -> None:
        with self._guard:
            self._turns = [turn for turn in self._turns if turn() not in (None, place)]
        self._wake_first()

    def _first(self) -> Signal | None:
        with self._guard:
            return next((place for turn in self._turns if (place := turn()) is not None), None)

    def _wake_first(self, _: object = None) -> None:
        """Tell whoever is first by now that it is. Whoever was first and knows is not disturbed."""
        first = self._first()
        if first is not None:
            first.set()

    def _stale(self, until: float) -> Steps[StaleToken]:
        """The error that names both tokens, as far as the line tells who came after us."""
        mine = self._fence()
        try:
            line: Line = yield Survey(self._lease, self._ticket.resource, until, front=1)
        except HoldfastError:
            return stale(None, mine)  # that we are stale matters more than who is not
        first = line.tickets[0].token if line.tickets else None
        younger = first is not None and first > mine.token  # the front of a shared line may be older than we are
        return stale(Fence(mine.line, first, mine.incarnation) if first and younger else None, mine)

    def _unknown(self, error: HoldfastError) -> HoldfastError:
        """What became of a commit that went unanswered is not what came of looking for it."""
        told = (
            f"a commit under {self._ticket.resource!r} went unanswered. Whether it was carried out (or will be "
            f"before this hold's next exchange) is unknown: read, and decide. Asking further came to: {error}"
        )
        return LeaseLost(told) if isinstance(error, (StaleToken, LeaseLost)) else StoreUnavailable(told)


class NotSent(StoreUnavailable):
    """A commit did not get its turn in time."""

    happened: ClassVar[Happened] = "no"


class _MayBeDone(StoreUnavailable):
    """A commit went unanswered, and the second try that would settle it must not be made."""


def compared(key: str, version: int | None) -> tuple[Compare, ...]:
    """The condition that `version=` of a put or delete means; none for None."""
    return () if version is None else (Compare(key, version),)


def _sorted_out(
    operations: Sequence[Put | Delete | Compare], namespace: str
) -> tuple[tuple[Compare, ...], tuple[Put | Delete, ...]]:
    """Conditions and writes, checked. Raises InvalidOption, InvalidName."""
    compares = tuple(o for o in operations if isinstance(o, Compare))
    writes = tuple(o for o in operations if isinstance(o, (Put, Delete)))
    if len(compares) + len(writes) < len(operations):
        raise InvalidOption("a commit takes Put, Delete and Compare, and nothing else")
    if not writes:
        raise InvalidOption("a commit without a Put or Delete would write nothing; get() reads")
    for several in ([c.key for c in compares], [w.key for w in writes]):
        for key in several:
            checked_key(key, namespace)
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
        checks.count(compare.version, "version", least=0, most=2**63 - 1)
        if compare.version == 0 and compare.key not in put:
            raise InvalidOption(f"version 0 says that {compare.key!r} is new; the same commit has to put it")


def _differs(compares: tuple[Compare, ...]) -> CompareFailed:
    told = ", ".join(f"{compare.key!r} at version {compare.version}" for compare in compares)
    return CompareFailed(f"the commit was to find {told}, and did not. Nothing was written; read again.")
