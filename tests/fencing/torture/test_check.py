"""The judges of the torture are judged: each one fails on a bad history that was made for it, and passes a good one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .check import (
    Attempt,
    Contents,
    Deed,
    Entry,
    accepted_after_a_younger_read,
    attempts_of,
    based_on_old_reads,
    counter_off,
    elements_off,
    figures,
    tokens_back,
    too_little,
    violations,
)
from .events import Event, What

GOOD = Contents(2, frozenset({"a-1", "b-1"}), (Entry(1, 10, "a-1"), Entry(2, 20, "b-1")))


def history(*steps: tuple[str, What, dict[str, Any]]) -> list[Event]:
    """A history of one event after the other."""
    return [Event(at_ns, worker, what, **more) for at_ns, (worker, what, more) in enumerate(steps)]


def turn(worker: str, token: int, end: What = What.OK, told: str = "") -> list[tuple[str, What, dict[str, Any]]]:
    """A whole turn of `worker`, with one attempt."""
    element = {"token": token, "element": f"{worker}-1"}
    return [
        (worker, What.GRANTED, {"token": token}),
        (worker, What.READ, {"token": token}),
        (worker, What.SENT, element),
        (worker, end, element | {"told": told}),
    ]


TWO_TURNS = history(*turn("a", 10), *turn("b", 20))
STALE = history(*turn("a", 10), *turn("b", 20), *turn("c", 15, What.FAIL, "StaleToken"))


def attempts(*ends: What) -> dict[str, Attempt]:
    return {f"{n}": Attempt(f"{n}", n, n, end) for n, end in enumerate(ends, 1)}


def test_good_history_has_no_violation() -> None:
    """Two turns, and a third that was refused."""
    assert violations(TWO_TURNS, GOOD) == []
    assert violations(STALE, GOOD) == []


def test_attempt_of_a_killed_worker_is_unknown() -> None:
    """An attempt that was sent and whose end was not written down: there or not, both are right."""
    killed = history(*turn("a", 10), *turn("b", 20)[:-1])
    assert attempts_of(killed)["b-1"].end is What.INFO
    assert violations(killed, GOOD) == []
    assert violations(killed, Contents(1, frozenset({"a-1"}), GOOD.journal[:1])) == []


def test_lost_increment_is_found() -> None:
    """The counter is below what succeeded."""
    assert list(counter_off(attempts(What.OK, What.OK).values(), replace(GOOD, count=1)))


def test_increment_from_nowhere_is_found() -> None:
    """The counter is above all that was tried."""
    assert list(counter_off(attempts(What.OK, What.INFO, What.FAIL).values(), replace(GOOD, count=3)))
    assert not list(counter_off(attempts(What.OK, What.INFO, What.FAIL).values(), GOOD))


def test_lost_element_is_found() -> None:
    """An element that was added is in the journal but not in the set; and the other way round."""
    told = attempts_of(TWO_TURNS)
    assert not list(elements_off(told, GOOD))
    assert "added, and not in the set: b-1" in next(elements_off(told, replace(GOOD, elements=frozenset({"a-1"}))))
    assert "added, and not in the journal: b-1" in next(elements_off(told, replace(GOOD, journal=GOOD.journal[:1])))


def test_element_that_nobody_tried_is_found() -> None:
    """An element is in the set, and no worker ever sent it."""
    assert "never tried: z-9" in next(
        elements_off(attempts_of(TWO_TURNS), replace(GOOD, elements=GOOD.elements | {"z-9"}))
    )


def test_element_whose_writer_was_told_that_it_failed_is_found() -> None:
    """A refusal says that nothing was written."""
    refused = history(*turn("a", 10), *turn("b", 20, What.FAIL, "StaleToken"))
    assert "told that it failed: b-1" in next(elements_off(attempts_of(refused), GOOD))


def test_token_that_went_back_is_found() -> None:
    """A younger write was accepted first."""
    assert not list(tokens_back(GOOD.journal))
    assert not list(tokens_back((Entry(1, 10, "a"), Entry(2, 10, "b"))))
    assert list(tokens_back((Entry(1, 20, "a"), Entry(2, 10, "b"))))


def test_increment_on_an_old_read_is_found() -> None:
    """Two accepted writes made the same number of it; or the counter is not what the journal counted."""
    assert not list(based_on_old_reads(GOOD))
    assert list(based_on_old_reads(replace(GOOD, journal=(Entry(1, 10, "a-1"), Entry(1, 20, "b-1")))))
    assert list(based_on_old_reads(replace(GOOD, count=1)))


def test_write_accepted_after_a_younger_read_is_found() -> None:
    """The tokens in the journal are in order, and still the older one came after the younger one's read."""
    late = history(("b", What.READ, {"token": 20}), *turn("a", 10)[2:], *turn("b", 20)[2:])
    assert "a-1" in next(accepted_after_a_younger_read(late, attempts_of(late), GOOD.journal))
    assert not list(tokens_back(GOOD.journal))
    assert not list(accepted_after_a_younger_read(TWO_TURNS, attempts_of(TWO_TURNS), GOOD.journal))


def test_every_judge_is_heard() -> None:
    """`violations` asks all of them."""
    bad = Contents(7, frozenset({"z-9"}), (Entry(5, 20, "b-1"), Entry(6, 10, "a-1")))
    late = history(("b", What.READ, {"token": 20}), *turn("a", 10), *turn("b", 20)[2:])
    told = "\n".join(violations(late, bad))
    for words in ("the counter stands at 7", "not in the set", "never tried", "was accepted after", "older read"):
        assert words in told
    assert "had read before it was sent" in told


def test_run_in_which_not_enough_happened_is_told() -> None:
    """Without enough grants, hand-overs, refusals and stops nothing was shown."""
    seen = figures(STALE, GOOD, [Deed.STOP])
    assert (seen.grants, seen.handovers, seen.ok, seen.refused_writes, seen.stops, seen.lost) == (3, 1, 2, 1, 1, 0)
    assert len(too_little(seen)) == 4
    enough = replace(seen, grants=99, handovers=99, refused_writes=3, stops=2)
    assert too_little(enough) == []
    assert too_little(replace(enough, refused_writes=0, window_hits=3)) == []
    for name in ("grants", "handovers", "refused_writes", "stops"):
        assert too_little(replace(enough, **{name: 1}))


def test_hit_window_and_lost_updates_are_counted() -> None:
    """A stop counts as a hit where a younger holder had got somewhere before its end."""
    stop = [("a", What.STOPPING, {"token": 10}), ("a", What.RESUMED, {"token": 10})]
    hit = history(*turn("a", 10)[:2], stop[0], *turn("b", 20), stop[1], *turn("a", 10)[2:])
    missed = history(*turn("a", 10)[:2], *stop, *turn("a", 10)[2:], *turn("b", 20))
    assert (figures(hit, GOOD, []).window_hits, figures(missed, GOOD, []).window_hits) == (1, 0)
    assert figures(hit, replace(GOOD, count=1), []).lost_percent == 50.0
