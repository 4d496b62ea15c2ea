"""The guarded keys, driven by hand: what is sent after an answer was lost, and what is told."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import tenure
from tenure._core.base.signals import Signal
from tenure._core.guarded_keys import Keys
from tenure._core.lease import Committed, Compare, Delete, Fate, Line, Mode, Put, Ticket
from tenure._core.turn import Await, Commit, Read, Survey, Touch
from tenure.errors import (
    ClientClosed,
    CompareFailed,
    InvalidOption,
    LeaseLost,
    PermissionDenied,
    StaleToken,
    StoreRefused,
    StoreUnavailable,
    StoreWentBack,
    TenureError,
)
from tenure.fencing._fence import Fence

from .fakes import FakeLease

TICKET = Ticket("ledger", "t" * 20, "key", token=33, version=7)
FENCE = Fence("ns/ledger", 33)
UNTIL = 100.0
LOST = StoreUnavailable("no answer")
PUT = Put("a", b"new")


class Play:
    """One call, step by step."""

    def __init__(self, call: Callable[[Keys], Any], ticket: Ticket = TICKET, keys: Keys | None = None) -> None:
        self.keys = keys or Keys(FakeLease(), ticket, lambda: FENCE, "", "ns")
        self._steps = call(self.keys)
        self.step = next(self._steps)
        self.result: Any = None

    def answer(self, outcome: Any) -> Any:
        """Send (or throw) the outcome; the next step, or None at the end."""
        send = self._steps.throw if isinstance(outcome, BaseException) else self._steps.send
        try:
            self.step = send(outcome)
        except StopIteration as done:
            self.step, self.result = None, done.value
        return self.step


def commit(*operations: Put | Delete | Compare) -> Callable[[Keys], Any]:
    return lambda keys: keys.commit(operations, UNTIL)


def touched(version: int = 8) -> Ticket:
    return TICKET._replace(version=version)


def unanswered(*operations: Put | Delete | Compare) -> Play:
    """A commit that went unanswered, with its ticket touched since: the next step is the second try."""
    play = Play(commit(*operations))
    assert isinstance(play.step, Commit)
    assert isinstance(play.answer(LOST), Touch)
    assert isinstance(play.answer(touched()), Commit)
    return play


def test_commit_is_tied_to_the_tickets_version() -> None:
    """One step, and its versions are the answer."""
    play = Play(commit(PUT))
    assert play.step.ticket.version == 7
    play.answer(Committed(Fate.DONE, {"a": 9}))
    assert (play.step, play.result) == (None, {"a": 9})


def test_one_node_under_two_absolute_names_is_refused() -> None:
    """Names that are one node on ZooKeeper (`x` and `/x`) are one key on every store."""
    keys = Keys(FakeLease(), TICKET, lambda: FENCE, "ns/%data/", "ns")
    with pytest.raises(InvalidOption, match="once"):
        next(keys.commit([Put("a", b""), Delete("/a")], UNTIL, True))


def test_key_is_the_stores_on_its_way_and_the_users_in_what_is_told() -> None:
    """Steps name the place under the namespace; versions and messages the key that was given."""
    keys = Keys(FakeLease(), TICKET, lambda: FENCE, "ns/%data/", "ns")
    play = Play(lambda keys: keys.commit([PUT, Compare("a", 5)], UNTIL), keys=keys)
    assert [part.key for part in (*play.step.compares, *play.step.writes)] == ["ns/%data/a"] * 2
    play.answer(Committed(Fate.DONE, {"ns/%data/a": 9}))
    assert play.result == {"a": 9}
    play = Play(lambda keys: keys.commit([PUT, Compare("a", 5)], UNTIL), keys=keys)
    with pytest.raises(CompareFailed, match="'a' at version 5"):
        play.answer(Committed(Fate.DIFFERS))


def test_unanswered_commit_is_sent_again_tied_to_the_touched_ticket() -> None:
    """The first try is done or dead: what was asked for stands once the second is done."""
    play = unanswered(PUT)
    assert play.step.ticket.version == 8
    play.answer(Committed(Fate.DONE, {"a": 9}))
    assert (play.step, play.result) == (None, {"a": 9})


def test_unanswered_commit_of_a_shared_hold_is_unknown_and_not_sent_again() -> None:
    """A second try could undo what a co-holder wrote upon the first."""
    play = Play(commit(PUT), TICKET._replace(mode=Mode.SEAT))
    assert isinstance(play.answer(LOST), Touch)
    with pytest.raises(StoreUnavailable, match="may or may not") as told:
        play.answer(touched())
    assert told.value.happened == "unknown"


@pytest.mark.parametrize("compare", [Compare("a", 5), Compare("a", 0), Compare("other", 5)])
def test_comparison_that_fails_on_the_second_try_is_unknown(compare: Compare) -> None:
    """It may have failed before, or the first try may have changed the key: neither is guessed."""
    play = unanswered(PUT, compare)
    with pytest.raises(StoreUnavailable, match="unknown") as told:
        play.answer(Committed(Fate.DIFFERS))
    assert told.value.happened == "unknown"


@pytest.mark.parametrize("error", [ClientClosed("x"), PermissionDenied("x"), StoreRefused("x"), StoreWentBack("x")])
@pytest.mark.parametrize("when", ["touching", "again"])
def test_refusal_after_an_unanswered_commit_does_not_say_that_nothing_happened(error: TenureError, when: str) -> None:
    """What comes of looking for a commit is not what came of it."""
    play = Play(commit(PUT))
    play.answer(LOST)
    if when == "again":
        play.answer(touched())
    with pytest.raises(StoreUnavailable, match="unknown") as told:
        play.answer(error)
    assert told.value.happened == "unknown"
    assert told.value.__cause__ is error


def test_comparison_that_fails_at_once_wrote_nothing() -> None:
    """No doubt about it."""
    play = Play(commit(PUT, Compare("a", 5)))
    with pytest.raises(CompareFailed, match="'a' at version 5") as told:
        play.answer(Committed(Fate.DIFFERS))
    assert told.value.happened == "no"


def test_amended_ticket_is_followed() -> None:
    """Not a loss, and not this commit's doing: once more, tied to the ticket as it is."""
    play = Play(commit(PUT))
    again = play.answer(Committed(Fate.AMENDED, ticket=touched(30)))
    assert isinstance(again, Commit)
    assert again.ticket.version == 30


