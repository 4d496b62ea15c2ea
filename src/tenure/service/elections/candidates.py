"""Candidacies of this service in the elections of `--elect`: in the background, and again after a loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from tenure import aio
from tenure._core.base.retry import jittered
from tenure._core.hold_watch import HoldState
from tenure._core.runtime import runtime_of
from tenure.errors import ClientClosed, TenureError
from tenure.service.limits import STAND_AGAIN_SECONDS

_log = logging.getLogger("tenure.service")
_PROVEN = (HoldState.HELD, HoldState.SUSPECT)


class Candidate:
    """A candidacy. Whether it leads is said by `proven` alone."""

    def __init__(self, client: aio.Client, name: str, value: str) -> None:
        self._election = client.election(name, value=value)
        self._name = name
        self._clock = runtime_of(client).clock
        self._hold: aio.Hold | None = None
        self._believed_until = 0.0
        self._resigning = False
        self._callbacks: set[Callable[[], None]] = set()
        self._task = asyncio.create_task(self._stand())

    def proven(self) -> aio.Hold | None:
        """Return the hold by which it leads, if that can be proven at this very moment; else None. Asks nobody."""
        hold = self._hold
        if hold is None or self._resigning:
            return None
        return hold if hold.state in _PROVEN and hold.remaining() > 0 else None

    def promise(self, seconds: float) -> None:
        """Remember that a client was answered that it leads, and may believe so for `seconds` from now."""
        self._believed_until = max(self._believed_until, self._clock.now() + seconds)

    def was(self, ticket_id: str) -> bool:
        """Say whether this is the ticket by which it led last, proven or not."""
        return self._hold is not None and self._hold.id == ticket_id

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when it begins or ceases to lead, until the returned function is called."""
        self._callbacks.add(callback)
        return lambda: self._callbacks.discard(callback)

    async def resign(self) -> None:
        """Stand no longer: `proven` is None from now on, and the hold is released once no client believes in it.

        Takes no longer than the last `promise`, hence the TTL, and one exchange with the store.
        """
        self._resigning = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        hold = self._hold
        if hold is not None:
            await hold.lost.wait(max(0.0, self._believed_until - self._clock.now()))
            try:
                await hold.release()
            except TenureError as error:
                _log.warning("the leadership of %r could not be resigned, its TTL ends it: %s", self._name, error)

    async def _stand(self) -> None:
        while True:  # until it resigns
            try:
                await self._lead(await self._election.campaign().acquire())
            except ClientClosed:
                return
            except TenureError as error:
                _log.warning("the candidacy for %r failed, and is begun again: %s", self._name, error)
            await asyncio.sleep(jittered(STAND_AGAIN_SECONDS))

    async def _lead(self, hold: aio.Hold) -> None:
        self._hold = hold
        hold.on_change(lambda _: self._call_back())
        self._call_back()
        await hold.lost.wait()
        self._call_back()

    def _call_back(self) -> None:
        for callback in list(self._callbacks):
            callback()


class Candidates:
    """The candidacies of this service, by the name of the election in the store."""

    def __init__(self, client: aio.Client, elect: Mapping[str, str]) -> None:
        self._by_name = {name: Candidate(client, name, value) for name, value in elect.items()}

    def get(self, name: str) -> Candidate | None:
        """Return the candidacy for that election; None where the service does not stand."""
        return self._by_name.get(name)

    async def resign(self) -> None:
        """Resign all candidacies, at the same time."""
        await asyncio.gather(*(candidate.resign() for candidate in self._by_name.values()))
