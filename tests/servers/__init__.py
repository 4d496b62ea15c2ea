"""The servers this suite runs on: those of `tenure.testing.servers`, in the way that was chosen, and databases.

Reading order: choice.py (which provider: TENURE_SERVERS), containers.py with networks.py and external.py (the two
ways beside processes), databases.py (PostgreSQL, MariaDB, Redis: what the tokens guard), install.sh (installs what is
missing).
"""

from __future__ import annotations

from tenure.testing.servers.certificates import TlsFiles
from tenure.testing.servers.cluster import Cluster, Condition, Member, Provider, start, start_together
from tenure.testing.servers.control import etcd_restore, etcdctl, etcdctl_popen
from tenure.testing.servers.counters import etcd_counters, zk_four_letter, zookeeper_counters
from tenure.testing.servers.native import NativeProvider
from tenure.testing.servers.proxy import FaultProxy, WebSocketFrames
from tenure.testing.servers.specs import EtcdSpec, ServerFailed, ServersMissing, ZooKeeperSpec
from tenure.testing.servers.wire import HeldAnswer
from tests.servers.choice import PROVIDER_NAMES, choose
from tests.servers.databases import Database, DatabaseServer, MariaDB, PostgreSQL, Redis, start_database

__all__ = [
    "PROVIDER_NAMES",
    "Cluster",
    "Condition",
    "Database",
    "DatabaseServer",
    "EtcdSpec",
    "FaultProxy",
    "HeldAnswer",
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
