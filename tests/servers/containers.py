"""Servers as containers, through testcontainers, on the docker daemon of this machine.

Images come from TENURE_ETCD_IMAGE and TENURE_ZOOKEEPER_IMAGE or are upstream's. Ports are published on loopback
with fixed numbers, because docker chooses new ones at every restart. testcontainers' reaper is switched off: it needs
an image of its own. So `close()` (also run at interpreter exit) removes containers and networks, but a SIGKILLed test
process leaves them; `docker ps --filter label=org.testcontainers=true` shows them.
"""

from __future__ import annotations

import atexit
import dataclasses
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.testing.servers.certificates import TlsFiles, make_tls_files
from tenure.testing.servers.cluster import Cluster, Member
from tenure.testing.servers.control import enable_auth
from tenure.testing.servers.processes import PortTaken, free_port, give_back
from tenure.testing.servers.specs import (
    JAVA_OPTIONS,
    EtcdSpec,
    Ports,
    ServerFailed,
    ServersMissing,
    Spec,
    ZooKeeperSpec,
    etcd_arguments,
    settings_text,
    zookeeper_properties,
    zookeeper_settings,
)
from tests.servers.networks import ClientNetwork, make_network, pulled

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network

_ETCD_IMAGE = "quay.io/coreos/etcd:v3.5.1"
_ZOOKEEPER_IMAGE = "zookeeper:3.8"
_BUILT = "tests/containers/run builds images and names them"
_INSTEAD = "use --servers=native with tests/servers/install.sh instead"
_HOST = "127.0.0.1"
_DOCKER_SECONDS = 60
_END_SECONDS = 10
_LOG_TAIL_LINES = 60
_TLS_INSIDE = Path("/tls")
_INSIDE = Ports(host="", client=2379, peer=2380, election=3888, plain=2381)


class ContainerProvider:
    """Starts clusters as containers. Safe to call from several threads; close it from the process that made it."""

    def __init__(self) -> None:
        """Raises ServersMissing when testcontainers is not installed or docker does not answer."""
        self._docker = _connect()
        self._lock = threading.Lock()  # guards _clusters
        self._clusters: list[Cluster] = []
        atexit.register(self.close)

    def etcd(self, spec: EtcdSpec) -> Cluster:
        """A ready etcd cluster. Raises ServersMissing without an image, ServerFailed when it does not come up."""
        cluster = self._start(spec, _etcd_container, etcd_image())
        if spec.auth:
            enable_auth(cluster, spec.auth)
        return cluster

    def zookeeper(self, spec: ZooKeeperSpec) -> Cluster:
        """A ready ensemble. Raises ServersMissing without an image, ServerFailed when it does not come up."""
        return self._start(spec, _zookeeper_container, zookeeper_image())

    def require_image(self, image: str) -> None:
        """Pull the image unless it is here. Raises ServersMissing."""
        from docker.errors import APIError, ImageNotFound

        try:
            self._docker.images.get(image)
        except ImageNotFound:
            try:
                self._docker.images.pull(image)
            except APIError as error:
                raise ServersMissing(
                    f"The image {image} is not here and cannot be pulled; {_BUILT}, or {_INSTEAD}."
                ) from error

    def close(self) -> None:
        with self._lock:
            clusters, self._clusters = self._clusters, []
        with ExitStack() as undo:  # one that cannot be closed does not keep the others open
            undo.callback(self._docker.close)
            for cluster in clusters:
                undo.callback(cluster.close)
        atexit.unregister(self.close)

    def _start(self, spec: Spec, prepare: _Prepare, image: str) -> Cluster:
        self.require_image(image)
        cluster = _launch(spec, prepare, image)
        with self._lock:
            self._clusters.append(cluster)
        try:
            cluster.wait_ready()
        except BaseException:  # an interrupt must not leave containers behind either
            cluster.close()
            raise
        return cluster


@dataclasses.dataclass(frozen=True)
class _Place:
    """The facts that a container is given about itself and its neighbours."""

    spec: Spec
    ports: list[Ports]
    index: int
    directory: Path
    tls: TlsFiles | None


_Prepare = Callable[["DockerContainer", _Place], None]


def client_network(cluster: Cluster) -> ClientNetwork:
    """A new way to all members, for one client. Close it before the cluster."""
    own = _INSIDE.plain if isinstance(cluster.spec, ZooKeeperSpec) else _INSIDE.client
    return ClientNetwork([container_of(member) for member in cluster.members], port=own)


def cut_from_its_peers(member: Member) -> AbstractContextManager[None]:
    """While inside, the member reaches no other one, and keeps the ways that clients have to it."""
    container = container_of(member)
    container.reload()
    home = container.attrs["HostConfig"]["NetworkMode"]
    return pulled(container, home)


def container_of(member: Member) -> Container:
    """The container that runs it. Raises TypeError where there is none."""
    machine = member._machine
    if not isinstance(machine, ContainerMachine):
        raise TypeError(f"{member!r} does not run in a container; this needs --servers=containers")
    return machine.container


def etcd_image() -> str:
    return os.environ.get("TENURE_ETCD_IMAGE", _ETCD_IMAGE)


def zookeeper_image() -> str:
    return os.environ.get("TENURE_ZOOKEEPER_IMAGE", _ZOOKEEPER_IMAGE)


def _connect() -> DockerClient:
    _require_socket()
    try:
        import docker
        from testcontainers.core.config import testcontainers_config
    except ImportError as error:
        raise ServersMissing(f"testcontainers is not installed: pip install testcontainers, or {_INSTEAD}.") from error
    testcontainers_config.ryuk_disabled = True
    try:
        client = docker.from_env(timeout=_DOCKER_SECONDS)
        client.ping()
    except docker.errors.DockerException as error:
        raise ServersMissing(f"Docker does not answer: start it, or {_INSTEAD}.") from error
    return client


