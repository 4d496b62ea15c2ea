"""Parts of a torture run, as protocols: rig, workers and fault log, and a nemesis that breaks the first two.

    rig   the servers and the network between them and the clients' places    (rig/)
    workers  real processes that use the library and record it     (workers.py, worker/)
    fault_log    the history's file for what was broken, stamped by whoever broke it (fault_log.py)
    nemesis  breaks one thing after another until told to stop, and mends it     (nemeses/)

A place is a name: "server-0" … for members, "client-0" … for workers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias

from tenure.testing.servers import Cluster, FaultProxy

Need: TypeAlias = Literal["namespaces", "proxies", "root", "strace", "tmpfs", "auth", "etcd", "zookeeper", "quota"]
"""What a nemesis can't do without: of the rig (how it is set up), the machine, or the store."""


class Network(Protocol):
    """The links between places. Every call returns when the fault is in force. Calls add up until `heal`."""

    def cut(self, sender: str, receiver: str) -> None:
        """Let nothing pass from one place to the other any more, silently; one way only."""

    def reset(self, one: str, other: str) -> None:
        """Connections between the two are refused and broken with a reset, both ways."""

    def lose(self, place: str, share: float) -> None:
        """Lose this share of the packets that come to and go from a place, at random."""

    def heal(self) -> None:
        """Mend what was broken through this network; not what was through another layer of it."""

    def layer(self) -> Network:
        """The same links, for one more who breaks them at the same time: its `heal` mends only what it broke."""


class Rig(Protocol):
    """Servers that run, and the places of clients around them."""

    cluster: Cluster
    clients: Sequence[str]
    """The places of clients, "client-0" …"""
    has: frozenset[Need]
    """What a nemesis may rely on here."""
    proxies: Mapping[tuple[str, str], FaultProxy]
    """Between a client's place and a server's, by both names; empty where they reach each other directly."""

    @property
    def network(self) -> Network:
        """The links between its places."""

    @property
    def truth_url(self) -> str:
        """The store, on a way that no fault cuts: for whoever observes."""

    def url(self, place: str) -> str:
        """The store as the client at `place` reaches it; options of the URL may be added with `&` or `?`."""

    def reached(self, place: str) -> Sequence[str]:
        """The servers that the client at `place` is connected to now."""

    def command(self, place: str) -> Sequence[str]:
        """The words that a command line at `place` begins with: nothing, or `ip netns exec …`."""

    def close(self) -> None:
        """End every server, and take the network down. Idempotent."""


class Worker(Protocol):
    """A client process. Its orders go through its standard input, one line each."""

    name: str
    place: str

    @property
    def pid(self) -> int:
        """The running process."""

    def stop(self) -> None:
        """SIGSTOP, stamped in the fault_log once it stands."""

    def resume(self) -> None:
        """SIGCONT, stamped before."""

    def kill(self) -> None:
        """SIGKILL, stamped once it is gone."""

    def replace(self) -> None:
        """Start a new process at this place after a kill: a new client with a new name."""

    def order(self, words: str) -> None:
        """Give one of these orders. What can't be understood is left undone.

        `stall SECONDS` (the GIL is kept), `stall-loop SECONDS` (only the event loop is), `clock RATE` and
        `jump SECONDS` (its injected clock, forward), `fork`, `cancel` (one of its calls that is under way), `hop`
        (ZooKeeper: its connection breaks, and it goes on at another server or the same).
        """


class Workers(Protocol):
    """The workers of a run."""

    @property
    def all(self) -> Sequence[Worker]:
        """The workers, in the order in which they were started."""

    def holder(self) -> Worker | None:
        """A worker that held something a moment ago, as far as its records show."""


class FaultLog(Protocol):
    """The log of what was broken. Thread-safe."""

    def broken(self, fault: str, client: str = "") -> AbstractContextManager[None]:
        """A fault from now until the end of the block; `client` for one worker's only, "" for everybody's.

        The fault called `cut` is the one that leaves its client no way to any server.
        """

    def count(self, fault: str) -> None:
        """Count one fault more of this name, for the figures at the end; `broken` counts by itself."""

    def removing(self, *, ticket: str = "", lease: str = "") -> None:
        """An administrator is about to remove this ticket (its id, or a name it stands in) or to end this lease.

        Called right before, so that the store's own word can say whose hand it was. `lease` as `Hold.lease_id` has it.
        """


class Nemesis(Protocol):
    """A kind of fault. Made for one run; the command line calls it by its `name`."""

    name: str
    backends: Iterable[Literal["etcd", "zookeeper"]]
    needs: frozenset[Need]

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: random.Random, seconds: float) -> None:
        """Break something for about `seconds`, and mend it: when this returns or raises, nothing is broken any more.

        Raises ServerFailed where a server did not come back.
        """
