"""Real etcd and ZooKeeper servers for the tests, and the means to break them.

Reading order: specs.py (what can be asked for), cluster.py (what comes back: Cluster, Member), native.py (servers as
processes), containers.py and external.py (the other two ways), proxy.py (faults on the
wire; faults.py, framing.py and wire.py are its parts), counters.py (what the
servers counted), control.py (etcdctl), databases.py (PostgreSQL, MariaDB, Redis: what the tokens guard).

Lifetimes: a provider lives for a test session, a cluster until its `close()` or its provider's, a FaultProxy for one
test. Everything binds loopback only.
"""

from __future__ import annotations

from .certificates import TlsFiles
from .choice import PROVIDER_NAMES, choose
from .cluster import Cluster, Condition, Member, Provider, start, start_together
from .control import etcd_restore, etcdctl, etcdctl_popen
from .counters import etcd_counters, zk_four_letter, zookeeper_counters
from .databases import Database, DatabaseServer, MariaDB, PostgreSQL, Redis, start_database
from .faults import Held
from .native import NativeProvider
from .proxy import FaultProxy, WebSocketFrames
from .specs import EtcdSpec, ServerFailed, ServersMissing, ZooKeeperSpec

__all__ = [
    "PROVIDER_NAMES",
    "Cluster",
    "Condition",
    "Database",
    "DatabaseServer",
    "EtcdSpec",
    "FaultProxy",
    "Held",
    "MariaDB",
    "Member",
    "NativeProvider",
    "PostgreSQL",
    "Provider",
    "Redis",
    "ServerFailed",
    "ServersMissing",
    "TlsFiles",
    "WebSocketFrames",
    "ZooKeeperSpec",
    "choose",
    "etcd_counters",
    "etcd_restore",
    "etcdctl",
    "etcdctl_popen",
    "start",
    "start_database",
    "start_together",
    "zk_four_letter",
    "zookeeper_counters",
]
