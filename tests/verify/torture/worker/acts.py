"""Acts of a worker's actors, written once for both faces: a generator of steps that faces carries out.

Turn after turn: choose something, acquire it in one of the ways there are, do what it protects, give it up. Between
the steps an actor asks again and again whether it still holds, as it should; every other time it does not ask before it
writes, as it should not: that is what the fence is for. Whatever the library raises on purpose, an actor goes on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tenure import aio
from tenure.errors import ClientClosed, LeaseLost, StoreError, TenureError
from tenure.testing.history.event import Kind
from tenure.testing.history.record import Log
from tests.verify.torture.worker.fenced import Answer, Store

LIMIT: Final = 2
_KINDS: Final = {"lock-a": 4, "lock-b": 3, "seats": 4, "read": 2, "write": 2, "campaign": 3}
_CONFIG: Final = "config"
ELECTION: Final = "leader"
_TIMEOUTS: Final = (0.05, 0.5, 2.0, 3.0)
_TRIES_SHARE: Final = 0.2
_SCOPED_SHARE: Final = 0.3
_BLIND_SHARE: Final = 0.5
_LONG_SHARE: Final = 0.06
_RENEW_SHARE: Final = 0.15
_CLAIM_SHARE: Final = 0.2


class Interrupted(BaseException):
    """The exception that the order `cancel` raises in a blocking call, as Ctrl-C would."""


@dataclass(frozen=True, slots=True)
class Do:
    """Call this. `cancellable`: the order `cancel` may strike here."""

    call: Callable[[], Any]  # Any: what it returns is sent back; an awaitable is awaited
    cancellable: bool = False


@dataclass(frozen=True, slots=True)
class Rest:
    """A step: do nothing for so many seconds."""

    seconds: float


Acts: TypeAlias = Generator[Do | Rest, Any, None]
CANCELLED: Final = (Interrupted, asyncio.CancelledError)


@dataclass(slots=True)
class Scene:
    """The things that the actors of one worker share."""

    client: Any  # Any: of either face
    log: Log
    ending: Callable[[], bool]
    uncancel: Callable[[], None]
    holds: set[Any] = field(default_factory=set)
    """What they hold, or have lost and not noticed."""


class Actor:
    """An actor of a worker. `turns` is its script."""

    def __init__(self, name: str, scene: Scene, store: Store, lots: random.Random, careless: float) -> None:
        self._name = name
        self._careless = careless
        self._scene = scene
        self._store = store
        self._lots = lots
        self._elements = 0

    def turns(self) -> Acts:
        """Take turns until the end of the run, or of the client."""
        while not self._scene.ending():
            try:
                yield from self._turn()
            except ClientClosed:
                return
            except TenureError:
                yield Rest(self._lots.uniform(0.005, 0.05))
            except CANCELLED:
                self._scene.uncancel()
            yield Rest(self._lots.uniform(0.0, 0.02))

    def _turn(self) -> Acts:
        kind = self._lots.choices(list(_KINDS), list(_KINDS.values()))[0]
        hold = yield Do(self._way_to(kind), cancellable=True)
        if hold is None:
            return
        self._scene.holds.add(hold)
        try:
            if self._lots.random() < _SCOPED_SHARE:
                yield from _within(hold, self._hold_on(hold, kind))
            else:
                yield from self._hold_and_release(hold, kind)
        finally:
            self._scene.holds.discard(hold)

    def _way_to(self, kind: str) -> Callable[[], Any]:
        """A way to acquire it, drawn by lot."""
        timeout = self._lots.choice(_TIMEOUTS)
        tries = self._lots.random() < _TRIES_SHARE
        if kind == "seats":
            seats, weight = self._scene.client.semaphore("seats", limit=LIMIT), self._lots.choice((1, 1, 1, 2))
            if tries:
                return lambda: seats.try_acquire(weight=weight)
            return lambda: seats.acquire(timeout, weight=weight)
        line = self._line(kind)
        return line.try_acquire if tries else lambda: line.acquire(timeout)

    def _line(self, kind: str) -> Any:
        client = self._scene.client
        if kind == "campaign":
            return client.election(ELECTION, value=self._name).campaign()
        if kind in ("read", "write"):
            return getattr(client.rwlock(_CONFIG), kind)()
        return client.lock(kind)

    def _hold_and_release(self, hold: Any, kind: str) -> Acts:
        try:
            yield from self._hold_on(hold, kind)
        except (LeaseLost, StoreError, *CANCELLED):
            yield Do(hold.release)
            raise
        yield Do(hold.release, cancellable=True)

    def _hold_on(self, hold: Any, kind: str) -> Acts:
        """Work at what it protects, and look whether it still does."""
        for _ in range(self._lots.randrange(1, 4)):
            yield from self._look(hold)
            if self._lots.random() < _RENEW_SHARE:
                yield Do(hold.renew, cancellable=True)
            yield from self._work(hold, kind)
        yield from self._look(hold)

    def _look(self, hold: Any) -> Acts:
        hold.check()
        long = self._lots.random() < _LONG_SHARE
        left = self._lots.uniform(0.2, 0.7) if long else self._lots.uniform(0.002, 0.04)
        while left > 0.0:
            yield Rest(min(left, 0.02))
            hold.check()
            left -= 0.02

    def _work(self, hold: Any, kind: str) -> Acts:
        """Read, think, write. What is refused is over: somebody younger was there."""
        if kind == "seats":
            yield from self._ask(hold, "add")
            return
        if kind != "read" and self._lots.random() < _CLAIM_SHARE:
            yield from self._ask(hold, "claim")
        found: list[Answer] = []
        yield from self._ask(hold, "read", found=found)
        if kind == "read" or not found:
            return
        if self._lots.random() < self._careless:
            yield Rest(self._lots.uniform(0.2, 0.8))
        elif self._lots.random() < _BLIND_SHARE:
            yield Rest(self._lots.uniform(0.0, 0.06))
        else:
            yield from self._look(hold)
        yield from self._ask(hold, "write", basis=found[0].basis)

    def _ask(self, hold: Any, operation: str, *, basis: int | None = None, found: list[Answer] | None = None) -> Acts:
        request = {"operation": operation, "resource": hold.resource, "fence": str(hold.fence), "hold": hold.id}
        request |= {"client": self._scene.log.name, "mode": hold._entry.mode.value, "basis": basis}
        if operation not in ("write", "add"):
            answer = yield Do(lambda: self._store.ask(request))
            if found is not None and answer.accepted:
                found.append(answer)
            return
        self._elements += 1
        request["element"] = element = f"{self._name}-{self._elements}"
        with self._scene.log.call("write", hold=hold, value=element) as call:
            answer = yield Do(lambda: self._store.ask(request))
            if answer.accepted:
                call.ok()
            else:
                call.fail()


def _within(hold: Any, body: Acts) -> Acts:
    """`with hold:` or `async with hold:`, around the steps of `body`."""
    awaits = isinstance(hold, aio.Hold)
    leave = hold.__aexit__ if awaits else hold.__exit__
    yield Do(hold.__aenter__ if awaits else hold.__enter__)
    try:
        yield from body
    except (Exception, *CANCELLED) as error:
        raised = error  # a name of its own: `error` is unbound when the step is carried out
        yield Do(lambda: leave(type(raised), raised, raised.__traceback__))
        raise
    yield Do(lambda: leave(None, None, None))


def observing(scene: Scene, lots: random.Random) -> Acts:
    """Look at who leads, and write down every change, until the client is closed."""
    while not scene.ending():
        try:
            yield from _observe(scene)
        except ClientClosed:
            return
        except TenureError:
            yield Rest(lots.uniform(0.05, 0.2))


def _observe(scene: Scene) -> Acts:
    leaders = scene.client.election(ELECTION).observe()
    advance = leaders.__anext__ if hasattr(leaders, "__anext__") else lambda: _next(leaders)
    while True:
        try:
            leader = yield Do(advance)
        except StopAsyncIteration:
            return
        if leader is _END:
            return
        if leader is not None:
            scene.log.record(Kind.TOLD, operation="observed", resource=ELECTION, token=leader.token, hold=leader.id)


_END: Final = object()


def _next(leaders: Iterator[Any]) -> Any:
    return next(leaders, _END)
