"""The replicas of a service: whichever answers opens a lease, and the one that did is asked for all that is about it.

So failing over is for opening alone. What one replica refuses or leaves unanswered disturbs no lease of another: each
has its own connections, its own stream of what is waited for, and its own thread for renewals.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from holdfast.backends.service.calls import Calls
from holdfast.backends.service.changes import Changes
from holdfast.helpers import Helpers
from holdfast.lease import Surroundings
from holdfast.options import Endpoint, Options

_HEART_SECONDS: Final = 5.0


class Replica:
    """One endpoint, or whichever of several answers."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self.calls = Calls(options, around)
        self.changes = Changes(self.calls, around)
        # One thread renews all leases: a service that is away may block it, but nobody else.
        self.heart = Helpers("holdfast-heart", 1)

    def close(self) -> None:
        self.heart.close(_HEART_SECONDS)
        self.changes.close()
        self.calls.session.close()


class Replicas:
    """All endpoints of one service, and each that has lent a lease. Thread-safe."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self._options = options
        self._around = around
        self.any = Replica(options, around)
        self._guard = threading.RLock()  # guards _lenders
        self._lenders: dict[Endpoint, Replica] = {}

    def __iter__(self) -> Iterator[Replica]:
        with self._guard:
            return iter([self.any, *self._lenders.values()])

    def at(self, endpoint: Endpoint) -> Replica:
        """The one there."""
        if len(self._options.endpoints) == 1:
            return self.any
        with self._guard:
            lender = self._lenders.get(endpoint)
            if lender is None:
                lender = Replica(replace(self._options, endpoints=(endpoint,)), self._around)
                lender.calls.session.vouch()
                self._lenders[endpoint] = lender
            return lender
