"""Real etcd and ZooKeeper servers as processes of this machine, single or in threes, and the means to break them.

Reading order: specs.py (what can be asked for), cluster.py (what comes back: Cluster, Member), native.py (servers as
processes: commands.py, processes.py and certificates.py are its parts), proxy.py (faults on the wire; faults.py,
framing.py, streams.py and wire.py are its parts), counters.py (what the servers counted), control.py (etcdctl).

Lifetimes: a cluster lives until its `close()` or its provider's, and never longer than the process that started it.
Everything binds loopback only, but for members at a `Site` of their own. TLS needs the package `cryptography`.
"""

from holdfast.testing.servers.cluster import Cluster, Condition, Member, Provider, start, start_together
from holdfast.testing.servers.control import etcd_restore, etcdctl, etcdctl_popen
from holdfast.testing.servers.counters import etcd_counters, zk_four_letter, zookeeper_counters
from holdfast.testing.servers.faults import Held
from holdfast.testing.servers.native import NativeProvider, Site
from holdfast.testing.servers.proxy import FaultProxy, WebSocketFrames
from holdfast.testing.servers.specs import EtcdSpec, ServerFailed, ServersMissing, ZooKeeperSpec

__all__ = [
    "Cluster",
    "Condition",
    "EtcdSpec",
    "FaultProxy",
    "Held",
    "Member",
    "NativeProvider",
    "Provider",
    "ServerFailed",
    "ServersMissing",
    "Site",
    "WebSocketFrames",
    "ZooKeeperSpec",
    "etcd_counters",
    "etcd_restore",
    "etcdctl",
    "etcdctl_popen",
    "start",
    "start_together",
    "zk_four_letter",
    "zookeeper_counters",
]
