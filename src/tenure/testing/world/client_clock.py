"""The clock, the helpers and the locks of one client in a world's time. `WorldClock` knows by them what the client is
at.

While a client is paused its time goes on, and nothing of it runs. Its helpers take part in the world: no time passes
while they are at work. A lock that is held across requests is waited for on the clock, not in real time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tenure._core.base.clock import Timer
from tenure._core.base.signals import Signal
from tenure._core.base.threads import Helpers
from tenure.testing.world.virtual_time import WorldClock


class ClientClock:
    """The world's time, as one client sees it."""

    def __init__(self, clock: WorldClock) -> None:
        self._clock = clock
        self._guard = threading.RLock()  # guards the two below
        self._go_on: Signal | None = None  # None: it is not paused
        self._deferred: list[Callable[[], None]] = []
        self._on_timer = threading.local()

    def now(self) -> float:
        return self._clock.now()

    def wait(self, signal: Signal, until: float | None) -> bool:
        self._clock.wait(signal, until)
        self.until_resumed()
        return signal.is_set()

    def schedule(self, due: float, run: Callable[[], None]) -> Timer:
        timer = _ClientsTimer(due, run)
        timer.below = self._clock.schedule(due, lambda: self.run(lambda: self._fire(timer)))
        return timer

    @property
    def on_timer(self) -> bool:
        """True in a timer's call, which must not wait."""
        return getattr(self._on_timer, "now", False)

    def run(self, call: Callable[[], None]) -> None:
        """Run it now, or once the client is resumed."""
        with self._guard:
            if self._go_on is not None:
                self._deferred.append(call)
                return
        call()

    def until_resumed(self) -> None:
        """Wait while the client is paused."""
        while (go_on := self._go_on) is not None and not self.on_timer:
            self._clock.wait(go_on, None)

    def pause(self) -> None:
        """Stop everything of the client from now on."""
        with self._guard:
            self._go_on = self._go_on or Signal()

    def resume(self) -> None:
        """Run now, in its order, what fell due meanwhile."""
        with self._guard:
            go_on, self._go_on = self._go_on, None
            deferred, self._deferred = self._deferred, []
        for call in deferred:
            call()
        if go_on is not None:
            go_on.set()

    def _fire(self, timer: Timer) -> None:
        run = timer.run
        if timer.cancelled or run is None:
            return
        outer = self.on_timer  # a timer that is set too late runs within the one that sets it
        self._on_timer.now = True
        try:
            run()
        finally:
            self._on_timer.now = outer


class _ClientsTimer(Timer):
    """A timer of one client; what wakes it at the world's clock goes with it."""

    __slots__ = ("below",)

    def __init__(self, due: float, run: Callable[[], None]) -> None:
        super().__init__(due, run)
        self.below: Timer | None = None

    def cancel(self) -> None:
        super().cancel()
        if self.below is not None:
            self.below.cancel()


class WorldHelpers(Helpers):
    """Helpers whose work takes part in the world: no time passes while they are at it, or could be.

    Work beyond what they can do at once waits for one of them, who may wait for time to pass.
    """

    def __init__(self, name: str, maximum: int, clock: WorldClock) -> None:
        super().__init__(name, maximum)
        self._clock = clock
        self._free = maximum
        self._counts = threading.RLock()  # guards _free and the two below
        self._at_work: set[object] = set()
        self._queued: deque[object] = deque()
        self._idle = Signal()  # set, once closed, when nothing is left but what the closing thread is at itself
        self._closer: object = None

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        party = object()

        def taking_part() -> None:
            self._clock.join(party)
            try:
                _carry_out(work, future)
            finally:
                self._done(party)  # only now: whoever waits for the outcome has been told

        with self._counts:  # in the order in which they will be taken up
            self._queued.append(party)
            self._take_up()  # before a thread does
            try:
                super().submit(taking_part)
            except BaseException:
                self._call_off(party)
                raise
        return future

    def close(self, seconds: float) -> None:
        super().close(0.0)
        self._closer = self._clock.mine
        self._look_whether_idle()
        self._clock.wait(self._idle, self._clock.now() + seconds)  # its work may wait for time to pass
        super().close(seconds)

    def _call_off(self, party: object) -> None:
        if party in self._queued:
            self._queued.remove(party)
        else:
            self._done(party)

    def _done(self, party: object) -> None:
        with self._counts:
            self._at_work.discard(party)
            self._free += 1
            self._take_up()  # before this one leaves: no time passes in between
        self._look_whether_idle()
        self._clock.leave(party)

    def _take_up(self) -> None:
        while self._free and self._queued:
            self._free -= 1
            self._at_work.add(self._clock.invite(self._queued.popleft()))

    def _look_whether_idle(self) -> None:
        with self._counts:
            idle = self._closed and not self._queued and not self._at_work - {self._closer}
        if idle:
            self._idle.set()


def _carry_out(work: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        outcome = work()
    except BaseException as error:  # carried over to whoever waits for it
        future.set_exception(error)
    else:
        future.set_result(outcome)


class Turnstile:
    """A lock that is held across requests: who waits for it waits on the clock, where an RLock would stop time."""

    def __init__(self, clock: WorldClock) -> None:
        self._clock = clock
        self._guard = threading.Lock()  # guards the rest
        self._owner: int | None = None
        self._depth = 0
        self._waiting: list[Signal] = []

    def __enter__(self) -> bool:
        while (turn := self._entered()) is not None:
            self._clock.wait(turn, None)
        return True

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._depth -= 1
            if self._depth:
                return
            self._owner = None
            waiting, self._waiting = self._waiting, []
        for turn in waiting:
            turn.set()

    def _entered(self) -> Signal | None:
        """Try to enter: None where that succeeded, otherwise the signal that is set when it may."""
        me = threading.get_ident()
        with self._guard:
            if self._owner in (None, me):
                self._owner, self._depth = me, self._depth + 1
                return None
            self._waiting.append(turn := Signal())
            return turn
