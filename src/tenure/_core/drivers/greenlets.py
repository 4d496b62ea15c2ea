"""Lanes: a step that talks to the store, carried out on the event loop's own thread.

A request to a store blocks the thread that makes it, so on asyncio it takes a worker: two threads have to be woken for
it, which costs more than the work in between. A lane is a greenlet on the loop's thread that runs the same code. Where
that would wait for an answer, the lane yields and the loop goes on (base/yielding.py); whatever else may block
(connecting, TLS, a sign-in) is done by a worker. A step ends as it would there: by its own deadline, also when nobody
waits for it any more.

A store that is near has answered before the loop could go round. So a step that is alone keeps the loop for a moment,
a thousandth of a second at most, before it yields; not where other callers ask in turns, nor where that was in vain
lately.

Only for steps that hold no lock while they wait: a thread's lock does not keep two lanes of that thread apart, and a
lock that a worker holds would keep the loop waiting.
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

from tenure._core.base import yielding
from tenure._core.drivers.blocking import perform
from tenure._core.lease import Reach, Workers
from tenure._core.turn import Enter, Leave, Operate, Renew, Step
from tenure.errors import StoreUnavailable

Outcome = TypeVar("Outcome")
_log = logging.getLogger("tenure")
_MOMENT_SECONDS: Final = 0.001
"""A store that is near answers sooner; to yield and come back takes a tenth of it."""
_LATELY_SECONDS: Final = 0.01
_IN_VAIN_MAX: Final = 8
ASKER: Final[ContextVar[object]] = ContextVar("asker", default=None)
"""The one for whom the running task asks: two that ask in turns must not wait for each other's answers."""


class IdleWorkers(Workers, Protocol):
    """Workers that know whether they are idle."""

    @property
    def idle(self) -> bool:
        """True where none of them has anything to do."""


class StepGreenlet(greenlet.greenlet):  # type: ignore[misc,unused-ignore]  # ships no types
    """Greenlet that lanes run on, one after the other: a new one takes longer than all the switches of a step."""

    lane: Lane | None = None

    def run(self, lane: Lane) -> None:
        """Carry out one lane after the other."""
        while True:
            self.lane = lane
            lane.carry_out()
            self.lane = None
            del lane  # what it came to may be a long line, and nobody may ever ask this greenlet for another step
            lane = self.parent.switch()


