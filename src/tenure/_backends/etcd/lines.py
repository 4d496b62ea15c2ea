"""Lines read and watched, tickets changed: the requests that name no lease, for all leases of one client.

A watch begins with the next event (see watch.py). If anything was written between the reading of the line and that
beginning, CatchUp looks once, in the background, and wakes the waiter: no watch reports a ticket that has left or was
amended in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tenure._backends.etcd import codec, guarded_keys
from tenure._backends.etcd.requests import KeyValue, Range, TxnResult, WatchRequest
from tenure._backends.etcd.wire import Wire
from tenure._core.base.limits import WATCHED_SINGLY_MAX
from tenure._core.base.signals import Signal
from tenure._core.belief import Belief
from tenure._core.lease import BackendContext, Committed, Compare, Delete, LeaseState, Line, Put, Reach, Record, Ticket
from tenure.errors import ClientClosed, TenureError


class EtcdLines:
    """The lines of one namespace, over one client's wire. `belief` ends the waits with their lease."""

    def __init__(self, wire: Wire, namespace: str, context: BackendContext, belief: Belief) -> None:
        self._wire = wire
        self._namespace = namespace
        self._context = context
        self._belief = belief

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        line, whole = self.ask(self.range(ticket.resource, reach, ticket.token), ticket.resource, until)
        if whole:
            return line
        return self.ask(self.range(ticket.resource, Reach.AHEAD, ticket.token), ticket.resource, until)[0]

    def survey(self, resource: str, until: float, front: int | None) -> Line:
        limits = self.range(resource, Reach.AHEAD)
        line, whole = self.ask(limits if front is None else limits._replace(limit=front), resource, until)
        if not whole:
            line, _ = self.ask(limits, resource, until)
        return Line(resource, line.tickets[:front], line.revision)

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        signal = Signal()
        start, deletes_only = line.revision + 1, bool(tickets) and not amendments
        ranges = self._watched(line.resource, tickets)
        stops = []
        for key, range_end, those in ranges:
            catch_up = None
            if those and line.tickets:  # who shows no line looks after a ticket of its own: that is in no hurry
                newest = max(ticket.token or 0 for ticket in those)
                where = Range(key) if range_end is None else Range(key, range_end, max_create_revision=newest)
                catch_up = CatchUp(self._wire, self._context, where, those, signal, amendments=amendments)
            stops.append(self._wire.watch(WatchRequest(key, range_end, start, deletes_only, signal, catch_up)))
        signal.on_close(_GiveBack(tuple(stops), self._belief, signal))
        self._belief.add_signal(signal)
        return signal

    def _watched(self, resource: str, tickets: Sequence[Ticket]) -> list[tuple[bytes, bytes | None, Sequence[Ticket]]]:
        """The keys to watch: those of a few tickets each by itself, or the line's."""
        if 0 < len(tickets) <= WATCHED_SINGLY_MAX:
            return [(codec.stored(ticket.key), None, (ticket,)) for ticket in tickets]
        return [(*codec.line_range(self._namespace, resource), tickets)]

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        text = codec.amended_value(ticket, value)
        standing: Ticket | None = ticket
        while standing is not None:  # ends: each round but the last is another amendment of this very ticket
            answer = self._wire.txn(guarded_keys.amending(standing, text), until)
            if answer.succeeded or guarded_keys.stands_with(answer, ticket, text):  # by an earlier try, then
                return True
            standing = guarded_keys.as_it_stands(answer, ticket)
        return False

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        # Not by a transaction, see Wire.range. The keys as they stood at one revision, then the ticket: that was put
        # before, so if it still stands it stood then.
        found: list[KeyValue] = []
        at = 0
        for key in keys:
            answer = self._wire.range(Range(key.encode(), revision=at), until)
            found += answer.key_values
            at = at or answer.revision
        standing = self._wire.range(Range(codec.stored(ticket.key)), until)
        return guarded_keys.records(found, keys) if guarded_keys.as_it_stands(standing, ticket) else None

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        answer = self._wire.txn_once(guarded_keys.committing(ticket, compares, writes), until)
        return guarded_keys.committed(answer, ticket, writes)

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        return guarded_keys.touched(self._wire.txn(guarded_keys.touching(ticket), until), ticket)

    def range(self, resource: str, reach: Reach, up_to: int | None = None) -> Range:
        """Make the range that shows so much of a line."""
        key, end = codec.line_range(self._namespace, resource)
        near = reach is Reach.PREDECESSOR
        return Range(key, end, 2 if near else 0, near, up_to or 0)

    def ask(self, limits: Range, resource: str, until: float) -> tuple[Line, bool]:
        """Read a range of the line; see `line_in`."""
        return self.line_in(self._wire.range(limits, until), resource)

    def line_in(
        self, answer: TxnResult, resource: str, known: Callable[[KeyValue], Ticket | None] = lambda kv: None
    ) -> tuple[Line, bool]:
        """Take the line from an answer, and tell whether no key of a line nested below it took a place there."""
        key_values = answer.key_values
        seen = [known(kv) or codec.read_ticket(kv, self._namespace, resource) for kv in key_values]
        tickets = [ticket for ticket in seen if ticket is not None]
        tickets.sort(key=lambda ticket: ticket.token or 0)
        return Line(resource, tuple(tickets), answer.revision), len(tickets) == len(key_values)


