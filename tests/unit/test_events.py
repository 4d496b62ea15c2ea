"""Every transition is told in one vocabulary, to the log and to subscribers, and telling never costs a lock."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

import pytest

import holdfast
from holdfast import events
from holdfast.events import Event, Hub
from tests.unit.world import PATIENCE_SECONDS, Background, World


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


def only(world: World, name: str) -> Event:
    found = world.heard(name)
    assert len(found) == 1, [e.event for e in world.events]
    return found[0]


def test_acquire_and_release_tell_their_four_events_with_all_fields(world: World) -> None:
    """lease_opened, entered, acquired, released: who, what, under which lease and token, for how long."""
    client = world.client(owner="me", ttl=20)
    hold = client.lock("a").acquire()
    world.clock.advance(3.0)
    hold.release()
    assert [e.event for e in world.events] == ["lease_opened", "entered", "acquired", "released"]
    for event in world.events[1:]:
        assert (event.resource, event.owner, event.lease_id, event.token) == ("a", "me", hold.lease_id, hold.token)
        assert event.ttl == 20.0
    assert only(world, "lease_opened").lease_id == hold.lease_id
    assert (only(world, "acquired").seconds, only(world, "released").seconds) == (0.0, 3.0)
    assert (only(world, "acquired").at, only(world, "released").at) == (1000.0, 1003.0)


def test_waiting_time_is_told_with_acquired(world: World) -> None:
    """How long the turn took is in the event."""
    client = world.client()
    first = client.lock("a").acquire()
    second = Background(lambda: client.lock("a").acquire())
    world.await_event("entered", 2)
    world.clock.advance(4.0)
    first.release()
    second.result()
    assert world.heard("acquired")[1].seconds == 4.0


def test_time_out_is_told_with_how_long_it_waited(world: World) -> None:
    """timed_out, and nothing that says acquired."""
    client = world.client()
    with client.lock("a"):
        waiting = Background(lambda: client.lock("a").acquire(timeout=2.5))
        world.await_event("entered", 2)
        world.clock.advance(2.5)
        with pytest.raises(holdfast.AcquireTimeout):
            waiting.result()
    assert only(world, "timed_out").seconds == 2.5
    assert len(world.heard("acquired")) == 1


def test_wait_tells_behind_which_ticket_it_was(world: World) -> None:
    """Who waited names the ticket ahead of it; who did not have to wait names none."""
    client = world.client()
    first = client.lock("a").acquire()
    second = Background(lambda: client.lock("a").acquire())
    world.await_event("entered", 2)
    assert client.lock("a").try_acquire() is None
    first.release()
    waited = second.result()
    entered, acquired = world.heard("entered"), world.heard("acquired")
    assert [e.ticket for e in acquired] == [entered[0].ticket, entered[1].ticket] == [first.id, waited.id]
    assert [e.behind for e in acquired] == [None, first.id]
    assert (only(world, "busy").behind, only(world, "busy").ticket) == (waited.id, entered[2].ticket)
    assert only(world, "released").ticket == first.id


def test_every_attempt_that_entered_has_one_end(world: World) -> None:
    """acquired, busy, timed_out or abandoned: metrics count on it."""
    client = world.client()
    hold = client.lock("a").acquire()
    assert client.lock("a").try_acquire() is None
    waiting = Background(lambda: client.lock("a").acquire(timeout=1.0))
    world.await_event("entered", 3)
    world.clock.advance(1.0)
    with pytest.raises(holdfast.AcquireTimeout):
        waiting.result()
    hold.release()
    ends = [e.ticket for name in ("acquired", "busy", "timed_out", "abandoned") for e in world.heard(name)]
    assert sorted(ends, key=str) == sorted((e.ticket for e in world.heard("entered")), key=str)


def test_release_that_the_store_did_not_confirm_is_told(world: World) -> None:
    """The hold is given up all the same, and the reaper goes on."""
    client = world.client()
    hold, faults = client.lock("a").acquire(), world.faults(client)
    faults.cut_off = True
    releasing = Background(hold.release)
    world.await_event("released")
    world.clock.advance(6.0)
    with pytest.raises(holdfast.StoreUnavailable):
        releasing.result()
    assert (only(world, "release_failed").reason, only(world, "release_failed").ticket) == ("StoreUnavailable", hold.id)
    faults.cut_off = False
    until = time.monotonic() + PATIENCE_SECONDS
    while not world.heard("reaped") and time.monotonic() < until:  # its thread waits in virtual time, now and again
        world.clock.advance(1.0)
    world.await_event("reaped")


def test_renewal_that_goes_unanswered_is_told(world: World) -> None:
    """Each of them, before the hold is suspect."""
    client = world.client(ttl=12)
    hold, faults = client.lock("a").acquire(), world.faults(client)
    faults.cut_off = True
    world.clock.advance(4.5)
    assert only(world, "renewal_failed").lease_id == hold.lease_id
    assert not world.heard("suspect")
    faults.cut_off = False


@pytest.mark.parametrize("how", ["released", "closed", "expired"])
def test_end_of_a_hold_says_how(world: World, how: str) -> None:
    """`ending` tells apart what `released` and `lost` do not."""
    client = world.client(ttl=12)
    hold, faults = client.lock("a").acquire(), world.faults(client)
    if how == "released":
        hold.release()
    elif how == "closed":
        client.close()
    else:
        faults.cut_off = True
        world.clock.advance(13.0)
    assert [e.ending for e in world.events if e.event in ("released", "lost")] == [how]


def test_suspect_renewed_and_lost_are_told_per_hold(world: World) -> None:
    """Law 15: a partition that heals, then one that does not."""
    client = world.client(ttl=12)
    hold, faults = client.lock("a").acquire(), world.faults(client)
    faults.cut_off = True
    world.clock.advance(7.0)
    assert only(world, "suspect").token == hold.token
    faults.cut_off = False
    world.clock.advance(1.0)
    assert only(world, "renewed").token == hold.token
    faults.cut_off = True
    world.clock.advance(13.0)
    lost = only(world, "lost")
    assert (lost.token, lost.resource, lost.seconds) == (hold.token, "a", lost.at - 1000.0)
    assert lost.reason
    assert not world.heard("released")
    faults.cut_off = False


def test_closing_the_client_tells_released_and_lease_closed(world: World) -> None:
    """Law 16: a clean exit is told as giving up, not as a loss."""
    client = world.client()
    hold = client.lock("a").acquire()
    client.close()
    assert only(world, "released").token == hold.token
    assert only(world, "lease_closed").lease_id == hold.lease_id
    assert not world.heard("lost")


def test_lost_wait_is_told_as_abandoned(world: World) -> None:
    """A wait whose lease ended says so, by the error's name."""
    client = world.client()
    with world.client().lock("a"):
        waiting = Background(lambda: client.lock("a").acquire())
        world.await_event("entered", 2)
        world.store.expire(world.store.leases[1])
        world.clock.advance(5.0)  # the next renewal finds out
        with pytest.raises(holdfast.LeaseLost):
            waiting.result()
    assert only(world, "abandoned").reason == "LeaseLost"


