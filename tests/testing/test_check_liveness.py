"""Liveness checkers: each fails where something did not happen in time, and says unknown where too little did."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tenure.testing import History, Kind, LivenessBounds, Verdict
from tenure.testing.history.check_liveness import l1, l2, l3, l4, l5, l6, too_little_traffic
from tenure.testing.history.verdicts import Outcome
from tests.testing.stories import TTL, Story, seat

Checker = Callable[[History, LivenessBounds], Verdict]
EASY = LivenessBounds(holds_per_second=0.01, hand_overs=0)
"""Take-over within TTL + 2 s = 7 s; the stories are slow."""


def traffic() -> Story:
    """Two hand-overs before anything else."""
    story = Story().had("a", 1, 0, 1).released("a", 1, 2, 2.1).had("b", 2, 0.5, 2.2).released("b", 2, 3, 3.1)
    return story.had("a", 3, 3, 3.2)


def until(story: Story, end: float) -> Story:
    """A history that goes on until then."""
    return story.add(end, "o", Kind.TOLD, "observed")


def took_over(seconds: float) -> Story:
    """a dies holding at 10; b waits since 9 and has it so many seconds later."""
    return until(traffic().died("a", 10).had("b", 4, 9, 10 + seconds, timeout=60.0), 60)


def woken(seconds: float) -> Story:
    """a releases at 10; b waits since 9."""
    story = traffic().released("a", 3, 10, 10.1).had("b", 4, 9, 10.1 + seconds)
    return until(story.released("b", 4, 30, 31), 60)


def back(seconds: float, kind: Kind = Kind.FAIL) -> Story:
    """A call with a time-out of 5, back after so many."""
    return until(
        traffic().released("a", 3, 4, 4.1).had("b", 4, 4, 5).waited("a", 6, 6 + seconds, kind, timeout=5.0), 60
    )


def cut_off(look: float, held: bool) -> Story:
    """a holds and is cut off from 10 to 30: its proof ends at 15 at the latest."""
    story = traffic().between(10, 30, "a", "cut").looked("a", 3, 12, True).looked("a", 3, look, held)
    return until(story.had("b", 4, 9, 18).released("b", 4, 19, 20), 60)


def mended(answer: float | None) -> Story:
    """A history in which everything is broken from 10 to 20, and b renews at 21."""
    story = traffic().released("a", 3, 5, 5.1).had("b", 4, 5, 5.2).between(10, 20, operation="leader killed")
    story.had("a", 5, 21, 22).released("a", 5, 23, 23.1)
    return until(story.call("b", "renew", 21, answer, Kind.INFO if answer is None else Kind.OK, hold="t4", token=4), 60)


def figures(*counts: int) -> Story:
    return traffic().measured("a", "threads", *counts)


GOOD: dict[str, tuple[Checker, Story]] = {
    "L1": (l1, took_over(6.9)),
    "L2": (l2, woken(0.9)),
    "L3": (l3, back(5.4)),
    "L4": (l4, cut_off(15.5, False)),
    "L5": (l5, mended(22)),
    "L6": (l6, figures(3, 9, 3)),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_history_passes(name: str) -> None:
    """A history in which all is in time passes."""
    check, story = GOOD[name]
    verdict = check(story.history, EASY)
    assert verdict.outcome is Outcome.PASSED, verdict
    assert verdict.name == name


@pytest.mark.parametrize("check", [check for check, _ in GOOD.values()])
def test_empty_history_is_unknown(check: Checker) -> None:
    """A history in which nothing happened has shown nothing."""
    assert check(History(), EASY).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("name", GOOD)
def test_too_little_traffic_is_unknown(name: str) -> None:
    """The same good history, by somebody who wants more to happen."""
    check, story = GOOD[name]
    verdict = check(story.history, LivenessBounds(holds_per_second=100.0))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "holds in" in verdict.reason
    verdict = check(story.history, LivenessBounds(holds_per_second=0.01, hand_overs=100))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "hand-overs" in verdict.reason


def bad() -> Iterator[tuple[str, str, Checker, Story]]:
    """Histories with one seeded violation each, told in a word."""
    yield "L1", "a waiter too late", l1, took_over(7.2)
    yield "L1", "a waiter that never has it", l1, until(traffic().died("a", 10).waited("b", 9), 60)
    chained = until(traffic().died("a", 10).between(12, 14, operation="leader killed").waited("b", 9), 60)
    yield "L1", "late counted from the last fault", l1, chained
    zombie = until(traffic().released("a", 3, 4, 4.1).waited("c", 8).died("c", 10).waited("b", 9), 60)
    yield "L1", "behind a dead waiter", l1, zombie
    seats = traffic().released("a", 3, 4, 4.1).had("a", 5, 5, 6, resource="y", **seat()).died("a", 10)
    yield "L1", "a dead holder's seats", l1, until(seats.waited("b", 9, resource="y"), 60)

    yield "L2", "a waiter that sleeps on", l2, woken(1.2)
    yield "L2", "one that never wakes", l2, until(traffic().released("a", 3, 10, 10.1).waited("b", 9), 60)

    yield "L3", "back too late", l3, back(5.6)
    yield "L3", "back too late with what it wanted", l3, back(5.6, Kind.INFO)
    yield "L3", "never back", l3, until(traffic().waited("b", 6, timeout=5.0), 60)
    slow = until(traffic().call("a", "release", 6, 17, hold="t3", token=3, timeout=10.0), 60)
    yield "L3", "a release too late", l3, slow
    cut = until(traffic().between(7, 50, operation="leader killed").waited("b", 6, 20, timeout=5.0), 60)
    yield "L3", "a fault is no excuse", l3, cut

    yield "L4", "a look after the proof's end", l4, cut_off(15.5, True)
    yield "L4", "a look after it was mended", l4, cut_off(31, True)
    yield "L4", "told too late", l4, cut_off(15.5, False).told("a", "lost", 16, 3)
    stopped = until(traffic().stood_still("a", 10, 20).looked("a", 3, 20.1, True), 60)
    yield "L4", "the first look after a pause", l4, stopped

    yield "L1", "later than the machine stood still", l1, took_over(8.7).machine_stood_still(12, 13.5)
    yield "L2", "later than the machine stood still", l2, woken(2.2).machine_stood_still(10.5, 11.5)
    yield "L3", "later than the machine stood still", l3, back(6.6).machine_stood_still(8, 9)
    both = until(traffic().waited("b", 30, 37, timeout=5.0).stood_still("b", 31, 32), 60)
    yield "L3", "one second is no two, whoever stood still in it", l3, both.machine_stood_still(31, 32)
    told = cut_off(15.5, False).told("a", "lost", 16.6, 3)
    yield "L4", "later than the machine stood still", l4, told.machine_stood_still(15.2, 16.2)
    believed = cut_off(15.5, True).machine_stood_still(14, 15.4)
    yield "L4", "a belief that outlasts its proof while the machine stands still", l4, believed

    yield "L5", "no answer", l5, mended(None)
    story = traffic().released("a", 3, 5, 5.1).between(10, 20).waited("a", 21).waited("b", 21, timeout=3.0)
    yield "L5", "all are stuck", l5, until(story, 60)

    yield "L6", "threads left behind", l6, figures(3, 9, 4)


@pytest.mark.parametrize(("name", "check", "story"), [pytest.param(n, c, s, id=f"{n}-{k}") for n, k, c, s in bad()])
def test_bad_history_fails(name: str, check: Checker, story: Story) -> None:
    """Every checker can fail, with whatever traffic there was."""
    for bounds in (EASY, LivenessBounds(holds_per_second=100.0)):
        verdict = check(story.history, bounds)
        assert verdict.outcome is Outcome.FAILED, verdict
        assert verdict.name == name
        assert all(violation.sentence and violation.events for violation in verdict.violations)


def fine() -> Iterator[tuple[str, Checker, Story]]:
    """Late, and for a reason."""
    both = took_over(6.9).released("b", 4, 20, 20.1).had("c", 5, 21, 22).died("c", 40)
    yield "a take-over that a fault held up", l1, both.between(41, 49, operation="w").had("b", 6, 39, 55.5)
    other = (
        took_over(6.9)
        .had("d", 5, 38, 39, resource="y")
        .looked("d", 5, 59, True, resource="y")
        .died("e", 40)
        .waited("e", 37, resource="y")
    )
    yield "somebody else holds it", l1, other.waited("f", 39, resource="y")
    yield "gave up before", l1, took_over(6.9).died("c", 40).waited("c", 39).waited("b", 39.5, 45, timeout=5.0)
    yield (
        "a release in the middle of a fault",
        l2,
        woken(0.9).between(45, 50).had("c", 5, 40, 41).released("c", 5, 46, 46.1),
    )
    two = woken(0.9).had("c", 5, 35, 36, resource="y", **seat()).had("d", 6, 35, 36, resource="y", **seat())
    two.looked("d", 6, 59, True, resource="y")
    two.waited("e", 36, resource="y", **seat(2)).call("c", "release", 37, 37.1, resource="y", hold="t5", token=5)
    soon = woken(0.9).between(45, 50).had("c", 5, 40, 41).released("c", 5, 51, 51.1).had("d", 6, 42, 54)
    yield "a release just after a fault", l2, soon
    yield "other seats are taken", l2, two
    yield "a call that stood still", l3, until(back(5.4).waited("b", 30, 45, timeout=5.0).stood_still("b", 31, 41), 60)
    yield "the machine stood still in a take-over", l1, took_over(8.4).machine_stood_still(12, 13.5)
    faulty = took_over(8.9).machine_stood_still(12, 13.5).between(17.5, 19, operation="w")
    yield "a fault before the time was over in which the machine did not stand still", l1, faulty
    yield "the machine stood still in a wake-up", l2, woken(1.9).machine_stood_still(10.5, 11.5)
    yield "the machine stood still in a call", l3, back(6.4).machine_stood_still(8, 9)
    told = cut_off(15.5, False).told("a", "lost", 16.4, 3)
    yield "the machine stood still after the proof's end", l4, told.machine_stood_still(15.2, 16.2)
    yield "the machine stood still before the first hold", l2, woken(0.9).machine_stood_still(-2, -1)
    yield "a call that died", l3, until(back(5.4).waited("c", 30, timeout=5.0).died("c", 31), 60)
    yield (
        "released before it was cut off",
        l4,
        cut_off(15.5, False).between(40, 55, "b", "cut").looked("b", 4, 50, False),
    )
    yield "told while it stood still", l4, cut_off(15.5, False).stood_still("a", 15, 18).told("a", "lost", 18.2, 3)
    slow = cut_off(15.5, False).had("c", 5, 30, 31).between(35, 55, "c", "slow").looked("c", 5, 50, True)
    yield "a fault that cuts nobody off", l4, slow
    waiting = mended(22).had("c", 6, 23, 24).waited("d", 19)
    yield "waits in a line that moves", l5, waiting
    yield "was closed", l5, mended(22).call("d", "renew", 19, None).call("d", "close", 21.5, None)
    yield "began late", l5, mended(22).call("d", "renew", 25.5, None)


@pytest.mark.parametrize(("check", "story"), [pytest.param(c, s, id=k) for k, c, s in fine()])
def test_near_miss_passes(check: Checker, story: Story) -> None:
    """A delay for a good reason is not reported."""
    verdict = check(story.history, EASY)
    assert verdict.outcome is Outcome.PASSED, (verdict, verdict.violations)


def unknown() -> Iterator[tuple[str, Checker, Story]]:
    """Something happened, and the record ends too early, or was never calm."""
    yield "the record ends before the bound", l1, traffic().died("a", 10).had("b", 4, 9, 12)
    yield "never calm after the death", l1, traffic().died("a", 10).add(11, "", Kind.FAULT, "w").waited("b", 9)
    yield "a release that nobody waited for", l2, until(Story().had("a", 1, 1, 2).released("a", 1, 3, 4), 60)
    yield "no call with a time-out", l3, traffic()
    yield "a cut shorter than the time to live", l4, until(traffic().between(10, 14, "a", "cut"), 60)
    yield "a fault that never ended", l5, until(traffic().add(10, "", Kind.FAULT, "w"), 60)
    yield "the record ends with the fault", l5, traffic().between(10, 20)
    yield "measured once", l6, figures(3)


@pytest.mark.parametrize(("check", "story"), [pytest.param(c, s, id=k) for k, c, s in unknown()])
def test_nothing_to_judge_is_unknown(check: Checker, story: Story) -> None:
    """A property that was not shown is not passed."""
    verdict = check(story.history, EASY)
    assert verdict.outcome is Outcome.UNKNOWN, verdict
    assert verdict.reason


def test_traffic_is_told_in_figures() -> None:
    """The reason says how much, and how much too little."""
    assert too_little_traffic(traffic().history, LivenessBounds(holds_per_second=0.5)) == ""
    assert too_little_traffic(traffic().history, LivenessBounds(holds_per_second=2.0)) == (
        "only 3 holds in 3.2 s before anything was broken"
    )
    assert "only 0 hand-overs" in too_little_traffic(
        traffic().died("a", 10).history, LivenessBounds(holds_per_second=0.1)
    )


def test_time_to_live_is_of_the_history() -> None:
    """The bounds of L1 are made of what was granted."""
    assert l1(took_over(TTL + 1.9).history, EASY).passed
    assert l1(took_over(TTL + 1.9).history, LivenessBounds(take_over=1.5)).failed
