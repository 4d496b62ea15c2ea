"""Specs: what a test asks for, and the command line and files of each server for it, as pure functions.

A spec says how many servers, how fast, how guarded. Nothing here starts a process: the native provider and the
containers share the settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

TlsMode: TypeAlias = Literal["off", "server", "mutual"]
Kind: TypeAlias = Literal["etcd", "zookeeper"]


class ServersMissing(Exception):
    """The real servers a test needs are not there; the message says how to get them.

    Raised instead of skipping: a skipped contract test reads like a passed one.
    """


class ServerFailed(Exception):
    """A server that is installed did not start, did not become ready in time, or cannot do what was asked."""


@dataclass(frozen=True)
class EtcdSpec:
    """An etcd cluster. `auth` is (user, password) and is switched on after the start."""

    size: int = 1
    heartbeat_ms: int = 60
    election_ms: int = 300
    tls: TlsMode = "off"
    auth: tuple[str, str] | None = None
    auth_token_ttl_seconds: int = 300
    quota_bytes: int | None = None
    extra_args: tuple[str, ...] = ()
    gateway: bool = True


@dataclass(frozen=True)
class ZooKeeperSpec:
    """A ZooKeeper ensemble. Without `min_session_ms` the server's own minimum of two ticks holds."""

    size: int = 1
    tick_ms: int = 200
    min_session_ms: int | None = None
    max_session_ms: int = 60000
    tls: TlsMode = "off"
    container_check_ms: int = 1000


Spec: TypeAlias = EtcdSpec | ZooKeeperSpec


if TYPE_CHECKING:
    from tenure.testing.servers.certificates import TlsFiles

_JARS_DIRECTORY = Path("/usr/share/java")
# zookeeper.jar's manifest names most of what it needs, but not all that Netty (the TLS front) loads; and Debian's
# jute, behind whatever stands before it here.
_JARS = ("zookeeper-jute", "zookeeper", "slf4j-simple", "netty-codec", "netty-resolver",
         "netty-transport-native-unix-common")  # fmt: skip
_INIT_MS = 10_000
_SYNC_MS = 3_000
JAVA_OPTIONS = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",  # the JVM would leave a file outside the member's directory
    "-Xshare:auto",
    "-Djava.awt.headless=true",
)


@dataclass(frozen=True)
class Ports:
    """The addresses of one member. `plain` answers metrics or four-letter words without TLS."""

    host: str
    client: int
    peer: int
    election: int
    plain: int


def etcd_arguments(
    spec: EtcdSpec, ports: Sequence[Ports], index: int, *, data: str, tls: TlsFiles | None, listen: str = ""
) -> list[str]:
    """etcd's flags for member `index`. `listen` is the address to bind where it differs from the advertised host."""
    own = ports[index]
    scheme = "https" if tls else "http"
    bind = listen or own.host
    return [
        f"--name=m{index}",
        f"--data-dir={data}",
        f"--listen-client-urls={scheme}://{bind}:{own.client}",
        f"--advertise-client-urls={scheme}://{own.host}:{own.client}",
        f"--listen-peer-urls=http://{bind}:{own.peer}",
        f"--initial-advertise-peer-urls=http://{own.host}:{own.peer}",
        f"--listen-metrics-urls=http://{bind}:{own.plain}",
        "--initial-cluster=" + ",".join(f"m{n}=http://{p.host}:{p.peer}" for n, p in enumerate(ports)),
        "--initial-cluster-state=new",
        f"--heartbeat-interval={spec.heartbeat_ms}",
        f"--election-timeout={spec.election_ms}",
        f"--enable-grpc-gateway={str(spec.gateway).lower()}",
        f"--auth-token-ttl={spec.auth_token_ttl_seconds}",
        "--logger=zap",
        "--log-outputs=stderr",
        *_etcd_options(spec, tls),
    ]


