"""The fence: a token as a value, its text, and the rule by which guards decide."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenure
from tenure import Fence, FenceMismatch, InvalidFence, StaleToken
from tenure._core.base.limits import FENCE_HOLDERS_MAX, INCARNATION_MAX, TOKEN_MAX
from tenure.errors import InvalidName, InvalidOption
from tenure.events import Event
from tenure.fencing._fence import admit, admitted, line_name, stale, subscribe, ticket_ids

IDS = st.text("0123456789abcdef", min_size=20, max_size=20)
NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=40)
LINE = "billing/ledger"
FENCES = st.builds(
    Fence,
    st.builds(
        line_name, NAMES.filter(lambda n: n.strip("/") and not {"", ".", ".."} & {*n.strip("/").split("/")}), NAMES
    ),
    st.integers(1, TOKEN_MAX),
    st.integers(0, INCARNATION_MAX),
    st.lists(IDS, max_size=4).map(tuple),
)


@given(FENCES)
def test_text_is_read_back_as_the_same_fence(fence: Fence) -> None:
    """Through a header, an environment variable, a message: printable ASCII without what those take apart."""
    text = str(fence)
    assert Fence.parse(text) == fence == Fence.of(text) == Fence.of(fence)
    assert text.isascii()
    assert text.isprintable()
    assert not set(text) & set(' ",;\\')


@given(st.text(max_size=60))
def test_no_text_is_read_but_what_was_written(text: str) -> None:
    """Whatever can be parsed is written back letter by letter."""
    try:
        fence = Fence.parse(text)
    except InvalidFence:
        return
    assert str(fence) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "33", "0.33", "0.33@", "0.33@a", "0.33@a/", "0.33@/a", "0.33@a//b", "0.0@a/b", "0.033@a/b", "00.33@a/b"),
        *("-1.33@a/b", "0.-33@a/b", "0.33@a/b ", " 0.33@a/b", "0.33@a/b\n", "0.33@a/b;c", '0.33@a/"b"', "0.33@a/ö"),
        *("0.33@a/%2f", "0.33@a/%", "0.３３@a/b", "0.33.@a/b", "0.33.abc@a/b", "0.33.ABCDEFABCDEFABCDEFAB@a/b"),
        *(
            f"0.{TOKEN_MAX + 1}@a/b",
            f"{INCARNATION_MAX + 1}.1@a/b",
            "0.33@" + "a/" * 3000 + "b",
            "0." + "9" * 5000 + "@a/b",
        ),
    ],
)
def test_text_that_is_no_fence_is_refused(text: str) -> None:
    """Strictly: no white space, no leading zeros, no other alphabets, nothing out of range."""
    with pytest.raises(InvalidFence):
        Fence.parse(text)


@pytest.mark.parametrize("given", [None, 33, b"0.33@a/b", 0.33])
def test_thing_that_is_no_text_is_refused(given: object) -> None:
    """A number alone is not a fence: it does not say of which line it is."""
    with pytest.raises(InvalidFence):
        Fence.of(given)  # type: ignore[arg-type]  # what users pass


@pytest.mark.parametrize(
    "facts",
    [
        {"token": 0},
        {"token": True},
        {"token": 1.0},
        {"token": "1"},
        {"incarnation": -1},
        {"line": "a"},
        {"line": "a/b c"},
        {"line": None},
        {"ids": ("x",)},
        {"ids": ["a" * 20]},
        {"ids": {"a" * 20}},
        {"ids": ""},
        {"ids": None},
        {"ids": ("a" * 20,) * (FENCE_HOLDERS_MAX + 1)},
    ],
)
def test_bad_facts_make_no_fence(facts: dict[str, object]) -> None:
    """What can't be written can't be made."""
    with pytest.raises(InvalidFence):
        Fence(**{"line": "a/b", "token": 1} | facts)  # type: ignore[arg-type]  # what users pass


def test_tokens_compare_within_one_line_and_incarnation_only() -> None:
    """33 is before 34; of another line or incarnation there is no before."""
    low, high = Fence("a/b", 33), Fence("a/b", 34)
    assert low < high
    assert low <= high
    assert high > low
    assert high >= low
    assert max(low, high) is high
    assert low != high
    assert low == Fence("a/b", 33)
    for other in (Fence("a/c", 34), Fence("a/b", 34, incarnation=1)):
        assert low != other
        with pytest.raises(FenceMismatch):
            low < other  # noqa: B015  # it is to raise
        with pytest.raises(FenceMismatch):
            sorted([other, low])
    with pytest.raises(TypeError):
        low < 34  # type: ignore[operator]  # noqa: B015  # it is to raise


def test_guard_admits_the_same_and_the_younger_and_refuses_the_older() -> None:
    """The plain rule, and the two tokens in the error."""
    old, young = Fence("a/b", 33), Fence("a/b", 34)
    assert admit(None, old) == old
    assert admit(old, old) == old
    assert admit(old, young) == young
    with pytest.raises(StaleToken, match=r"token 33 .* token 34 was seen") as refused:
        admit(young, old)
    assert (refused.value.offered, refused.value.seen) == (str(old), str(young))


def test_older_co_holder_lets_in_nobody_else() -> None:
    """What was seen stays the youngest: between the two stands a seat that was dead by then."""
    alive, dead, youngest = (f"{number:020x}" for number in (4, 5, 9))
    seen = admit(None, Fence(LINE, 9, 0, (youngest, alive)))
    seen = admit(seen, Fence(LINE, 4, 0, (alive,)))
    assert seen.token == 9
    with pytest.raises(StaleToken):
        admit(seen, Fence(LINE, 5, 0, (dead, alive)))


def test_higher_incarnation_is_younger_whatever_the_tokens() -> None:
    """The operator raised it because tokens went back."""
    before, after = Fence("a/b", 1000), Fence("a/b", 7, incarnation=1)
    assert admit(before, after) == after
    with pytest.raises(StaleToken, match="incarnation"):
        admit(after, before)
    with pytest.raises(StaleToken):
        admit(after, Fence("a/b", 2**62))


def test_other_line_is_refused_as_such() -> None:
    """One lock name protects one resource."""
    with pytest.raises(FenceMismatch, match=r"a/c.*a/b"):
        admit(Fence("a/b", 1), Fence("a/c", 2))


def test_stale_token_survives_pickling() -> None:
    """It may cross a process pool."""
    error = stale(Fence("a/b", 34), Fence("a/b", 33))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.offered, again.seen) == (StaleToken, str(error), error.offered, error.seen)


class Seats:
    """A model of a line of seats: admitted in order, up to a limit; anyone may leave or die at any time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.standing: list[tuple[int, str]] = []

    def enter(self, token: int) -> Fence | None:
        ticket_id = f"{token:020x}"
        if len(self.standing) >= self.limit:
            return None
        self.standing.append((token, ticket_id))
        return Fence("a/seats", token, ids=(ticket_id, *(i for _, i in self.standing[:-1])))