class _GiveBack:
    """Callback that closes a wait. A class with slots: a closure would be larger, and every hold and waiter has one."""

    __slots__ = ("_belief", "_signal", "_stops")

    def __init__(self, stops: tuple[Callable[[], None], ...], belief: Belief, signal: Signal) -> None:
        self._stops = stops
        self._belief = belief
        self._signal = signal

    def __call__(self) -> None:
        for stop in self._stops:
            stop()
        self._belief.drop_signal(self._signal)


_LOOK_SECONDS: Final = 2.0


class EtcdLeaseVerbs:
    """The part that both kinds of etcd lease share: their state is the belief's, and these verbs are their lines'.

    A lease sets `_belief` and `_lines` before anybody may call it.
    """

    _belief: Belief
    _lines: EtcdLines

    @property
    def state(self) -> LeaseState:
        return self._belief.state

    def remaining(self) -> float:
        return self._belief.remaining()

    def on_end(self, callback: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return self._belief.on_change(callback)

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        return self._lines.look(ticket, reach, until)

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        return self._lines.survey(resource, until, front)

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        return self._lines.wait_change(line, tickets, amendments=amendments)

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        return self._lines.amend(ticket, value, until)

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        return self._lines.read(ticket, keys, until)

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        return self._lines.commit(ticket, compares, writes, until)

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        return self._lines.touch(ticket, until)


class CatchUp:
    """Catch-up look: sets `signal` unless all `tickets` stand in `where` as seen. Small: one for each waiter."""

    __slots__ = ("_amendments", "_context", "_seen", "_signal", "_where", "_wire")

    def __init__(
        self,
        wire: Wire,
        context: BackendContext,
        where: Range,
        tickets: Sequence[Ticket],
        signal: Signal,
        *,
        amendments: bool,
    ) -> None:
        self._wire = wire
        self._context = context
        self._where = where
        self._seen = tuple((ticket.token, ticket.version) for ticket in tickets)
        self._signal = signal
        self._amendments = amendments

    def __call__(self) -> None:
        """Start the look; returns at once, for the watcher's thread must go on."""
        if self._signal.is_set():
            return
        try:
            self._context.workers.submit(self._look)
        except ClientClosed:
            return  # closing ends every wait
        except TenureError:
            self._signal.set()  # no thread to be had: who waits has one

    def _look(self) -> None:
        if self._signal.is_set():
            return
        try:
            found = self._wire.range(self._where, self._context.clock.now() + _LOOK_SECONDS)
        except TenureError:
            self._signal.set()  # nobody knows, so whoever waits has to look (law 11)
            return
        now = {kv.create_revision: kv.mod_revision for kv in found.key_values}
        if any(token not in now or (self._amendments and now[token] != version) for token, version in self._seen):
            self._signal.set()
