"""What a recipe asks the turn for: a place in a line, and the rule that says when it is one's turn."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.lease import Entry, Mode
from holdfast.turn import Rule


@dataclass(frozen=True, slots=True)
class Ask:
    """One kind of place in the line of `resource`. Every acquire makes a new entry from it."""

    resource: str
    rule: Rule
    ttl: float
    owner: str
    mode: Mode = Mode.EXCLUSIVE
    weight: int = 1
    limit: int = 1
    value: str = ""
    lock_delay: float = 0.0

    def over(self, ttl: float) -> Ask:
        """The same, by a lease of another TTL."""
        return Ask(
            self.resource, self.rule, ttl, self.owner, self.mode, self.weight, self.limit, self.value, self.lock_delay
        )

    def entry(self, ticket_id: str | None = None) -> Entry:
        """For one ticket, of that id or a new one."""
        facts = (self.resource, self.owner, self.mode, self.weight, self.limit, self.value, self.rule.reach)
        return Entry(*facts) if ticket_id is None else Entry(*facts, ticket_id)