@given(st.integers(1, 4), st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=30), st.randoms())
def test_living_seats_are_admitted_in_any_order_and_dead_ones_never_after_their_successor(limit, steps, random) -> None:  # type: ignore[no-untyped-def]  # hypothesis types them
    """Whoever still stands is admitted, however old its token; a dead one is not once a younger seat has claimed."""
    seats, tokens = Seats(limit), itertools.count(1)
    fences: dict[int, Fence] = {}
    seen: Fence | None = None
    claimed_after: dict[int, bool] = {}
    for enters, which in steps:
        if enters:
            fence = seats.enter(next(tokens))
            if fence is not None:
                fences[fence.token] = fence
        elif seats.standing:
            dead, _ = seats.standing.pop(which % len(seats.standing))
            claimed_after[dead] = False
        for token, _ in random.sample(seats.standing, random.randint(0, len(seats.standing))):
            before, seen = seen, admit(seen, fences[token])
            if before != seen:
                claimed_after.update({d: True for d in claimed_after if d < seen.token and d not in _alive_at(seen)})
        for dead, superseded in claimed_after.items():
            if superseded:
                with pytest.raises(StaleToken):
                    admit(seen, fences[dead])


def _alive_at(fence: Fence) -> set[int]:
    return {int(one, 16) for one in fence.ids}


