"""What a test asks for: how many servers, how fast, how guarded. Values only; nothing here starts anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

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
