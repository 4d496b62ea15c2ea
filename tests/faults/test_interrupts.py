"""Ctrl-C, or a signal handler that raises, in the midst of a request."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.testing.servers import Cluster


class Interrupting:
    """A socket that passes everything on; within its next send Ctrl-C is pressed, once."""

    def __init__(self, plug: object) -> None:
        self._plug = plug
        self._pressed = False

    def send(self, data: bytes) -> int:
        """Sent, and interrupted."""
        sent: int = self._plug.send(data)  # type: ignore[attr-defined]  # a socket
        if not self._pressed:
            self._pressed = True
            raise KeyboardInterrupt
        return sent

    def __getattr__(self, name: str) -> object:
        return getattr(self._plug, name)


def test_interrupt_while_a_request_to_zookeeper_is_sent_is_raised_and_costs_no_lease(
    singles: dict[str, Cluster],
) -> None:
    """kazoo takes whatever is raised while it wakes its thread for the end of the session; the interrupt was gone."""
    with holdfast.connect(singles["zookeeper"].url("interrupts"), ttl=5, timeout=2) as client:
        kept = client.lock("kept").acquire(timeout=5)
        lease = next(iter(client._house._leases.values()))
        kazoo = lease._connection._client  # type: ignore[attr-defined]  # ZooKeeper's
        kazoo._connection._write_sock = Interrupting(kazoo._connection._write_sock)
        with pytest.raises(KeyboardInterrupt):
            client.lock("other").acquire(timeout=5)
        kept.check()
        client.lock("other").acquire(timeout=5).release()  # what the interrupted one left behind was withdrawn