def test_hold_makes_its_fence(request: pytest.FixtureRequest) -> None:
    """Line, token and incarnation of a real hold; ids where it is shared."""
    with tenure.connect(f"memory://{request.node.name}/ns/sub?incarnation=3") as client:
        with client.lock("a b") as hold:
            assert hold.fence == Fence(line_name("ns/sub", "a b"), hold.token, 3)
            assert str(hold.fence) == f"3.{hold.token}@ns/sub/a%20b" == hold.statistics()["fence"]
        seats = client.semaphore("seats", limit=3)
        with seats as one, seats as two:
            assert one.fence.ids == (one.id,)
            assert two.fence.ids == (two.id, one.id)
            one.release()
            with seats as three:
                assert three.fence.ids == (three.id, two.id)
        config = client.rwlock("config")
        with config.read() as reader, config.read() as other:
            assert other.fence.ids == (other.id, reader.id)
        with config.write() as writer:
            assert not writer.fence.shared


def test_ids_of_a_shared_fence_are_tickets_of_ours_alone() -> None:
    """A stranger's node or key beside a seat has a name that no fence may carry."""
    mine, other = "a" * 20, "b" * 20
    assert ticket_ids(mine, [other, "x-lock-0000000001", "b" * 19, f"{other}\n"]) == (mine, other)


def test_too_many_seats_held_together_make_no_fence(request: pytest.FixtureRequest) -> None:
    """The bound is told, with what to do instead; the hold itself is fine."""
    with tenure.connect(f"memory://{request.node.name}") as client:
        seats = client.semaphore("seats", limit=500)
        for _ in range(FENCE_HOLDERS_MAX):
            hold = seats.acquire()
        assert len(hold.fence.ids) == FENCE_HOLDERS_MAX
        hold = seats.acquire()
        with pytest.raises(InvalidFence, match=r"hold\.store"):
            str(hold.fence)
        hold.check()
        assert hold.statistics()["resource"] == "seats"


@pytest.mark.parametrize("bad", [-1, 2**31, 1.5, "x", "-1", "１", True, "1.0"])
def test_bad_incarnation_is_refused(bad: Any) -> None:
    """A whole number that only the operator raises."""
    with pytest.raises(InvalidOption, match="incarnation"):
        tenure.connect("memory://x", incarnation=bad)


@pytest.mark.parametrize("namespace", ["a//b", "a/../b", "\x00"])
def test_line_name_of_a_bad_namespace_is_refused(namespace: str) -> None:
    """As `connect` would."""
    with pytest.raises(InvalidName):
        line_name(namespace, "x")


# Refusals are told.


@pytest.fixture
def refusals() -> Iterator[list[Event]]:
    """What a subscriber hears."""
    heard: list[Event] = []
    stop = subscribe(heard.append)
    yield heard
    stop()


def test_refusal_is_told_once_with_the_name_and_the_token(refusals: list[Event]) -> None:
    """Guards know no client, so this is told for the process."""
    line = line_name("a/b", "tenant 1/ledger")
    seen = admit(Fence(line, 5), Fence(line, 6))
    assert refusals == []
    with pytest.raises(StaleToken):
        admit(seen, Fence(line, 5))
    assert [(e.event, e.resource, e.token) for e in refusals] == [("stale_refused", "tenant 1/ledger", 5)]
    assert "token 6 was seen" in (refusals[0].reason or "")


def test_asking_without_refusing_tells_nobody(refusals: list[Event]) -> None:
    """Who only wants to know is no refusal."""
    assert admitted(Fence(LINE, 6), Fence(LINE, 5)) is None
    assert admitted(Fence(LINE, 5), Fence(LINE, 6)) == Fence(LINE, 6)
    assert refusals == []


def test_subscriber_that_fails_does_not_hide_the_refusal() -> None:
    """A metric that fails must not let a stale write through."""

    def fail(event: Event) -> None:
        raise RuntimeError(event.event)

    stop = subscribe(fail)
    try:
        with pytest.raises(StaleToken):
            admit(Fence(LINE, 6), Fence(LINE, 5))
    finally:
        stop()
