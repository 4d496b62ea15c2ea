"""A running cluster and its members, whatever runs them: processes, containers, or somebody else.

`Cluster` knows readiness and leadership; `Member` is one server to break and mend; `Machine` is the seam a provider
fills in. A cluster belongs to the process that made it: in a forked child `close()` does nothing, so a child that
ends cannot take its parent's servers with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, urlencode

from tenure.testing.servers.counters import connect, etcd_counters, etcd_is_healthy, zk_four_letter
from tenure.testing.servers.specs import EtcdSpec, Kind, ServerFailed, Spec, ZooKeeperSpec

if TYPE_CHECKING:
    from tenure.testing.servers.certificates import TlsFiles

READY_SECONDS = 30.0
LEADER_SECONDS = 15.0
_POLL_SECONDS = 0.05


class Machine(Protocol):
    """The process or container of one member.

    Calls return when the thing has happened, except `launch`, which does not wait.
    """

    @property
    def pid(self) -> int: ...

    def launch(self) -> None: ...

    def kill(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def check_alive(self) -> None:
        """Raise ServerFailed when the server has ended by itself."""

    def log_tail(self) -> str: ...

    def log(self) -> str: ...


class Condition(Enum):
    """The last thing that the test did to a member; not what the server makes of it."""

    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"


class Member:
    """A server of a cluster.

    `endpoint` is for clients; `metrics_endpoint` answers plain text questions (see counters.py).
    """

    def __init__(self, *, endpoint: str, metrics_endpoint: str, machine: Machine) -> None:
        self.endpoint = endpoint
        self.metrics_endpoint = metrics_endpoint
        self.condition: Condition = Condition.RUNNING
        self._machine = machine
        # Set by the cluster: whether a member alone can be ready depends on how many others run.
        self.wait_ready: Callable[[], None] = machine.check_alive

    def __repr__(self) -> str:
        return f"<Member {self.endpoint} {self.condition.value}>"

    @property
    def pid(self) -> int:
        """The server process's id as the machine's kernel counts it. Raises ServerFailed when there is none."""
        return self._machine.pid

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone. Killing a killed member does nothing."""
        if self.condition is not Condition.KILLED:
            self._become(Condition.KILLED, self._machine.kill)

    def pause(self) -> None:
        """SIGSTOP: the kernel still accepts and acknowledges connections and bytes, the server answers nothing."""
        self._refuse_if_killed("pause")
        self._become(Condition.PAUSED, self._machine.pause)

    def resume(self) -> None:
        """SIGCONT. Does not wait until the server has caught up: see `wait_ready`."""
        self._refuse_if_killed("resume")
        self._machine.resume()
        self.condition = Condition.RUNNING

    def start(self) -> None:
        """Start a killed member again, same data and ports, and wait until it serves.

        While too few members run for a quorum, waits only until the member answers at all.
        Raises ServerFailed when it does not come up in time.
        """
        if self.condition is not Condition.KILLED:
            raise ServerFailed(f"{self.endpoint} cannot be started: it is {self.condition.value}")
        self._machine.launch()
        self.condition = Condition.RUNNING
        self.wait_ready()

    def log_tail(self) -> str:
        """The last few kilobytes the server wrote to its log, over all its starts."""
        return self._machine.log_tail()

    def log(self) -> str:
        """The log of the server, over all its starts."""
        return self._machine.log()

    def check_alive(self) -> None:
        """Raise ServerFailed when the server ended by itself."""
        self._machine.check_alive()

    def _become(self, condition: Condition, act: Callable[[], None]) -> None:
        """Told before it happens, so that nobody waits for a server that is about to end; taken back if it cannot."""
        before, self.condition = self.condition, condition
        try:
            act()
        except ServerFailed:
            self.condition = before
            raise

    def _refuse_if_killed(self, action: str) -> None:
        if self.condition is Condition.KILLED:
            raise ServerFailed(f"{self.endpoint} cannot {action}: it has been killed; start() it first")