def test_gone_ticket_names_both_tokens() -> None:
    """Who stands first now is asked once."""
    play = Play(commit(PUT))
    survey = play.answer(Committed(Fate.GONE))
    assert isinstance(survey, Survey)
    with pytest.raises(StaleToken, match=r"33 .* 34") as refused:
        play.answer(Line("ledger", (Ticket("ledger", "u" * 20, "k", token=34),), 50))
    assert (refused.value.offered, refused.value.seen) == ("0.33@ns/ledger", "0.34@ns/ledger")


@pytest.mark.parametrize(
    "answer",
    [Line("ledger", (), 50), Line("ledger", (Ticket("ledger", "u" * 20, "k", token=32),), 50), LOST, LeaseLost("gone")],
)
def test_gone_ticket_without_a_known_successor_is_stale_all_the_same(answer: Any) -> None:
    """That it is stale matters more than who is not."""
    play = Play(commit(PUT))
    play.answer(Committed(Fate.GONE))
    with pytest.raises(StaleToken) as refused:
        play.answer(answer)
    assert refused.value.seen == ""


@pytest.mark.parametrize("when", ["touching", "again"])
def test_ticket_that_is_gone_after_an_unanswered_commit_leaves_its_fate_unknown(when: str) -> None:
    """Nothing-was-written would be a guess."""
    play = Play(commit(PUT))
    play.answer(LOST)
    if when == "touching":
        play.answer(None)
    else:
        play.answer(touched())
        play.answer(Committed(Fate.GONE))
    assert isinstance(play.step, Survey)
    with pytest.raises(LeaseLost, match="unknown") as told:
        play.answer(Line("ledger", (), 50))
    assert told.value.happened == "unknown"


@pytest.mark.parametrize("how", [KeyboardInterrupt(), LeaseLost("told by the lease")])
def test_interrupted_commit_is_settled_by_the_next_call(how: BaseException) -> None:
    """Whatever comes next begins by touching the ticket; and only once."""
    play = Play(commit(PUT))
    with pytest.raises(type(how)):
        play.answer(how)
    following = Play(lambda keys: keys.read(["a"], UNTIL), keys=play.keys)
    assert isinstance(following.step, Touch)
    assert isinstance(following.answer(touched()), Read)
    following.answer((None,))
    assert following.result == (None,)
    assert isinstance(Play(commit(PUT), keys=play.keys).step, Commit)


def test_touch_that_goes_unanswered_leaves_the_doubt_to_the_next_call() -> None:
    """It is never forgotten."""
    play = Play(commit(PUT))
    play.answer(LOST)
    with pytest.raises(StoreUnavailable):
        play.answer(StoreUnavailable("no answer to the touch either"))
    assert isinstance(Play(commit(PUT), keys=play.keys).step, Touch)


