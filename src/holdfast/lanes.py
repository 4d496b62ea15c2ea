"""Lanes: a step that talks to the store, carried out on the event loop's own thread.

Every request to a store blocks whoever asks, so on asyncio it takes a worker: two threads have to be woken for it,
which costs more than what is done in between. A lane is a greenlet on the loop's thread that runs the same code. Where
that would wait for an answer, it goes aside and the loop goes on (aside.py); whatever else may block (connecting, TLS,
a sign-in) is done by a worker. A step ends as it would there: by its own deadline, also when nobody waits for it any
more.

A store that is near has answered before the loop could go round. So whoever asks alone keeps the loop for a moment, a
thousandth of a second at most, before it goes aside; not where others ask in turns, nor where it was in vain lately.

For steps that hold no lock while they wait: a thread's lock does not keep two lanes of that thread apart, and one that
a worker holds would keep the loop waiting.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

import greenlet  # type: ignore[import-untyped,unused-ignore]  # ships no types

from holdfast import aside
from holdfast.drivers import perform
from holdfast.errors import StoreUnavailable
from holdfast.lease import Reach, Workers
from holdfast.turn import Enter, Leave, Operate, Renew, Step

Outcome = TypeVar("Outcome")
_log = logging.getLogger("holdfast")
_MOMENT_SECONDS: Final = 0.001
"""A store that is near answers sooner; to go aside and come back takes a tenth of it."""
_LATELY_SECONDS: Final = 0.01
_IN_VAIN_MAX: Final = 8
ASKER: Final[ContextVar[object]] = ContextVar("asker", default=None)
"""Whom the running task asks for: two who ask in turns must not be kept waiting for each other's answers."""


class Crew(Workers, Protocol):
    """Workers of whom is known whether they have work."""

    @property
    def idle(self) -> bool:
        """Has none of them anything to do?"""


class Track(greenlet.greenlet):  # type: ignore[misc,unused-ignore]  # ships no types
    """What lanes run on, one after the other: making a greenlet anew takes longer than all the switches of a step."""

    lane: Lane | None = None

    def run(self, lane: Lane) -> None:
        """One after the other."""
        while True:
            self.lane = lane
            lane.carry_out()
            self.lane = None
            del lane  # what it came to may be a long line, and nobody may ever ask this track for another step
            lane = self.parent.switch()


