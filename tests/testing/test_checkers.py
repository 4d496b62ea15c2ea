"""Safety checkers: each fails on a bad history of its own kind, and passes the good twin of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenure._core.lease import Mode
from tenure.testing import History, Kind, Verdict, check_history
from tenure.testing.history.check_fencing import s5
from tenure.testing.history.check_linearizability import s10
from tenure.testing.history.check_promises import s1, s2, s3, s6, s7
from tenure.testing.history.check_truth import s4, s8, s9, s11
from tenure.testing.history.verdicts import VIOLATIONS_MAX, Outcome
from tests.testing.stories import READ, Story, seat

Checker = Callable[[History], Verdict]


def two_holds() -> Story:
    """a has it from 2 to 4, b from 5 to 7."""
    story = Story().had("a", 1, 1, 2).looked("a", 1, 3, True).released("a", 1, 4, 4.5)
    return story.had("b", 2, 2.5, 5).looked("b", 2, 6, True).released("b", 2, 7, 7.5)


def true_holds() -> Story:
    """The same, with the store's own word."""
    story = two_holds().stands("a", 1, 1.5, 4.2).stands("b", 2, 2.6, 7.2)
    return story.lease_ended("a", 9).lease_ended("b", 9).add(20, "a", Kind.MEASURED, "threads", count=0)


def seats() -> Story:
    """Two of two seats, then one of weight two."""
    story = Story().had("a", 1, 1, 2, **seat()).had("b", 2, 1, 3, **seat())
    story.released("a", 1, 4, 5).released("b", 2, 4, 5)
    return story.had("c", 3, 1, 6, **seat(2)).released("c", 3, 7, 8)


def reign() -> Story:
    """a leads and resigns; b leads; an observer sees both."""
    story = Story().had("a", 1, 1, 2, operation="campaign").told("a", "elected", 2.1, 1)
    story.told("o", "observed", 2.2, 1).told("a", "demoted", 3, 1).released("a", 1, 4, 5)
    story.had("b", 2, 1, 6, operation="campaign").told("b", "elected", 6.1, 2).told("o", "observed", 6.2, 2)
    return story.told("b", "demoted", 8, 2).told("b", "stopped", 9)


def fenced() -> Story:
    """a reads and writes, then b; both writes are kept, and a third of which nothing was heard is not."""
    story = two_holds().asked("read", 1, 2.2, True).wrote("a", "one", 2.3, 2.5).asked("write", 1, 2.4, True)
    story.asked("claim", 2, 5.1, True).asked("write", 1, 5.2, False).wrote("a", "late", 5, 5.3, Kind.FAIL)
    story.wrote("b", "two", 5.5, 5.7).asked("write", 2, 5.6, True).wrote("b", "three", 6, None)
    return story.keeps(10, "one", "two")


