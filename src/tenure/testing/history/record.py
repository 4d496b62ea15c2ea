"""A client that writes down what it does: `recorded(client, recorder, name="worker-1")`.

The client stays what it was, a `Client` of either face, and is used as ever; what it hands out (locks, semaphores,
read/write locks, elections, their holds) is recorded from then on: acquire, try_acquire and campaign, release (the one
at the end of a `with` too), renew, check, close, and the loss of a hold when its callback runs. Connect with
`owner=name`, so that the store's own word names the same client.

It sets the methods of these very objects; classes stay untouched. `Log` records what else a worker does: writes at a
fenced store, looks of another kind, callbacks of its own. Not recorded: amend, the user's own keys, observers.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, TypeVar

from tenure import _client, aio
from tenure._core.hold import Holding
from tenure._core.hold_watch import HoldState
from tenure._core.runtime import runtime_of
from tenure.errors import LeaseLost, TenureError
from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import Records

Face = TypeVar("Face", _client.Client, aio.Client)
_Method = Callable[..., Any]  # Any: whatever the method that is recorded takes and gives


def recorded(client: Face, records: Records, *, name: str, log: Log | None = None) -> Face:
    """Record everything that `client` does, as `name`, and return it. Once per client, before its first use.

    Give `log` where you record more under the same name: calls are numbered per log. Raises nothing of its own; a
    recorder that can't write raises OSError out of the recorded call.
    """
    log = Log(records, name) if log is None else log
    for method, wrap in _OF_CLIENT.items():
        _replace(client, method, wrap, log)
    return client


class Log:
    """A client's part of a history.

    `seconds` turns what the client's clock calls seconds into those of the recorder's, where the two may differ.
    """

    def __init__(
        self, records: Records, name: str, *, seconds: Callable[[float], float] = lambda seconds: seconds
    ) -> None:
        self.records = records
        self.name = name
        self._seconds = seconds
        self._numbers = itertools.count(1)  # next() on it is atomic

    def call(
        self,
        operation: str,
        resource: str = "",
        *,
        hold: Holding | None = None,
        timeout: float | None = None,
        **facts: Any,  # Any: further fields of Event
    ) -> Calling:
        """Record a call: `with log.call("write", "ledger", value="7") as calling: …; calling.ok()`."""
        if hold is not None:
            facts = {"hold": hold.id, "token": hold.token, "incarnation": runtime_of(hold).incarnation, **facts}
            resource = resource or hold.resource
        return Calling(
            self, {"operation": operation, "resource": resource, "call": next(self._numbers), **facts}, timeout
        )

    def look(self, hold: Holding, ask: Callable[[], None] | None = None) -> bool:
        """Ask whether it is held, and record the answer;

        `ask` is another way of asking, that raises LeaseLost where it is not.
        """
        since = self.records.now()
        try:
            (hold.check if ask is None else ask)()
            held = True
        except LeaseLost:
            held = False
        at = self.records.now()
        self.record(
            Kind.CHECK,
            at=at,
            since=since,
            held=held,
            **of_hold(hold),
            deadline=self.proven(hold, since) if held else None,
        )
        return held

    def proven(self, hold: Holding, now: float) -> float:
        """The time until which it is proven, on the recorder's clock. `now` was read just before."""
        return now + self._seconds(hold.remaining())

    def told(self, operation: str, hold: Holding) -> None:
        """A callback runs: lost, elected, demoted, stopped."""
        self.record(Kind.TOLD, operation=operation, **of_hold(hold))

    def record(self, kind: Kind, *, at: float | None = None, **facts: Any) -> None:  # Any: fields of Event
        """Record anything else of this client's."""
        self.records.record(Event(self.records.now() if at is None else at, self.name, kind, **facts))


class Calling:
    """A call that goes on. Without a word from its caller it ends as `info`; with an error that is sure, as `fail`."""

    def __init__(self, log: Log, facts: dict[str, Any], timeout: float | None) -> None:
        self._log = log
        self._facts = facts
        self._timeout = timeout
        self._answered = False

    def __enter__(self) -> Calling:
        self._log.record(Kind.INVOKE, **self._facts, timeout=self._timeout)
        return self

    def ok(self, **facts: Any) -> None:  # Any: fields of Event
        """Record that the call happened, and was said to have."""
        self._end(Kind.OK, facts)

    def fail(self, **facts: Any) -> None:  # Any: fields of Event
        """Record that the call certainly did not happen."""
        self._end(Kind.FAIL, facts)

    @property
    def _goes_on(self) -> bool:
        """A release that raised is the reaper's from there on: it may still happen."""
        return bool(self._facts["operation"] == "release")

    def _end(self, kind: Kind, facts: dict[str, Any]) -> None:
        self._answered = True
        self._log.record(kind, **{**self._facts, **facts})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._answered:
            certain = isinstance(error, TenureError) and error.happened == "no" and not self._goes_on
            self._end(Kind.FAIL if certain else Kind.INFO, {"detail": "" if error is None else type(error).__name__})


