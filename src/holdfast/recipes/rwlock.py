"""Read/write lock: readers together, a writer alone, in the order they came.

A reader that comes after a waiting writer waits behind it, so writers don't starve; readers between
two writers are admitted together.
"""

from __future__ import annotations

from holdfast.errors import LineMismatch
from holdfast.lease import Line, Mode, Reach, Ticket
from holdfast.recipes.ask import Ask
from holdfast.recipes.lock import LOCK_RULE
from holdfast.turn import Blockers


class ReadRule:
    """I wait for the nearest ticket ahead that is not a reader.

    When it leaves, all readers behind it are admitted at once: they are woken because they may run.
    """

    reach = Reach.AHEAD
    announces = False

    def blockers(self, line: Line, me: Ticket) -> Blockers:
        for ticket in reversed(line.tickets[: line.position(me.id)]):
            if ticket.mode is Mode.SEAT:
                raise LineMismatch(
                    f"{me.resource!r} is in use as a semaphore, not as a read/write lock; use another name"
                )
            if ticket.mode is Mode.EXCLUSIVE:
                return Blockers((ticket,))
        return Blockers()


READ_RULE = ReadRule()


def read(name: str, ttl: float, owner: str) -> Ask:
    """To hold `name` together with other readers."""
    return Ask(name, READ_RULE, ttl, owner, mode=Mode.READ)


def write(name: str, ttl: float, owner: str) -> Ask:
    """To hold `name` alone: a writer waits for whoever is before it, as a lock does."""
    return Ask(name, LOCK_RULE, ttl, owner)
