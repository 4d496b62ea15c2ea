"""Mutants: small faults in the code that keeps the laws, each with the fast tests that have to fail because of it.

    tests/run mutants                   all of them, in copies of the tree: names those that survive
    tests/run mutants keep-alive        those with this in their name or file

A mutant is a named replacement of one text in one file. The text has to be found exactly once, or the list is stale; a
unit test looks. Kept is what was wrong in such libraries, in this one, or would be; none is equivalent to the code.

In reading order:

    mutant       a mutant, and how it is made of a copy
    core         belief, heartbeat, turn, recipes and fences
    etcd         etcd's lease, its keys, its history
    zookeeper    ZooKeeper's session, its lines, its watches
    command      the command line: each in a copy of its own, several at a time

Promised: the tests named pass without a mutant, and fail with each. Not promised: a mutant for every line.
"""

from collections.abc import Sequence

from tests.verify.mutants import core, etcd, zookeeper
from tests.verify.mutants.mutant import Mutant, Stale, applied

MUTANTS: Sequence[Mutant] = (*core.MUTANTS, *etcd.MUTANTS, *zookeeper.MUTANTS)

__all__ = ["MUTANTS", "Mutant", "Stale", "applied"]
