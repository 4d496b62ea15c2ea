"""Lock: one at a time, first come first served. Elections and writers use the same rule."""

from __future__ import annotations

from tenure._core.base import validation
from tenure._core.lease import Line, Reach, Ticket
from tenure._core.recipes.request import LineRequest, refuse_other_kind
from tenure._core.turn import Blockers


class LockRule:
    """Rule of exclusive tickets: wait for the predecessor; with none it is my turn.

    Watching only the predecessor means that a release wakes one waiter. That the predecessor left
    does not make it my turn (it may have given up waiting), so the turn looks again.
    """

    reach = Reach.PREDECESSOR
    announces = False

    def blockers(self, line: Line, me: Ticket) -> Blockers:
        refuse_other_kind(line, me)
        position = line.position(me.id)
        if not position:
            return Blockers()
        return Blockers((line.tickets[position - 1],))


LOCK_RULE = LockRule()


def lock(name: str, ttl: float, owner: str, lock_delay: float = 0.0) -> LineRequest:
    """Request to hold `name` alone. Raises InvalidOption."""
    return LineRequest(name, LOCK_RULE, ttl, owner, lock_delay=validation.lock_delay(lock_delay))