GOOD: dict[str, tuple[Checker, Callable[[], Story]]] = {
    "S1": (s1, two_holds),
    "S2": (s2, two_holds),
    "S3": (s3, true_holds),
    "S4": (s4, true_holds),
    "S5": (s5, fenced),
    "S6": (s6, seats),
    "S7": (s7, reign),
    "S8": (s8, true_holds),
    "S9": (s9, true_holds),
    "S11": (s11, true_holds),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_history_passes(name: str) -> None:
    """The good twin of every bad history below."""
    check, story = GOOD[name]
    verdict = check(story().history)
    assert verdict.outcome is Outcome.PASSED, verdict
    assert verdict.name == name
    assert verdict.violations == ()
    assert verdict.counts["violations"] == 0


def test_ticket_of_a_lease_that_nobody_saw_may_have_gone_with_it() -> None:
    """The store lists its leases when it is asked: one that came and went in between has no end on record."""
    story = Story().had("a", 1, 1, 2, lease="unseen").stands("a", 1, 1.5, 3, cause="", lease="unseen")
    assert s8(story.history).failed
    story.add(0.5, "b", Kind.TRUTH, "lease_granted", lease="seen")
    assert not s8(story.history).failed


def test_ticket_goes_with_the_first_end_of_a_lease_that_lived_twice() -> None:
    """A grant was sent twice, and the second arrived after the lease's end: the ticket went with its first life."""
    story = Story().had("a", 1, 1, 2).stands("a", 1, 1.5, 5, cause="").lease_ended("a", 5.1)
    assert s8(story.history).failed, "it was gone before the lease was seen to end"
    story = Story().had("a", 1, 1, 2).stands("a", 1, 1.5, 5, cause="", since=4.9)
    story.add(5.1, "a", Kind.TRUTH, "lease_ended", lease="lease-a", since=4.9).lease_ended("a", 9)
    assert not s8(story.history).failed


def test_release_beside_the_closing_of_its_client_may_leave_the_ticket_to_it() -> None:
    """Told that it did not remove the ticket, which goes with the lease a moment later: S8 has no quarrel with that."""
    story = Story().had("a", 1, 1, 2).call("a", "close", 3.2, 5.5).released("a", 1, 3, 4, Kind.FAIL)
    assert s8(story.stands("a", 1, 1.5, 5, cause="lease").history).passed
    told_removed = Story().had("a", 1, 1, 2).call("a", "close", 3.2, 5.5).released("a", 1, 3, 4)
    assert s8(told_removed.stands("a", 1, 1.5, 5, cause="lease").history).failed


@pytest.mark.parametrize("check", [check for check, _ in GOOD.values()])
def test_empty_history_is_unknown(check: Checker) -> None:
    """A history without events has shown nothing."""
    verdict = check(History())
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reason


def bad() -> Iterator[tuple[str, str, Checker, Story]]:
    """Histories with one seeded violation each, told in a word."""
    yield "S1", "a look after the successor's ok", s1, two_holds().looked("a", 1, 5.5, True)
    yield "S1", "a renewal begun after it", s1, two_holds().call("a", "renew", 5.5, 6, hold="t1", token=1)
    paused = two_holds().stood_still("a", 3.5, 5.5).looked("a", 1, 5.6, True)
    yield "S1", "the first look after a pause", s1, paused
    yield (
        "S1",
        "a reader after a writer",
        s1,
        Story().had("r", 1, 1, 2, **READ).had("w", 2, 2, 3).looked("r", 1, 4, True),
    )
    yield (
        "S1",
        "a writer after a reader",
        s1,
        Story().had("w", 1, 1, 2).had("r", 2, 2, 3, **READ).looked("w", 1, 4, True),
    )
    older = Story().had("a", 9, 1, 2, incarnation=0).had("b", 3, 2, 3, incarnation=1)
    yield "S1", "an older incarnation's higher token", s1, older.looked("a", 9, 4, True)

    yield "S2", "a hold within a hold", s2, Story().had("a", 1, 1, 2).had("b", 2, 1, 3).released("a", 1, 4, 5)
    yield "S2", "a reader with a writer", s2, Story().had("w", 1, 1, 2).had("r", 2, 1, 3, **READ).released("w", 1, 4, 5)
    yield "S2", "a writer with a reader", s2, Story().had("r", 1, 1, 2, **READ).had("w", 2, 1, 3).released("r", 1, 4, 5)
    other = Story().had("a", 1, 1, 2).had("b", 2, 1, 3).stood_still("b", 2.5, 3.5).released("a", 1, 4, 5)
    yield "S2", "the younger one stood still", s2, other
    told_late = Story().had("a", 1, 1, 2).had("b", 2, 1, 3).told("a", "lost", 3.5, 1)
    yield "S2", "told of the loss too late", s2, told_late

    rested = Story().had("a", 1, 1, 2).stood_still("a", 2.1, 2.5).had("b", 2, 1, 3).released("a", 1, 4, 5)
    yield "S2", "it had stood still before", s2, rested
    still = Story().had("a", 1, 1, 2).machine_stood_still(2.5, 4).had("b", 2, 1, 3).released("a", 1, 4, 5)
    yield "S2", "the machine stood still, and that is no pause", s2, still
    proven = Story().had("a", 1, 1, 2, deadline=2.5).looked("a", 1, 3, True).had("b", 2, 1, 3.5).released("a", 1, 4, 5)
    yield "S2", "a later proof that does not say until when", s2, proven
    anew = Story().died("a", 0.5).had("a", 1, 1, 2).had("b", 2, 1, 3).released("a", 1, 4, 5)
    yield "S2", "an earlier client of the name had died", s2, anew

    yield "S3", "a lower token later", s3, Story().had("a", 7, 1, 2).had("b", 6, 3, 4)
    yield "S3", "the same token twice", s3, Story().had("a", 7, 1, 2).had("b", 7, 1.5, 4, hold="other")
    yield "S3", "not the store's token", s3, Story().had("a", 7, 1, 2).stands("a", 8, 1.5, None, hold="t7")

    elsewhere = Story().stands("c", 9, 1, None).had("a", 1, 1, 2)
    yield "S4", "a ticket the store never had", s4, elsewhere
    yield "S4", "another's ticket", s4, Story().had("a", 1, 1, 2).stands("b", 1, 1.5, 3)
    yield "S4", "another lease", s4, Story().had("a", 1, 1, 2, lease="old").stands("a", 1, 1.5, 3)
    early = Story().stands("b", 1, 0.5, 3).had("a", 2, 1, 2).stands("a", 2, 1.5, 4)
    yield "S4", "before its turn", s4, early
    yield "S4", "removed before it was asked for", s4, Story().stands("a", 1, 0.2, 0.5).had("a", 1, 1, 2)
    full = Story().stands("b", 1, 0.5, None, **seat(2)).had("a", 2, 1, 2, **seat()).stands("a", 2, 1.5, 4, **seat())
    yield "S4", "a seat beyond the limit", s4, full
    behind = Story().stands("w", 1, 0.5, None).had("a", 2, 1, 2, **READ).stands("a", 2, 1.5, 4, **READ)
    yield "S4", "a reader behind a writer", s4, behind

    yield "S5", "an older write after a younger one", s5, fenced().asked("write", 1, 6, True)
    yield "S5", "an older write after a younger read", s5, Story().asked("read", 2, 1, True).asked("write", 1, 2, True)
    yield "S5", "the youngest refused", s5, fenced().asked("write", 2, 6, False)
    yield "S5", "a reader's after a writer's", s5, Story().asked("write", 2, 1, True).asked("read", 1, 2, True, **READ)
    yield "S5", "a writer's after a reader's", s5, Story().asked("read", 2, 1, True, **READ).asked("write", 1, 2, True)
    yield "S5", "a lost update", s5, two_holds().wrote("a", "one", 3, 4).keeps(10, counter=1)
    yield "S5", "an update nobody made", s5, two_holds().wrote("a", "one", 3, 4).keeps(10, "one", "two", counter=1)
    failed = two_holds().wrote("a", "one", 3, 4, Kind.FAIL).keeps(10, "one", counter=0)
    yield "S5", "an update that failed, kept", s5, failed
    yield "S5", "a counter too low", s5, two_holds().wrote("a", "one", 3, 4).keeps(10, "one", counter=0)
    yield "S5", "a counter too high", s5, two_holds().wrote("a", "one", 3, 4).keeps(10, "one", counter=2)

    third = Story().had("a", 1, 1, 2, **seat()).had("b", 2, 1, 3, **seat()).had("c", 3, 1, 4, **seat())
    for client, token in (("a", 1), ("b", 2), ("c", 3)):
        third.released(client, token, 5, 6)
    yield "S6", "a third of two seats", s6, third
    heavy = (
        Story().had("a", 1, 1, 2, **seat()).had("b", 2, 1, 3, **seat(2)).released("a", 1, 5, 6).released("b", 2, 5, 6)
    )
    yield "S6", "too heavy", s6, heavy
    limits = Story().had("a", 1, 1, 2, **seat(2, 2)).had("b", 2, 1, 3, **seat(1, 3))
    yield "S6", "another limit", s6, limits.released("a", 1, 5, 6).released("b", 2, 5, 6)

    leaders = Story().had("a", 1, 1, 2, operation="campaign").had("b", 2, 1, 3, operation="campaign")
    yield "S7", "two leaders", s7, leaders.released("a", 1, 4, 5)
    yield "S7", "a leader after its successor", s7, reign().looked("a", 1, 7, True)
    yield "S7", "elected twice", s7, reign().told("a", "elected", 2.5, 1)
    yield "S7", "demoted before elected", s7, Story().told("a", "demoted", 1)
    yield "S7", "elected after it was stopped", s7, reign().told("b", "elected", 9.5, 2)
    yield "S7", "an observer that goes back", s7, reign().told("o", "observed", 7, 1)
    terms = Story().had("a", 7, 1, 2, operation="campaign").released("a", 7, 3, 4)
    yield "S7", "a term that goes back", s7, terms.had("b", 6, 5, 6, operation="campaign")

    yield "S8", "a live ticket removed", s8, Story().had("a", 1, 1, 2).stands("a", 1, 1.5, 3, cause="")
    early = Story().had("a", 1, 1, 2).stands("a", 1, 1.5, 3, cause="").released("a", 1, 4, 5, Kind.FAIL)
    yield "S8", "a ticket removed before its release", s8, early
    twice = true_holds().released("a", 1, 8, 9)
    yield "S8", "released twice", s8, twice
    yield "S8", "told removed, and stands", s8, Story().had("a", 1, 1, 2).released("a", 1, 3, 4).stands("a", 1, 1.5, 5)
    gone = Story().had("a", 1, 1, 2).released("a", 1, 3, 4, Kind.FAIL).stands("a", 1, 1.5, 5)
    yield "S8", "told gone, and stands", s8, gone
    lease = Story().had("a", 1, 1, 2).released("a", 1, 3, 4).stands("a", 1, 1.5, 3.5, cause="lease")
    yield "S8", "told removed, and the lease did it", s8, lease

    silent = true_holds().waited("c", 10, 11).stands("c", 3, 10.5, 17.5)
    yield "S9", "a ticket that nobody holds", s9, silent
    yield (
        "S9",
        "one that is there at the end",
        s9,
        true_holds().waited("c", 10, 11, Kind.INFO).stands("c", 3, 10.5, None),
    )
    closed = true_holds().call("b", "close", 8, 8.5).stands("b", 3, 7.5, 10)
    yield "S9", "a ticket of a closed client", s9, closed
    left = true_holds().call("b", "close", 5, 5.5).add(5, "b", Kind.TRUTH, "lease_granted", lease="lease-b")
    yield "S9", "a lease of a closed client", s9, left

    yield "S11", "belief in an ended lease", s11, Story().had("a", 1, 1, 2).lease_ended("a", 3).looked("a", 1, 4, True)


@pytest.mark.parametrize(("name", "check", "story"), [pytest.param(n, c, s, id=f"{n}-{k}") for n, k, c, s in bad()])
def test_bad_history_fails(name: str, check: Checker, story: Story) -> None:
    """Every checker can fail: on each kind of violation that it is there for."""
    verdict = check(story.history)
    assert verdict.outcome is Outcome.FAILED, verdict
    assert verdict.name == name
    assert verdict.counts["violations"] == len(verdict.violations) >= 1
    for violation in verdict.violations:
        assert violation.sentence
        assert all(event in story.events for event in violation.events)


def fine() -> Iterator[tuple[str, Checker, Story]]:
    """Near misses: looks like a violation, and is none."""
    yield "a look that began before the successor's ok", s1, two_holds().looked("a", 1, 4.9, True)
    yield "a look that said no", s1, two_holds().looked("a", 1, 6, False)
    yield (
        "readers beside each other",
        s1,
        Story().had("a", 1, 1, 2, **READ).had("b", 2, 2, 3, **READ).looked("a", 1, 4, True),
    )
    yield "another line", s1, two_holds().had("c", 9, 1, 2, resource="y").looked("a", 1, 3, True)
    yield "seats beside each other", s2, Story().had("a", 1, 1, 2, **seat()).had("b", 2, 2, 3, **seat())
    ran_out = Story().had("a", 1, 1, 2, deadline=3.0).had("b", 2, 1, 4).looked("a", 1, 5, False)
    yield "a proof that had run out", s2, ran_out
    yield "told of the loss in time", s2, Story().had("a", 1, 1, 2).had("b", 2, 1, 3).told("a", "lost", 2.5, 1)
    yield "dead before", s2, Story().had("a", 1, 1, 2).had("b", 2, 1, 3).died("a", 2.5)
    silent = Story().had("a", 1, 1, 2).stands("a", 1, 1.5, 6).had("b", 2, 1, 4)
    yield "nothing more was heard of its holder", s2, silent
    yield "overlapping acquires in either order", s3, Story().had("a", 2, 1, 4).had("b", 1, 1, 5)
    yield "a new incarnation's lower token", s3, Story().had("a", 9, 1, 2).had("b", 3, 3, 4, incarnation=1)
    afar = Story().had("b", 2, 1, 2.4)
    afar.add(2.5, "b", Kind.TRUTH, "created", hold="t2", token=2, since=0.0)
    yield "truth seen late", s4, afar
    jumbled = Story().had("a", 1, 1, 2).released("a", 1, 3, 3.1).had("b", 2, 1, 4)
    for revision, at, client, operation in ((3, 8, "b", "created"), (1, 9, "a", "created"), (2, 9, "a", "removed")):
        token = 1 if client == "a" else 2
        facts = {"hold": f"t{token}", "token": token, "since": 0.0, "revision": revision}
        jumbled.add(at, client, Kind.TRUTH, operation, **facts)
    yield "truth seen in another order than the store's", s4, jumbled
    yield "seats in any order", s5, Story().asked("write", 2, 1, True, **seat()).asked("write", 1, 2, True, **seat())
    admin = Story().had("a", 1, 1, 2).stands("a", 1, 1.5, 3, cause="admin")
    yield "removed by an administrator", s8, admin
    yield "removed with its lease", s8, Story().had("a", 1, 1, 2).stands("a", 1, 1.5, 3, cause="").lease_ended("a", 2.9)
    yield "removed after its client died", s8, Story().had("a", 1, 1, 2).died("a", 2.5).stands("a", 1, 1.5, 3, cause="")
    lost = Story().had("a", 1, 1, 2).looked("a", 1, 2.5, False).released("a", 1, 3, 4, Kind.FAIL)
    yield "a lost one's release, that asks nobody", s8, lost.stands("a", 1, 1.5, 5, cause="lease")
    yield "a waiter that is still at it", s9, true_holds().waited("c", 10).stands("c", 3, 10.5, None)
    others = true_holds().waited("c", 10, 19).waited("c", 10.2, 11).stands("c", 3, 10.5, 17.5)
    yield "another attempt of its client went on", s9, others
    broken = true_holds().between(11, 14).waited("c", 10, 11).stands("c", 3, 10.5, 17.5)
    yield "an orphan while the store was away", s9, broken
    revoked = Story().had("a", 1, 1, 2).lease_ended("a", 3, cause="admin").looked("a", 1, 4, True)
    yield "a lease an administrator ended", s11, revoked.had("b", 2, 5, 6).lease_ended("b", 9)
    moment = (
        Story().had("a", 1, 1, 2, deadline=4.03).released("a", 1, 4, 4, Kind.FAIL).stands("a", 1, 1.5, 9, cause="lease")
    )
    yield "a release in the moment in which its proof ends, by its holder's clock before", s8, moment
    for name, check in (("S1", s1), ("S2", s2), ("S6", s6), ("S7", s7), ("S10", s10)):
        for taken, told in (("ticket", _ticket_taken), ("lease", _lease_taken)):
            yield f"{name}: believed in after others took its {taken}", check, told(_two_believers(check is s6), 2.9)


def _two_believers(seated: bool = False) -> Story:
    """a has it from 2 on, and believes until 5; b has it from 3 on."""
    facts: dict[str, Any] = {"operation": "campaign"} if not seated else seat(2)
    story = Story().had("a", 1, 1, 2, **facts).looked("a", 1, 2.5, True).had("b", 2, 2.6, 3, **facts)
    return story.looked("a", 1, 4, True).looked("b", 2, 4.5, True).looked("a", 1, 5, False).released("b", 2, 6, 7)


def _ticket_taken(story: Story, at: float) -> Story:
    return story.add(at, "a", Kind.TRUTH, "removed", hold="t1", token=1, cause="admin")


def _lease_taken(story: Story, at: float) -> Story:
    return story.lease_ended("a", at, "early")


@pytest.mark.parametrize(("check", "story"), [pytest.param(c, s, id=k) for k, c, s in fine()])
def test_near_miss_passes(check: Checker, story: Story) -> None:
    """A history that only looks wrong is not reported."""
    verdict = check(story.history)
    assert verdict.outcome is Outcome.PASSED, verdict.violations


@pytest.mark.parametrize("check", [s1, s2, s6, s7, s10])
def test_who_was_deposed_by_others_is_judged_until_then_and_counted(check: Checker) -> None:
    """S1, S2, S6, S7, S10: it had excluded others until that moment; and whose word it was is told."""
    seated = check is s6
    assert check(_two_believers(seated).history).failed
    assert check(_ticket_taken(_two_believers(seated), 4.2).history).failed, "the other one had it before that"
    assert check(_lease_taken(_two_believers(seated), 4.2).history).failed
    assert s2(_ticket_taken(_two_believers(seated), 2.9).history).counts["deposed by others"] == 1


def test_overlap_that_began_in_a_pause_is_counted_apart() -> None:
    """S2: who stood still could not tell. S1 still wants its first look to say no."""
    story = Story().had("a", 1, 1, 2).stood_still("a", 2.5, 4).had("b", 2, 1, 3).looked("a", 1, 4.1, False)
    verdict = s2(story.history)
    assert verdict.passed
    assert verdict.counts["pause overlaps"] == 1


def test_seats_of_who_stood_still_are_counted_apart() -> None:
    """S6: the same for seats."""
    story = Story().had("a", 1, 1, 2, **seat(2)).stood_still("a", 2.5, 4).had("b", 2, 1, 3, **seat())
    verdict = s6(story.looked("a", 1, 4.1, False).history)
    assert verdict.passed
    assert verdict.counts["pause overlaps"] == 1


def test_seats_that_were_given_up_are_free() -> None:
    """S6: nothing is over the limit, not even for a moment, so nothing has to be excused."""
    assert s6(seats().history).counts == {"holds": 3, "pause overlaps": 0, "violations": 0}


def test_observer_that_goes_back_is_told_of_every_step() -> None:
    """S7: what counts is the youngest leader seen, not the last."""
    story = Story()
    for at, token in enumerate((3, 1, 2, 4), 1):
        story.told("o", "observed", at, token)
    assert s7(story.history).counts["violations"] == 2


def test_two_events_of_one_virtual_moment_are_in_the_order_they_were_recorded() -> None:
    """Virtual time does not pass by itself: the order of the record is what happened."""
    before = Story().had("a", 1, 1, 1)
    before.add(1, "a", Kind.CHECK, since=1.0, held=True, hold="t1", token=1)
    assert s1(before.had("b", 2, 1, 1).history).passed
    after = Story().had("a", 1, 1, 1).had("b", 2, 1, 1)
    after.add(1, "a", Kind.CHECK, since=1.0, held=True, hold="t1", token=1)
    assert s1(after.history).failed
    assert s3(Story().had("a", 7, 1, 1).had("b", 6, 1, 1).history).failed


def test_many_violations_are_counted_and_some_kept() -> None:
    """A history that is wrong all over does not fill the memory."""
    story = two_holds()
    for number in range(3 * VIOLATIONS_MAX):
        story.looked("a", 1, 10 + number, True)
    verdict = s1(story.history)
    assert verdict.counts["violations"] == 3 * VIOLATIONS_MAX
    assert len(verdict.violations) == VIOLATIONS_MAX


def test_modes_are_told_from_the_hold_that_was_had() -> None:
    """A reader's ticket at the store is a reader's hold."""
    story = Story().stands("r", 1, 0.5, None, **READ).had("r", 1, 0.4, 1, **READ).had("q", 2, 0.6, 1, **READ)
    assert s4(story.stands("q", 2, 0.7, None, **READ).history).passed
    assert {event.mode for event in story.events} == {Mode.READ}


def test_report_names_what_was_asked_for_and_could_not_be_judged() -> None:
    """Named and without material: unknown, and so is the whole. Not named: left out, and said to be."""
    assert check_history(two_holds().history, ["S1", "S2", "S3"]).outcome is Outcome.PASSED
    asked = check_history(two_holds().history, ["S1", "S4"])
    assert asked["S4"].outcome is Outcome.UNKNOWN
    assert asked.outcome is Outcome.UNKNOWN
    default = check_history(two_holds().history)
    assert default.outcome is Outcome.PASSED
    assert "S4" in default.left_out
    assert check_history(two_holds().looked("a", 1, 6, True).history).outcome is Outcome.FAILED
    with pytest.raises(KeyError):
        default["S4"]
    with pytest.raises(ValueError, match="no property is called 'S99'"):
        check_history(History(), ["S99"])


def test_report_of_nothing_is_unknown() -> None:
    """A report without verdicts is no pass."""
    assert check_history(History(), []).outcome is Outcome.UNKNOWN
    assert check_history(History()).outcome is Outcome.UNKNOWN


def test_report_is_a_table_with_the_first_violations() -> None:
    """The report for people has a row per property, then what went wrong and the events it rests on."""
    told = str(check_history(two_holds().looked("a", 1, 5.5, True).history, ["S1", "S2"]))
    assert "S1   failed   no belief after a successor's" in told
    assert "a believed in 'x' at 5.500000 with token 1, 0.500000 s after b had it with token 2" in told
    assert "5.501000 a check x token 1 hold t1 held=True" in told
    assert told.endswith("failed")
