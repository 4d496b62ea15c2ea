"""Between which two moments something happened that was seen from afar.

Who asks a store "how far are you?" learns two things: what it had not reached when the question was sent comes later
than that (where the answer is the quorum's), and what it has reached when the answer is back was there by then.
"""

from __future__ import annotations

import threading
from bisect import bisect_left


class Moments:
    """The moments of questions and answers. Places are revisions, zxids: whatever the store counts by. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()  # guards everything below
        self._lows: list[tuple[int, float]] = []  # (place, asked at), both growing
        self._highs: list[tuple[int, float]] = []  # (place, answered at), places growing

    def answered(self, place: int, *, asked_at: float | None, answered_at: float) -> None:
        """The store is at `place`. `asked_at` only where the answer was the quorum's."""
        with self._guard:
            if asked_at is not None and self._later(place, asked_at):
                self._lows.append((place, asked_at))
            if not self._highs or place > self._highs[-1][0]:
                self._highs.append((place, answered_at))

    def _later(self, place: int, asked_at: float) -> bool:
        return not self._lows or (place >= self._lows[-1][0] and asked_at > self._lows[-1][1])

    @property
    def furthest(self) -> int:
        """The furthest place that an answer told of."""
        with self._guard:
            return self._highs[-1][0] if self._highs else 0

    def since(self, place: int) -> float:
        """The last question whose answer had not reached it; 0.0 where there is none."""
        with self._guard:
            index = bisect_left(self._lows, (place, 0.0)) - 1
            return self._lows[index][1] if index >= 0 else 0.0

    def by(self, place: int) -> float | None:
        """The first answer that had reached it; None where there is none."""
        with self._guard:
            index = bisect_left(self._highs, (place, 0.0))
            return self._highs[index][1] if index < len(self._highs) else None