def test_refusal_leaves_no_doubt() -> None:
    """The store said no: there is nothing to settle."""
    play = Play(commit(PUT))
    with pytest.raises(StoreRefused):
        play.answer(StoreRefused("quota"))
    assert isinstance(Play(commit(PUT), keys=play.keys).step, Commit)


def test_ticket_of_unknown_version_is_touched_first() -> None:
    """A commit that is tied to nothing could be carried out at any later time."""
    play = Play(commit(PUT), TICKET._replace(version=None))
    assert isinstance(play.step, Touch)
    following = play.answer(touched(3))
    assert isinstance(following, Commit)
    assert following.ticket.version == 3


def test_commits_of_one_hold_go_one_at_a_time() -> None:
    """Two threads of one program: the second waits, also for what has to be settled after the first."""
    first = Play(commit(PUT))
    second = Play(commit(Put("b", b"")), keys=first.keys)
    assert isinstance(second.step, Await)
    assert isinstance(first.answer(LOST), Touch)
    assert not second.step.signal.is_set()
    first.answer(touched())
    first.answer(Committed(Fate.DONE, {"a": 9}))
    assert second.step.signal.is_set()
    following = second.answer(True)
    assert isinstance(following, Commit)
    assert following.ticket.version == 8


def test_commit_that_waits_for_another_too_long_was_not_sent() -> None:
    """Bounded by its own deadline; and the next one gets through."""
    first = Play(commit(PUT))
    second = Play(commit(PUT), keys=first.keys)
    with pytest.raises(StoreUnavailable, match="not sent") as told:
        second.answer(False)
    assert told.value.happened == "no"
    first.answer(Committed(Fate.DONE, {"a": 9}))
    assert isinstance(Play(commit(PUT), keys=first.keys).step, Commit)


def test_commit_dropped_in_the_middle_gives_its_turn_back() -> None:
    """A task that is gone blocks nobody."""
    first = Play(commit(PUT))
    first._steps.close()
    assert isinstance(Play(commit(PUT), keys=first.keys).step, Touch)


def test_turn_goes_to_whoever_waits_longest() -> None:
    """One that commits in a loop does not starve the others."""
    first = Play(commit(PUT))
    second, third = (Play(commit(PUT), keys=first.keys) for _ in range(2))
    first.answer(Committed(Fate.DONE, {"a": 9}))
    again = Play(commit(PUT), keys=first.keys)
    waiting = [play.step.signal.is_set() for play in (second, third, again)]
    assert waiting == [True, False, False]
    second.answer(True)
    second.answer(Committed(Fate.DONE, {"a": 10}))
    assert (third.step.signal.is_set(), again.step.signal.is_set()) == (True, False)


def test_waiter_that_gives_up_does_not_break_the_line() -> None:
    """Dropped while waiting, or just as its turn has come: the next one is told."""
    first = Play(commit(PUT))
    second, third, fourth = (Play(commit(PUT), keys=first.keys) for _ in range(3))
    second._steps.close()
    first.answer(Committed(Fate.DONE, {"a": 9}))
    assert third.step.signal.is_set()
    third._steps.close()
    assert fourth.step.signal.is_set()


def test_caller_that_dies_without_a_word_gives_up_its_place() -> None:
    """Interrupted in the very lines that would give it back: when its frame is gone, so is its place."""
    keys = Keys(FakeLease(), TICKET, lambda: FENCE, "", "ns")
    place = Signal()
    keys._line_up(place)
    waiting = Play(commit(PUT), keys=keys)
    assert isinstance(waiting.step, Await)
    del place
    gc.collect()
    assert waiting.step.signal.is_set()
    assert isinstance(waiting.answer(True), Commit)


@pytest.mark.parametrize("line", range(100))
def test_interrupt_at_any_line_leaves_the_hold_usable(line: int) -> None:
    """Ctrl-C may come anywhere: the next commit gets through."""
    with tenure.connect(f"memory://interrupted-{line}") as client, client.lock("a") as hold:
        seen = itertools.count()

        def trace(frame: FrameType, event: str, _: object) -> object:
            ours = frame.f_code.co_filename.endswith(("guarded_keys.py", "drivers/blocking.py"))
            if ours and event == "line" and next(seen) == line:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)  # type: ignore[arg-type]  # raises, which typeshed does not think of
        try:
            hold.store.put("data", b"1")
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        hold.store.put("data", b"2")
        assert hold.store.get("data").value == b"2"  # type: ignore[union-attr]  # it is there
