"""The ground truth, and what must never be otherwise: checked at every change of the store and of what is believed.

The store's own lines are read as they change, and judged by rules written here a second time. Who holds what is asked
of the holds themselves, `state` by the clock of their client, paused or not.

    S1, S2, S6   nobody believes beside somebody who excludes them; no belief after its ticket went by TTL; none revived
    S3           tokens grow: no grant below one that was out before it was asked for
    S4           who was told "acquired" had been next in the store's line, and so first come was first served
    S8           a ticket goes by its owner's will, its lease's end or an administrator's hand, and never while held
    L4           a loss is told within a moment, to a process that runs; the edge of a body tells of it, and of a close
    S9, L2       once all is calm: whose turn has come is told, what nobody owns goes

Known, and counted only (`setbacks`): an `amend` that is carried out after its sender gave up and tried again, or after
a later amend was confirmed, puts the older value back; nothing ties it to what it was to follow. Known, and the end of
a run (`risen`): where an administrator removes the ticket of a hold, nobody owns what a late `enter` of it brings back.

What an administrator ended is excepted from S1 and S2 until its holder hears of it: nothing can promise that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from tenure._core.hold import Holding
from tenure._core.hold_watch import HoldState
from tenure._core.lease import Mode, Ticket
from tests.verify.simulation.history import HistoryWriter
from tests.verify.simulation.scheduler import Process, Scheduler

ASLEEP_AFTER: Final = 2.0
"""Virtual seconds in which, with no fault about, whose turn has come is told, and what nobody owns is reaped."""
TOLD_WITHIN: Final = 0.9
ADMINISTRATOR: Final = "administrator"
_BELIEVED: Final = (HoldState.HELD, HoldState.SUSPECT)


@dataclass(slots=True)
class Held:
    """A hold that was handed out, until its owner is done with it."""

    hold: Holding
    owner: Process
    mode: Mode
    weight: int
    over: bool = False
    """It was seen not to be believed."""
    untold_since: float | None = None
    """Since when, at the latest, its owner could have been told of its loss, and was not."""

    def believed(self) -> bool:
        return not self.owner.dead and self.hold.state in _BELIEVED


class GroundTruth:
    """The ground truth: what the store has, who holds it, and the first thing that was wrong."""

    def __init__(self, store: Any, scheduler: Scheduler, trace: Callable[[str, str], None]) -> None:
        self.writer: HistoryWriter | None = None
        self.verb = ""  # what the store carries out, where a client asked for it
        self.cause = ""  # on whose behalf the store is at work: a client, the administrator, "" for its own clock
        self.violation = ""
        self.hand_overs: Counter[str] = Counter()
        self.setbacks = 0
        self.risen = 0
        self._scheduler = scheduler
        self._trace = trace
        self._store = store  # Any: the layers keep the memory backend's classes from whom is no backend
        self._tickets: dict[str, Ticket] = {}
        self._turns: dict[str, float] = {}  # ticket -> since when, at the latest, its turn had come
        self._led: set[tuple[str, int | None, str]] = set()
        self._shown: set[tuple[str, int | None, str]] = set()
        self._held: dict[str, Held] = {}
        self._revoked: set[str] = set()
        self._grants: dict[str, list[tuple[float, int, str]]] = {}
        self._idle: dict[str, float] = {}
        told = store._tell

        def tell(line: str, ticket_id: str, *, amended: bool, arrived: bool = False) -> None:
            self._changed(line, ticket_id, amended, arrived)
            told(line, ticket_id, amended=amended, arrived=arrived)

        store._tell = tell

    def violate(self, law: str, what: str) -> None:
        """Remember the first, and go no further."""
        if not self.violation:
            self.violation = f"{law}: {what}"
            self._scheduler.halted = True
            self._trace("VIOLATION", self.violation)

    def stands(self, ticket_id: str) -> bool:
        return ticket_id in self._tickets

    # What the store does.

    def _changed(self, line: str, ticket_id: str, amended: bool, arrived: bool) -> None:
        standing = self._store._lines.get(line, {})
        if amended:
            before, self._tickets[ticket_id] = self._tickets[ticket_id], standing[ticket_id]
            self._amended(before, standing[ticket_id])
        elif arrived:
            self._tickets[ticket_id] = ticket = standing[ticket_id]
            self._trace("store", f"{ticket.resource}: {ticket.owner} enters, token {ticket.token}")
            if self.writer is not None:
                self.writer.created(ticket, self._store._leases[ticket.lease_id].ttl)
        else:
            self._removed(self._tickets.pop(ticket_id))
        self._turns_in(standing.values())

    def _amended(self, before: Ticket, now: Ticket) -> None:
        """Actors never give a value twice."""
        if now.value != before.value:
            self._trace("store", f"{now.resource}: token {now.token} shows {now.value!r}")
            self.setbacks += (now.resource, now.token, now.value) in self._shown
            self._shown.add((now.resource, now.token, before.value))

    def _removed(self, ticket: Ticket) -> None:
        self._trace("store", f"{ticket.resource}: token {ticket.token} gone, by {self.cause or 'its TTL'}")
        if self.writer is not None:
            by = "admin" if self.cause == ADMINISTRATOR else "left" if self.verb == "leave" else "lease"
            self.writer.removed(ticket, self._store._revision, by)
        held = self._held.get(ticket.id)
        if self.cause == ADMINISTRATOR:
            self._revoked.add(ticket.id)
            return
        told = f"{ticket.resource}: token {ticket.token} of {ticket.owner}"
        if self.cause and self.cause != ticket.owner:
            self.violate("S8", f"{told} was removed by {self.cause}")
        elif held is not None and held.believed():
            if self.cause:
                self.violate("S8", f"{told} was removed by its own client while it was held")
            else:
                self.violate("S1", f"{told} went by its TTL while its holder believed")

    def _turns_in(self, line: Iterable[Ticket]) -> None:
        """The tickets whose turn it is now: the rules, once more and independently."""
        now, seats, first, exclusive, shared = self._scheduler.now, 0, True, False, False
        for ticket in line:
            if first:
                self._led.add((ticket.resource, ticket.token, ticket.value))
            seats += ticket.weight
            match ticket.mode:
                case Mode.EXCLUSIVE:
                    turn, exclusive = first, True
                case Mode.READ:
                    turn = shared = not exclusive
                case Mode.SEAT:
                    turn = not exclusive and not shared and seats <= ticket.limit
            first = False
            if turn:
                self._turns.setdefault(ticket.id, now)

    # What clients believe.

    def admitted(self, hold: Holding, owner: Process, mode: Mode, weight: int, asked_at: float, who: str) -> None:
        """`who` was told "acquired"."""
        self._held[hold.id] = Held(hold, owner, mode, weight)
        told = f"{hold.resource}: token {hold.token} of {who}"
        if hold.id not in self._turns:
            self.violate("S4", f"{told} was admitted before its turn had come")
        grants = self._grants.setdefault(hold.resource, [])
        for at, token, earlier in grants:
            if at < asked_at and token >= hold.token:
                self.violate("S3", f"{told} is not above token {token}, which {earlier} had before that was asked for")
        if grants and grants[-1][2] != who:
            self.hand_overs[hold.resource] += 1
        grants.append((self._scheduler.now, hold.token, who))
        self.exclusive(hold.resource)

    def left(self, hold: Holding) -> None:
        """Forget a hold that its owner is done with."""
        self._held.pop(hold.id, None)

    def look(self) -> None:
        """Look at every line."""
        for resource in dict.fromkeys(held.hold.resource for held in self._held.values()):
            self.exclusive(resource)
        for held in self._held.values():
            self._told_of_loss(held)

    def _told_of_loss(self, held: Held) -> None:
        """L4: a loss is announced, not only there to be seen by whoever looks."""
        announced = held.hold._at_end.is_set()
        if announced or held.owner.paused or held.owner.dead or held.hold.state is not HoldState.LOST:
            held.untold_since = None
        elif held.untold_since is None:
            held.untold_since = self._scheduler.now
        elif self._scheduler.now - held.untold_since > TOLD_WITHIN:
            told = f"{held.hold.resource}: token {held.hold.token} of {held.hold.owner}"
            self.violate("L4", f"{told} is lost, and its holder was not told")

    def exclusive(self, resource: str) -> None:
        """S1, S2, S6: nobody believes beside somebody who excludes them."""
        believed = []
        for held in self._held.values():
            if held.hold.resource != resource:
                continue
            if not held.believed():
                held.over = True
            elif held.over:
                self.violate("S1", f"{resource}: token {held.hold.token} of {held.hold.owner} is believed in again")
            elif held.hold.id not in self._revoked:
                believed.append(held)
        if len(believed) > 1 and any(held.mode is Mode.EXCLUSIVE for held in believed):
            self.violate("S1", f"{resource}: held by several: {_told(believed)}")
        seats = [held for held in believed if held.mode is Mode.SEAT]
        if seats and sum(held.weight for held in seats) > (limit := self._limit(seats)):
            self.violate("S6", f"{resource}: more than {limit} seats are held: {_told(seats)}")

    def _limit(self, seats: list[Held]) -> int:
        return min((self._tickets[h.hold.id].limit for h in seats if h.hold.id in self._tickets), default=10**9)

    def observed(self, resource: str, token: int, value: str, before: int) -> None:
        """An observer was told of a leader."""
        if token < before:
            self.violate("S7", f"{resource}: leader {token} was told after leader {before}")
        if (resource, token, value) not in self._led:
            self.violate("S7", f"{resource}: a leader was told that never led so: token {token}, {value!r}")

    def released(self, hold: Holding, who: str) -> None:
        """`release` has returned without an error: whatever it said, the ticket is gone."""
        if hold.id in self._tickets:
            self.violate("S8", f"{hold.resource}: token {hold.token} of {who} stands after its release was confirmed")

    # Once all is calm.

    def idle(self, calm_since: float, living: Callable[[str], bool]) -> None:
        """S9, L2: no ticket of a living client stands in its turn for long without being held."""
        now = self._scheduler.now
        for ticket in self._tickets.values():
            held = self._held.get(ticket.id)
            waits = ticket.id not in self._turns or (held is not None and held.believed())
            if waits or not living(ticket.owner or ""):
                self._idle.pop(ticket.id, None)
            elif now - max(self._idle.setdefault(ticket.id, now), calm_since) <= ASLEEP_AFTER:
                continue
            elif ticket.id in self._revoked:
                self.risen += 1
                self._scheduler.halted = True
            else:
                why = f"its turn had come for {ASLEEP_AFTER:g} s of calm, and it is not held"
                self.violate("L2", f"{ticket.resource}: token {ticket.token} of {ticket.owner}: {why}")


def _told(several: list[Held]) -> str:
    return ", ".join(f"token {held.hold.token} of {held.hold.owner}" for held in several)