class Lane:
    """One step that is under way, as the future of a worker's is. See aside.Lane for what is asked of it from within.

    It is resumed by the loop alone, once for each time it went aside: a wake that comes late finds another wait. And
    only by what stands in the loop's line, never from within a reader's call: uvloop makes that one from the midst of
    its poll, whose own memory lies on the stack where the track's was.
    """

    __slots__ = (
        "_failure",
        "_had_moment",
        "_hasty",
        "_lanes",
        "_loop",
        "_outcome",
        "_over",
        "_step",
        "_told",
        "_track",
        "_wait",
        "_workers",
    )

    def __init__(self, lanes: Lanes, workers: Workers, track: Track, step: Step) -> None:
        self._lanes = lanes
        self._workers = workers
        self._track = track
        self._step = step
        self._loop = asyncio.get_running_loop()
        self._wait: object = None  # what it waits for now
        self._had_moment = False
        self._hasty = False  # was a moment taken, and not in vain as far as is known?
        self._over = False
        self._outcome: Any = None
        self._failure: BaseException | None = None
        self._told: list[Callable[[Lane], None]] = []

    def carry_out(self) -> None:
        """On its track."""
        try:
            self._outcome = perform(self._step)
        except greenlet.GreenletExit:
            raise  # its track is dropped: there is nobody to tell
        except BaseException as failure:
            self._failure = failure
        self._over = True
        if self._hasty:
            self._lanes.near()
        for told in self._told:
            try:
                told(self)
            except Exception:  # as a worker's future has it
                _log.exception("what was to follow a step failed; please report this")
        self._lanes.ended(self._track)

    def done(self) -> bool:
        """Has the step ended?"""
        return self._over

    def add_done_callback(self, told: Callable[[Lane], None]) -> None:
        """Call `told` when it ends; it has not yet."""
        self._told.append(told)

    async def ended(self) -> Any:  # Any: each step has its own outcome, see turn.Steps
        """What it came to. Whoever is cancelled here leaves it going on."""
        if not self._over:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self.add_done_callback(lambda _: None if waiter.done() else waiter.set_result(None))
            await waiter
        failure, self._failure = self._failure, None
        if failure is None:
            return self._outcome
        try:
            raise failure
        finally:
            del failure  # or it would keep this frame, and this frame it

    # From within: see aside.Lane.

    def moment(self) -> float:
        """See aside.Lane. One for the whole step, however many answers it takes."""
        if self._had_moment:
            if self._hasty:
                self._hasty = False
                self._lanes.near()
            return 0.0
        self._had_moment, self._hasty = True, self._lanes.take_moment()
        return _MOMENT_SECONDS if self._hasty else 0.0

    def readable(self, sock: socket.socket, seconds: float) -> bool:
        """See aside.Lane."""
        self._in_vain()
        wait = self._wait = object()
        number = sock.fileno()

        def come() -> None:
            self._loop.remove_reader(number)
            self._go_on_soon(wait, True)

        self._loop.add_reader(number, come)
        came = False
        try:
            came = self._aside(wait, seconds)
            return came
        finally:
            if not came and not self._loop.is_closed():  # else it is gone, and the number may be another's
                self._loop.remove_reader(number)

    def told(self, tell: Callable[[Callable[[], None]], object], seconds: float | None = None) -> bool:
        """See aside.Lane."""
        self._in_vain()
        wait = self._wait = object()
        tell(lambda: self._tell_loop(wait))
        return self._aside(wait, seconds)

    def elsewhere(self, call: Callable[[], Outcome], seconds: float) -> Outcome:
        """See aside.Lane."""
        future = self._workers.submit(call)

        def tell(wake: Callable[[], None]) -> None:
            future.add_done_callback(lambda _: wake())

        if not self.told(tell, seconds):
            if future.cancel():
                raise StoreUnavailable("no worker came free in time, all wait for the store. It was not sent")
            self.told(tell)  # a worker has it, and knows when to end
        outcome: Outcome = future.result()
        return outcome

    def _in_vain(self) -> None:
        if self._hasty:
            self._hasty = False
            self._lanes.far()

    def _aside(self, wait: object, seconds: float | None) -> bool:
        timer = None if seconds is None else self._loop.call_later(max(0.0, seconds), self._go_on_soon, wait, False)
        try:
            came: bool = self._track.parent.switch()
            return came
        finally:
            self._wait = None
            if timer is not None:
                timer.cancel()

    def _go_on_soon(self, wait: object, came: bool) -> None:
        """On the loop."""
        self._loop.call_soon(self._go_on, wait, came)

    def _go_on(self, wait: object, came: bool) -> None:
        """In its turn."""
        if wait is self._wait:
            self._wait = None
            self._track.switch(came)

    def _tell_loop(self, wait: object) -> None:
        """From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._go_on, wait, True)
        except RuntimeError:
            pass  # the loop is closed: it never goes on


class Lanes:
    """Those of one event loop: a few at a time, and none while the workers have something to do.

    So there are never many more requests under way than workers could have, and those who ask a store that is silent
    stand where they always do: in line for a worker.
    """

    def __init__(self, workers: Crew, most: int) -> None:
        if most:
            importlib.import_module("tenacity")  # at the first retry it would keep the loop waiting
        self._workers = workers
        self._most = most
        self._busy = 0
        self._tracks: list[Track] = []  # that nothing runs on
        self._asker: object = None  # of the last step
        self._asked_at = 0.0
        self._same = True  # does nobody else ask now and then?
        self._in_vain = 0  # moments, since the last that was not
        self._pass = 0  # so many requests go aside at once

    def take(self, step: Step) -> bool:
        """May it begin in one? A line that is read as a whole may be long: the loop is not to take it in.

        ZooKeeper lists the names of a whole line for each ticket that is put: 2 µs for each that stands there.
        """
        return self._busy < self._most and self._workers.idle and _is_short(step)

    def take_moment(self) -> bool:
        """Is it worth a moment, to ask the store? Not where others want the thread; nor for a while after moments that
        were in vain."""
        if self._pass:
            self._pass -= 1
            return False
        return self._busy == 1 and self._same

    def near(self) -> None:
        """The answer came within the moment."""
        self._in_vain = 0

    def far(self) -> None:
        """It did not."""
        self._in_vain = min(self._in_vain + 1, _IN_VAIN_MAX)
        self._pass = 2**self._in_vain

    def begin(self, step: Step) -> Lane:
        """Carry it out, up to where it goes aside for the first time."""
        track = self._tracks.pop() if self._tracks else Track()
        lane = Lane(self, self._workers, track, step)
        self._busy += 1
        asker, now = ASKER.get(), time.monotonic()
        self._same = asker == self._asker or now - self._asked_at > _LATELY_SECONDS
        self._asker, self._asked_at = asker, now
        track.switch(lane)
        return lane

    def ended(self, track: Track) -> None:
        """The step of a lane has, and is about to leave its track."""
        self._busy -= 1
        self._tracks.append(track)


def _is_short(step: Step) -> bool:
    """Does its answer say little, whatever stands in the line?"""
    if isinstance(step, Enter):
        return step.entry.reach is Reach.PREDECESSOR
    return isinstance(step, (Leave, Renew, Operate))


def _here() -> Lane | None:
    current = greenlet.getcurrent()
    return current.lane if isinstance(current, Track) else None


aside.found_by(_here)
