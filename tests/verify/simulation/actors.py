"""Programs of actors: one script for both faces, since `async def` code that awaits nothing runs like any other.

A program goes through its sections whatever befalls it, as a careful user's would: after an error it takes the next
one, and what it holds it releases. It ends when its client is closed. What it is told, it reports to the ground truth.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tenure._core.base.signals import Signal
from tenure._core.drivers.asyncio import wait
from tenure._core.hold import Holding
from tenure._core.hold_watch import HoldState
from tenure._core.lease import Mode
from tenure.errors import AcquireTimeout, ClientClosed, LeaseLost, StaleToken, StoreError, TenureError
from tests.verify.simulation import plan as planned
from tests.verify.simulation.client_process import ClientProcess
from tests.verify.simulation.ground_truth import GroundTruth
from tests.verify.simulation.plan import LIMIT, NAMES, Action, Section
from tests.verify.simulation.writes import Writes

OVERDUE_AFTER: Final = 6.0
"""How much longer than its time-out an acquire may take: what is under way then, a grant, leaving; each bounded."""
_MODES: Final = {"seat": Mode.SEAT, "read": Mode.READ}
_CANCELLED: Final = (KeyboardInterrupt, asyncio.CancelledError)


class Judges:
    """Judges of what actors are told: ground truth and writes; and the time from which all is calm."""

    def __init__(self, truth: GroundTruth, writes: Writes, now: Callable[[], float], trace: Callable[[str, str], None]):
        self.truth = truth
        self.writes = writes
        self.now = now
        self.trace = trace
        self.outcomes: Counter[str] = Counter()
        self.calm_since = float("inf")


class Program:
    """The program of one actor at work."""

    def __init__(self, process: ClientProcess, actor: planned.Actor, judges: Judges) -> None:
        self.over = False
        self._process = process
        self._actor = actor
        self._judges = judges
        self._numbers = 0

    async def run(self) -> None:
        """Run all sections, or observe until the client closes."""
        try:
            if self._actor.observes:
                await self._observe()
            for section in self._actor.sections:
                await self._unless_cancelled(section)
        except ClientClosed:
            self._tell("ends: its client is closed")
        finally:
            self.over = True

    async def _unless_cancelled(self, section: Section) -> None:
        try:
            await self._section(section)
        except _CANCELLED:
            self._tell("goes on after it was cancelled", "cancelled")
            self._go_on()

    async def _section(self, section: Section) -> None:
        await self._rest(section.at - self._judges.now() if section.at else section.rest)
        hold = await self._acquire(section)
        if hold is None:
            return
        try:
            if section.scoped:
                await self._within(hold, section)
            else:
                await self._inside(hold, section)
        finally:
            try:
                await self._release(hold)
            finally:
                self._judges.truth.left(hold)

    async def _acquire(self, section: Section) -> Any:  # Any: a hold of either face
        asked_at, stops = self._judges.now(), self._process.stops
        self._tell(f"wants {section.kind} of {NAMES[section.kind]}, timeout {section.timeout}")
        try:
            hold = await self._do(self._call(section))
        except ClientClosed:
            raise
        except TenureError as error:
            self._tell(f"{section.kind}: {type(error).__name__}", f"{section.kind} {type(error).__name__}")
            self._judge_failure(section, error, asked_at, stops)
            return None
        if hold is None:
            self._tell(f"{section.kind}: not at once", f"{section.kind} not at once")
            return None
        self._tell(f"holds {hold.resource}, token {hold.token}", section.kind)
        mode, weight = _MODES.get(section.kind, Mode.EXCLUSIVE), section.weight
        self._judges.truth.admitted(hold, self._process, mode, weight, asked_at, self._actor.name)
        return hold

    def _call(self, section: Section) -> Callable[[], Any]:
        face, name = self._process.face, NAMES[section.kind]
        if section.kind == "seat":
            seats = face.semaphore(name, limit=LIMIT)
            if section.timeout == 0:
                return lambda: seats.try_acquire(weight=section.weight)
            return lambda: seats.acquire(section.timeout, weight=section.weight)
        match section.kind:
            case "read":
                line = face.rwlock(name).read()
            case "write":
                line = face.rwlock(name).write()
            case "campaign":
                line = face.election(name, value=self._actor.name, lock_delay=self._process.plan.lock_delay).campaign()
            case _:
                line = face.lock(name, lock_delay=self._process.plan.lock_delay)
        return line.try_acquire if section.timeout == 0 else lambda: line.acquire(section.timeout)

    def _judge_failure(self, section: Section, error: TenureError, asked_at: float, stops: int) -> None:
        """L3, L5: a call is back in time; without faults and without a bound of its own it does not fail."""
        took, truth = self._judges.now() - asked_at, self._judges.truth
        told = f"{self._actor.name}'s {section.kind}"
        if section.timeout is None and asked_at > self._judges.calm_since:
            truth.violate("L5", f"{told} failed without a fault: {type(error).__name__}: {error}")
        bound = section.timeout
        if (
            isinstance(error, AcquireTimeout)
            and bound
            and took > bound + OVERDUE_AFTER
            and stops == self._process.stops
        ):
            truth.violate("L3", f"{told} took {took:.2f} s for a time-out of {bound:.2f} s")

    async def _within(self, hold: Any, section: Section) -> None:
        """`with hold:`, whose body asyncio cancels on loss and on a close. L4: the edge tells of both."""
        told, ended = f"{hold.resource}, token {hold.token}", HoldState.HELD
        try:
            async with _Scope(hold, self._process.plan.asyncio):
                await self._inside(hold, section)
                ended = hold.state
        except LeaseLost:
            self._tell(f"left {told}: lost", "with LeaseLost")
            return
        except ClientClosed:
            self._tell(f"left {told}: its client was closed", "with ClientClosed")
            raise
        if ended in (HoldState.LOST, HoldState.RELEASED) and not self._process.dead:  # no body here gives its hold up
            self._judges.truth.violate("L4", f"{told} was {ended.value} in its body, and the edge did not say so")

    async def _inside(self, hold: Any, section: Section) -> None:
        for action in section.inside:
            try:
                await self._act(hold, action)
            except (LeaseLost, StaleToken) as error:
                self._tell(f"{action.kind}, token {hold.token}: {type(error).__name__}", f"{action.kind} lost")
                return
            except ClientClosed:
                return  # the release finds that out, too
            except StoreError as error:
                self._tell(f"{action.kind}, token {hold.token}: {type(error).__name__}", f"{action.kind} unanswered")
            else:
                self._judges.outcomes[action.kind] += 1
            self._judges.truth.exclusive(hold.resource)

    async def _act(self, hold: Any, action: Action) -> None:
        match action.kind:
            case "stay":
                await self._rest(action.seconds)
            case "check":
                hold.check()
            case "renew":
                await self._do(hold.renew)
            case "amend":
                self._numbers += 1
                await self._do(lambda: hold.amend(f"{self._actor.name}-{self._numbers}"))
            case "leader":
                await self._do(lambda: self._process.face.election(hold.resource).leader())
            case _:
                await self._exchange(hold, action.kind)

    async def _exchange(self, hold: Any, kind: str) -> None:
        """put or get under the hold."""
        self._numbers += 1
        number, key, writes = self._numbers, f"data/{hold.resource}", self._judges.writes
        value = f"{hold.token}.{number}".encode()
        try:
            if kind == "put":
                await self._do(lambda: hold.store.put(key, value))
            else:
                await self._do(lambda: hold.store.get(key))
        except BaseException as error:
            writes.failed(hold.token, number, error)
            raise
        writes.answered(hold.token, number, written=kind == "put")

    async def _release(self, hold: Any) -> None:
        if self._process.dead:
            return
        try:
            gone = await self._do(hold.release)
        except TenureError as error:
            self._tell(f"release, token {hold.token}: {type(error).__name__}", "release unanswered")
            return
        self._tell(f"released {hold.resource}, token {hold.token}: {gone}", f"release {gone}")
        if gone:
            self._judges.truth.released(hold, self._actor.name)

    async def _observe(self) -> None:
        """Observe who leads, as long as the client lives: again after an interruption, as a careful user would."""
        election = self._process.face.election(NAMES["campaign"])
        while self._process.living:
            try:
                await self._hear(election.resource, election.observe())
            except (StopIteration, StopAsyncIteration):
                return
            except (StoreError, LeaseLost):
                await self._rest(0.5)
            except _CANCELLED:
                self._go_on()

    async def _hear(self, resource: str, leaders: Any) -> None:  # Any: an iterator of either face
        highest = 0
        while True:
            leader = await (anext(leaders) if self._process.plan.asyncio else _next(leaders))
            self._tell(f"sees {leader.value!r} lead, token {leader.token}" if leader else "sees nobody lead")
            self._judges.outcomes["observed"] += 1
            if leader is not None:
                self._judges.truth.observed(resource, leader.token, leader.value, highest)
                highest = leader.token

    def _go_on(self) -> None:
        """A cancelled task is told that its cancellation was dealt with."""
        if self._process.plan.asyncio and (task := asyncio.current_task()) is not None:
            task.uncancel()

    async def _rest(self, seconds: float) -> None:
        clock = self._process.clock
        until = clock.now() + max(0.0, seconds)
        if self._process.plan.asyncio:
            await wait(Signal(), until, clock)
        else:
            clock.wait(Signal(), until)

    async def _do(self, call: Callable[[], Any]) -> Any:  # Any: each call has its own outcome
        answer = call()
        return await answer if self._process.plan.asyncio else answer

    def _tell(self, what: str, outcome: str = "") -> None:
        if self._process.dead:
            return  # a stack that unwinds
        self._judges.trace(self._actor.name, what)
        if outcome:
            self._judges.outcomes[outcome] += 1


class _Scope:
    """`with hold` or `async with hold`."""

    def __init__(self, hold: Holding, is_async: bool) -> None:
        self._hold: Any = hold  # Any: of either face
        self._is_async = is_async

    async def __aenter__(self) -> None:
        if self._is_async:
            await self._hold.__aenter__()
        else:
            self._hold.__enter__()

    async def __aexit__(self, *how: object) -> None:
        if self._is_async:
            await self._hold.__aexit__(*how)
        else:
            self._hold.__exit__(*how)


async def _next(leaders: Any) -> Any:
    try:
        return next(leaders)
    except StopIteration:  # may not leave a coroutine under this name
        raise StopAsyncIteration from None
