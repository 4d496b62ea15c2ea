"""Faults on demand between one client and the store of its World.

Verbs are those of the Lease protocol: enter, look, survey, amend, leave, read, commit, touch, renew, and grant and
close. A fault is planned for the next requests of a verb, in the order in which the faults were planned; the renewals
that a client makes by itself count as `renew`. A duplicated *answer* is no fault here: every store's answers are
matched to their requests. All of it is in virtual time: see world.py.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tenure._core.base import validation
from tenure._core.base.signals import Signal
from tenure._core.runtime import Runtime
from tenure.errors import InvalidOption, StoreUnavailable
from tenure.testing.world.client_clock import ClientClock

Outcome = TypeVar("Outcome")
VERBS: Final = ("grant", "enter", "look", "survey", "amend", "leave", "read", "commit", "touch", "renew", "close")
_TIMES_MAX: Final = 10_000
_SECONDS_MAX: Final = 3600.0


@dataclass(frozen=True, slots=True)
class _ExchangeFate:
    """The fate of one exchange."""

    arrives: int = 1
    """How often the request is carried out."""
    answered: bool = True
    late: float = 0.0
    """How many seconds the answer takes."""


class Faults:
    """The faults of one client, from now on."""

    def __init__(self, runtime: Runtime, clock: ClientClock) -> None:
        self.cut_off: bool = False
        """While true no request gets through and no change is told. Read by the store; use `cut` and `heal`."""
        self._runtime = runtime
        self._clock = clock
        self._guard = threading.Lock()  # guards _planned
        self._planned: dict[str, deque[_ExchangeFate]] = defaultdict(deque)

    def lose_request(self, verb: str, times: int = 1) -> None:
        """The next requests of this verb never reach the store."""
        self._plan(verb, times, _ExchangeFate(arrives=0))

    def lose_answer(self, verb: str, times: int = 1) -> None:
        """The next requests of this verb are carried out, and their answers lost."""
        self._plan(verb, times, _ExchangeFate(answered=False))

    def repeat_request(self, verb: str, times: int = 1) -> None:
        """The next requests of this verb are carried out twice; the client hears the first answer."""
        self._plan(verb, times, _ExchangeFate(arrives=2))

    def delay_answer(self, verb: str, seconds: float, times: int = 1) -> None:
        """The next answers of this verb come so late; lost, where that is later than the client's `timeout`.

        A renewal that the client makes by itself waits for nothing: it counts as not answered.
        """
        self._plan(
            verb, times, _ExchangeFate(late=validation.seconds(seconds, "seconds", minimum=0.0, maximum=_SECONDS_MAX))
        )

    def forget(self) -> None:
        """Take back every planned fault that has met no request yet."""
        with self._guard:
            self._planned.clear()

    def cut(self) -> None:
        """A partition: nothing gets through any more, in either direction, until `heal`."""
        self.cut_off = True

    def heal(self) -> None:
        """The end of a partition. The client looks at what it missed."""
        self._backend.heal()

    def expire(self) -> None:
        """End all leases of the client at the store, as an administrator would. It hears of it at its next request.

        Until then it believes in its holds, and a recorded history shows just that as broken. For a lease that ends
        by its TTL, use `cut` or `pause`, and let the time pass.
        """
        for lease in tuple(self._runtime._leases.values()):
            if lease.id:
                self._backend.store.expire(lease.id)

    def pause(self) -> None:
        """Stop the client, as SIGSTOP or a suspended machine does: it renews nothing and its clock goes on.

        Calls of it that are under way, or made meanwhile, go on after `resume`.
        """
        self._clock.pause()

    def resume(self) -> None:
        """Let it go on. What fell due meanwhile runs at once."""
        self._clock.resume()

    # The store's side of it: what a memory backend asks of its `faults`.

    def carry(self, operation: str, request: Callable[[], Outcome]) -> Outcome:
        """Carry one exchange: the request on its way, carried out, and its answer on the way back."""
        self._clock.until_resumed()
        fate = self._fate(operation)
        if self.cut_off or not fate.arrives:
            raise StoreUnavailable(f"the store did not answer {operation!r}: request lost by a fault")
        outcome = request()
        for _ in range(fate.arrives - 1):
            request()
        if fate.late:
            self._wait_for_answer(operation, fate.late)
        if self.cut_off or not fate.answered:
            raise StoreUnavailable(f"the store did not answer {operation!r}: answer lost by a fault")
        self._clock.until_resumed()
        return outcome

    def tell(self, signal: Signal) -> None:
        """Tell of a change that `signal` was watching for."""
        self._clock.run(signal.set)

    def _wait_for_answer(self, operation: str, late: float) -> None:
        patience = self._runtime.request_seconds
        if not self._clock.on_timer:
            self._clock.wait(Signal(), self._clock.now() + min(late, patience))
        if late > patience or self._clock.on_timer:
            raise StoreUnavailable(f"the store did not answer {operation!r} in time: delayed by a fault")

    def _plan(self, verb: str, times: int, fate: _ExchangeFate) -> None:
        if verb not in VERBS:
            raise InvalidOption(f"no verb is called {verb!r}; they are {', '.join(VERBS)}")
        count = validation.count(times, "times", minimum=1, maximum=_TIMES_MAX)
        with self._guard:
            self._planned[verb].extend([fate] * count)

    def _fate(self, operation: str) -> _ExchangeFate:
        with self._guard:
            planned = self._planned[operation]
            return planned.popleft() if planned else _ExchangeFate()

    @property
    def _backend(self) -> Any:
        return self._runtime._backend  # Any: a memory backend, which only the runtime may know
