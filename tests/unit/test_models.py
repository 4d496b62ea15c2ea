"""What an operator is shown of a line, and how records and entries are kept: pure functions."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest

from tenure import Ending, JournalEntry, Kind, LineMismatch
from tenure._admin.models import (
    AuditRecord,
    Explanation,
    admitted,
    kind_of,
    line_info,
    read_audit,
    read_entry,
    stored_audit,
    stored_entry,
)
from tenure._admin.protocol import RecordKind, StoredRecord, TimeLeft, batches, name_of, record_name, segment_prefix
from tenure._core.lease import Line, Mode, Ticket
from tenure._core.recipes.lock import LOCK_RULE
from tenure._core.recipes.rwlock import READ_RULE
from tenure._core.recipes.semaphore import FEW_SEATS_RULE
from tenure._core.turn import Rule

RULES: dict[Mode, Rule] = {Mode.EXCLUSIVE: LOCK_RULE, Mode.READ: READ_RULE, Mode.SEAT: FEW_SEATS_RULE}
RECORD = AuditRecord("a/ü", 2**60, None, "why", "me", 12.5, was_holding=True, ticket_id="x", nonce="n")
ENTRY = JournalEntry("a", Kind.LOCK, "me", 2**60, "v", 12.5, 0.25, 3.0, Ending.EXPIRED, "lost", ticket_id="0" * 20)


def line(*shapes: tuple[Mode, int, int]) -> Line:
    tickets = (
        Ticket("a", f"t{n}", f"k{n}", n + 1, mode, weight, limit, owner="me")
        for n, (mode, weight, limit) in enumerate(shapes)
    )
    return Line("a", tuple(tickets), 0)


def admitted_by_the_rules(whole: Line) -> int:
    """How many from the front on may hold, each asked by its own recipe's rule."""
    for count, ticket in enumerate(whole.tickets):
        try:
            blocked = RULES[ticket.mode].blockers(Line("a", whole.tickets[: count + 1], 0), ticket)
        except LineMismatch:
            return count
        if blocked:
            return count
    return len(whole.tickets)


def test_who_holds_is_what_the_recipes_rules_say_on_every_small_line() -> None:
    """An operator sees those as holders whose turn has come: all lines of up to four tickets of eight shapes."""
    seats = [(Mode.SEAT, weight, limit) for limit in (2, 3) for weight in (1, 2, 3) if weight <= limit]
    shapes = [(Mode.EXCLUSIVE, 1, 1), (Mode.READ, 1, 1), *seats]
    lines = [line(*some) for size in range(5) for some in itertools.product(shapes, repeat=size)]
    assert len(lines) > 2000
    for whole in lines:
        assert admitted(whole) == admitted_by_the_rules(whole), whole


@pytest.mark.parametrize(
    ("shapes", "kind"),
    [
        ((), None),
        (((Mode.EXCLUSIVE, 1, 1),), Kind.LOCK),
        (((Mode.EXCLUSIVE, 1, 1), (Mode.READ, 1, 1)), Kind.RWLOCK),
        (((Mode.SEAT, 1, 3),), Kind.SEMAPHORE),
    ],
)
def test_kind_of_a_line_is_what_its_tickets_tell(shapes: tuple[tuple[Mode, int, int], ...], kind: Kind | None) -> None:
    assert kind_of(line(*shapes).tickets) is kind


def test_foreign_value_makes_no_election() -> None:
    """A stranger's ticket shows whatever stands in it: that tells nothing of its kind."""
    (ticket,) = line((Mode.EXCLUSIVE, 1, 1)).tickets
    assert kind_of((ticket._replace(value="x"),)) is Kind.ELECTION
    assert kind_of((ticket._replace(value="x", owner=None),)) is Kind.LOCK


def test_ages_are_never_negative_and_times_left_are_the_leases() -> None:
    """Wall clocks differ from machine to machine."""
    (ticket,) = line((Mode.EXCLUSIVE, 1, 1)).tickets
    ticket = ticket._replace(created_at=100.0, lease_id="l")
    (info,) = line_info(Line("a", (ticket,), 0), 90.0, {"l": TimeLeft(15.0, 7.0)}).tickets
    assert (info.age, info.ttl, info.left, info.orphaned) == (0.0, 15.0, 7.0, False)


@pytest.mark.parametrize("at", [math.nan, math.inf, -math.inf, 1e300, -1e300, 1e12])
def test_explanation_of_a_ticket_whose_time_is_nonsense(at: float) -> None:
    """What its owner wrote down is no reason to explain nothing."""
    (ticket,) = line((Mode.EXCLUSIVE, 1, 1)).tickets
    shown = line_info(Line("a", (ticket._replace(created_at=at),), 0), 90.0)
    told = Explanation(shown, dataclasses.replace(ENTRY, acquired_at=at), dataclasses.replace(RECORD, at=at))
    assert str(told).startswith("'a' is held by me (token 1), in line since ")
    assert str(told) == "\n".join(told.sentences)


def test_record_and_entry_are_read_as_they_were_written() -> None:
    """Tokens beyond 2^53 too, and no field is lost."""
    assert read_audit(stored_audit(RECORD)) == RECORD
    assert read_entry(stored_entry(ENTRY)) == ENTRY
    standing = dataclasses.replace(ENTRY, held=None, ended=None, reason="")
    assert read_entry(stored_entry(standing)) == standing


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"v":2}', '{"v":1}', "[" * 5000, stored_audit(RECORD).text.replace('"me"', "7")],
)
def test_note_that_somebody_else_wrote_is_passed_over(text: str) -> None:
    """An operator's listing does not fail of one bad note."""
    assert read_audit(StoredRecord(RecordKind.AUDIT, RECORD.resource, "n", text)) is None
    assert read_entry(StoredRecord(RecordKind.JOURNAL, RECORD.resource, "n", text)) is None


def test_note_about_another_line_than_it_lies_at_is_passed_over() -> None:
    assert read_audit(dataclasses.replace(stored_audit(RECORD), resource="b")) is None


def test_names_of_notes_sort_as_tokens_do_and_fit_into_any_key() -> None:
    """Also of a stranger's ticket, whose id may be anything."""
    names = [record_name(token, "0" * 20) for token in (1, 9, 10, 2**62)]
    assert names == sorted(names)
    assert record_name(1, "a/b\n\udc80" * 100) == record_name(1, "a/b\n\udc80" * 100)
    assert len(record_name(1, "a/b" * 100)) == len(names[0])


@pytest.mark.parametrize("shelf", RecordKind)
def test_no_name_is_written_as_a_shelf(shelf: RecordKind) -> None:
    """Notes stand where no line can."""
    assert name_of(shelf.value) is None
    assert not segment_prefix(shelf.value).startswith(shelf.value)


@pytest.mark.parametrize("segment", ["%zz", "%41", "a%2f", "%FF", "ü", "", "."])
def test_segment_that_no_name_is_written_as_is_no_line(segment: str) -> None:
    assert name_of(segment) is None


def test_batches_are_of_the_size_and_complete() -> None:
    assert [list(some) for some in batches(range(5), 2)] == [[0, 1], [2, 3], [4]]
