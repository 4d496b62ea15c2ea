"""Histories of a perfect line pass; each kind of change to one is found. And two checkers against plain versions."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tenure.testing import Event, History, Kind, check_history
from tenure.testing.history.check_linearizability import s10
from tenure.testing.history.check_promises import s1, s2, s3, s6
from tenure.testing.history.check_truth import s4, s8, s9
from tenure.testing.history.intervals import BeliefInterval, beliefs
from tests.testing.model import brute_s1, brute_s3, changed, lawful, replaced

KINDS = ("lock", "semaphore", "rwlock")
anything = st.sampled_from(KINDS).flatmap(lawful)
locks = lawful("lock")
relaxed = settings(
    max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None
)


def followed(history: History) -> tuple[BeliefInterval, BeliefInterval]:
    """A hold that was given up, and one that was had after it and asked for before."""
    known = beliefs(history)
    for old, new in itertools.pairwise(known):
        if old.ended_by is not None and old.ended_by.operation == "release" and old.excludes(new):
            return old, new
    assume(False)
    raise AssertionError("not reached")


@relaxed
@given(anything)
def test_history_of_a_perfect_line_passes(history: History) -> None:
    """A perfect line's history raises no false alarm of any checker that can judge it."""
    report = check_history(history, ["S1", "S2", "S3", "S4", "S9", "S10"])
    assert not any(verdict.failed for verdict in report.verdicts), str(report)
    assert not s6(history).failed
    assert not s8(history).failed


@relaxed
@given(st.sampled_from(("lock", "rwlock")).flatmap(lawful))
def test_belief_beyond_a_successor_is_found(history: History) -> None:
    """Extend a belief: one more look, after the next one had it."""
    old, new = followed(history)
    late = Event(new.ok.at, old.ok.client, Kind.CHECK, resource="x", hold=old.ok.hold, token=old.ok.token, held=True)
    assert s1(replaced(history, new.ok, new.ok, late)).failed


@relaxed
@given(locks)
def test_release_later_than_the_successor_is_found(history: History) -> None:
    """Drop a release: the holder goes on looking, and the next one has it."""
    old, new = followed(history)
    kept = [e for e in history if not (e.hold == old.ok.hold and e.operation in ("release", "removed"))]
    look = Event(
        new.ok.at + 0.5, old.ok.client, Kind.CHECK, resource="x", hold=old.ok.hold, token=old.ok.token, held=True
    )
    mutant = History([*kept, look])
    assert s2(mutant).failed
    assert s4(mutant).failed
    assert s10(mutant).failed


@relaxed
@given(locks)
def test_tokens_swapped_are_found(history: History) -> None:
    """Two holds, one after the other, with each other's tokens."""
    known = beliefs(history)
    pairs = [(a, b) for a, b in itertools.pairwise(known) if a.start < b.asked]
    assume(pairs)
    one, other = pairs[0]
    swapped = replaced(history, one.ok, changed(one.ok, token=other.ok.token))
    swapped = replaced(swapped, other.ok, changed(other.ok, token=one.ok.token))
    assert s3(swapped).failed
    assert s10(swapped).failed


@relaxed
@given(anything)
def test_token_handed_out_twice_is_found(history: History) -> None:
    """The second hold says the first one's token."""
    known = beliefs(history)
    assume(len(known) > 1)
    assert s3(replaced(history, known[1].ok, changed(known[1].ok, token=known[0].ok.token))).failed


@relaxed
@given(anything)
def test_ticket_that_was_never_made_is_found(history: History) -> None:
    """Take the store's word on one hold away."""
    known = beliefs(history)
    assume(len(known) > 1)
    hold = known[0].ok.hold
    assert s4(History(e for e in history if not (e.kind is Kind.TRUTH and e.hold == hold))).failed


@relaxed
@given(anything)
def test_hold_before_its_turn_is_found(history: History) -> None:
    """A client that had to wait says it has it at once."""
    for belief in beliefs(history):
        created = next(e for e in history if e.kind is Kind.TRUTH and e.hold == belief.ok.hold)
        if created.at < belief.ok.at:
            mutant = History([e for e in history if e is not belief.ok] + [changed(belief.ok, at=created.at)])
            assert s4(mutant).failed
            return
    assume(False)


@relaxed
@given(lawful("semaphore"))
def test_seat_too_many_is_found(history: History) -> None:
    """A seat grows beyond what is free."""
    known = beliefs(history)
    assume(known)
    assert s6(replaced(history, known[-1].ok, changed(known[-1].ok, weight=3))).failed


