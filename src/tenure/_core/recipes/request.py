"""Request of a recipe: a ticket in a line, and the rule that says when its turn has come."""

from __future__ import annotations

from dataclasses import dataclass

from tenure._core.lease import Entry, Line, Mode, Ticket
from tenure._core.turn import Rule
from tenure.errors import LineMismatch

_KINDS = {Mode.EXCLUSIVE: "a lock or election", Mode.READ: "a read/write lock", Mode.SEAT: "a semaphore"}


@dataclass(frozen=True, slots=True)
class LineRequest:
    """Kind of ticket in the line of `resource`. Every acquire makes a new entry from it."""

    resource: str
    rule: Rule
    ttl: float
    owner: str
    mode: Mode = Mode.EXCLUSIVE
    weight: int = 1
    limit: int = 1
    value: str = ""
    lock_delay: float = 0.0

    def over(self, ttl: float) -> LineRequest:
        """Copy of the request, by a lease of another TTL."""
        return LineRequest(
            self.resource, self.rule, ttl, self.owner, self.mode, self.weight, self.limit, self.value, self.lock_delay
        )

    def entry(self, ticket_id: str | None = None) -> Entry:
        """An entry for one ticket, of that id or a new one."""
        facts = (self.resource, self.owner, self.mode, self.weight, self.limit, self.value, self.rule.reach)
        return Entry(*facts) if ticket_id is None else Entry(*facts, ticket_id)


def refuse_other_kind(line: Line, me: Ticket) -> None:
    """Raise LineMismatch where the first of `line` shows that the name is in use as another kind of thing than mine.

    Seats stand with seats only; locks, candidates, readers, writers and strangers with each other. The first one
    decides: one behind it that disagrees is refused itself, and on its way out.
    """
    first = line.tickets[0]
    if (first.mode is Mode.SEAT) is not (me.mode is Mode.SEAT):
        raise LineMismatch(
            f"{me.resource!r} is in use as {_KINDS[first.mode]}, not as {_KINDS[me.mode]}; use another name"
        )
