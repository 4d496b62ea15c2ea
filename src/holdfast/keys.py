"""The guard in the store itself: the user's own keys, read and written only while one ticket stands.

No window is left: the store decides, in the same transaction that writes. A commit is sent once. When its answer is
lost, three things are true and dealt with, in this order:

* It may still be carried out, at any later time. So the ticket is touched, which moves it on from the version that
  the commit was tied to: after that it has been carried out, or never will be.
* It may have been carried out. Under an exclusive hold nobody else writes these keys, so what stands there tells;
  where the hold is shared it does not, and the caller hears that the fate is unknown.
* It was not: then it is sent again.

A caller that is interrupted or runs out of time leaves the first of these to the hold's next exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast import checks
from holdfast.errors import CompareFailed, HoldfastError, InvalidOption, LeaseLost, StaleToken, StoreUnavailable
from holdfast.fence import Fence, stale
from holdfast.lease import Committed, Compare, Delete, Fate, Lease, Line, Mode, Put, Record, Ticket
from holdfast.limits import COMMIT_BYTES_MAX, COMMIT_KEYS_MAX
from holdfast.names import checked_key
from holdfast.turn import Commit, Read, Steps, Survey, Touch


class Keys:
    """The user's keys, as far as one hold may touch them. Its generators are driven by the faces."""

    def __init__(self, lease: Lease, ticket: Ticket, fence: Callable[[], Fence], namespace: str) -> None:
        self._lease = lease
        self._ticket = ticket  # as last seen: its version is what a commit is tied to
        self._shared = ticket.mode is not Mode.EXCLUSIVE
        self._fence = fence
        self._namespace = namespace
        self._doubted: int | None = None  # the version to which a commit of unknown fate was tied

    def read(self, keys: Sequence[str], until: float) -> Steps[tuple[Record | None, ...]]:
        """What stands at `keys`, or None for each that is not there. Raises StaleToken, StoreError."""
        checked = tuple(checked_key(key, self._namespace) for key in keys)
        yield from self._settle(until)
        return (yield from self._read(checked, until))

    def commit(self, operations: Sequence[Put | Delete | Compare], until: float) -> Steps[dict[str, int]]:
        """Write all or nothing; the versions of what was put. Raises StaleToken, CompareFailed, StoreError."""
        compares, writes = _sorted_out(operations, self._namespace)
        yield from self._settle(until)
        unanswered: StoreUnavailable | None = None
        try:
            while True:
                try:
                    done = yield from self._commit(compares, writes, until)
                except StoreUnavailable as error:
                    unanswered = error
                    yield from self._settle(until)
                    versions = yield from self._what_stands(compares, writes, until, unanswered)
                    if versions is not None:
                        return versions
                else:
                    if done.fate is Fate.DONE:
                        return dict(done.versions)
                    if done.fate is Fate.DIFFERS:
                        raise _differs(compares, unanswered)
                    # amended meanwhile, which was not this commit's doing: once more, tied to the ticket as it is
        except StaleToken as error:
            if unanswered is None:
                raise
            raise LeaseLost(
                f"a commit under {self._ticket.resource!r} went unanswered, and then the ticket was gone: whether it "
                "was carried out before that is unknown. Acquire again, read, and decide."
            ) from error

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

    def _what_stands(
        self,
        compares: tuple[Compare, ...],
        writes: tuple[Put | Delete, ...],
        until: float,
        unanswered: StoreUnavailable,
    ) -> Steps[dict[str, int] | None]:
        """The versions where the unanswered commit was carried out; None where it was not, and never will be."""
        if self._shared:
            raise StoreUnavailable(
                "the commit may or may not have been carried out (it will not be from here on), and what stands there "
                "may be a co-holder's: read, and decide"
            ) from unanswered
        found = yield from self._read(tuple(write.key for write in writes), until)
        required = {compare.key: compare.version for compare in compares}
        for write, record in zip(writes, found, strict=True):
            wanted = write.value if isinstance(write, Put) else None
            if (None if record is None else record.value) != wanted:
                return None
            if record is not None and record.version == required.get(write.key):
                return None
        return {record.key: record.version for record in found if record is not None}

    def _read(self, keys: tuple[str, ...], until: float) -> Steps[tuple[Record | None, ...]]:
        found: tuple[Record | None, ...] | None = yield Read(self._lease, self._ticket, keys, until)
        if found is None:
            raise (yield from self._stale(until))
        return found

    def _stale(self, until: float) -> Steps[StaleToken]:
        """The error that names both tokens, as far as the line tells who came after us."""
        mine = self._fence()
        try:
            line: Line = yield Survey(self._lease, self._ticket.resource, until, front=1)
        except HoldfastError:
            return stale(None, mine)  # that we are stale matters more than who is not
        if not line.tickets or line.tickets[0].token is None:
            return stale(None, mine)
        return stale(Fence(mine.line, line.tickets[0].token, mine.incarnation), mine)


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
        if len(set(several)) < len(several):
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


def _differs(compares: tuple[Compare, ...], unanswered: StoreUnavailable | None) -> HoldfastError:
    told = ", ".join(f"{compare.key!r} at version {compare.version}" for compare in compares)
    if unanswered is not None:
        return StoreUnavailable(
            f"an unanswered commit was tried again and did not find {told}: somebody else writes there. Whether the "
            "first try was carried out is unknown; read, and decide"
        )
    return CompareFailed(f"the commit was to find {told}, and did not. Nothing was written; read again.")