def _etcd_options(spec: EtcdSpec, tls: TlsFiles | None) -> list[str]:
    options = [] if spec.quota_bytes is None else [f"--quota-backend-bytes={spec.quota_bytes}"]
    if tls:
        options += [f"--cert-file={tls.server_cert}", f"--key-file={tls.server_key}"]
    if tls and tls.mutual:
        options += [f"--trusted-ca-file={tls.ca}", "--client-cert-auth"]
    return [*options, *spec.extra_args]


def zookeeper_settings(
    spec: ZooKeeperSpec, ports: Sequence[Ports], index: int, *, data: str, tls: TlsFiles | None, listen: str = ""
) -> dict[str, str]:
    """zoo.cfg for member `index`. Limits in ticks are converted from times that suit a loaded two-core machine."""
    own = ports[index]
    settings = {
        "dataDir": data,
        "tickTime": str(spec.tick_ms),
        "initLimit": str(_ticks(_INIT_MS, spec.tick_ms)),
        "syncLimit": str(_ticks(_SYNC_MS, spec.tick_ms)),
        "maxSessionTimeout": str(spec.max_session_ms),
        "maxClientCnxns": "0",
        "clientPort": str(own.plain),
        "clientPortAddress": listen or own.host,
        "4lw.commands.whitelist": "*",
        "admin.enableServer": "false",
        "extendedTypesEnabled": "true",
    }
    if spec.min_session_ms is not None:
        settings["minSessionTimeout"] = str(spec.min_session_ms)
    return settings | _zookeeper_tls(own, tls, listen or own.host) | _ensemble(ports, listen)


def _ticks(milliseconds: int, tick_ms: int) -> int:
    return max(2, -(-milliseconds // tick_ms))


def _zookeeper_tls(own: Ports, tls: TlsFiles | None, bind: str) -> dict[str, str]:
    if tls is None:
        return {}
    return {
        "secureClientPort": str(own.client),
        "secureClientPortAddress": bind,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(tls.server_store),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(tls.ca),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need" if tls.mutual else "none",
    }


def _ensemble(ports: Sequence[Ports], listen: str) -> dict[str, str]:
    if len(ports) == 1:
        return {}
    servers = {f"server.{n + 1}": f"{p.host}:{p.peer}:{p.election}" for n, p in enumerate(ports)}
    return servers | ({"quorumListenOnAllIPs": "true"} if listen else {})


def zookeeper_properties(spec: ZooKeeperSpec) -> list[str]:
    """Java system properties that zoo.cfg cannot carry."""
    return [
        f"-Dznode.container.checkIntervalMs={spec.container_check_ms}",
        "-Dzookeeper.preAllocSize=1024",  # 64 MiB per transaction log otherwise
        "-Dzookeeper.jmx.log4j.disable=true",
    ]


def zookeeper_command(java: str, spec: ZooKeeperSpec, directory: Path) -> list[str]:
    """The JVM's command line. Logs go to stderr through slf4j's simple binding, so no logging file is needed."""
    return [
        java,
        *JAVA_OPTIONS,
        f"-Djava.io.tmpdir={directory}",
        f"-XX:ErrorFile={directory}/jvm-error.log",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        *zookeeper_properties(spec),
        "-cp",
        ":".join(str(path) for path in zookeeper_jars()),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(directory / "zoo.cfg"),
    ]


def zookeeper_jars() -> list[Path]:
    """The classpath: Debian's jars, but ZooKeeper's own from TENURE_ZOOKEEPER_JARS where that names a directory."""
    named = Path(os.environ.get("TENURE_ZOOKEEPER_JARS") or _JARS_DIRECTORY)
    return [(named if jar.startswith("zookeeper") else _JARS_DIRECTORY) / f"{jar}.jar" for jar in _JARS]


def write_zookeeper_files(directory: Path, settings: Mapping[str, str], index: int) -> None:
    """zoo.cfg in `directory`, and the member's number in the data directory that the settings name."""
    data = Path(settings["dataDir"])
    data.mkdir(parents=True, exist_ok=True)
    (data / "myid").write_text(f"{index + 1}\n", "ascii")
    (directory / "zoo.cfg").write_text(settings_text(settings), "utf-8")


def settings_text(settings: Mapping[str, str]) -> str:
    """The settings in zoo.cfg's own syntax."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())
