"""Deferred events: delivered after the answers, on the loop's thread, all of them, in order, and never too late."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tenure._core.base.clock import SYSTEM_CLOCK
from tenure.events import Event, Hub
from tenure.service.metrics import DeferredEvents


class Source:
    """A client, as far as its events go."""

    def __init__(self) -> None:
        self.hub = Hub(SYSTEM_CLOCK.now)
        self.subscribe = self.hub.subscribe


class Heard:
    """A subscriber that fails once if it should."""

    def __init__(self, fails_at: str | None = None) -> None:
        self.events: list[str] = []
        self.threads: set[int] = set()
        self._fails_at = fails_at

    def __call__(self, event: Event) -> None:
        self.events.append(event.event)
        self.threads.add(threading.get_ident())
        if event.event == self._fails_at:
            raise RuntimeError("a metric that fails")


def test_who_is_answered_does_not_wait_for_the_telling() -> None:
    """A task that emits and goes on has its answer first; events in between are delivered in their order."""
    source, heard = Source(), Heard()

    async def test() -> None:
        DeferredEvents(source).subscribe(heard)
        source.hub.emit("entered")
        source.hub.emit("acquired")
        assert heard.events == []
        await asyncio.sleep(0)
        assert heard.events == ["entered", "acquired"]
        source.hub.emit("released")
        await asyncio.sleep(0)
        assert heard.events == ["entered", "acquired", "released"]

    asyncio.run(test())


def test_events_of_any_thread_are_told_on_the_loops_own_and_each_thread_keeps_its_order() -> None:
    """None is lost between those who come at once and the one that tells."""
    source, heard, each = Source(), Heard(), 2000

    def emits(name: str) -> None:
        for number in range(each):
            source.hub.emit(f"{name}-{number}")

    async def test() -> None:
        DeferredEvents(source).subscribe(heard)
        await asyncio.gather(*(asyncio.to_thread(emits, name) for name in "abc"), asyncio.to_thread(emits, "d"))
        await asyncio.sleep(0)

    asyncio.run(test())
    assert heard.threads == {threading.get_ident()}
    for name in "abcd":
        assert [event for event in heard.events if event[0] == name] == [f"{name}-{n}" for n in range(each)]


def test_what_happens_once_the_loop_is_closed_is_told_at_once() -> None:
    """A lease that ends while the process goes down is counted all the same."""
    source, heard = Source(), Heard()

    loop = asyncio.new_event_loop()

    async def listens() -> None:
        DeferredEvents(source).subscribe(heard)

    loop.run_until_complete(listens())
    source.hub.emit("suspect")  # the loop has been asked, and never runs again
    assert heard.events == []
    loop.close()
    source.hub.emit("lost")
    assert heard.events == ["suspect", "lost"]


def test_a_subscriber_that_fails_costs_no_later_event(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged, as for events that are delivered at once."""
    source, heard = Source(), Heard(fails_at="entered")

    async def test() -> None:
        stop = DeferredEvents(source).subscribe(heard)
        source.hub.emit("entered")
        source.hub.emit("acquired")
        await asyncio.sleep(0)
        stop()
        source.hub.emit("released")
        await asyncio.sleep(0)

    asyncio.run(test())
    assert heard.events == ["entered", "acquired"]
    assert "a subscriber to tenure's events failed" in caplog.text
