"""How much time is kept before the deadline: for SIGTERM to have its effect, and for SIGKILL to come in time.

A renewal that has yet to come is no reason to end CMD, so what is kept must be less than what is left when renewals
come at their usual pace. The time to live does not tell: what one renewal proves differs from store to store. So the
pace is observed: half of the least that was left when one of the last renewals came.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_RENEWALS_SEEN: Final = 4
_MARGIN_LEAST: Final = 0.1
_MARGIN_MOST: Final = 1.0
_NEWS: Final = 0.005
"""A deadline that moved by less has not moved: the clock was read twice."""


class Pace:
    """Of the renewals of one hold, from its first `left` seconds. `grace` as asked for; None: all there may be."""

    def __init__(self, grace: float | None, left: float) -> None:
        self._asked = grace
        self._left = self._most = left
        self._floors = deque([left / 3] * _RENEWALS_SEEN, maxlen=_RENEWALS_SEEN)

    def look(self, left: float) -> bool:
        """Take in what is left now. True: a renewal came since the last look."""
        renewed = left > self._left + _NEWS
        if renewed:
            self._floors.append(self._left)
            self._most = max(self._most, left)
        self._left = left
        return renewed

    @property
    def margin(self) -> float:
        """Seconds before the deadline at which SIGKILL is sent: what the machine may take to carry it out."""
        return min(max(self._most / 10, _MARGIN_LEAST), _MARGIN_MOST, self._most / 4)

    @property
    def grace(self) -> float:
        """Seconds before the deadline at which SIGTERM is sent."""
        most = min(self._floors) / 2
        return max(self.margin, most if self._asked is None else min(self._asked, most))

    @property
    def look_after(self) -> float:
        """Seconds until the next look: a renewal is not told."""
        return min(max(self._most / 20, 0.02), 1.0)
