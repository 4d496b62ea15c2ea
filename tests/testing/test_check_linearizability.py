"""S10 finds an order where there is one, says so where there is none, and gives up when its budget is spent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.testing import History, Kind
from tenure.testing.history.check_linearizability import s10
from tenure.testing.history.verdicts import Outcome
from tests.testing.stories import READ, Story, seat


def fine() -> Iterator[tuple[str, Story]]:
    """Histories that have an order."""
    story = Story().had("a", 1, 1, 5).released("a", 1, 6, 9).had("b", 2, 2, 7)
    yield "an overlapping release took effect first", story.released("b", 2, 8, 10)
    yield (
        "a waiter let in by an overlapping release",
        Story().had("a", 1, 1, 2).released("a", 1, 3, 6).had("b", 2, 1, 5),
    )
    yield "an expiry", Story().had("a", 1, 1, 2, deadline=4.0).had("b", 2, 1, 5)
    gone = Story().had("a", 1, 1, 2, deadline=4.0).had("b", 2, 1, 5).released("a", 1, 6, 7, Kind.FAIL)
    yield "a late release that said gone", gone
    yield (
        "a release of which nothing was heard",
        Story().had("a", 1, 1, 2).released("a", 1, 3, 4, Kind.INFO).had("b", 2, 1, 5),
    )
    yield "a release that never came back", Story().had("a", 1, 1, 2).released("a", 1, 3, None).had("b", 2, 1, 5)
    yield "an acquire that is unknown", Story().had("a", 1, 1, 2).released("a", 1, 3, 4).waited("c", 1, 9, Kind.INFO)
    yield "a death", Story().had("a", 1, 1, 2).died("a", 3).had("b", 2, 1, 4)
    yield "readers", Story().had("a", 1, 1, 2, **READ).had("b", 2, 1, 3, **READ).looked("a", 1, 4, True)
    yield "seats", Story().had("a", 1, 1, 2, **seat()).had("b", 2, 1, 3, **seat()).released("a", 1, 5, 6)
    yield "two lines", Story().had("a", 2, 1, 2).had("b", 1, 3, 4, resource="y")


def bad() -> Iterator[tuple[str, Story]]:
    """Histories that have no order."""
    held = Story().had("a", 1, 1, 2).had("b", 2, 1, 3).released("a", 1, 4, 5)
    yield "two at once", held
    yield (
        "an expiry before its time",
        Story().had("a", 1, 1, 2, deadline=4.0).had("b", 2, 1, 3).released("a", 1, 3.5, 6),
    )
    yield "an end unseen, before the belief's", Story().had("a", 1, 1, 2).had("b", 2, 1, 3).looked("a", 1, 3.5, True)
    yield "tokens that go back", Story().had("a", 7, 1, 2).released("a", 7, 3, 4).had("b", 6, 5, 6)
    yield "removed twice", Story().had("a", 1, 1, 2).released("a", 1, 3, 4).released("a", 1, 5, 6)
    late = Story().had("a", 1, 1, 2, deadline=4.0).had("b", 2, 1, 5).released("a", 1, 6, 7)
    yield "a late release that said removed", late
    yield "a reader with a writer", Story().had("a", 1, 1, 2).had("b", 2, 1, 3, **READ).released("a", 1, 4, 5)
    seats = Story().had("a", 1, 1, 2, **seat()).had("b", 2, 1, 3, **seat(2)).released("a", 1, 4, 5)
    yield "seats beyond the limit", seats.released("b", 2, 4, 5)


@pytest.mark.parametrize("story", [pytest.param(story, id=what) for what, story in fine()])
def test_history_with_an_order_passes(story: Story) -> None:
    """A perfect line could have done it."""
    verdict = s10(story.history)
    assert verdict.outcome is Outcome.PASSED, verdict.violations
    assert verdict.counts["calls"] >= 1


@pytest.mark.parametrize("story", [pytest.param(story, id=what) for what, story in bad()])
def test_history_without_an_order_fails(story: Story) -> None:
    """A history that no perfect line could have fails, and the message says how far one gets."""
    verdict = s10(story.history)
    assert verdict.outcome is Outcome.FAILED
    assert "no order of the calls on 'x'" in verdict.violations[0].sentence
    assert verdict.violations[0].events


def test_spent_budget_is_unknown() -> None:
    """A search that did not come to its end has shown nothing."""
    story = Story()
    for token in range(1, 12):
        story.had(f"c{token}", token, 1, 10 + token).released(f"c{token}", token, 30, 40)
    assert s10(story.history, budget=5).outcome is Outcome.UNKNOWN
    assert "budget" in s10(story.history, budget=5).reason


def test_without_an_order_and_with_a_pause_is_unknown() -> None:
    """A client that stood still could not tell: that is for S2 to sort out."""
    story = Story().had("a", 1, 1, 2).stood_still("a", 2.5, 3.5).had("b", 2, 1, 3).released("a", 1, 4, 5)
    assert s10(story.history).outcome is Outcome.UNKNOWN


def test_empty_history_is_unknown() -> None:
    """A history without events leaves nothing to examine."""
    assert s10(History()).outcome is Outcome.UNKNOWN


def test_a_long_orderly_history_is_cheap() -> None:
    """Tokens leave little to choose: the work grows with the calls, not with their orders."""
    story = Story()
    for token in range(1, 301):
        story.had(f"c{token % 7}", token, token - 0.9, token).released(f"c{token % 7}", token, token + 0.2, token + 0.5)
    verdict = s10(story.history)
    assert verdict.passed
    assert verdict.counts["looked at"] < 4 * verdict.counts["calls"]