def _require_socket() -> None:
    """Ask the daemon's socket first: the docker package leaks sockets, even on import, when nobody answers."""
    scheme, _, path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("://")
    if scheme != "unix":
        return
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_DOCKER_SECONDS)
            probe.connect(path)
    except OSError as error:
        raise ServersMissing(f"Docker does not answer: start it, or {_INSTEAD}.") from error


def _launch(spec: Spec, prepare: _Prepare, image: str) -> Cluster:
    """Start the containers. Everything that has to be undone is put on one stack as soon as it exists."""
    with ExitStack() as undo:
        root = Path(tempfile.mkdtemp(prefix="tenure-servers-"))
        undo.callback(shutil.rmtree, root)
        root.chmod(0o755)  # servers in containers run as other users
        tls = None if spec.tls == "off" else make_tls_files(root / "tls", mutual=spec.tls == "mutual")
        network = make_network(undo)
        inside = [dataclasses.replace(_INSIDE, host=f"m{index}") for index in range(spec.size)]
        places = [_Place(spec, inside, index, root, tls) for index in range(spec.size)]
        members = [_launch_member(place, prepare, image, network, undo) for place in places]
        return Cluster(spec, members, tls=tls, close=undo.pop_all().close)


def _launch_member(place: _Place, prepare: _Prepare, image: str, network: Network, undo: ExitStack) -> Member:
    from testcontainers.core.container import DockerContainer

    client, plain = free_port(), free_port()
    undo.callback(give_back, client)
    undo.callback(give_back, plain)
    container = DockerContainer(image).with_network(network).with_network_aliases(place.ports[place.index].host)
    own = place.ports[place.index]
    published = {f"{own.client}/tcp": (_HOST, client), f"{own.plain}/tcp": (_HOST, plain)}
    container.ports.update(published)  # docker takes (address, port) as well: loopback only
    if place.tls:
        container.with_volume_mapping(place.tls.ca.parent, str(_TLS_INSIDE), "ro")
    prepare(container, place)
    undo.callback(container.stop)
    container.start()
    without_tls_one_port = isinstance(place.spec, ZooKeeperSpec) and place.tls is None
    endpoint = f"{_HOST}:{plain if without_tls_one_port else client}"
    machine = ContainerMachine(container.get_wrapped_container())
    return Member(endpoint=endpoint, metrics_endpoint=f"{_HOST}:{plain}", machine=machine)


def _etcd_container(container: DockerContainer, place: _Place) -> None:
    spec = place.spec
    if not isinstance(spec, EtcdSpec):
        raise TypeError(f"not an etcd spec: {spec!r}")
    tls = _inside(place.tls)
    arguments = etcd_arguments(spec, place.ports, place.index, data="/etcd-data", tls=tls, listen="0.0.0.0")
    container.with_command(["etcd", *arguments])


def _zookeeper_container(container: DockerContainer, place: _Place) -> None:
    """Follows the conventions of the official image: /conf/zoo.cfg, /data, ZOO_MY_ID, SERVER_JVMFLAGS."""
    spec = place.spec
    if not isinstance(spec, ZooKeeperSpec):
        raise TypeError(f"not a ZooKeeper spec: {spec!r}")
    tls = _inside(place.tls)
    settings = zookeeper_settings(spec, place.ports, place.index, data="/data", tls=tls, listen="0.0.0.0")
    config = place.directory / f"zoo-{place.index}.cfg"
    config.write_text(settings_text(settings), "utf-8")
    container.with_volume_mapping(config, "/conf/zoo.cfg", "ro")
    container.with_env("ZOO_MY_ID", str(place.index + 1))
    container.with_env("SERVER_JVMFLAGS", " ".join([*JAVA_OPTIONS, *zookeeper_properties(spec)]))


def _inside(tls: TlsFiles | None) -> TlsFiles | None:
    """The same files under the names they have in the container."""
    if tls is None:
        return None
    return dataclasses.replace(
        tls,
        ca=_TLS_INSIDE / tls.ca.name,
        server_cert=_TLS_INSIDE / tls.server_cert.name,
        server_key=_TLS_INSIDE / tls.server_key.name,
        server_store=_TLS_INSIDE / tls.server_store.name,
    )


class ContainerMachine:
    """A container as a `Machine` (see cluster). Its data outlives a kill, not its removal."""

    def __init__(self, container: Container) -> None:
        self.container = container

    @property
    def pid(self) -> int:
        """The process id on the docker host, which is this machine."""
        self.container.reload()
        pid = int(self.container.attrs["State"]["Pid"])
        if pid == 0:
            raise ServerFailed("there is no running process")
        return pid

    def launch(self) -> None:
        from docker.errors import APIError

        try:
            self.container.start()
        except APIError as error:
            raise PortTaken(f"docker could not start {self.container.short_id}: {error.explanation}") from error

    def kill(self) -> None:
        self.container.reload()
        if self.container.status == "paused":
            self.container.unpause()  # docker 20.10 refuses to kill a paused container
        if self.container.status != "exited":
            self.container.kill(signal="SIGKILL")
        self.container.wait(timeout=_END_SECONDS)

    def pause(self) -> None:
        self.container.pause()

    def resume(self) -> None:
        self.container.unpause()

    def check_alive(self) -> None:
        self.container.reload()
        if self.container.status in ("exited", "dead"):
            raise ServerFailed(f"container {self.container.short_id} ended by itself; its log:\n{self.log_tail()}")

    def log_tail(self) -> str:
        return bytes(self.container.logs(tail=_LOG_TAIL_LINES)).decode("utf-8", "replace")

    def log(self) -> str:
        return bytes(self.container.logs()).decode("utf-8", "replace")
