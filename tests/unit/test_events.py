"""Every transition is told in one vocabulary, to the log and to subscribers, and telling never costs a lock."""

from __future__ import annotations

import ast
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tenure
from tenure import events
from tenure.events import Event, Hub
from tests.unit.rig import PATIENCE_SECONDS, Background, Rig

TTL = 12.0


def vocabulary() -> set[str]:
    """The words of the docstring's list."""
    listed = (events.__doc__ or "").partition("\n\n")[2].partition("\n\n")[0]
    words: set[str] = set()
    for line in listed.splitlines():
        head = re.match(r" {4}([a-z_]+(?:, [a-z_]+)*)", line)
        if head:
            words |= set(head.group(1).split(", "))
    return words


FIELDS = [
    *("at", "behind", "ending", "event", "lease_id", "owner", "reason", "resource", "seconds", "ticket", "token", "ttl")
]


def test_vocabulary_has_the_words_of_the_contract() -> None:
    """A word that goes or comes is a change of the contract."""
    assert vocabulary() >= {
        *("entered", "acquired", "timed_out", "abandoned", "released", "suspect", "renewed", "lost"),
        *("busy", "release_failed", "renewal_failed", "forced", "stale_refused"),
        *("amended", "reaped", "reap_failed", "lease_opened", "lease_closed", "lease_lost", "endpoint_failed"),
    }


def test_event_has_the_fields_of_the_contract() -> None:
    """Metrics and logs read these names."""
    assert sorted(Event.__slots__) == FIELDS


def only(rig: Rig, name: str) -> Event:
    found = rig.heard(name)
    assert len(found) == 1, [e.event for e in rig.events]
    return found[0]


def test_acquire_and_release_tell_their_four_events_with_all_fields(rig: Rig) -> None:
    """lease_opened, entered, acquired, released: who, what, under which lease and token, for how long."""
    client = rig.client(owner="me", ttl=20)
    hold = client.lock("a").acquire()
    rig.clock.advance(3.0)
    hold.release()
    assert [e.event for e in rig.events] == ["lease_opened", "entered", "acquired", "released"]
    for event in rig.events[1:]:
        assert (event.resource, event.owner, event.lease_id, event.token) == ("a", "me", hold.lease_id, hold.token)
        assert event.ttl == 20.0
    assert only(rig, "lease_opened").lease_id == hold.lease_id
    assert (only(rig, "acquired").seconds, only(rig, "released").seconds) == (0.0, 3.0)
    assert (only(rig, "acquired").at, only(rig, "released").at) == (1000.0, 1003.0)


def test_waiting_time_is_told_with_acquired(rig: Rig) -> None:
    """How long the turn took is in the event."""
    client = rig.client()
    first = client.lock("a").acquire()
    second = Background(lambda: client.lock("a").acquire())
    rig.await_event("entered", 2)
    rig.clock.advance(4.0)
    first.release()
    second.result()
    assert rig.heard("acquired")[1].seconds == 4.0


def test_time_out_is_told_with_how_long_it_waited(rig: Rig) -> None:
    """timed_out, and nothing that says acquired."""
    client = rig.client()
    with client.lock("a"):
        waiting = Background(lambda: client.lock("a").acquire(timeout=2.5))
        rig.await_event("entered", 2)
        rig.clock.advance(2.5)
        with pytest.raises(tenure.AcquireTimeout):
            waiting.result()
    assert only(rig, "timed_out").seconds == 2.5
    assert len(rig.heard("acquired")) == 1


def test_wait_tells_behind_which_ticket_it_was(rig: Rig) -> None:
    """Who waited names the ticket ahead of it; who did not have to wait names none."""
    client = rig.client()
    first = client.lock("a").acquire()
    second = Background(lambda: client.lock("a").acquire())
    rig.await_event("entered", 2)
    assert client.lock("a").try_acquire() is None
    first.release()
    waited = second.result()
    entered, acquired = rig.heard("entered"), rig.heard("acquired")
    assert [e.ticket for e in acquired] == [entered[0].ticket, entered[1].ticket] == [first.id, waited.id]
    assert [e.behind for e in acquired] == [None, first.id]
    assert (only(rig, "busy").behind, only(rig, "busy").ticket) == (waited.id, entered[2].ticket)
    assert only(rig, "released").ticket == first.id


