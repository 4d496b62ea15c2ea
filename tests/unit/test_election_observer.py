"""An observer of an election: what it tells, in which order, and what it waits for in between."""

from __future__ import annotations

from typing import Any

import pytest

from tenure._core.base.clock import VirtualClock
from tenure._core.lease import LeaseState, Line
from tenure._core.recipes.election import Leader, Observation
from tenure._core.turn import Await, Step, Survey
from tenure.errors import ClientClosed, LeaseLost, StoreUnavailable
from tests.unit.fakes import FakeLease, entry, ticket_of

START = 1000.0
SECONDS = 5.0


class Desk:
    """One observation, and its lease."""

    def __init__(self) -> None:
        self.lease = FakeLease()
        self._observation = Observation("r", lambda: self.lease, VirtualClock(START), SECONDS)
        self._steps: Any = None

    def begin(self) -> Step:
        """Ask for the next change; the first step."""
        self._steps = self._observation.next_change()
        step: Step = next(self._steps)
        return step

    def go(self, outcome: Any) -> Any:
        """Answer the step, by an error too; the next step, or what was told."""
        try:
            return self._steps.throw(outcome) if isinstance(outcome, Exception) else self._steps.send(outcome)
        except StopIteration as ended:
            return ended.value

    def seen(self, line: Line) -> Any:
        """The first change, as it came of this line."""
        assert self.begin() == self.survey
        return self.go(line)

    def looked(self, line: Line) -> Any:
        """What comes of a wake and this line."""
        assert isinstance(self.begin(), Await)
        assert self.go(True) == self.survey
        return self.go(line)

    @property
    def survey(self) -> Survey:
        return Survey(self.lease, "r", START + SECONDS, front=1)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def led_by(token: int | None, value: str = "v") -> Line:
    """A line as a survey shows it, led by this ticket or by nobody."""
    if token is None:
        return Line("r", (), 60)
    return Line("r", (ticket_of(entry(), token)._replace(id=f"t{token}", value=value),), 60)


def leader(token: int, value: str = "v") -> Leader:
    return Leader(value, "me", token, f"t{token}")


def test_present_leader_is_told_at_once_and_nobody_too(desk: Desk) -> None:
    """The first call waits for nothing."""
    assert desk.seen(led_by(40)) == leader(40)
    assert Desk().seen(led_by(None)) is None


def test_observer_waits_for_the_leader_it_saw_or_for_any_arrival(desk: Desk) -> None:
    """Amendments too: a new value is a change. From the very line that it saw, or it would miss what came since."""
    desk.seen(led_by(40))
    assert isinstance(desk.begin(), Await)
    assert desk.lease.waited_on == [(led_by(40), led_by(40).tickets, True)]
    assert desk.go(True) == desk.survey
    assert desk.lease.closed_signals == 1
    assert desk.go(led_by(None)) is None
    desk.begin()
    assert desk.lease.waited_on[-1] == (led_by(None), (), True)


def test_each_change_is_told_once(desk: Desk) -> None:
    """Another leader, another value, nobody; a wake for nothing is waited out."""
    desk.seen(led_by(40))
    assert isinstance(desk.looked(led_by(40)), Await)
    assert desk.go(True) == desk.survey
    assert desk.go(led_by(40, "w")) == leader(40, "w")
    assert desk.looked(led_by(41)) == leader(41)
    assert desk.looked(led_by(None)) is None


def test_leader_of_the_past_is_passed_over(desk: Desk) -> None:
    """A server that lags behind may show one that was replaced: changes come in the order of their tokens."""
    desk.seen(led_by(41))
    assert isinstance(desk.looked(led_by(40)), Await)
    assert desk.go(True) == desk.survey
    assert desk.go(led_by(None)) is None
    assert isinstance(desk.looked(led_by(40)), Await)
    assert desk.go(True) == desk.survey
    assert desk.go(led_by(42)) == leader(42)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), LeaseLost("gone")])
def test_observer_whose_store_is_away_asks_again_and_waits_from_no_old_line(desk: Desk, error: Exception) -> None:
    """What changed meanwhile is no watch's to tell: it looks, and waits from what it sees then."""
    desk.seen(led_by(40))
    desk.begin()
    assert desk.go(True) == desk.survey
    pause = desk.go(error)
    assert isinstance(pause, Await)
    assert pause.until is not None
    assert START < pause.until <= START + SECONDS
    assert desk.go(False) == desk.survey
    assert len(desk.lease.waited_on) == 1
    assert desk.go(led_by(41)) == leader(41)


def test_observer_that_has_seen_nothing_yet_is_told_that_the_store_is_away(desk: Desk) -> None:
    """It may have the wrong address; whoever asked finds out."""
    desk.begin()
    with pytest.raises(StoreUnavailable):
        desk.go(StoreUnavailable("away"))


def test_observer_ends_with_its_client(desk: Desk) -> None:
    """Closing wakes it; the wait is given back, also where it is dropped."""
    desk.seen(led_by(40))
    desk.begin()
    desk.lease.state = LeaseState.CLOSED
    with pytest.raises(ClientClosed):
        desk.go(True)
    desk.lease.state = LeaseState.HELD
    desk.begin()
    desk._steps.close()
    assert desk.lease.closed_signals == 2
