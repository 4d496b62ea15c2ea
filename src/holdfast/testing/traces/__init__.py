"""Does the memory store behave like the real ones? The same commands on each, and every answer compared.

    python -m holdfast.testing.traces --seeds 200 --stores etcd://127.0.0.1:2379 'zookeeper://127.0.0.1:2181/?tick=0.2'

The simulation (holdfast.testing.simulation) finds out what the library does over the memory store. That counts for etcd
and ZooKeeper as far as the memory store behaves like them; this package looks, verb by verb. A trace is a list of
commands from one seed: leases are opened, closed and ended by an administrator, tickets enter, are amended, touched,
leave, twice and by tickets of yesterday, keys are read and committed, watches are set, requests and answers are lost.

In reading order:

    commands.py   what a trace is made of
    plan.py       which trace a seed means; singles.py: commands at random
    stores.py     where a trace is played: clients, lost requests, an administrator; admins.py: one of each store
    player.py     a trace played at one store, command by command; knowledge.py: what was seen; watching.py: its signals
    told.py       what was answered, in words that all stores share
    freedom.py    the differences that the Lease protocol allows, one by one, each with its law; early.py: of signals
    compare.py    two outcomes of one trace, step by step
    shrink.py     a trace that differs made small
    command.py    many seeds, from the command line

Promised: whatever is compared was answered by the real store, over its real driver. Not promised: time. Nothing here
waits for a TTL, so what leases do by the clock is the conformance suite's to show; and one thread plays, so races are
the simulation's. The stores are somebody's: a trace keeps to a namespace of its own and removes it at the end.
"""

from holdfast.testing.traces.commands import Trace
from holdfast.testing.traces.compare import Comparison, Difference, compare
from holdfast.testing.traces.early import EARLY, Early
from holdfast.testing.traces.freedom import FREEDOMS, Freedom
from holdfast.testing.traces.plan import trace
from holdfast.testing.traces.shrink import shrink
from holdfast.testing.traces.stores import MEMORY, Store, open_store

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