def test_every_attempt_that_entered_has_one_end(rig: Rig) -> None:
    """acquired, busy, timed_out or abandoned: metrics count on it."""
    client = rig.client()
    hold = client.lock("a").acquire()
    assert client.lock("a").try_acquire() is None
    waiting = Background(lambda: client.lock("a").acquire(timeout=1.0))
    rig.await_event("entered", 3)
    rig.clock.advance(1.0)
    with pytest.raises(tenure.AcquireTimeout):
        waiting.result()
    hold.release()
    ends = [e.ticket for name in ("acquired", "busy", "timed_out", "abandoned") for e in rig.heard(name)]
    assert sorted(ends, key=str) == sorted((e.ticket for e in rig.heard("entered")), key=str)


def test_release_that_the_store_did_not_confirm_is_told(rig: Rig) -> None:
    """The hold is given up all the same, and the reaper goes on."""
    client = rig.client()
    hold, faults = client.lock("a").acquire(), rig.faults(client)
    faults.cut_off = True
    releasing = Background(hold.release)
    rig.await_event("released")
    rig.clock.advance(6.0)
    with pytest.raises(tenure.StoreUnavailable):
        releasing.result()
    assert (only(rig, "release_failed").reason, only(rig, "release_failed").ticket) == ("StoreUnavailable", hold.id)
    faults.cut_off = False
    until = time.monotonic() + PATIENCE_SECONDS
    while not rig.heard("reaped") and time.monotonic() < until:  # its thread waits in virtual time, now and again
        rig.clock.advance(1.0)
    rig.await_event("reaped")


def test_renewal_that_goes_unanswered_is_told(rig: Rig) -> None:
    """Each of them, before the hold is suspect."""
    client = rig.client(ttl=12)
    hold, faults = client.lock("a").acquire(), rig.faults(client)
    faults.cut_off = True
    rig.clock.advance(4.5)
    assert only(rig, "renewal_failed").lease_id == hold.lease_id
    assert not rig.heard("suspect")
    faults.cut_off = False


@pytest.mark.parametrize("how", ["released", "closed", "expired"])
def test_end_of_a_hold_says_how(rig: Rig, how: str) -> None:
    """`ending` tells apart what `released` and `lost` do not."""
    client = rig.client(ttl=12)
    hold, faults = client.lock("a").acquire(), rig.faults(client)
    if how == "released":
        hold.release()
    elif how == "closed":
        client.close()
    else:
        faults.cut_off = True
        rig.clock.advance(13.0)
    assert [e.ending for e in rig.events if e.event in ("released", "lost")] == [how]


def test_suspect_renewed_and_lost_are_told_per_hold(rig: Rig) -> None:
    """Law 15: a partition that heals, then one that does not."""
    client = rig.client(ttl=12)
    hold, faults = client.lock("a").acquire(), rig.faults(client)
    faults.cut_off = True
    rig.clock.advance(7.0)
    assert only(rig, "suspect").token == hold.token
    faults.cut_off = False
    rig.clock.advance(1.0)
    assert only(rig, "renewed").token == hold.token
    faults.cut_off = True
    rig.clock.advance(13.0)
    lost = only(rig, "lost")
    assert (lost.token, lost.resource, lost.seconds) == (hold.token, "a", lost.at - 1000.0)
    assert lost.reason
    assert not rig.heard("released")
    faults.cut_off = False


def test_closing_the_client_tells_released_and_lease_closed(rig: Rig) -> None:
    """Law 16: a clean exit is told as giving up, not as a loss."""
    client = rig.client()
    hold = client.lock("a").acquire()
    client.close()
    assert only(rig, "released").token == hold.token
    assert only(rig, "lease_closed").lease_id == hold.lease_id
    assert not rig.heard("lost")


def test_lost_wait_is_told_as_abandoned(rig: Rig) -> None:
    """A wait whose lease ended says so, by the error's name."""
    client = rig.client()
    with rig.client().lock("a"):
        waiting = Background(lambda: client.lock("a").acquire())
        rig.await_event("entered", 2)
        rig.store.expire(rig.store.leases[1])
        rig.clock.advance(5.0)  # the next renewal finds out
        with pytest.raises(tenure.LeaseLost):
            waiting.result()
    assert only(rig, "abandoned").reason == "LeaseLost"


def test_interrupted_wait_is_told_as_reaped(rig: Rig) -> None:
    """Law 7: what the reaper does is visible."""
    client = rig.client()
    client.lock("warm").acquire().release()
    entered = rig.store.enter

    def enter_and_fail(*arguments: object) -> object:
        entered(*arguments)  # type: ignore[arg-type]  # passed through as it came
        rig.store.enter = entered  # type: ignore[method-assign]  # once
        raise KeyboardInterrupt

    rig.store.enter = enter_and_fail  # type: ignore[assignment,method-assign]  # Ctrl-C after the server has acted
    with pytest.raises(KeyboardInterrupt):
        client.lock("a").acquire()
    rig.await_event("reaped")
    assert only(rig, "reaped").resource == "a"
    assert rig.tickets == 0