@relaxed
@given(anything)
def test_ticket_removed_by_somebody_is_found(history: History) -> None:
    """A ticket is removed though its holder never asked for that."""
    released = [b for b in beliefs(history) if b.ended_by is not None and b.ended_by.operation == "release"]
    assume(released)
    hold = released[0].ok.hold
    assert s8(History(e for e in history if not (e.operation == "release" and e.hold == hold))).failed


@relaxed
@given(anything)
def test_hold_that_nobody_was_told_of_is_found(history: History) -> None:
    """An acquire ended badly, and its ticket stayed for longer than a lease may."""
    known = beliefs(history)
    assume(known)
    last = known[-1].ok
    told = [e for e in history if e.hold != last.hold or e.kind is Kind.TRUTH]
    told = [e for e in told if e.operation != "removed" or e.hold != last.hold]
    failed = changed(last, kind=Kind.INFO, hold="", token=None)
    end = Event(last.at + 100.0, "o", Kind.TOLD, "observed")
    assert s9(History([*told, failed, end])).failed


def scramble(history: History, seed: int) -> History:
    """Stamps and tokens out of order, here and there."""
    dice = random.Random(seed)
    events = []
    for event in history:
        if event.acquired and dice.random() < 0.3:
            event = changed(event, token=dice.randint(1, 30))
        if event.kind is Kind.CHECK and dice.random() < 0.5:
            at = event.at + dice.choice((0.0, 3.0, 9.0))
            event = changed(event, at=at, since=at - dice.choice((0.0, 1.0)))
        events.append(event)
    return History(events)


@relaxed
@given(anything, st.integers(0, 2**32))
def test_s1_finds_what_a_plain_version_finds(history: History, seed: int) -> None:
    """The sweep against two nested loops."""
    history = scramble(history, seed)
    found = s1(history)
    assert [(v.events[-1], v.events[0].hold) for v in found.violations] == list(brute_s1(history))


@relaxed
@given(anything, st.integers(0, 2**32))
def test_s3_finds_what_a_plain_version_finds(history: History, seed: int) -> None:
    """The heap against two nested loops, apart from tokens that are out twice or not the store's."""
    history = scramble(history, seed).where(lambda event: event.kind is not Kind.TRUTH)
    found = [v for v in s3(history).violations if "asked for" in v.sentence]
    assert sorted(v.events[-1].hold for v in found) == sorted(brute_s3(history))


def busy(events: int) -> History:
    """A correct history of about so many events, on forty lines."""
    return History(event for number in range(events // 9) for event in handed_over(number))


def handed_over(number: int) -> Iterator[Event]:
    """A hold from its acquire to its release: three looks at it, and the store's word."""
    at, client = number * 0.01, f"c{number % 10}"
    hold: dict[str, Any] = {"hold": f"t{number}", "token": number, "lease": client, "ttl": 5.0}

    def event(after: float, kind: Kind, operation: str = "", **facts: Any) -> Event:
        return Event(at + after, client, kind, operation, f"x{number % 40}", **facts)

    yield event(0.000, Kind.INVOKE, "acquire", call=2 * number, timeout=5.0)
    yield event(0.001, Kind.TRUTH, "created", **hold)
    yield event(0.002, Kind.OK, "acquire", call=2 * number, **hold, deadline=at + 5)
    for after in (0.003, 0.004, 0.005):
        yield event(after, Kind.CHECK, since=at + after, held=True, **hold, deadline=at + 5)
    yield event(0.006, Kind.INVOKE, "release", call=2 * number + 1, **hold)
    yield event(0.007, Kind.TRUTH, "removed", **hold, cause="left")
    yield event(0.008, Kind.OK, "release", call=2 * number + 1, **hold)


def test_checking_grows_with_the_history_and_no_faster() -> None:
    """Near-linear: eight times the events take far less than sixty-four times as long."""
    names = ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S11", "L1", "L2", "L3", "L4", "L5", "L6"]

    def seconds(events: int) -> float:
        history = busy(events)
        began = time.thread_time()
        assert not any(verdict.failed for verdict in check_history(history, names).verdicts)
        return time.thread_time() - began

    # the best of each: what else runs on the machine makes any single one longer, and none shorter
    assert min(seconds(16_000) for _ in range(5)) < 32 * min(seconds(2_000) for _ in range(5))
