"""Read/write lock: readers together, a writer alone, in the order they came.

A reader that comes after a waiting writer waits behind it, so writers don't starve; readers between
two writers are admitted together.
"""

from __future__ import annotations

from tenure._core.lease import Line, Mode, Reach, Ticket
from tenure._core.recipes.lock import LOCK_RULE
from tenure._core.recipes.request import LineRequest, refuse_other_kind
from tenure._core.turn import Blockers


class ReadRule:
    """Rule of readers: wait for the nearest ticket ahead that is not a reader.

    When it leaves, all readers behind it are admitted at once: they are woken because they may run.
    """

    reach = Reach.AHEAD
    announces = False

    def blockers(self, line: Line, me: Ticket) -> Blockers:
        refuse_other_kind(line, me)
        for ticket in reversed(line.tickets[: line.position(me.id)]):
            if ticket.mode is not Mode.READ:
                return Blockers((ticket,))
        return Blockers()


READ_RULE = ReadRule()


def read(name: str, ttl: float, owner: str) -> LineRequest:
    """Request to hold `name` together with other readers."""
    return LineRequest(name, READ_RULE, ttl, owner, mode=Mode.READ)


def write(name: str, ttl: float, owner: str) -> LineRequest:
    """Request to hold `name` alone: a writer waits for its predecessor, as a lock does."""
    return LineRequest(name, LOCK_RULE, ttl, owner)
