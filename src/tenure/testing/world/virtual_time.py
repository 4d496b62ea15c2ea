"""Virtual time that moves by itself where everybody waits for it.

`WorldClock` knows who takes part: the thread that made it, the calls that were started on it, the helpers of its
clients. While one of them is at work no time passes; when all of them wait, time goes on to the next moment at which
something is due. So a test with threads in it needs no sleep, and depends on no machine's speed. What several threads
do in one and the same moment they do in any order.

Two ends keep a mistake from becoming a hang: a wait may let VIRTUAL_SECONDS_MAX pass, and the test itself waits for
PATIENCE_SECONDS of real time for whoever takes part and neither waits for the clock nor ends. Both raise StandsStill.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tenure._core.base.clock import VirtualClock
from tenure._core.base.signals import Signal

VIRTUAL_SECONDS_MAX: Final = 3600.0
PATIENCE_SECONDS: Final = 20.0


class StandsStill(AssertionError):
    """A test waits for what will never be. The message says what was waited for."""


class WorldClock(VirtualClock):
    """Time that moves by `advance`, and by itself while all who take part wait."""

    def __init__(self) -> None:
        super().__init__()
        self._mine = threading.local()
        self._moved = threading.Condition()  # guards everything below
        self._parties: dict[object, Signal | None] = {}  # what each waits for; None: it is at work
        self._stepping = False
        self._founder = self.invite()
        self.join(self._founder)

    # Who takes part.

    def invite(self, party: object = None) -> object:
        """A new party, or this one, is at work from now on."""
        party = party or object()
        with self._moved:
            self._parties[party] = None
        return party

    def join(self, party: object) -> None:
        """Take part: this thread is that party."""
        self._mine.party = party

    @property
    def mine(self) -> object:
        """The party that this thread is; None where it is none."""
        return getattr(self._mine, "party", None)

    def leave(self, party: object) -> None:
        """End the part of that party: its work is done."""
        with self._moved:
            self._parties.pop(party, None)
            self._moved.notify_all()

    @property
    def _takes_part(self) -> bool:
        return self.mine in self._parties

    # Waiting.

    def wait(self, signal: Signal, until: float | None) -> bool:
        if not self._takes_part:
            return super().wait(signal, until)  # nobody we know of: it is woken when it is time, and moves nothing
        wake = Signal()
        signal.add_callback(wake.set)
        timer = None if until is None else self.schedule(until, wake.set)
        try:
            self.rest(wake)
        finally:
            signal.remove_callback(wake.set)
            if timer is not None:
                timer.cancel()
        return signal.is_set()

    def rest(self, wake: Signal) -> None:
        """Let time pass until `wake` is set. Raises StandsStill."""
        if not self._takes_part:
            wake.wait(PATIENCE_SECONDS)
            return
        give_up = self.now() + VIRTUAL_SECONDS_MAX
        wake.add_callback(self._notify)
        with self._at_rest(wake):
            while self._my_step(wake):
                try:
                    self._step(give_up)
                finally:
                    with self._moved:
                        self._stepping = False
                        self._moved.notify_all()

    def settle(self) -> None:
        """Return when everybody else waits or has ended. Raises StandsStill."""
        with self._moved:
            if not self._moved.wait_for(lambda: self._all_rest(but=self.mine), PATIENCE_SECONDS):
                raise StandsStill(
                    f"a call that was started neither waits nor ends: {PATIENCE_SECONDS:g} s of real time"
                )

    def advance_settled(self, seconds: float) -> None:
        """`advance`, with everybody else's reaction to each moment before the next one comes."""
        goal = self.now() + seconds
        self.settle()
        while self.step_before(goal):
            self.settle()
        self.advance(goal - self.now())
        self.settle()

    def step_before(self, goal: float) -> bool:
        """Go on to the next moment at which something is due. False where none is before `goal`."""
        due = self._next_due()
        if due is None or due > goal:
            return False
        self.advance(due - self.now())
        return True

    @contextmanager
    def _at_rest(self, wake: Signal) -> Iterator[None]:
        party = self.mine
        with self._moved:
            self._parties[party] = wake
            self._moved.notify_all()
        try:
            yield
        finally:
            with self._moved:
                if party in self._parties:
                    self._parties[party] = None

    def _my_step(self, wake: Signal) -> bool:
        """True: everybody waits, and it is on us to move time. False: `wake` is set."""
        # Only the test itself loses patience: while it is at work, in a debugger say, the others just wait.
        patience = PATIENCE_SECONDS if self.mine is self._founder else None
        with self._moved:
            if not self._moved.wait_for(lambda: wake.is_set() or self._may_step(), patience):
                raise StandsStill(f"somebody else was at work for {PATIENCE_SECONDS:g} s of real time")
            self._stepping = not wake.is_set()
            return self._stepping

    def _step(self, give_up: float) -> None:
        if not self.step_before(give_up):
            raise StandsStill(f"nothing of {VIRTUAL_SECONDS_MAX:g} s of virtual time ends this wait")

    def _may_step(self) -> bool:
        return not self._stepping and self._all_rest()

    def _all_rest(self, but: object = None) -> bool:
        """True where every party waits.

        A party that was woken counts as at work, long before its thread has noticed.
        """
        waits = (wake for party, wake in self._parties.items() if party is not but)
        return all(wake is not None and not wake.is_set() for wake in waits)

    def _notify(self) -> None:
        with self._moved:
            self._moved.notify_all()

    def _next_due(self) -> float | None:
        with self._guard:
            return min((due for due, _, timer in self._timers if not timer.cancelled), default=None)
