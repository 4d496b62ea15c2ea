"""Traces: the memory store compared with the real ones, by the same commands on each and every answer.

    python -m tests.verify.traces --seeds 200 --stores etcd://127.0.0.1:2379 'zookeeper://127.0.0.1:2181/?tick=0.2'

The simulation (tests.verify.simulation) finds out what the library does over the memory store. That counts for etcd
and ZooKeeper as far as the memory store behaves like them; this package looks, verb by verb. A trace is a list of
commands from one seed: leases are opened, closed and ended by an administrator, tickets enter, are amended, touched,
leave, twice and by tickets of yesterday, keys are read and committed, watches are set, requests and answers are lost.

In reading order:

    commands         what a trace is made of
    random_commands  commands at random, one at a time
    plan             which trace a seed means
    stores           where a trace is played: clients and lost requests
    admins           an administrator of each store
    player           a trace played at one store, command by command
    knowledge        what the player has seen: tickets, versions, lines
    watching         the signals of its watches, and when they fired
    answers          what a store answered, in words that all stores share
    freedom          the differences that the Lease protocol allows, one by one, each with its law
    early_signals    the signals that a store may fire early, each with its reason
    compare          two outcomes of one trace, step by step
    shrink           a trace that differs made small
    command          the command line: many seeds

Promised: whatever is compared was answered by the real store, over its real driver. Not promised: time. Nothing here
waits for a TTL, so what leases do by the clock is the conformance suite's to show; and one thread plays, so races are
the simulation's. The stores are somebody's: a trace keeps to a namespace of its own and removes it at the end.
"""

from tests.verify.traces.commands import Trace
from tests.verify.traces.compare import Comparison, Difference, compare
from tests.verify.traces.early_signals import EARLY, Early
from tests.verify.traces.freedom import FREEDOMS, Freedom
from tests.verify.traces.plan import trace
from tests.verify.traces.shrink import shrink
from tests.verify.traces.stores import MEMORY, Store, open_store

__all__ = [
    "EARLY",
    "FREEDOMS",
    "MEMORY",
    "Comparison",
    "Difference",
    "Early",
    "Freedom",
    "Store",
    "Trace",
    "compare",
    "open_store",
    "shrink",
    "trace",
]
