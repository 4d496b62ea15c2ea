"""Candidacies: this service stands in the elections it was told of, in the background, and again after a loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from holdfast import aio
from holdfast.errors import ClientClosed, HoldfastError
from holdfast.hold import HoldState
from holdfast.sidecar.bounds import STAND_AGAIN_SECONDS

_log = logging.getLogger("holdfast.sidecar")
_PROVEN = (HoldState.HELD, HoldState.SUSPECT)


class Candidate:
    """One candidacy. `proven()` is the only word on whether it leads."""

    def __init__(self, client: aio.Client, name: str, value: str) -> None:
        self._election = client.election(name, value=value)
        self._name = name
        self._clock = client._house.clock
        self._hold: aio.Hold | None = None
        self._believed_until = 0.0
        self._resigning = False
        self._changed: set[Callable[[], None]] = set()
        self._task = asyncio.create_task(self._stand())

    def proven(self) -> aio.Hold | None:
        """The hold by which it leads, if that can be proven at this very moment; else None. Asks nobody."""
        hold = self._hold
        if hold is None or self._resigning:
            return None
        return hold if hold.state in _PROVEN and hold.remaining() > 0 else None

    def tell(self, seconds: float) -> None:
        """Somebody is told that it leads, and may believe it for so long from now on."""
        self._believed_until = max(self._believed_until, self._clock.now() + seconds)

    def was(self, ticket_id: str) -> bool:
        """Is it the id of the candidacy that led last, proven or not?"""
        return self._hold is not None and self._hold.id == ticket_id

    def on_change(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` when it begins or ceases to lead; what is returned ends that."""
        self._changed.add(told)
        return lambda: self._changed.discard(told)

    async def resign(self) -> None:
        """Stand no longer. Nobody is told any more that it leads; what is held is released once nobody believes it.

        Bounded by the last `tell`, hence by the TTL, and the time of one exchange with the store.
        """
        self._resigning = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        hold = self._hold
        if hold is not None:
            await hold.lost.wait(max(0.0, self._believed_until - self._clock.now()))
            try:
                await hold.release()
            except HoldfastError as error:
                _log.warning("the leadership of %r could not be resigned, its TTL ends it: %s", self._name, error)

    async def _stand(self) -> None:
        while True:  # until it resigns
            try:
                await self._lead(await self._election.campaign().acquire())
            except ClientClosed:
                return
            except HoldfastError as error:
                _log.warning("the candidacy for %r failed, and is begun again: %s", self._name, error)
            await asyncio.sleep(STAND_AGAIN_SECONDS)

    async def _lead(self, hold: aio.Hold) -> None:
        self._hold = hold
        hold.on_change(lambda _: self._tell())
        self._tell()
        await hold.lost.wait()
        self._tell()

    def _tell(self) -> None:
        for told in list(self._changed):
            told()


class Candidates:
    """All of this service's, by the name of the election in the store."""

    def __init__(self, client: aio.Client, elect: Mapping[str, str]) -> None:
        self._by_name = {name: Candidate(client, name, value) for name, value in elect.items()}

    def get(self, name: str) -> Candidate | None:
        """The candidacy for that election."""
        return self._by_name.get(name)

    async def resign(self) -> None:
        """Stand in no election any more. See Candidate."""
        await asyncio.gather(*(candidate.resign() for candidate in self._by_name.values()))
