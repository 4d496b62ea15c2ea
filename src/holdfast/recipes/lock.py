"""Lock: one at a time, first come first served. Elections and writers use the same rule."""

from __future__ import annotations

from holdfast import checks
from holdfast.lease import Line, Reach, Ticket
from holdfast.recipes.ask import Ask
from holdfast.turn import Blockers


class LockRule:
    """I wait for my predecessor, whatever kind it is; with none it is my turn.

    Watching only the predecessor means that a release wakes one waiter. That the predecessor left
    does not make it my turn (it may have given up waiting), so the turn looks again.
    """

    reach = Reach.PREDECESSOR
    announces = False

    def blockers(self, line: Line, me: Ticket) -> Blockers:
        position = line.position(me.id)
        if not position:
            return Blockers()
        return Blockers((line.tickets[position - 1],))


LOCK_RULE = LockRule()


def lock(name: str, ttl: float, owner: str, lock_delay: float = 0.0) -> Ask:
    """To hold `name` alone. Raises InvalidOption."""
    return Ask(name, LOCK_RULE, ttl, owner, lock_delay=checks.lock_delay(lock_delay))