class Lane:
    """Step that is under way, like the future of a worker's step. `yielding.YieldingLane` is its inner side.

    The loop alone resumes it, once for each time it yielded: a wake that comes late finds another wait. And only by a
    callback of the loop's own, never from within a reader's call: uvloop makes that call from the midst of its poll,
    whose own memory lies on the stack where the greenlet's was.
    """

    __slots__ = (
        "_callbacks",
        "_failure",
        "_greenlet",
        "_had_moment",
        "_hasty",
        "_lanes",
        "_loop",
        "_outcome",
        "_over",
        "_step",
        "_wait",
        "_workers",
    )

    def __init__(self, lanes: Lanes, workers: Workers, own_greenlet: StepGreenlet, step: Step) -> None:
        self._lanes = lanes
        self._workers = workers
        self._greenlet = own_greenlet
        self._step = step
        self._loop = asyncio.get_running_loop()
        self._wait: object = None  # what it waits for now
        self._had_moment = False
        self._hasty = False  # was a moment taken, and not in vain as far as is known?
        self._over = False
        self._outcome: Any = None
        self._failure: BaseException | None = None
        self._callbacks: list[Callable[[Lane], None]] = []

    def carry_out(self) -> None:
        """Carry out the step, on its greenlet."""
        try:
            self._outcome = perform(self._step)
        except greenlet.GreenletExit:
            raise  # its greenlet is dropped: there is nobody to hear of it
        except BaseException as failure:
            self._failure = failure
        self._over = True
        if self._hasty:
            self._lanes.answered_in_time()
        for callback in self._callbacks:
            try:
                callback(self)
            except Exception:  # as a worker's future has it
                _log.exception("what was to follow a step failed; please report this")
        self._lanes.ended(self._greenlet)

    def done(self) -> bool:
        """True once the step has ended."""
        return self._over

    def add_done_callback(self, callback: Callable[[Lane], None]) -> None:
        """Call `callback` when the step ends, which it has not yet."""
        self._callbacks.append(callback)

    async def ended(self) -> Any:  # Any: each step has its own outcome, see turn.Steps
        """Await the outcome. A task that is cancelled here leaves the step going on."""
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

    # The inner side: see yielding.YieldingLane.

    def moment(self) -> float:
        """Implement YieldingLane. One moment for the whole step, however many answers it takes."""
        if self._had_moment:
            if self._hasty:
                self._hasty = False
                self._lanes.answered_in_time()
            return 0.0
        self._had_moment, self._hasty = True, self._lanes.take_moment()
        return _MOMENT_SECONDS if self._hasty else 0.0

    def readable(self, sock: socket.socket, seconds: float) -> bool:
        """Implement YieldingLane."""
        self._in_vain()
        wait = self._wait = object()
        number = sock.fileno()

        def come() -> None:
            self._loop.remove_reader(number)
            self._go_on_soon(wait, True)

        self._loop.add_reader(number, come)
        came = False
        try:
            came = self._yield(wait, seconds)
            return came
        finally:
            if not came and not self._loop.is_closed():  # else it is gone, and the number may be another's
                self._loop.remove_reader(number)

    def called(self, start: Callable[[Callable[[], None]], object], seconds: float | None = None) -> bool:
        """Implement YieldingLane."""
        self._in_vain()
        wait = self._wait = object()
        start(lambda: self._wake_loop(wait))
        return self._yield(wait, seconds)

    def elsewhere(self, call: Callable[[], Outcome], seconds: float) -> Outcome:
        """Implement YieldingLane."""
        future = self._workers.submit(call)

        def start(wake: Callable[[], None]) -> None:
            future.add_done_callback(lambda _: wake())

        if not self.called(start, seconds):
            if future.cancel():
                raise StoreUnavailable("no worker came free in time, all wait for the store. It was not sent")
            self.called(start)  # a worker has it, and knows when to end
        outcome: Outcome = future.result()
        return outcome

    def _in_vain(self) -> None:
        if self._hasty:
            self._hasty = False
            self._lanes.answered_late()

    def _yield(self, wait: object, seconds: float | None) -> bool:
        timer = None if seconds is None else self._loop.call_later(max(0.0, seconds), self._go_on_soon, wait, False)
        try:
            came: bool = self._greenlet.parent.switch()
            return came
        finally:
            self._wait = None
            if timer is not None:
                timer.cancel()

    def _go_on_soon(self, wait: object, came: bool) -> None:
        """Resume the step in a callback of the loop's own."""
        self._loop.call_soon(self._go_on, wait, came)

    def _go_on(self, wait: object, came: bool) -> None:
        """Resume the step, unless it waits for something else by now."""
        if wait is self._wait:
            self._wait = None
            self._greenlet.switch(came)

    def _wake_loop(self, wait: object) -> None:
        """Let the loop resume the step; from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._go_on, wait, True)
        except RuntimeError:
            pass  # the loop is closed: it never goes on


class Lanes:
    """Lanes of one event loop: a few at a time, and none while the workers have something to do.

    So there are never many more requests under way than workers could have, and requests to a store that is silent wait
    where they always do: in line for a worker.
    """

    def __init__(self, workers: IdleWorkers, maximum: int) -> None:
        if maximum:
            importlib.import_module("tenacity")  # at the first retry it would keep the loop waiting
        self._workers = workers
        self._maximum = maximum
        self._busy = 0
        self._spare: list[StepGreenlet] = []  # that no step runs on
        self._asker: object = None  # of the last step
        self._asked_at = 0.0
        self._same = True  # False while others ask, too
        self._in_vain = 0  # moments, since the last that was not
        self._pass = 0  # so many requests yield at once, without a moment

    def take(self, step: Step) -> bool:
        """True where `step` may begin in a lane."""
        # Not a step that reads a line as a whole: that may be long, and the loop is not to take it in. ZooKeeper lists
        # the names of a whole line even for a ticket that is put: 2 µs for each that stands there.
        return self._busy < self._maximum and self._workers.idle and _is_short(step)

    def take_moment(self) -> bool:
        """True where a moment may be spent on waiting: not where others want the thread, nor for a while after moments
        that were in vain."""
        if self._pass:
            self._pass -= 1
            return False
        return self._busy == 1 and self._same

    def answered_in_time(self) -> None:
        """Count an answer that came within the moment."""
        self._in_vain = 0

    def answered_late(self) -> None:
        """Count a moment in vain: the answer had not come when it was over."""
        self._in_vain = min(self._in_vain + 1, _IN_VAIN_MAX)
        self._pass = 2**self._in_vain

    def begin(self, step: Step) -> Lane:
        """Carry out `step` up to where it yields for the first time."""
        spare = self._spare.pop() if self._spare else StepGreenlet()
        lane = Lane(self, self._workers, spare, step)
        self._busy += 1
        asker, now = ASKER.get(), time.monotonic()
        self._same = asker == self._asker or now - self._asked_at > _LATELY_SECONDS
        self._asker, self._asked_at = asker, now
        spare.switch(lane)
        return lane

    def ended(self, spare: StepGreenlet) -> None:
        """Take back the greenlet of a lane whose step has ended."""
        self._busy -= 1
        self._spare.append(spare)


def _is_short(step: Step) -> bool:
    """True where the answer is short, however long the line is."""
    if isinstance(step, Enter):
        return step.entry.reach is Reach.PREDECESSOR
    return isinstance(step, (Leave, Renew, Operate))


def _here() -> Lane | None:
    current = greenlet.getcurrent()
    return current.lane if isinstance(current, StepGreenlet) else None


yielding.set_finder(_here)
