"""The rule: a TTL that outlasts what is to be expected, and a renewal interval that leaves time for two more tries.

    ttl > p99 pause + p99 renewal + margin          renew <= ttl / 3

A hold that is renewed at a third of its TTL has two thirds left when the renewal is due; so the TTL is taken half as
long again as the sum. The margin is what can't be measured on a good day: a change of the store's leader, which takes
one or two election time-outs (etcd's is 1 s unless configured); and never less than the worst that was seen today.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from holdfast.belief import provable
from holdfast.cli.tuning.pauses import Pauses
from holdfast.cli.tuning.renewals import Bounds, Renewals

MARGIN_SECONDS: Final = 2.0
_TAIL: Final = 0.99
_TTL_LEAST: Final = 1.0
_LEFT_WHEN_DUE: Final = 2 / 3


@dataclass(frozen=True, slots=True)
class Advice:
    """What to ask for, and what it follows from. Seconds."""

    ttl: float
    renew: float
    pause: float
    renewal: float
    margin: float
    by_server: bool
    """The server grants no shorter one; the rule alone would allow it."""
    refused: bool
    """The server does not grant so long a one."""


def advise(pauses: Pauses, renewals: Renewals, bounds: Bounds, margin: float = MARGIN_SECONDS) -> Advice:
    """The shortest TTL, in whole seconds, that the rule allows and the server grants."""
    pause = max(pauses.thread.quantile(_TAIL), pauses.loop.quantile(_TAIL))
    renewal = renewals.took.quantile(_TAIL)
    worst = max(pauses.thread.worst, pauses.loop.worst) + renewals.took.worst
    margin = max(margin, worst - pause - renewal)
    needed = (pause + renewal + margin) / _LEFT_WHEN_DUE
    by_rule = max(_TTL_LEAST, float(math.ceil(needed)))
    while provable(by_rule) * _LEFT_WHEN_DUE < pause + renewal + margin:  # less the margin for clocks that drift
        by_rule += 1.0
    ttl = max(by_rule, float(math.ceil(bounds.least)))
    return Advice(
        ttl=ttl,
        renew=provable(ttl) / 3,
        pause=pause,
        renewal=renewal,
        margin=margin,
        by_server=ttl > by_rule,
        refused=bounds.most is not None and ttl > bounds.most,
    )
