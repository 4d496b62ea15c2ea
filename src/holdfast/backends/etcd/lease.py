"""EtcdLease: an etcd lease, and tickets that are keys bound to it.

Entering a line is one transaction: put my key unless it is there, and read the line. Leaving is one:
delete my key if it still has my create revision. The create revision is the token.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.backends.etcd import codec, guarded
from holdfast.backends.etcd.audit import Audit
from holdfast.backends.etcd.session import LeaseGone, OutOfSpace
from holdfast.backends.etcd.watch import Watching
from holdfast.backends.etcd.wire import Answer, Wire
from holdfast.belief import EXPIRED, Belief, provable
from holdfast.clock import Timer
from holdfast.errors import (
    ClientClosed,
    HoldfastError,
    LeaseLost,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreWentBack,
)
from holdfast.lease import (
    Committed,
    Compare,
    Delete,
    Entry,
    LeaseState,
    Line,
    Put,
    Reach,
    Record,
    Surroundings,
    Ticket,
    Workers,
)
from holdfast.limits import RETRY_PAUSE_FIRST
from holdfast.reaper import Reaper
from holdfast.signals import Signal

_ENDED: Final = (LeaseState.LOST, LeaseState.CLOSED)


class EtcdLease:
    """One etcd lease, granted at the first `enter`, kept alive by timed renewals on the backend's heart."""

    def __init__(
        self,
        wire: Wire,
        namespace: str,
        ttl: float,
        lock_delay: float,
        around: Surroundings,
        heart: Workers,
        beat_seconds_max: Callable[[], float],
    ) -> None:
        self._wire = wire
        self._namespace = namespace
        self._around = around
        self._clock = around.clock
        self._heart = heart
        self._beat_seconds_max = beat_seconds_max
        self._belief = Belief(around.clock, ttl)
        self._belief.on_change(self._changed)
        self._reaper = Reaper(self._withdraw, lambda: self.state, around)
        self._guard = threading.RLock()  # guards the granting
        self._standing: set[str] = set()  # ids of tickets that may stand: entering, standing, leaving
        self._audit = Audit(wire, self._standing, lambda: self.state, around)
        self._number = 0
        self._timer: Timer | None = None
        self._lock_delay = lock_delay
        self.ttl = ttl

    @property
    def id(self) -> str:
        return f"{self._number:x}" if self._number else ""

    @property
    def state(self) -> LeaseState:
        return self._belief.state

    @property
    def reaping(self) -> int:
        return self._reaper.owned

    def remaining(self) -> float:
        return self._belief.remaining()

    # The verbs.

    def enter(self, entry: Entry, until: float) -> Line:
        if not self._belief.proven:
            self._grant(until)
        if self.state in _ENDED:
            raise self._over()
        self._standing.add(entry.id)
        key = codec.b64(codec.ticket_key(self._namespace, entry.resource, self._number, entry.id))
        put = {"key": key, "value": codec.b64(codec.write_value(entry)), "lease": str(self._number)}
        request = {
            "compare": [{"target": "CREATE", "result": "EQUAL", "key": key, "create_revision": "0"}],
            "success": [{"request_put": put}, {"request_range": self._range(entry.resource, entry.reach)}],
            "failure": [{"request_range": {"key": key}}],
        }
        try:
            answer = self._wire.txn(request, until)
        except LeaseGone:
            raise self._gone() from None
        if answer.tries > 1:
            self._audit.doubt(self._number, self.ttl)
        line, whole = self._read(answer, entry.resource)
        me = line.find(entry.id)
        if answer.succeeded and whole:
            return line
        if me is None:
            return line  # neither put nor there: the turn will say that the place is gone
        # The key was there (an earlier try put it, and its answer was lost), or the line was cut short.
        return self.look(me, entry.reach, until)

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        up_to_me = {"max_create_revision": str(ticket.token)}
        line, whole = self._ask_range({**self._range(ticket.resource, reach), **up_to_me}, ticket.resource, until)
        if whole:
            return line
        return self._ask_range({**self._range(ticket.resource, Reach.AHEAD), **up_to_me}, ticket.resource, until)[0]

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        limits = self._range(resource, Reach.AHEAD)
        line, whole = self._ask_range(limits if front is None else {**limits, "limit": front}, resource, until)
        if not whole:
            line, _ = self._ask_range(limits, resource, until)
        return Line(resource, line.tickets[:front], line.revision)

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        signal = Signal()
        single = len(tickets) == 1
        prefix, end = codec.line_range(self._namespace, line.resource)
        stop = self._wire.watch(
            Watching(
                key=tickets[0].key if single else prefix,
                range_end=None if single else end,
                start_revision=line.revision + 1,
                deletes_only=bool(tickets) and not amendments,
                signal=signal,
            )
        )

        def close() -> None:
            stop()
            self._belief.drop_wait(signal)

        signal.on_close(close)
        self._belief.add_wait(signal)
        return signal

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        text = codec.b64(codec.amended_value(ticket, value))
        standing: Ticket | None = ticket
        while standing is not None:  # ends: each round but the last is another amendment of this very ticket
            answer = self._wire.txn(guarded.amending(standing, text), until)
            if answer.succeeded or guarded.stands_with(answer, ticket, text):  # by an earlier try, then
                return True
            standing = guarded.as_it_stands(answer, ticket)
        return False

    def leave(self, ticket: Ticket, until: float) -> bool:
        request = {"compare": [guarded.is_still(ticket)], "success": [{"request_delete_range": {"key": ticket.key}}]}
        try:
            answer = self._wire.txn(request, until)
        except OutOfSpace:
            # No transaction goes through, a plain deletion does; and nobody's key is ever another ticket's later,
            # because the ticket's id is in it.
            gone = ticket.lease_id == self.id and self._delete(ticket.key, until)
            self._standing.discard(ticket.id)
            return gone
        self._standing.discard(ticket.id)
        return answer.succeeded or answer.tries > 1  # gone after a lost answer: that try was ours

    def abandon(self, entry: Entry) -> None:
        self._standing.discard(entry.id)
        self._reaper.own(entry)
        self._audit.doubt(self._number, self.ttl)

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        answer = self._wire.txn(guarded.reading(ticket, keys), until)
        return guarded.records(answer, keys) if answer.succeeded else None

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        answer = self._wire.txn_once(guarded.committing(ticket, compares, writes), until)
        return guarded.committed(answer, ticket, writes)

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        return guarded.touched(self._wire.txn(guarded.touching(ticket), until), ticket)

    def renew(self, until: float) -> float:
        if not self._belief.proven:
            self._grant(until)
        if self.state in _ENDED:
            raise self._over()
        if not self._keep_alive(until):
            raise self._gone()
        return self.remaining()

    def on_end(self, told: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return self._belief.on_change(told)

    def close(self, until: float) -> None:
        delayed = self._lock_delay > 0 and self.state is LeaseState.LOST
        self._belief.end(LeaseState.CLOSED, "the client was closed")
        with self._guard:  # a grant under way ends first: its lease must be revoked too
            number = self._number
        if number and not delayed:
            self._revoke(until)
            self._around.hub.emit("lease_closed", lease_id=self.id, ttl=self.ttl)

    # Life and death of the lease itself.

    def _grant(self, until: float) -> None:
        """Once. The id is ours, so that a second try after a lost answer finds the first one's lease."""
        if not self._guard.acquire(timeout=max(0.0, until - self._clock.now())):
            raise StoreUnavailable("another thread's request for a lease was not answered in time")
        try:
            if self._belief.proven:
                return
            if self.state in _ENDED:
                raise self._over()
            number = self._number or secrets.randbits(62) + 1
            self._number = number
            sent = self._clock.now()
            ttl = self._grant_or_find(number, until)
            self.ttl = ttl - self._lock_delay
            self._belief.prove(sent, provable(self.ttl))
        finally:
            self._guard.release()
        self._wire.greet()
        self._around.hub.emit("lease_opened", lease_id=self.id, ttl=self.ttl)
        self._beat_after(self._interval)

    def _grant_or_find(self, number: int, until: float) -> float:
        request = {"TTL": str(math.ceil(self.ttl + self._lock_delay)), "ID": str(number)}
        try:
            return seconds_of(self._wire.call("/lease/grant", request, until), "TTL")
        except StoreError as error:
            if "lease already exists" not in str(error):
                raise
        granted = self._wire.call("/lease/timetolive", {"ID": str(number)}, until)
        # granted earlier than `sent`: only a keep-alive from now on proves it for its whole time
        if not self._keep_alive(until):
            raise self._gone()
        return seconds_of(granted, "grantedTTL")

    def _keep_alive(self, until: float) -> bool:
        """One renewal; False when the store says that the lease is gone."""
        sent = self._clock.now()
        try:
            answer = self._wire.call("/lease/keepalive", {"ID": str(self._number)}, until)
        except LeaseGone:
            return False
        if "error" in answer:
            raise StoreUnavailable(f"the keep-alive was answered with an error: {answer['error']}")
        result = answer.get("result") or {}
        ttl = seconds_of(result, "TTL") if "TTL" in result else 0.0  # a dead lease's answer has no TTL in it
        if ttl <= 0:
            return False
        # measured from before this send: after retries within `call` that is too early, never too late
        self._belief.prove(sent, provable(ttl - self._lock_delay))
        return True

    @property
    def _interval(self) -> float:
        return provable(self.ttl) / 3

    def _beat_after(self, seconds: float) -> None:
        if self.state not in _ENDED:
            self._timer = self._clock.schedule(self._clock.now() + seconds, self._beat_soon)

    def _beat_soon(self) -> None:
        try:
            self._heart.submit(self._beat)
        except ClientClosed:
            pass  # the backend is closed, and the lease with it

    def _beat(self) -> None:
        if self.state in _ENDED:
            return
        until = self._clock.now() + min(self._beat_seconds_max(), max(self.remaining(), RETRY_PAUSE_FIRST))
        try:
            alive = self._keep_alive(until)
        except StoreWentBack as error:
            self._belief.end(LeaseState.LOST, str(error))
            return
        except Exception as error:  # even a bug of ours: the next beat is the retry; the clock ends it if none succeeds
            self._around.hub.emit("renewal_failed", lease_id=self.id, ttl=self.ttl, reason=str(error))
            self._beat_after(self._interval / 8)
            return
        if alive:
            self._beat_after(self._interval)
        else:
            self._belief.end(LeaseState.LOST, EXPIRED)

    def _changed(self, state: LeaseState, reason: str) -> None:
        if state in _ENDED and self._timer is not None:
            self._timer.cancel()
        if state is LeaseState.LOST:
            self._around.hub.emit("lease_lost", lease_id=self.id, ttl=self.ttl, reason=reason)
            if self._lock_delay:
                return  # whoever comes next has to wait until the store ends it
            try:
                self._around.workers.submit(self._revoke_quietly)
            except ClientClosed:
                return

    def _revoke_quietly(self) -> None:
        """What we stopped believing in should not block others for longer than it must."""
        try:
            self._revoke(self._clock.now() + self.ttl)
        except HoldfastError:
            return  # nobody renews it any more: its TTL ends it

    def _revoke(self, until: float) -> None:
        try:
            self._wire.call("/lease/revoke", {"ID": str(self._number)}, until)
        except LeaseGone:
            return

    def _gone(self) -> LeaseLost:
        self._belief.end(LeaseState.LOST, EXPIRED)
        return LeaseLost(f"lease {self.id} is gone: {EXPIRED}")

    def _over(self) -> HoldfastError:
        if self.state is LeaseState.CLOSED:
            return ClientClosed("the client is closed")
        return LeaseLost(f"lease {self.id} is gone: {self._belief.reason}")

    # Reading and writing lines.

    def _range(self, resource: str, reach: Reach) -> dict[str, Any]:
        key, end = codec.line_range(self._namespace, resource)
        if reach is Reach.PREDECESSOR:
            return {"key": key, "range_end": end, "sort_target": "CREATE", "sort_order": "DESCEND", "limit": 2}
        return {"key": key, "range_end": end, "sort_target": "CREATE", "sort_order": "ASCEND"}

    def _ask_range(self, limits: dict[str, Any], resource: str, until: float) -> tuple[Line, bool]:
        return self._read(self._wire.txn({"success": [{"request_range": limits}]}, until), resource)

    def _read(self, answer: Answer, resource: str) -> tuple[Line, bool]:
        """The line, and whether no key of a line nested below it took a place in the answer."""
        key_values = answer.key_values
        tickets = [t for kv in key_values if (t := codec.read_ticket(kv, self._namespace, resource)) is not None]
        tickets.sort(key=lambda ticket: ticket.token or 0)
        return Line(resource, tuple(tickets), answer.revision), len(tickets) == len(key_values)

    def _withdraw(self, entry: Entry, until: float) -> bool:
        if not self._number:
            return False
        key = codec.b64(codec.ticket_key(self._namespace, entry.resource, self._number, entry.id))
        return self._delete(key, until)

    def _delete(self, key: str, until: float) -> bool:
        return int(self._wire.call("/kv/deleterange", {"key": key}, until).get("deleted", 0)) > 0


def seconds_of(answer: Mapping[str, Any], name: str) -> float:
    """A time in an answer. Raises StoreRefused where there is none."""
    try:
        return float(answer[name])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreRefused(f"etcd answered without a usable {name}: {str(answer)[:80]}") from error
