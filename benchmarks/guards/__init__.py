"""What a guard costs: each operation bare and through its guards, in turns, over the same client where there is one.

The guarded side is what the guard's manual shows, `hold.fence` included, under a lock of etcd (for the guard in
ZooKeeper: of ZooKeeper) whose fence was seen before: a holder's first claim is only one of many. What is not part of
the operation is made before the clock starts.

Servers that answer at once, in the same machine, hide nothing of what a guard adds: behind a network or a disk that
everybody waits for, the ratios come down towards that of the round trips. There are no floors here: what a guard may
cost is for its resource to say.

resource.py     what is protected, and where
sql.py          PostgreSQL, MariaDB, SQLite
others.py       Redis, a file, HTTP
stores.py       etcd and ZooKeeper themselves
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, TypeAlias

from benchmarks.findings import Findings, Section
from benchmarks.ground import Ground
from benchmarks.guards import others, sql, stores
from benchmarks.guards.resource import Grounds, Resource, open_grounds
from benchmarks.measure import Block, interleave
from benchmarks.report import milliseconds, table

_DISK: Final = "SQLite and the file wait for their disk; PostgreSQL, MariaDB and Redis do not."
_MakeResource: TypeAlias = Callable[[Grounds, ExitStack], Resource]
_RESOURCES: Final[Sequence[_MakeResource]] = (
    sql.postgresql,
    sql.mariadb,
    sql.sqlite,
    others.redis_scripts,
    others.file,
    others.http,
    stores.etcd,
    stores.zookeeper,
)


def run(ground: Ground) -> Findings:
    """The part `guards`."""
    with ExitStack() as stack:
        grounds = open_grounds(ground.servers(stack), stack)
        rows = [row for make in _RESOURCES for row in _costs(ground, make, grounds)]
    head = ("resource", "guarded", "bare", "guarded / bare", "bare p50 ms")
    return Findings([Section("What a guard costs", [_DISK, "", *table(head, rows)])])


def _costs(ground: Ground, make: _MakeResource, grounds: Grounds) -> list[tuple[str, ...]]:
    """As ratios within one resource, and the bare operation's time for orientation: twice of little is little."""
    with ExitStack() as stack:
        resource = make(grounds, stack)
        blocks: dict[str, Block] = {}
        for operation in resource.operations:
            blocks |= {operation.name: operation.bare, **operation.guarded}
        tell = ground.tell
        plan = ground.effort.guards
        results = interleave(blocks, plan, ground.shuffler, lambda told: tell(f"guards, {resource.name}: {told}"))
    return [
        (
            resource.name,
            guarded,
            operation.name,
            str(results.ratio(guarded, operation.name)),
            milliseconds(results.median(operation.name)),
        )
        for operation in resource.operations
        for guarded in operation.guarded
    ]
