"""A perfect store and its clients, on a clock that counts steps: correct histories, as many as one likes.

Drawn: who does what next. Everything is recorded, in the order in which it happens: calls, looks, and the store's own
word. `brute_s1` and `brute_s3` are the laws written down plainly, in quadratic time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tenure._core.lease import Mode
from tenure.testing import Event, History, Kind
from tenure.testing.history.intervals import beliefs

LIMIT = 2
TTL = 20.0


@dataclass
class _Asked:
    client: str
    call: int
    token: int
    mode: Mode
    weight: int
    operation: str = "acquire"
    releasing: int | None = None


@dataclass
class PerfectLine:
    """A line of exclusive tickets, readers or seats, first come, first served."""

    kind: str
    events: list[Event] = field(default_factory=list)
    now: float = 0.0
    tokens: int = 0
    calls: int = 0
    line: list[_Asked] = field(default_factory=list)
    holding: list[_Asked] = field(default_factory=list)
    leaving: list[_Asked] = field(default_factory=list)

    def act(self, choice: int) -> None:
        """Take one step of one client's, or of the store's."""
        self.now += 1.0
        self._admit()
        actions: list[Callable[[], None]] = []
        idle = [c for c in "abcd" if c not in {a.client for a in (*self.line, *self.holding, *self.leaving)}]
        actions += [lambda client=client: self._ask(client, choice) for client in idle]  # type: ignore[misc]
        for asked in self.holding:
            actions += [lambda asked=asked: self._look(asked), lambda asked=asked: self._release(asked)]  # type: ignore[misc]
        actions += [lambda asked=asked: self._gone(asked) for asked in self.leaving]  # type: ignore[misc]
        if actions:
            actions[choice % len(actions)]()
        self._admit()

    def _ask(self, client: str, choice: int) -> None:
        self.tokens += 1 + choice % 3
        self.calls += 1
        mode, weight = Mode.EXCLUSIVE, 1
        if self.kind == "rwlock" and choice % 3:
            mode = Mode.READ
        if self.kind == "semaphore":
            mode, weight = Mode.SEAT, 1 + choice % LIMIT
        asked = _Asked(client, self.calls, self.tokens, mode, weight)
        self._tell(asked, Kind.INVOKE, with_hold=False)
        self.line.append(asked)
        self._truth(asked, "created")

    def _admit(self) -> None:
        while self.line and self._may(self.line[0]):
            asked = self.line.pop(0)
            self.holding.append(asked)
            self._tell(asked, Kind.OK)

    def _may(self, asked: _Asked) -> bool:
        standing = [*self.holding, *(one for one in self.leaving if one.releasing is not None)]
        if asked.mode is Mode.EXCLUSIVE or any(one.mode is Mode.EXCLUSIVE for one in standing):
            return not standing
        return asked.mode is Mode.READ or sum(one.weight for one in standing) + asked.weight <= LIMIT

    def _look(self, asked: _Asked) -> None:
        self._add(asked, Kind.CHECK, since=self.now, held=True, deadline=self.now + TTL)

    def _release(self, asked: _Asked) -> None:
        self.calls += 1
        self.holding.remove(asked)
        asked.call, asked.operation, asked.releasing = self.calls, "release", self.calls
        self.leaving.append(asked)
        self._tell(asked, Kind.INVOKE)

    def _gone(self, asked: _Asked) -> None:
        self.leaving.remove(asked)
        self._truth(asked, "removed")
        self._tell(asked, Kind.OK)

    def _tell(self, asked: _Asked, kind: Kind, *, with_hold: bool = True) -> None:
        self._add(asked, kind, operation=asked.operation, call=asked.call, with_hold=with_hold)

    def _truth(self, asked: _Asked, operation: str) -> None:
        cause = "left" if operation == "removed" else ""
        self._add(asked, Kind.TRUTH, operation=operation, cause=cause)

    def _add(self, asked: _Asked, kind: Kind, *, with_hold: bool = True, **facts: object) -> None:
        hold = {"hold": f"t{asked.token}", "token": asked.token} if with_hold else {}
        stand = {"mode": asked.mode, "weight": asked.weight, "limit": LIMIT, "ttl": TTL, "resource": "x"}
        self.events.append(Event(self.now, asked.client, kind, **{**stand, **hold, **facts}))  # type: ignore[arg-type]


@st.composite
def lawful(draw: st.DrawFn, kind: str) -> History:
    """A correct history of a lock, a semaphore or a read/write lock."""
    line = PerfectLine(kind)
    for choice in draw(st.lists(st.integers(0, 11), min_size=20, max_size=60)):
        line.act(choice)
    for choice in range(60):  # to the end: nobody is left in the line for want of a step
        line.act(choice)
    return History(line.events)


def replaced(history: History, old: Event, *new: Event) -> History:
    """The history with one event changed, left out, or followed by others."""
    return History([one for event in history for one in (new if event is old else (event,))])


def changed(event: Event, **facts: object) -> Event:
    return dataclasses.replace(event, **facts)  # type: ignore[arg-type]


def brute_s1(history: History) -> Iterator[tuple[Event, str]]:
    """Every look at a hold after a younger one that excludes it was had."""
    known = beliefs(history)
    for old in known:
        for moment, look in old.evidence:
            for new in known:
                rivals = new.ok.resource == old.ok.resource and old.excludes(new)
                if rivals and new.ok.rank > old.ok.rank and new.start < moment:
                    yield look, old.ok.hold
                    break


def brute_s3(history: History) -> Iterator[str]:
    """Every hold asked for after another was had, with a lower token."""
    known = beliefs(history)
    for new in known:
        same = (old for old in known if old.ok.resource == new.ok.resource)
        if any(old.start < new.asked and old.ok.rank > new.ok.rank for old in same):
            yield new.ok.hold