def test_interrupted_wait_is_told_as_reaped(world: World) -> None:
    """Law 7: what the reaper does is visible."""
    client = world.client()
    client.lock("warm").acquire().release()
    entered = world.store.enter

    def enter_and_fail(*arguments: object) -> object:
        entered(*arguments)  # type: ignore[arg-type]  # passed through as it came
        world.store.enter = entered  # type: ignore[method-assign]  # once
        raise KeyboardInterrupt

    world.store.enter = enter_and_fail  # type: ignore[assignment,method-assign]  # Ctrl-C after the server has acted
    with pytest.raises(KeyboardInterrupt):
        client.lock("a").acquire()
    world.await_event("reaped")
    assert only(world, "reaped").resource == "a"
    assert world.tickets == 0


def test_events_are_counted_whether_or_not_anybody_listens(world: World) -> None:
    """statistics() reads the counts."""
    client = world.client()
    for _ in range(3):
        client.lock("a").acquire().release()
    counts = client.statistics()["events"]
    assert counts == {"lease_opened": 1, "entered": 3, "acquired": 3, "released": 3}


# The log.


def test_log_record_has_the_fields_as_extra_and_a_line_for_people(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The same facts twice: as one line, and as attributes for machines."""
    with caplog.at_level(logging.DEBUG, "holdfast"):
        hold = world.client(owner="me").lock("a").acquire()
    record = next(r for r in caplog.records if getattr(r, "event", None) == "acquired")
    assert record.name == "holdfast"
    assert record.levelno == logging.INFO
    assert record.__dict__["token"] == hold.token
    assert record.__dict__["resource"] == "a"
    assert record.__dict__["owner"] == "me"
    assert record.__dict__["lease_id"] == hold.lease_id
    assert "reason" not in record.__dict__
    assert record.getMessage().startswith("acquired resource='a' owner='me'")
    assert f"token={hold.token}" in record.getMessage()


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
        ("released", logging.INFO),
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
    with caplog.at_level(logging.DEBUG, "holdfast"):
        Hub(lambda: 1.0).emit(event, resource="a")
    assert [(r.levelno, r.__dict__["event"]) for r in caplog.records] == [(level, event)]


def test_every_field_can_stand_in_a_log_record(caplog: pytest.LogCaptureFixture) -> None:
    """No field's name collides with an attribute of LogRecord, which logging would refuse."""
    with caplog.at_level(logging.DEBUG, "holdfast"):
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


def test_failing_subscriber_costs_nobody_anything(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A metric that fails costs nobody their lock; it is logged, and the other subscribers hear."""
    client = world.client()
    client.subscribe(failing)
    heard: list[Event] = []
    client.subscribe(heard.append)
    with caplog.at_level(logging.ERROR, "holdfast"), client.lock("a") as hold:
        hold.check()
    assert [e.event for e in heard] == ["lease_opened", "entered", "acquired", "released"]
    assert world.tickets == 0
    assert "a subscriber to holdfast's events failed" in caplog.text


@pytest.mark.parametrize("ending", ["time-out", "loss", "close"])
def test_failing_subscriber_leaves_every_way_out_as_it_was(world: World, ending: str) -> None:
    """Clean-up does not depend on who listens."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL + 1)
    try:
        client = world.client(ttl=10)
        client.subscribe(failing)
        hold = client.lock("a").acquire()
        if ending == "time-out":
            assert client.lock("a").try_acquire() is None
            assert len(world.store.lines["holdfast/a"]) == 1
        elif ending == "loss":
            world.faults(client).cut_off = True
            world.clock.advance(30.0)
            assert hold.state is holdfast.HoldState.LOST
            assert hold.lost.wait(0.0)
        else:
            client.close()
            assert world.tickets == 0
    finally:
        logging.getLogger("holdfast").setLevel(logging.NOTSET)


def test_unsubscribed_hears_nothing_more_and_others_still_do(world: World) -> None:
    """The returned function ends exactly this subscription."""
    client = world.client()
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
