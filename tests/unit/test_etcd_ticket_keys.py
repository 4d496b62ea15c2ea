"""Keys of tickets: few keys for many tickets, and never one key for two."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tenure._backends.etcd.ticket_keys import TicketKeys
from tenure._core.lease import Entry

LEASE = 0xABC


@pytest.fixture
def ticket_keys() -> TicketKeys:
    return TicketKeys("n")


def test_key_is_used_again_once_its_ticket_is_gone(ticket_keys: TicketKeys) -> None:
    """A line that is held by one after the other has one key."""
    keys = set()
    for _ in range(100):
        entry = Entry("a", "me")
        keys.add(ticket_keys.take(entry, LEASE))
        ticket_keys.free(entry.id)
    assert keys == {b"n/a/abc-0-0"}


def test_entry_keeps_its_key(ticket_keys: TicketKeys) -> None:
    """A second try is for the same key."""
    entry = Entry("a", "me")
    assert ticket_keys.take(entry, LEASE) == ticket_keys.take(entry, LEASE) == ticket_keys.key(entry.id)


def test_key_in_doubt_is_never_used_again(ticket_keys: TicketKeys) -> None:
    """A put that comes late must not be somebody else's: nor stands it for anybody."""
    doubted, given_up = Entry("a", "me"), Entry("a", "me")
    first, second = ticket_keys.take(doubted, LEASE), ticket_keys.take(given_up, LEASE)
    ticket_keys.doubt(doubted.id)
    ticket_keys.free(doubted.id)
    ticket_keys.give_up(given_up.id)
    assert ticket_keys.key(given_up.id) == second  # it has to be removed still
    ticket_keys.forget(given_up.id)
    assert ticket_keys.abolish(first)
    assert ticket_keys.abolish(second)
    entries = [Entry("a", "me") for _ in range(50)]
    taken = {ticket_keys.take(entry, LEASE) for entry in entries}
    assert len(taken) == 50
    assert not taken & {first, second}


def test_keys_in_doubt_are_not_remembered_one_by_one(ticket_keys: TicketKeys) -> None:
    """A store that refuses for hours, or answers too late each time, costs no memory by the try."""
    keys = set()
    for number in range(2000):
        entry = Entry(f"line-{number % 7}", "me")
        keys.add(ticket_keys.take(entry, LEASE))
        ticket_keys.doubt(entry.id)
        ticket_keys.give_up(entry.id)
        ticket_keys.forget(entry.id)
    assert len(keys) == 2000
    assert {name: len(kept) for name, kept in vars(ticket_keys).items() if isinstance(kept, (dict, set))} == {
        "_taken": 0,
        "_keys": 0,
        "_doubted": 0,
    }


def test_key_is_abolished_only_where_no_ticket_may_stand_and_then_for_good(ticket_keys: TicketKeys) -> None:
    """What is about to be deleted is nobody's, and nobody's it stays."""
    first, second = Entry("a", "me"), Entry("a", "me")
    key = ticket_keys.take(first, LEASE)
    assert ticket_keys.abolish(key) is False
    ticket_keys.free(first.id)
    assert ticket_keys.abolish(key) is True
    assert ticket_keys.take(second, LEASE) != key


class Between(dict[bytes, str]):
    """Something else happens once, just before a key is taken or just after."""

    def __init__(self, happens: Callable[[bytes], object], *, after: bool) -> None:
        super().__init__()
        self._happens: Callable[[bytes], object] | None = happens
        self._after = after

    def setdefault(self, key: bytes, default: str = "") -> str:
        happens, self._happens = self._happens, None
        if happens is not None and not self._after:
            happens(key)
        taken = super().setdefault(key, default)
        if happens is not None and self._after:
            happens(key)
        return taken


@pytest.mark.parametrize("after", [False, True])
def test_no_key_is_taken_that_is_abolished_just_then(ticket_keys: TicketKeys, after: bool) -> None:
    """Either the audit sees that it is taken, or whoever takes it sees that it is not to be."""
    abolished: dict[bytes, bool] = {}
    ticket_keys._taken = Between(lambda key: abolished.update({key: ticket_keys.abolish(key)}), after=after)
    key = ticket_keys.take(Entry("a", "me"), LEASE)
    assert abolished == {b"n/a/abc-0-0": not after}
    assert not abolished.get(key)


def test_key_of_a_strangers_key_is_avoided(ticket_keys: TicketKeys) -> None:
    """The same entry goes elsewhere."""
    entry = Entry("a", "me")
    first = ticket_keys.take(entry, LEASE)
    ticket_keys.avoid(entry.id)
    assert ticket_keys.take(entry, LEASE) != first
    assert ticket_keys.abolish(first)


@given(some.lists(some.tuples(some.sampled_from("abc"), some.sampled_from(["free", "doubt", "give up"])), max_size=60))
def test_no_two_tickets_that_may_stand_share_a_key(story: list[tuple[str, str]]) -> None:
    """Whatever came before, a key is of one ticket at a time, and of none after a doubt."""
    ticket_keys, keys, spoilt = TicketKeys("n"), dict[str, bytes](), set[bytes]()
    for resource, end in story:
        entry, other = Entry(resource, "me"), Entry(resource, "me")
        keys[entry.id], keys[other.id] = ticket_keys.take(entry, LEASE), ticket_keys.take(other, LEASE)
        assert len(set(keys.values())) == len(keys)
        assert not spoilt & set(keys.values())
        if end != "free":
            spoilt.add(keys[entry.id])
        if end == "doubt":
            ticket_keys.doubt(entry.id)
        ticket_keys.give_up(entry.id) if end == "give up" else ticket_keys.free(entry.id)
        del keys[entry.id]


def test_crowd_has_not_many_more_keys_than_heads_and_no_two_the_same(ticket_keys: TicketKeys) -> None:
    """A thousand at a time, from many threads, again and again: about two thousand keys in all."""
    seen, guard = set[bytes](), threading.Lock()

    def come_and_go(_: int) -> None:
        entries = [Entry("a", "me") for _ in range(125)]
        keys = {ticket_keys.take(entry, LEASE) for entry in entries}
        assert len(keys) == len(entries)
        assert not any(ticket_keys.abolish(key) for key in keys)
        with guard:
            seen.update(keys)
        for entry in entries:
            ticket_keys.free(entry.id)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(come_and_go, range(80)))
    assert len(seen) <= 4096
    assert all(ticket_keys.abolish(key) for key in seen)
