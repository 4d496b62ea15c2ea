"""tenure.testing: did anything go wrong? What clients did is recorded as it happens, and judged afterwards.

    recorder = Recorder("worker-1.jsonl")                       # one file per process
    client = recorded(tenure.connect(url, owner="worker-1"), recorder, name="worker-1")
    ...                                                         # use it as ever, break what you like
    print(check_history(History.read("worker-1.jsonl", "worker-2.jsonl")))

or, for files, `python -m tenure.testing.check FILE…` (0 passed, 1 failed, 2 unknown, 3 unreadable).

For tests of code that uses tenure, or of a backend, in reading order:

    plugin         pytest fixtures, there as soon as tenure is installed
    world/         World: a store in memory, virtual time, clients of either face, and what can go wrong for each
    conformance/   the suite that every backend passes, ours and yours
    servers/       real etcd and ZooKeeper servers, and a proxy that breaks what passes
    history/       histories of what clients did, and the checkers that judge them
    check          the same judgement from the command line

A checker sees only what was recorded: it proves that something went wrong, never that nothing can.
"""

from tenure.testing.history.check_liveness import LivenessBounds
from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import (
    Call,
    History,
    MemoryRecorder,
    Recorder,
    Records,
    UnreadableHistory,
    monotonic,
)
from tenure.testing.history.record import Log, recorded
from tenure.testing.history.report import LIVENESS, PROPERTIES, SAFETY, Report, applicable, check_history
from tenure.testing.history.verdicts import Outcome, Verdict, Violation
from tenure.testing.world.faults import Faults
from tenure.testing.world.virtual_time import StandsStill
from tenure.testing.world.world import Started, World

__all__ = [
    "LIVENESS",
    "PROPERTIES",
    "SAFETY",
    "LivenessBounds",
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