def test_events_are_counted_whether_or_not_anybody_listens(rig: Rig) -> None:
    """statistics() reads the counts."""
    client = rig.client()
    for _ in range(3):
        client.lock("a").acquire().release()
    counts = client.statistics()["events"]
    assert counts == {"lease_opened": 1, "entered": 3, "acquired": 3, "released": 3}


# The log.


def test_log_record_has_the_fields_as_extra_and_a_line_for_people(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """The same facts twice: as one line, and as attributes for machines."""
    with caplog.at_level(logging.DEBUG, "tenure"):
        hold = rig.client(owner="me").lock("a").acquire()
    record = next(r for r in caplog.records if getattr(r, "event", None) == "acquired")
    assert record.name == "tenure"
    assert record.levelno == logging.INFO
    assert record.__dict__["token"] == hold.token
    assert record.__dict__["resource"] == "a"
    assert record.__dict__["owner"] == "me"
    assert record.__dict__["lease_id"] == hold.lease_id
    assert "reason" not in record.__dict__
    assert record.getMessage().startswith("acquired resource='a' owner='me'")
    assert f"token={hold.token}" in record.getMessage()


def test_hold_that_goes_well_is_one_short_record_at_info(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Who and what, with which token: a service with a thousand cycles a second can leave INFO on."""
    client = rig.client(owner="billing-7f9c:4711")
    with caplog.at_level(logging.INFO, "tenure"):
        lock, tokens = client.lock("tenant_123:billing-close"), list[int]()
        for _ in range(3):
            with lock as hold:
                tokens.append(hold.token)
    messages = [record.getMessage() for record in caplog.records if not record.getMessage().startswith("lease_")]
    assert [message.partition(" ")[0] for message in messages] == ["acquired"] * 3
    assert (
        messages[1]
        == f"acquired resource='tenant_123:billing-close' owner='billing-7f9c:4711' token={tokens[1]} seconds=0"
    )


@pytest.mark.parametrize(
    ("event", "level"),
    [
        ("lost", logging.WARNING),
        ("suspect", logging.WARNING),
        ("lease_lost", logging.WARNING),
        ("reap_failed", logging.WARNING),
        ("endpoint_failed", logging.WARNING),
        ("stale_refused", logging.WARNING),
        ("acquired", logging.INFO),
        ("released", logging.DEBUG),
        ("timed_out", logging.INFO),
        ("lease_opened", logging.INFO),
        ("lease_closed", logging.INFO),
        ("entered", logging.DEBUG),
        ("abandoned", logging.DEBUG),
        ("renewed", logging.DEBUG),
        ("reaped", logging.DEBUG),
        ("amended", logging.DEBUG),
    ],
)
def test_level_of_each_event_is_by_who_must_hear(event: str, level: int, caplog: pytest.LogCaptureFixture) -> None:
    """What somebody should look at warns; what an operator counts informs; the rest is for debugging."""
    with caplog.at_level(logging.DEBUG, "tenure"):
        Hub(lambda: 1.0).emit(event, resource="a")
    assert [(r.levelno, r.__dict__["event"]) for r in caplog.records] == [(level, event)]


def test_every_field_can_stand_in_a_log_record(caplog: pytest.LogCaptureFixture) -> None:
    """No field's name collides with an attribute of LogRecord, which logging would refuse."""
    with caplog.at_level(logging.DEBUG, "tenure"):
        Hub(lambda: 1.0).emit(
            "lost",
            resource="r",
            owner="o",
            lease_id="l",
            token=1,
            ttl=2.0,
            reason="why",
            seconds=3.0,
            ticket="t",
            behind="b",
            ending="expired",
        )
    record = caplog.records[0].__dict__
    assert {name: record[name] for name in FIELDS} == {
        "event": "lost",
        "at": 1.0,
        "resource": "r",
        "owner": "o",
        "lease_id": "l",
        "token": 1,
        "ttl": 2.0,
        "reason": "why",
        "seconds": 3.0,
        "ticket": "t",
        "behind": "b",
        "ending": "expired",
    }


# Nobody listens; somebody fails.


class Unshowable(str):
    """Text that can't be shown: whoever formats it fails."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise AssertionError("formatted although nobody listens")

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        raise AssertionError(f"formatted with {spec!r} although nobody listens")


def test_nothing_is_made_or_formatted_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emitting to nobody counts, and reads not even the clock."""
    monkeypatch.setattr(events.logger, "level", logging.CRITICAL)
    events.logger.manager._clear_cache()  # type: ignore[attr-defined]  # levels are cached per logger
    readings: list[int] = []

    def now() -> float:
        readings.append(1)
        return 0.0

    hub = Hub(now)
    hub.emit("lost", resource=Unshowable("a"))
    assert readings == []
    assert hub.counts == {"lost": 1}
    monkeypatch.undo()
    events.logger.manager._clear_cache()  # type: ignore[attr-defined]  # as above


def test_subscriber_alone_costs_no_formatting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric does not pay for a log line."""
    monkeypatch.setattr(events.logger, "level", logging.CRITICAL)
    events.logger.manager._clear_cache()  # type: ignore[attr-defined]  # levels are cached per logger
    heard: list[Event] = []
    hub = Hub(lambda: 0.0)
    hub.subscribe(heard.append)
    hub.emit("lost", resource=Unshowable("a"))
    assert len(heard) == 1
    monkeypatch.undo()
    events.logger.manager._clear_cache()  # type: ignore[attr-defined]  # as above


def failing(_event: Event) -> None:
    raise ValueError("told by the test")


def test_failing_subscriber_costs_nobody_anything(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A metric that fails costs nobody their lock; it is logged, and the other subscribers hear."""
    client = rig.client()
    client.subscribe(failing)
    heard: list[Event] = []
    client.subscribe(heard.append)
    with caplog.at_level(logging.ERROR, "tenure"), client.lock("a") as hold:
        hold.check()
    assert [e.event for e in heard] == ["lease_opened", "entered", "acquired", "released"]
    assert rig.tickets == 0
    assert "a subscriber to tenure's events failed" in caplog.text


@pytest.mark.parametrize("ending", ["time-out", "loss", "close"])
def test_failing_subscriber_leaves_every_way_out_as_it_was(rig: Rig, ending: str) -> None:
    """Clean-up does not depend on who listens."""
    logging.getLogger("tenure").setLevel(logging.CRITICAL + 1)
    try:
        client = rig.client(ttl=10)
        client.subscribe(failing)
        hold = client.lock("a").acquire()
        if ending == "time-out":
            assert client.lock("a").try_acquire() is None
            assert len(rig.store.lines["tenure/a"]) == 1
        elif ending == "loss":
            rig.faults(client).cut_off = True
            rig.clock.advance(30.0)
            assert hold.state is tenure.HoldState.LOST
            assert hold.lost.wait(0.0)
        else:
            client.close()
            assert rig.tickets == 0
    finally:
        logging.getLogger("tenure").setLevel(logging.NOTSET)


def test_unsubscribed_hears_nothing_more_and_others_still_do(rig: Rig) -> None:
    """The returned function ends exactly this subscription."""
    client = rig.client()
    one: list[Event] = []
    other: list[Event] = []
    stop: Callable[[], None] = client.subscribe(one.append)
    client.subscribe(other.append)
    stop()
    stop()
    client.lock("a").acquire().release()
    assert one == []
    assert len(other) == 4


def test_event_is_frozen() -> None:
    """What was told stays what was told."""
    with pytest.raises(AttributeError):
        Event("lost", 1.0).token = 3  # type: ignore[misc]  # that it can't be set is the test


def test_amend_tells_amended(rig: Rig) -> None:
    """A leader that moves its address is an event, with the token of who did."""
    with rig.client().election("e", value="old").campaign() as hold:
        hold.amend("new")
        assert [e.token for e in rig.heard("amended")] == [hold.token]


def test_lost_lease_tells_lease_lost_once_and_lost_per_hold(rig: Rig) -> None:
    """A lease is lost once, however many holds go with it."""
    client = rig.client(ttl=TTL)
    holds = [client.lock(name).acquire() for name in ("a", "b")]
    rig.store.expire(holds[0].lease_id)
    rig.clock.advance(TTL / 3)
    rig.await_event("lost", 2)  # a hold that watches its own ticket may have found out first, on a worker
    assert [e.lease_id for e in rig.heard("lease_lost")] == [holds[0].lease_id]
    assert sorted(e.token or 0 for e in rig.heard("lost")) == [hold.token for hold in holds]


def texts(path: Path) -> set[str]:
    """All texts in a module's code, whole."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_word_of_the_vocabulary_is_told_somewhere() -> None:
    """A dashboard that waits for a documented event does not wait for ever."""
    source = Path(tenure.__file__).parent
    told: set[str] = set()
    for path in source.rglob("*.py"):
        if path != source / "events.py":
            told |= texts(path)
    assert vocabulary() - told == set()