def of_hold(hold: Holding) -> dict[str, Any]:  # Any: fields of Event
    """The fields that tell a hold from all others."""
    return {
        "resource": hold.resource,
        "hold": hold.id,
        "token": hold.token,
        "incarnation": runtime_of(hold).incarnation,
    }


def of_new_hold(hold: Holding, now: float, log: Log) -> dict[str, Any]:  # Any: fields of Event
    """The fields of an event that hands out a hold. `now` was read just before."""
    entry = hold._entry  # the face does not show how its ticket stands in the line
    return {
        **of_hold(hold),
        "at": now,
        "mode": entry.mode,
        "weight": entry.weight,
        "limit": entry.limit,
        "lease": hold.lease_id,
        "ttl": hold.ttl,
        "deadline": log.proven(hold, now),
    }


# What is recorded of which object. Each wrapper is given the object, its own method and the log.


def _replace(thing: object, method: str, wrap: Callable[[Any, _Method, Log], _Method], log: Log) -> None:
    setattr(thing, method, wrap(thing, getattr(thing, method), log))


def _makes(*wraps: tuple[str, Callable[[Any, _Method, Log], _Method]]) -> Callable[[Any, _Method, Log], _Method]:
    """A method whose result is to be recorded."""

    def wrapper(_: object, make: _Method, log: Log) -> _Method:
        def made(*args: Any, **options: Any) -> Any:
            thing = make(*args, **options)
            for method, wrap in wraps:
                _replace(thing, method, wrap, log)
            return thing

        return made

    return wrapper


def _seats(client_: object, make: _Method, log: Log) -> _Method:
    """A semaphore: what is recorded of a lock, and of the lock of one seat behind its `with`."""
    made = _makes(*_LOCK)(client_, make, log)

    def seats(*args: Any, **options: Any) -> Any:
        thing = made(*args, **options)
        for method, wrap in _LOCK:
            _replace(thing._one, method, wrap, log)
        return thing

    return seats


def _acquires(operation: str) -> Callable[[Any, _Method, Log], _Method]:
    """A method whose result is a hold, or None where it is not to be had at once."""

    def wrapper(thing: Any, acquire: _Method, log: Log) -> _Method:
        def calling(args: tuple[Any, ...], options: dict[str, Any]) -> Calling:
            timeout = options.get("timeout", args[0] if args else None)
            return log.call(operation, thing.resource, timeout=timeout)

        def had(call: Calling, hold: Any) -> Any:
            if hold is None:
                call.fail()
                return None
            call.ok(**of_new_hold(hold, log.records.now(), log))
            return _watched(hold, log)

        def blocking(*args: Any, **options: Any) -> Any:
            with calling(args, options) as call:
                return had(call, acquire(*args, **options))

        async def waiting(*args: Any, **options: Any) -> Any:
            with calling(args, options) as call:
                return had(call, await acquire(*args, **options))

        return waiting if _is_async(thing) else blocking

    return wrapper


def _watched(hold: Holding, log: Log) -> Holding:
    for method, wrap in _OF_HOLD.items():
        _replace(hold, method, wrap, log)
    hold.on_change(lambda state: log.told("lost", hold) if state is HoldState.LOST else None)
    return hold


def _looks(hold: Any, check: _Method, log: Log) -> _Method:
    def looking() -> None:
        if not log.look(hold, check):
            check()  # raises what it raised

    return looking


def _calls(operation: str) -> Callable[[Any, _Method, Log], _Method]:
    """release, renew, close: a call with an answer."""

    def wrapper(thing: Any, method: _Method, log: Log) -> _Method:
        def calling() -> Calling:
            if isinstance(thing, Holding):
                return log.call(operation, hold=thing, timeout=runtime_of(thing).request_seconds)
            return log.call(operation)

        def blocking() -> Any:
            with calling() as call:
                return _answered(thing, call, method(), log)

        async def waiting() -> Any:
            with calling() as call:
                answer: Awaitable[Any] = method()
                return _answered(thing, call, await answer, log)

        return waiting if _is_async(thing) else blocking

    return wrapper


def _answered(thing: Any, call: Calling, answer: Any, log: Log) -> Any:
    now = log.records.now()
    if answer is False:
        call.fail()
    elif isinstance(answer, float):
        call.ok(at=now, deadline=log.proven(thing, now))
    else:
        call.ok()
    return answer


def _is_async(thing: object) -> bool:
    return type(thing).__module__ == aio.__name__


_LOCK = (("acquire", _acquires("acquire")), ("try_acquire", _acquires("try_acquire")))
_CANDIDACY = (("acquire", _acquires("campaign")), ("try_acquire", _acquires("campaign")))
_OF_HOLD = {"check": _looks, "release": _calls("release"), "renew": _calls("renew")}
_OF_CLIENT = {
    "lock": _makes(*_LOCK),
    "semaphore": _seats,
    "rwlock": _makes(("read", _makes(*_LOCK)), ("write", _makes(*_LOCK))),
    "election": _makes(("campaign", _makes(*_CANDIDACY))),
    "close": _calls("close"),
}
