"""Deterministic simulation: the real library over the memory store, with time, order and chance from one seed.

    python -m holdfast.testing.simulation --seeds 2000            # both modes; exit 0 passed, 1 not
    python -m holdfast.testing.simulation --replay 17 --shrink    # one seed once more, made small if it fails

What is simulated: clients of both faces with a few actors each, which take locks, seats, read/write locks and
elections, with and without time-outs, write guarded keys, are cancelled, lose requests and answers, have requests
carried out late, are cut off, paused, closed and killed. What is real: everything of the library, from the face down to
the memory backend. What stands in for something else: threads (strands), `Helpers` (queues), the clock, the event loop,
and the way between client and store. Nothing sleeps, no thread is started.

In reading order:

    plan.py       what a seed means: clients, programs, faults
    strands.py    the heap of what is to happen, and blocking code as steps; times.py: a client's clock
    network.py    the way to the store; crews.py: workers and event loop
    site.py       one client's process; actors.py: what its actors do
    ground.py     the ground truth, and what must never be otherwise; writes.py: guarded writes
    nemesis.py    what goes wrong
    world.py      one run; seeding.py: the one place where the library's own chance is taken over
    shrink.py     a failing plan made small; totals.py, command.py: many runs, and what they covered
    diary.py      a run as a history, for the checkers

Promised: the same seed is the same run, byte by byte, in any process. Not promised: that across versions of holdfast
or Python; and a store other than memory's is not simulated. Needs greenlets (pip install greenlet).
"""

from holdfast.testing.simulation.plan import Mode, Plan, plan
from holdfast.testing.simulation.shrink import Shrunk, shrink
from holdfast.testing.simulation.totals import Totals
from holdfast.testing.simulation.world import Result, carry_out, simulate

__all__ = ["Mode", "Plan", "Result", "Shrunk", "Totals", "carry_out", "plan", "shrink", "simulate"]
