"""What an answer from ZooKeeper proves: of the session's life (law 2), and of the store's history (law 4).

When is the session proven? An answered ping or read proves nothing: a follower that is cut off from its
leader answers them. An answered `sync` went through the leader, so at that time the follower was linked
to it. What keeps the session alive at the leader is the follower's report, once per half tick, of who has
been heard from. So a heartbeat counts from its sending once a later `sync`, sent at least a tick after it,
was answered: the report in between has carried it.
"""

from __future__ import annotations

import collections
import threading
from typing import Final

from holdfast.errors import StoreWentBack

_APART: Final = 1 / 64
"""Of a tick, between heartbeats that are kept: a bound on their number, for at most as much age."""


class History:
    """Law 4: tokens of later tickets are higher. One that is not tells of a store that went back."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._guard = threading.RLock()  # guards the two below
        self._highest = 0
        self._broken = ""  # why, once it is; an error is made for each who asks: one would keep all their frames

    @property
    def highest(self) -> int:
        """The highest token seen so far. Read it before sending."""
        if self._broken:
            raise StoreWentBack(self._broken)
        return self._highest

    def check(self, token: int, least: int) -> None:
        with self._guard:
            if token <= least:
                self._broken = (
                    f"{self._store} gave token {token} after this client had seen {least}: it was restored or "
                    "replaced. Its tokens would repeat, so this client stops. Fence what it protected, then connect "
                    "anew."
                )
                raise StoreWentBack(self._broken)
            self._highest = max(self._highest, token)


class Proof:
    """Which heartbeat the leader must have heard of by now. See the top of this file."""

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._heard: collections.deque[float] = collections.deque()  # in order of sending, some way apart

    def restart(self) -> None:
        """A new connection: what was sent on the old one may not have arrived."""
        self._heard.clear()

    def answered(self, sent: float) -> float | None:
        """The `sync` sent at `sent` was answered: the latest time from which the session is proven, if any."""
        # The new one is left out, never the oldest: among thousands a second none would ever come to be a tick old.
        if not self._heard or sent - self._heard[-1] >= self._tick * _APART:
            self._heard.append(sent)
        proven = None
        while self._heard and self._heard[0] <= sent - self._tick:
            proven = self._heard.popleft()
        return proven
