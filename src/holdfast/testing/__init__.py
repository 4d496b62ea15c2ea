"""holdfast.testing: did anything go wrong? What clients did is written down as it happens, and judged afterwards.

    recorder = Recorder("worker-1.jsonl")                       # one file per process
    client = recorded(holdfast.connect(url, owner="worker-1"), recorder, name="worker-1")
    ...                                                         # use it as ever, break what you like
    print(check_history(History.read("worker-1.jsonl", "worker-2.jsonl")))

or, for files, `python -m holdfast.testing.check FILE…` (0 passed, 1 failed, 2 unknown, 3 unreadable).

In reading order:

    event.py            one thing that happened; the table of kinds
    history.py          recorders, and the history they make
    recorded.py         a client of either face that records what it does
    verdicts.py         passed, failed with violations, unknown with a reason
    spans.py truth.py   beliefs, pauses and faults; the store's own word, replayed
    checkers.py         safety by what clients saw: S1, S2, S3, S6, S7
    grounded.py         safety by what the store says: S4, S8, S9, S11
    fenced.py           safety by what a fenced store did: S5
    linearizability.py  S10, for small histories
    liveness.py         L1 to L6, judged where calm.py says that nothing was broken
    report.py check.py  all of them over one history, here and from the command line

    simulation/ traces/ random schedules of faults, replayed by seed; memory against the stores, verb by verb
    servers/ torture/   real servers and a proxy that breaks what passes; real processes while everything else breaks

And for tests of code that uses holdfast, or of a backend:

    world.py            World: memory, virtual time, clients of either face, and what can go wrong for each
    virtual.py share.py  its time, which moves when everybody waits; one client's share of it
    faults.py           what goes wrong for one client
    plugin.py           pytest fixtures, there as soon as holdfast is installed
    conformance/        the suite that every backend passes, ours and yours

A checker sees only what was recorded: it proves that something went wrong, never that nothing can.
"""

from holdfast.testing.event import Event, Kind
from holdfast.testing.faults import Faults
from holdfast.testing.history import Call, History, MemoryRecorder, Recorder, Records, UnreadableHistory, monotonic
from holdfast.testing.liveness import Bounds
from holdfast.testing.recorded import Log, recorded
from holdfast.testing.report import LIVENESS, PROPERTIES, SAFETY, Report, applicable, check_history
from holdfast.testing.verdicts import Outcome, Verdict, Violation
from holdfast.testing.virtual import StandsStill
from holdfast.testing.world import Started, World

__all__ = [
    "LIVENESS",
    "PROPERTIES",
    "SAFETY",
    "Bounds",
    "Call",
    "Event",
    "Faults",
    "History",
    "Kind",
    "Log",
    "MemoryRecorder",
    "Outcome",
    "Recorder",
    "Records",
    "Report",
    "StandsStill",
    "Started",
    "UnreadableHistory",
    "Verdict",
    "Violation",
    "World",
    "applicable",
    "check_history",
    "monotonic",
    "recorded",
]
