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

from holdfast import checks
from holdfast.errors import InvalidOption, LineMismatch
from holdfast.lease import Line, Mode, Reach, Ticket
from holdfast.recipes.ask import Ask
from holdfast.turn import Blockers


class SeatRule:
    """Admitted while the weights up to and with mine stay within the limit, and nobody ahead is exclusive."""

    reach = Reach.AHEAD
    announces = True

    def blockers(self, line: Line, me: Ticket) -> Blockers:
        ahead = line.tickets[: line.position(me.id)]
        for ticket in ahead:
            if ticket.mode is not Mode.EXCLUSIVE:
                _refuse_mismatch(ticket, me)
                break  # the first one sets the limit; one behind it that disagrees is on its way out
        if _admitted((*ahead, me), me.limit):
            return Blockers()
        if _admitted(ahead, me.limit):
            return Blockers(ahead)  # I am the front waiter
        return Blockers(ahead[-1:], amendments=True)


def _admitted(tickets: tuple[Ticket, ...], limit: int) -> bool:
    """May the last of `tickets`, the front of a line, be held?"""
    if any(t.mode is Mode.EXCLUSIVE for t in tickets):
        return len(tickets) == 1
    return sum(t.weight for t in tickets) <= limit


def _refuse_mismatch(ticket: Ticket, me: Ticket) -> None:
    if ticket.mode is Mode.READ:
        raise LineMismatch(f"{me.resource!r} is in use as a read/write lock, not as a semaphore; use another name")
    if ticket.mode is Mode.SEAT and ticket.limit != me.limit:
        raise LineMismatch(
            f"semaphore {me.resource!r} is in use with a limit of {ticket.limit}, and this client asked for "
            f"{me.limit}; give all clients the same limit, or wait until the line is empty to change it"
        )


SEAT_RULE = SeatRule()


def seat(name: str, limit: int, weight: int, ttl: float, owner: str) -> Ask:
    """To hold `weight` of the `limit` seats of `name`. Raises InvalidOption."""
    checks.count(limit, "limit")
    checks.count(weight, "weight")
    if weight > limit:
        raise InvalidOption(f"weight {weight} can never be seated: semaphore {name!r} has a limit of {limit}")
    return Ask(name, SEAT_RULE, ttl, owner, mode=Mode.SEAT, weight=weight, limit=limit)
