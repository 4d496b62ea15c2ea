"""Semaphore: seats up to a limit, weighted, strictly first come first served.

The admitted tickets are always a prefix of the line: those whose weights, summed from the front,
stay within the limit, which the first of the line sets. A heavy ticket therefore holds back a light one
behind it (no starvation).

Who watches what, so that a departure wakes few, and no admission depends on another waiter's being awake (it may be
hung, its lease renewed all the while, or dead and not yet expired):

* Few seats: everybody watches the nearest tickets ahead that by themselves leave no seat for it. While they stand its
  turn has not come; the first of them to leave has it look again. No waiter says anything to another.
* Many seats: that would wake as many waiters as there are seats. So the front waiter (whose predecessor is admitted)
  watches for any departure ahead, and all behind it their predecessor. A ticket that was admitted after waiting amends
  itself; its successor wakes, looks, and is now admitted or the front waiter. As the one that should amend itself may
  be hung, everybody also looks after a while, the sooner the fewer wait ahead.

Rejected: watching the ticket at index i - limit (as a plain semaphore might). With weights, or when
a waiter gives up, it leaves eligible waiters asleep; and a children watch for everybody wakes all.
"""

from __future__ import annotations

from typing import Final

from tenure._core.base import validation
from tenure._core.base.limits import WATCHED_SINGLY_MAX
from tenure._core.lease import Line, Mode, Reach, Ticket
from tenure._core.recipes.request import LineRequest, refuse_other_kind
from tenure._core.turn import Blockers
from tenure.errors import InvalidOption, LineMismatch

_LOOK_AFTER_SECONDS: Final = 5.0
"""For each that waits ahead and might be hung."""


class FewSeatsRule:
    """Rule of seats: admitted while the weights up to and with mine stay within the limit, and all ahead are seats."""

    reach = Reach.AHEAD
    announces = False

    def blockers(self, line: Line, me: Ticket) -> Blockers:
        ahead = line.tickets[: line.position(me.id)]
        refuse_other_kind(line, me)
        _refuse_other_limit(line.tickets[0], me)  # the first one's counts; who disagrees behind it is on its way out
        admitted = _admitted((*ahead, me), me.limit)
        return Blockers() if admitted > len(ahead) else self.waiting(ahead, me, len(ahead) - admitted)

    def waiting(self, ahead: tuple[Ticket, ...], me: Ticket, waiting_ahead: int) -> Blockers:
        """The blockers of a ticket whose turn has not come."""
        free, place = me.limit - me.weight, len(ahead)
        while free >= 0:  # ends within `ahead`: all of it leaves no seat
            place -= 1
            free = free - ahead[place].weight if ahead[place].mode is Mode.SEAT else -1
        return Blockers(ahead[place:])


class ManySeatsRule(FewSeatsRule):
    """The same rule for so many seats that not everybody who may be next can be woken at each departure."""

    announces = True

    def waiting(self, ahead: tuple[Ticket, ...], me: Ticket, waiting_ahead: int) -> Blockers:
        look_after = _LOOK_AFTER_SECONDS * (waiting_ahead + 1)
        if waiting_ahead == 0:  # I am the front waiter
            return Blockers(ahead, look_after=look_after)
        return Blockers(ahead[-1:], amendments=True, look_after=look_after)


def _admitted(tickets: tuple[Ticket, ...], limit: int) -> int:
    """Count the tickets, from the front of a line on, that may be held."""
    weights = 0
    for count, ticket in enumerate(tickets):
        weights += ticket.weight
        if ticket.mode is not Mode.SEAT or weights > limit:
            return count
    return len(tickets)


def _refuse_other_limit(ticket: Ticket, me: Ticket) -> None:
    if ticket.limit != me.limit:
        raise LineMismatch(
            f"semaphore {me.resource!r} is in use with a limit of {ticket.limit}, and this client asked for "
            f"{me.limit}; give all clients the same limit, or wait until the line is empty to change it"
        )


FEW_SEATS_RULE = FewSeatsRule()
MANY_SEATS_RULE = ManySeatsRule()


def seat(name: str, limit: int, weight: int, ttl: float, owner: str) -> LineRequest:
    """Request to hold `weight` of the `limit` seats of `name`. Raises InvalidOption."""
    validation.count(limit, "limit")
    validation.count(weight, "weight")
    if weight > limit:
        raise InvalidOption(f"weight {weight} can never be seated: semaphore {name!r} has a limit of {limit}")
    rule = FEW_SEATS_RULE if limit <= WATCHED_SINGLY_MAX else MANY_SEATS_RULE
    return LineRequest(name, rule, ttl, owner, mode=Mode.SEAT, weight=weight, limit=limit)
