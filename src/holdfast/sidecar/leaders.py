"""Who leads, as far as it is known, and how well: never a stale yes.

`view` asks the store's quorum, each time, and puts the answer beside what the candidate here can prove:

* `is_leader` only by a hold that is proven at that moment, and that the quorum's answer does not contradict.
* `certain` only where the quorum answered just now, and nothing known here speaks against what it said.
* A store that does not answer: what was known last, with its age, and `certain` is False.

Looks that are asked for at the same time are one look, which begins after all of them were asked for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from holdfast import aio
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StoreUnavailable
from holdfast.recipes.election import Leader
from holdfast.sidecar.bounds import LOOKED_AT_MAX
from holdfast.sidecar.candidates import Candidate, Candidates
from holdfast.sidecar.feeds import Feeds


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at the store said."""

    leader: Leader | None
    asked_at: float
    """The clock before it was asked."""


@dataclass(frozen=True, slots=True)
class View:
    """What can be said about one election at one moment."""

    leader: Leader | None
    age: float | None
    """How old that knowledge is, in seconds; None: nothing is known."""
    certain: bool
    hold: aio.Hold | None
    """Proven at that moment: then, and only then, this service leads."""
    candidate: bool


class Leaders:
    """Views of elections, and feeds that wake when one may have changed."""

    def __init__(self, client: aio.Client, candidates: Candidates) -> None:
        self._client = client
        self._candidates = candidates
        self._looks: dict[str, _Looks] = {}
        self._last: OrderedDict[str, Seen] = OrderedDict()
        self.feeds: Feeds[Leader | None] = Feeds(lambda name: client.election(name).observe())

    async def view(self, name: str) -> View:
        """What can be said now. Raises StoreError where the store refuses."""
        candidate = self._candidates.get(name)
        try:
            seen = await self._look(name)
        except StoreUnavailable:
            return self._from_memory(name, candidate)
        # From here to the end nothing is awaited: what is proven is proven when it is told.
        hold = candidate.proven() if candidate is not None else None
        told = seen.leader.id if seen.leader is not None else None
        if hold is not None and hold.id == told:
            return View(seen.leader, _age(seen), True, hold, True)
        ours_unproven = candidate is not None and told is not None and candidate.was(told)
        certain = hold is None and not ours_unproven
        return View(seen.leader, _age(seen), certain, None, candidate is not None)

    def _from_memory(self, name: str, candidate: Candidate | None) -> View:
        hold = candidate.proven() if candidate is not None else None
        if hold is not None:
            ours = Leader(hold.value, hold.owner, hold.token, hold.id)
            return View(ours, max(0.0, hold.ttl - hold.remaining()), False, hold, True)
        seen = self._last.get(name)
        leader, age = (None, None) if seen is None else (seen.leader, _age(seen))
        return View(leader, age, False, None, candidate is not None)

    async def _look(self, name: str) -> Seen:
        looks = self._looks.get(name)
        if looks is None:
            looks = self._looks[name] = _Looks(self._client, name)
        looks.wanted += 1
        try:
            seen = await looks.next_one()
        finally:
            looks.wanted -= 1
            if not looks.wanted:
                self._looks.pop(name, None)
        self._last[name] = seen
        self._last.move_to_end(name)
        if len(self._last) > LOOKED_AT_MAX:
            self._last.popitem(last=False)
        return seen


class _Looks:
    """The looks at one election: one under way, and one that begins after it for all who asked meanwhile."""

    def __init__(self, client: aio.Client, name: str) -> None:
        self.wanted = 0
        self._election = client.election(name)
        self._under_way: asyncio.Task[Seen] | None = None
        self._following: asyncio.Task[Seen] | None = None

    async def next_one(self) -> Seen:
        """A look that begins after this call."""
        if self._following is None:
            self._following = asyncio.create_task(self._after(self._under_way))
            self._following.add_done_callback(_heard)
        return await asyncio.shield(self._following)

    async def _after(self, before: asyncio.Task[Seen] | None) -> Seen:
        if before is not None:
            await asyncio.wait((before,))
        self._under_way, self._following = self._following, None
        asked_at = SYSTEM_CLOCK.now()
        return Seen(await self._election.leader(), asked_at)


def _heard(look: asyncio.Task[Seen]) -> None:
    """Whoever wanted it may have hung up: what went wrong has been heard all the same."""
    if not look.cancelled():
        look.exception()


def _age(seen: Seen) -> float:
    return max(0.0, SYSTEM_CLOCK.now() - seen.asked_at)
