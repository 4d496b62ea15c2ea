"""A trace played at one store, command by command, each with its outcome.

The player knows what the store answered and nothing else: tickets and versions that commands speak of are the ones
that were seen. Where a command has nothing to work on, it does nothing. It does the same at every store, but for one
thing, which is a freedom of its own: see `_again`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.signals import Signal
from tenure._core.lease import Compare, Delete, Entry, Fate, Lease, Line, Put, Reach, Ticket
from tenure.errors import TenureError
from tests.verify.traces import commands as c
from tests.verify.traces.answers import DONE, NOTHING, Answer, Change, Describer, Outcome, raised
from tests.verify.traces.knowledge import Held, Knowledge, changes
from tests.verify.traces.stores import Place
from tests.verify.traces.watching import Watching, pass_by

_REQUEST_SECONDS: Final = 10.0
RESENT: Final = "resent"
"""The mark of an entry that was to be entered again while its ticket stood."""


class Player:
    """A player of one trace. Its store's place is the caller's to close."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._kind = place.kind
        self._know = Knowledge()
        self._tell = Describer(place.root, self._know.names_of_leases)
        self._step = 0
        self.watching = Watching()

    def play(self, trace: c.Trace, reference: Sequence[Outcome] | None = None) -> list[Outcome]:
        """An outcome for each command and two more: what else was set, and the end. Waits for what `reference` saw."""
        outcomes = []
        for self._step, command in enumerate(trace.commands):
            before = self._place.lines()
            answer = self._answer(command)
            expected = None if reference is None else reference[self._step]
            changed = changes(before, self._place.lines(), self._tell.tickets)
            outcomes.append(self._outcome(answer, expected, (*self._losses(command), *changed)))
        return [*outcomes, self._settled(), self._ended()]

    # What can be seen.

    def _outcome(self, answer: Answer, expected: Outcome | None, changed: tuple[Change, ...]) -> Outcome:
        fired = self.watching.fired(None if expected is None else expected.fired)
        waits = Counter(end.split(" ")[0] for end in expected.ends) if expected is not None else Counter[str]()
        held = self._know.leases.values()
        ends = tuple(news for one in held for news in one.news(waits[one.name]))
        return Outcome(answer, fired, ends, tuple(map(str, held)), changed)

    def _settled(self) -> Outcome:
        """The signals set without need, once everything that was under way has arrived."""
        living = [held.lease for held in self._know.leases.values() if not held.ended]
        try:
            passed = Answer("settled", pass_by(living))
        except TenureError as error:
            passed = raised(error)
        return Outcome(passed, self.watching.early())

    def _ended(self) -> Outcome:
        """Every lease closed, and what stands in the lines then."""
        answers = [self._answer(c.Close(name)) for name in self._know.leases]
        last = self._place.open("last", 15.0, 0.0)
        left = tuple(str(self._tell.line(last.survey(resource, _soon()))) for resource in c.RESOURCES)
        last.close(_soon())
        self.watching.close()
        return Outcome(Answer("the end", (*map(str, answers), *left)))

    # What is done.

    def _answer(self, command: c.Command) -> Answer:
        try:
            return self._carry_out(command)
        except Exception as error:  # a driver's own error must not come up here, and is told as a difference
            return raised(error)

    def _carry_out(self, command: c.Command) -> Answer:
        match command:
            case c.Open():
                return self._open(command)
            case c.EnterCommand():
                return self._enter(command)
            case c.Again():
                return self._again(command)
            case c.WatchCommand():
                return self._watch(command)
            case c.Unwatch():
                return DONE if self.watching.end(command.watch) else NOTHING
            case c.Remove():
                return self._remove(command)
        held = self._know.leases.get(command.lease)
        if held is None:
            return NOTHING
        match command:
            case c.SurveyCommand():
                return self._survey(command, held)
            case c.RenewCommand():
                left = held.lease.renew(_soon())
                held.granted = True
                return Answer("renewed", (0.0 < left <= held.lease.ttl, round(held.lease.ttl)))
            case c.Deafen():
                held.deafen()
                return DONE
            case c.Close():
                held.ended = True
                held.lease.close(_soon())
                return DONE
            case c.Revoke():
                return self._revoke(held)
            case c.AbandonCommand():
                return self._abandon(command, held)
            case _:
                return self._of_ticket(command, held)

    # Leases.

    def _open(self, command: c.Open) -> Answer:
        if command.lease in self._know.leases:
            return NOTHING
        lease = self._place.open(command.client, command.ttl, command.lock_delay)
        self._know.leases[command.lease] = Held(command.lease, command.client, lease)
        return DONE

    def _revoke(self, held: Held) -> Answer:
        if not held.granted or held.ended:
            return NOTHING
        self._place.revoke(held.lease)
        held.ended, until = True, _soon()
        while SYSTEM_CLOCK.now() < until:
            held.lease.renew(until)
            SYSTEM_CLOCK.wait(Signal(), SYSTEM_CLOCK.now() + 0.01)  # answered by a server on its way to end it
        return Answer("still renewed")

    # Tickets.

    def _enter(self, command: c.EnterCommand) -> Answer:
        held = self._know.leases.get(command.lease)
        if held is None or command.ticket in self._know.entries:
            return NOTHING
        entry = Entry(
            command.resource, command.owner, command.mode, command.weight, command.limit, command.value, command.reach
        )
        self._tell.tickets[entry.id] = command.ticket
        self._know.entries[command.ticket] = command.lease, entry
        with self._losing(held, command, entry.id):
            return self._entered(command.ticket, held, entry)

    def _again(self, command: c.Again) -> Answer:
        held = self._know.leases.get(command.lease)
        lease, entry = self._know.entries.get(command.ticket, ("", None))
        if held is None or entry is None or lease != command.lease:
            return NOTHING
        if self._kind == "zookeeper" and not held.ended:
            standing = held.lease.survey(entry.resource, _soon()).find(entry.id)
            if standing is not None:  # see freedom.py: a second node would stand there
                self._know.saw(command.ticket, standing)
                return Answer(RESENT)
        return self._entered(command.ticket, held, entry)

    def _entered(self, name: str, held: Held, entry: Entry) -> Answer:
        line = held.lease.enter(entry, _soon())
        held.granted = True
        if self._know.saw(name, line.find(entry.id)):
            self._keep(held, line, entry.id, entry.reach)
        return self._tell.line(line, name)

    def _look(self, command: c.LookCommand, held: Held, ticket: Ticket) -> Answer:
        line = held.lease.look(ticket, command.reach, _soon())
        self._keep(held, line, ticket.id, command.reach)
        return self._tell.line(line, command.ticket)

    def _keep(self, held: Held, line: Line, me: str, reach: Reach) -> None:
        """The line up to me, as far as every store shows it, for watches to come."""
        position = line.position(me)
        if position is not None:
            upto = line.tickets[: position + 1][-2 if reach is Reach.PREDECESSOR else 0 :]
            self._know.saw_line(held, line._replace(tickets=upto), self._step, whole=False)

    def _survey(self, command: c.SurveyCommand, held: Held) -> Answer:
        line = held.lease.survey(command.resource, _soon(), front=command.front)
        for ticket in line.tickets:
            self._know.saw(self._tell.tickets.get(ticket.id, "?"), ticket)
        self._know.saw_line(held, line, self._step, whole=command.front is None)
        return self._tell.line(line)

    def _abandon(self, command: c.AbandonCommand, held: Held) -> Answer:
        _, entry = self._know.entries.get(command.ticket, ("", None))
        if entry is None:
            return NOTHING
        held.lease.abandon(entry)
        self._place.settle(held.client, _soon())
        return DONE

    def _of_ticket(self, command: c.OfTicket, held: Held) -> Answer:
        ticket = self._know.ticket(command.ticket, command.view)
        owner = self._know.entries.get(command.ticket, ("", None))[0]
        if ticket is None or (held.ended and owner != held.name):
            return NOTHING
        lease, tell, until = held.lease, self._tell, _soon()
        with self._losing(held, command, ticket.id):
            match command:
                case c.LookCommand():
                    return self._look(command, held, ticket)
                case c.AmendCommand():
                    return Answer("stood", (lease.amend(ticket, command.value, until),))
                case c.LeaveCommand():
                    return Answer("stood", (lease.leave(ticket, until),))
                case c.TouchCommand():
                    touched = lease.touch(ticket, until)
                    self._know.saw(command.ticket, touched)
                    return tell.ticket(touched)
                case c.ReadCommand():
                    records = lease.read(ticket, [self._place.root + key for key in command.keys], until)
                    for key, record in zip(command.keys, records or (), strict=False):
                        self._know.saw_record(key, 0 if record is None else record.version)
                    return tell.records(command.keys, records)
                case c.CommitCommand():
                    return self._commit(command, lease, ticket, until)

    def _commit(self, command: c.CommitCommand, lease: Lease, ticket: Ticket, until: float) -> Answer:
        root, put = self._place.root, {key for key, value in command.writes if value is not None}
        versions = {key: self._know.version(key, known, put=key in put) for key, known in command.compares}
        compares = [Compare(root + key, version) for key, version in versions.items()]
        writes = [Delete(root + key) if value is None else Put(root + key, value) for key, value in command.writes]
        done = lease.commit(ticket, compares, writes, until)
        for key, _ in command.writes if done.fate is Fate.DONE else ():
            self._know.saw_record(key, done.versions.get(root + key, 0))
        if not command.lost:  # a store that had nothing to lose tells more than the others
            self._know.saw(command.ticket, done.ticket)
        return self._tell.committed(done)

    def _remove(self, command: c.Remove) -> Answer:
        ticket = self._know.ticket(command.ticket, c.View.LATEST)
        if ticket is None:
            return NOTHING
        self._place.remove(ticket)
        return DONE

    def _watch(self, command: c.WatchCommand) -> Answer:
        held, reading = self._know.leases.get(command.lease), self._know.lines.get((command.lease, command.resource))
        if held is None or reading is None:
            return NOTHING
        return DONE if self.watching.add(command, held.client, held.lease, reading, self._tell.tickets) else NOTHING

    def _losses(self, command: c.Command) -> Iterator[Change]:
        lease: str = getattr(command, "lease", "")
        lost: c.Lost = getattr(command, "lost", "")
        if lost and lease in self._know.leases:
            yield Change(self._know.leases[lease].client, "loss")

    @contextmanager
    def _losing(self, held: Held, command: c.Command, ticket_id: str) -> Iterator[None]:
        lost: c.Lost = getattr(command, "lost", "")  # most kinds of command can't be lost
        if not lost or held.ended:  # by then not every driver sends something that could be lost
            yield
            return
        self._place.lose(held.client, lost, c.verb(command).lower(), ticket_id)
        try:
            yield
        finally:
            self._place.forget(held.client)


def _soon() -> float:
    return SYSTEM_CLOCK.now() + _REQUEST_SECONDS
