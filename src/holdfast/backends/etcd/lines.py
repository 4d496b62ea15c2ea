"""Reading lines and changing tickets: what all leases of one client have in common. No request here names a lease."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.backends.etcd import codec, guarded
from holdfast.backends.etcd.late import CatchUp
from holdfast.backends.etcd.wire import Wire
from holdfast.backends.etcd.words import Answer, KeyValue, Range, Watching
from holdfast.belief import Belief
from holdfast.lease import Committed, Compare, Delete, Line, Put, Reach, Record, Surroundings, Ticket
from holdfast.signals import Signal


class Lines:
    """The lines of one namespace, over one client's wire. `belief` tells waits of their lease's end."""

    def __init__(self, wire: Wire, namespace: str, around: Surroundings, belief: Belief) -> None:
        self._wire = wire
        self._namespace = namespace
        self._around = around
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
        single = len(tickets) == 1
        prefix, end = codec.line_range(self._namespace, line.resource)
        key, range_end = (codec.stored(tickets[0].key), None) if single else (prefix, end)
        catch_up = None
        if tickets and line.tickets:  # who shows no line looks after a ticket of its own: that is in no hurry
            newest = max(ticket.token or 0 for ticket in tickets)
            where = Range(key) if single else Range(prefix, end, max_create_revision=newest)
            catch_up = CatchUp(self._wire, self._around, where, tickets, signal, amendments=amendments)
        deletes_only = bool(tickets) and not amendments
        stop = self._wire.watch(Watching(key, range_end, line.revision + 1, deletes_only, signal, catch_up))
        signal.on_close(_GiveBack(stop, self._belief, signal))
        self._belief.add_wait(signal)
        return signal

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        text = codec.amended_value(ticket, value)
        standing: Ticket | None = ticket
        while standing is not None:  # ends: each round but the last is another amendment of this very ticket
            answer = self._wire.txn(guarded.amending(standing, text), until)
            if answer.succeeded or guarded.stands_with(answer, ticket, text):  # by an earlier try, then
                return True
            standing = guarded.as_it_stands(answer, ticket)
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
        return guarded.records(found, keys) if guarded.as_it_stands(standing, ticket) else None

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        answer = self._wire.txn_once(guarded.committing(ticket, compares, writes), until)
        return guarded.committed(answer, ticket, writes)

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        return guarded.touched(self._wire.txn(guarded.touching(ticket), until), ticket)

    def range(self, resource: str, reach: Reach, up_to: int | None = None) -> Range:
        """What to ask for, to see that much of a line."""
        key, end = codec.line_range(self._namespace, resource)
        near = reach is Reach.PREDECESSOR
        return Range(key, end, 2 if near else 0, near, up_to or 0)

    def ask(self, limits: Range, resource: str, until: float) -> tuple[Line, bool]:
        """See `told`."""
        return self.told(self._wire.range(limits, until), resource)

    def told(
        self, answer: Answer, resource: str, known: Callable[[KeyValue], Ticket | None] = lambda kv: None
    ) -> tuple[Line, bool]:
        """The line, and whether no key of a line nested below it took a place in the answer."""
        key_values = answer.key_values
        seen = [known(kv) or codec.read_ticket(kv, self._namespace, resource) for kv in key_values]
        tickets = [ticket for ticket in seen if ticket is not None]
        tickets.sort(key=lambda ticket: ticket.token or 0)
        return Line(resource, tuple(tickets), answer.revision), len(tickets) == len(key_values)


class _GiveBack:
    """What closes a wait: small, as there is one for each hold and waiter."""

    __slots__ = ("_belief", "_signal", "_stop")

    def __init__(self, stop: Callable[[], None], belief: Belief, signal: Signal) -> None:
        self._stop = stop
        self._belief = belief
        self._signal = signal

    def __call__(self) -> None:
        self._stop()
        self._belief.drop_wait(self._signal)