class Cluster:
    """The members of one etcd cluster or ZooKeeper ensemble, and the URL a client needs to reach them."""

    def __init__(
        self, spec: Spec, members: Sequence[Member], *, tls: TlsFiles | None, close: Callable[[], None]
    ) -> None:
        self.spec = spec
        self.members: list[Member] = list(members)
        self.tls = tls
        self._close = close
        self._closed = False
        self._owner_pid = os.getpid()
        for member in self.members:
            member.wait_ready = lambda member=member: self._wait_member(member)  # type: ignore[misc]  # default arg binds

    def __repr__(self) -> str:
        return f"<Cluster {self.kind} {self.members}>"

    @property
    def kind(self) -> Kind:
        return "etcd" if isinstance(self.spec, EtcdSpec) else "zookeeper"

    @property
    def endpoints(self) -> list[str]:
        return [member.endpoint for member in self.members]

    @property
    def auth(self) -> tuple[str, str] | None:
        return self.spec.auth if isinstance(self.spec, EtcdSpec) else None

    def url(self, namespace: str = "", **options: object) -> str:
        """`kind://[user:password@]host:port,.../namespace?options`, with the TLS files among the options."""
        login = "".join(f"{quote(user, safe='')}:{quote(word, safe='')}@" for user, word in self._logins())
        query = urlencode(self._tls_options() | {name: str(value) for name, value in options.items()})
        address = f"{self.kind}://{login}{','.join(self.endpoints)}/{namespace.strip('/')}"
        return f"{address}?{query}" if query else address

    def leader(self) -> Member:
        """The one running member that says it leads, waiting for an election to end. ServerFailed if none does.

        A leader that was cut off keeps saying so for a while; this waits until exactly one says it.
        """
        deadline = time.monotonic() + LEADER_SECONDS
        while time.monotonic() < deadline:
            leaders = [member for member in self._running() if _leads(self.kind, member)]
            if len(leaders) == 1:
                return leaders[0]
            time.sleep(_POLL_SECONDS)
        raise ServerFailed(f"no single leader among {self.members} within {LEADER_SECONDS} s")

    def followers(self) -> list[Member]:
        """The running members that do not lead."""
        leader = self.leader()
        return [member for member in self._running() if member is not leader]

    def start_all(self) -> None:
        """Start every killed member at once and wait until the whole cluster serves."""
        killed = [member for member in self.members if member.condition is Condition.KILLED]
        with ThreadPoolExecutor(max_workers=max(1, len(killed))) as pool:
            list(pool.map(Member.start, killed))
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until every running member serves. Raises ServerFailed after a bound, with the member's log."""
        for member in self._running():
            self._wait_member(member)

    def close(self) -> None:
        """End every server by its process id and remove its files. Idempotent; does nothing in a forked child."""
        if self._closed or os.getpid() != self._owner_pid:
            return
        self._closed = True
        self._close()

    def _logins(self) -> list[tuple[str, str]]:
        return [self.auth] if self.auth else []

    def _tls_options(self) -> dict[str, str]:
        if self.tls is None:
            return {}
        options = {"ca": str(self.tls.ca)}
        return options | {"cert": str(self.tls.cert), "key": str(self.tls.key)} if self.tls.mutual else options

    def _running(self) -> list[Member]:
        return [member for member in self.members if member.condition is Condition.RUNNING]

    def _has_quorum(self) -> bool:
        return len(self._running()) > len(self.members) // 2

    def _wait_member(self, member: Member) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            member.check_alive()
            if _serves(self.kind, member) if self._has_quorum() else _answers(self.kind, member):
                return
            time.sleep(_POLL_SECONDS)
        raise ServerFailed(f"{self.kind} {member} not ready within {READY_SECONDS} s; its log:\n{member.log_tail()}")


class Provider(Protocol):
    """Makes clusters. Calls may run in parallel threads; `close()` closes every cluster it made."""

    def etcd(self, spec: EtcdSpec) -> Cluster: ...

    def zookeeper(self, spec: ZooKeeperSpec) -> Cluster: ...

    def close(self) -> None: ...


def start_together(provider: Provider, *specs: Spec) -> list[Cluster]:
    """Start several clusters at once; answers in the order of `specs`. Raises the first failure."""
    with ThreadPoolExecutor(max_workers=max(1, len(specs))) as pool:
        return list(pool.map(lambda spec: start(provider, spec), specs))


def start(provider: Provider, spec: Spec) -> Cluster:
    """The provider's method for this kind of spec."""
    return provider.etcd(spec) if isinstance(spec, EtcdSpec) else provider.zookeeper(spec)


def _serves(kind: Kind, member: Member) -> bool:
    try:
        if kind == "etcd":
            return etcd_is_healthy(member.metrics_endpoint)
        return _zookeeper_mode(member) is not None and _listens(member)
    except OSError:
        return False


def _listens(member: Member) -> bool:
    """ZooKeeper answers on its plain port before it opens the one for TLS. Raises OSError where nobody listens."""
    if member.endpoint != member.metrics_endpoint:
        connect(member.endpoint).close()
    return True


def _answers(kind: Kind, member: Member) -> bool:
    try:
        if kind == "etcd":
            return bool(etcd_counters(member.metrics_endpoint))
        return bool(zk_four_letter(member.metrics_endpoint, "ruok"))
    except OSError:
        return False


def _leads(kind: Kind, member: Member) -> bool:
    try:
        if kind == "etcd":
            return etcd_counters(member.metrics_endpoint).get("etcd_server_is_leader") == 1.0
        return _zookeeper_mode(member) in ("leader", "standalone")
    except OSError:
        return False


def _zookeeper_mode(member: Member) -> str | None:
    for line in zk_four_letter(member.metrics_endpoint, "srvr").splitlines():
        if line.startswith("Mode: "):
            return line.removeprefix("Mode: ").strip()
    return None
