"""The numbers of a ZooKeeper session's requests: the servers tell them apart by nothing else."""

from __future__ import annotations

import struct

import pytest

import tenure
from tests.servers import Cluster, FaultProxy

from .test_faults import proxied

_XID = struct.Struct(">i")
_CONNECT, _CREATE = 0, 15


def test_zookeeper_requests_of_a_session_are_numbered_through_all_its_connections(
    singles: dict[str, Cluster],
) -> None:
    """A request of the last connection that is carried out late must not be taken for one of this connection.

    ZooKeeper pairs what is decided with who asked by session and number. kazoo began at 1 with each connection: answers
    came to other requests than they were of, or never ("xids do not match").
    """
    cluster, seen = singles["zookeeper"], list[int]()

    def note(opcode: int, frame: bytes) -> bool:
        if opcode != _CONNECT and (xid := _XID.unpack_from(frame)[0]) > 0:
            seen.append(xid)
        return False

    with FaultProxy(cluster.endpoints[0], "zookeeper") as proxy, tenure.connect(proxied(cluster, proxy)) as client:
        proxy.lose_request(note)
        hold = client.lock("kept", ttl=30).acquire()
        for _ in range(3):
            client.lock("a", ttl=30).acquire().release()
            proxy.reset()
            hold.renew()
        hold.release()
    assert len(seen) > 12
    assert seen == sorted(set(seen))


def test_zookeeper_request_that_is_never_answered_costs_a_connection_and_not_the_session(
    singles: dict[str, Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    """A server may answer the second request and never the first: seen of one whose leader had stood still.

    kazoo's thread died of it, and with it the session of every hold: for want of one answer.
    """
    cluster = singles["zookeeper"]
    with (
        FaultProxy(cluster.endpoints[0], "zookeeper") as proxy,
        tenure.connect(proxied(cluster, proxy), ttl=20) as client,
    ):
        hold = client.lock("kept").acquire()
        swallowed = proxy.swallow_request(lambda opcode, frame: opcode == _CREATE)
        other = client.lock("other").acquire(timeout=10.0)
        assert swallowed.is_set()
        assert other.lease_id == hold.lease_id
        hold.renew()
        assert other.release() is True
        assert hold.release() is True
    assert [record.name for record in caplog.records] == ["tenure"], "more than the connection was lost"
    assert "the connection to ZooKeeper was lost" in caplog.text
