"""Real etcd and ZooKeeper servers as processes of this machine, single or in threes, and the means to break them.

In reading order:

    specs         what can be asked for, and the command line and files of each server
    cluster       a running cluster and its members: Cluster, Member
    native        servers as child processes of this process
    processes     child processes that end with this one, and loopback ports
    certificates  the certificates of one test cluster
    counters      what the servers counted
    control       etcdctl
    proxy         faults on the wire, on demand
    wire          the inside of the proxy: faults, sockets and lanes
    framing       where one request or answer ends: HTTP/1.1 and jute
    streams       where one gRPC message ends: HTTP/2

Lifetimes: a cluster lives until its `close()` or its provider's, and never longer than the process that started it.
Everything binds loopback only, but for members at a `MemberSite` of their own. TLS needs the package `cryptography`.
"""

from tenure.testing.servers.cluster import Cluster, Condition, Member, Provider, start, start_together
from tenure.testing.servers.control import etcd_restore, etcdctl, etcdctl_popen
from tenure.testing.servers.counters import etcd_counters, zk_four_letter, zookeeper_counters
from tenure.testing.servers.native import MemberSite, NativeProvider
from tenure.testing.servers.proxy import FaultProxy, WebSocketFrames
from tenure.testing.servers.specs import EtcdSpec, ServerFailed, ServersMissing, ZooKeeperSpec
from tenure.testing.servers.wire import HeldAnswer

__all__ = [
    "Cluster",
    "Condition",
    "EtcdSpec",
    "FaultProxy",
    "HeldAnswer",
    "Member",
    "NativeProvider",
    "Provider",
    "ServerFailed",
    "ServersMissing",
    "MemberSite",
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
