"""Deterministic simulation: the real library over the memory store, with time, order and chance from one seed.

    python -m tests.verify.simulation --seeds 2000            # both modes; exit 0 passed, 1 not
    python -m tests.verify.simulation --replay 17 --shrink    # one seed once more, made small if it fails

What is simulated: clients of both faces with a few actors each, which take locks, seats, read/write locks and
elections, with and without time-outs, write guarded keys, are cancelled, lose requests and answers, have requests
carried out late, are cut off, paused, closed and killed. What is real: everything of the library, from the face down to
the memory backend. What is replaced: threads (by greenlets), `Helpers` (by queues), the clock, the event loop, and the
way between client and store. Nothing sleeps, no thread is started.

In reading order:

    plan            what a seed means: clients, programs, faults
    scheduler       the heap of what is to happen, and simulated threads: blocking code as steps
    clocks          the store's clock, and each client's
    network         the way to the store
    executors       a client's background queues and its event loop
    client_process  one client with all that its process would have
    actors          what the actors of a client do
    ground_truth    what the store says, and what must never be otherwise
    writes          guarded writes, and which of them may have been carried out
    nemesis         what goes wrong
    seeding         the library's own chance, taken over: ids and random numbers
    run             one run from a plan to its result
    history         a run as a history, for the checkers
    shrink          a failing plan made small
    totals          what many runs covered
    command         the command line: many seeds, or one once more

Promised: the same seed is the same run, byte by byte, in any process. Not promised: that across versions of tenure
or Python; and a store other than memory's is not simulated. Needs greenlets (pip install greenlet).
"""

from tests.verify.simulation.plan import Mode, Plan, plan
from tests.verify.simulation.run import Result, carry_out, simulate
from tests.verify.simulation.shrink import Shrunk, shrink
from tests.verify.simulation.totals import Totals

__all__ = ["Mode", "Plan", "Result", "Shrunk", "Totals", "carry_out", "plan", "shrink", "simulate"]
