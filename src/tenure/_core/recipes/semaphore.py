"""Semaphore: seats up to a limit, weighted, strictly first come first served.

The admitted tickets are always a prefix of the line: those whose weights, summed from the front,
stay within the limit, which the first of the line sets. A heavy ticket therefore holds back a light one
behind it (no starvation).

Who watches what, so that a release wakes few and nobody is left asleep:

* The front waiter (whose predecessor is admitted) watches for any departure ahead of it.
* Everybody behind watches the predecessor only, for departure or amendment.
* A ticket that was admitted after waiting amends itself. Its successor wakes, looks, and is now
  admitted or the front waiter.

Rejected: watching the ticket at index i - limit (as a plain semaphore might). With weights, or when
a waiter gives up, it leaves eligible waiters asleep; and a children watch for everybody wakes all.
"""

from __future__ import annotations

from tenure._core.base import validation
from tenure._core.lease import Line, Mode, Reach, Ticket
from tenure._core.recipes.request import LineRequest, refuse_other_kind
from tenure._core.turn import Blockers
from tenure.errors import InvalidOption, LineMismatch


class SeatRule:
    """Rule of seats: admitted while the weights up to and with mine stay within the limit, and all ahead are seats."""

    reach = Reach.AHEAD
    announces = True

    def blockers(self, line: Line, me: Ticket) -> Blockers:
        ahead = line.tickets[: line.position(me.id)]
        refuse_other_kind(line, me)
        _refuse_other_limit(
            line.tickets[0], me
        )  # the first one's counts; whoever disagrees behind it is on its way out
        if _admitted((*ahead, me), me.limit):
            return Blockers()
        if _admitted(ahead, me.limit):
            return Blockers(ahead)  # I am the front waiter
        return Blockers(ahead[-1:], amendments=True)


def _admitted(tickets: tuple[Ticket, ...], limit: int) -> bool:
    """True where the last of `tickets`, the front of a line, may be held."""
    return all(t.mode is Mode.SEAT for t in tickets) and sum(t.weight for t in tickets) <= limit


def _refuse_other_limit(ticket: Ticket, me: Ticket) -> None:
    if ticket.limit != me.limit:
        raise LineMismatch(
            f"semaphore {me.resource!r} is in use with a limit of {ticket.limit}, and this client asked for "
            f"{me.limit}; give all clients the same limit, or wait until the line is empty to change it"
        )


SEAT_RULE = SeatRule()


def seat(name: str, limit: int, weight: int, ttl: float, owner: str) -> LineRequest:
    """Request to hold `weight` of the `limit` seats of `name`. Raises InvalidOption."""
    validation.count(limit, "limit")
    validation.count(weight, "weight")
    if weight > limit:
        raise InvalidOption(f"weight {weight} can never be seated: semaphore {name!r} has a limit of {limit}")
    return LineRequest(name, SEAT_RULE, ttl, owner, mode=Mode.SEAT, weight=weight, limit=limit)
