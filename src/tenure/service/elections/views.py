"""Views of elections: who leads, how well that is known, and whether this service does; never a stale yes.

`view` asks the store's quorum, each time, and compares its answer with the proof of the candidate here:

* This service leads only by a hold that is proven at that moment, and that the quorum's answer does not contradict.
* The view is `certain` only where the quorum answered just now, and nothing known here contradicts it.
* Where the store does not answer: the last knowledge, with its age, and `certain` is False.

Looks that are requested at the same time share one look, which begins after the last of the requests.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from tenure import aio
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.recipes.election import Leader
from tenure.errors import StoreUnavailable
from tenure.service.elections.candidates import Candidate, Candidates
from tenure.service.http.streams import Feeds
from tenure.service.limits import LOOKED_AT_MAX


@dataclass(frozen=True, slots=True)
class ObservedLeader:
    """The leader by one look at the store."""

    leader: Leader | None
    asked_at: float
    """The clock's reading before the request was sent."""


@dataclass(frozen=True, slots=True)
class ElectionView:
    """The knowledge about one election at one moment."""

    leader: Leader | None
    age: float | None
    """Seconds since the knowledge was asked for; None: nothing is known."""
    certain: bool
    hold: aio.Hold | None
    """The proven hold by which this service leads; None where it does not."""
    candidate: bool


class Leaders:
    """Views of elections, and feeds that wake when one may have changed."""

    def __init__(self, client: aio.Client, candidates: Candidates) -> None:
        self._client = client
        self._candidates = candidates
        self._looks: dict[str, _Looks] = {}
        self._last: OrderedDict[str, ObservedLeader] = OrderedDict()
        self.feeds: Feeds[Leader | None] = Feeds(lambda name: client.election(name).observe())

    async def view(self, name: str) -> ElectionView:
        """Look at an election now. Raises StoreError where the store refuses."""
        candidate = self._candidates.get(name)
        try:
            seen = await self._look(name)
        except StoreUnavailable:
            return self._from_memory(name, candidate)
        # No await from here on: the proof is still good when the view is returned.
        hold = candidate.proven() if candidate is not None else None
        leader_id = seen.leader.id if seen.leader is not None else None
        if hold is not None and hold.id == leader_id:
            return ElectionView(seen.leader, _age(seen), True, hold, True)
        ours_unproven = candidate is not None and leader_id is not None and candidate.was(leader_id)
        certain = hold is None and not ours_unproven
        return ElectionView(seen.leader, _age(seen), certain, None, candidate is not None)

    def _from_memory(self, name: str, candidate: Candidate | None) -> ElectionView:
        hold = candidate.proven() if candidate is not None else None
        if hold is not None:
            ours = Leader(hold.value, hold.owner, hold.token, hold.id)
            return ElectionView(ours, max(0.0, hold.ttl - hold.remaining()), False, hold, True)
        seen = self._last.get(name)
        leader, age = (None, None) if seen is None else (seen.leader, _age(seen))
        return ElectionView(leader, age, False, None, candidate is not None)

    async def _look(self, name: str) -> ObservedLeader:
        looks = self._looks.get(name)
        if looks is None:
            looks = self._looks[name] = _Looks(self._client, name)
        looks.users += 1
        try:
            seen = await looks.next_one()
        finally:
            looks.users -= 1
            if not looks.users:
                self._looks.pop(name, None)
        self._last[name] = seen
        self._last.move_to_end(name)
        if len(self._last) > LOOKED_AT_MAX:
            self._last.popitem(last=False)
        return seen


class _Looks:
    """The looks at one election: one under way, and the next, shared by all requests that come meanwhile."""

    def __init__(self, client: aio.Client, name: str) -> None:
        self.users = 0
        self._election = client.election(name)
        self._under_way: asyncio.Task[ObservedLeader] | None = None
        self._following: asyncio.Task[ObservedLeader] | None = None

    async def next_one(self) -> ObservedLeader:
        """Return the outcome of a look that begins after this call."""
        if self._following is None:
            self._following = asyncio.create_task(self._after(self._under_way))
            self._following.add_done_callback(_retrieve_error)
        return await asyncio.shield(self._following)

    async def _after(self, before: asyncio.Task[ObservedLeader] | None) -> ObservedLeader:
        if before is not None:
            await asyncio.wait((before,))
        self._under_way, self._following = self._following, None
        asked_at = SYSTEM_CLOCK.now()
        return ObservedLeader(await self._election.leader(), asked_at)


def _retrieve_error(look: asyncio.Task[ObservedLeader]) -> None:
    """Mark the error of a look as retrieved, since all its callers may have hung up: asyncio would log it."""
    if not look.cancelled():
        look.exception()


def _age(seen: ObservedLeader) -> float:
    return max(0.0, SYSTEM_CLOCK.now() - seen.asked_at)
