"""`lock_delay` and a process that was stopped: it wakes up lost, connected, and within the delay."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

import tenure
from tenure._core.base.clock import SYSTEM_CLOCK
from tests.servers import Cluster

TTL, DELAY = 1.0, 5.0
PROGRAM = """
import sys, tenure
from tenure._core.base.clock import SYSTEM_CLOCK
client = tenure.connect(sys.argv[1], ttl=float(sys.argv[2]))
hold = client.lock("delayed", lock_delay=float(sys.argv[3])).acquire()
print(SYSTEM_CLOCK.now() + hold.remaining(), flush=True)
sys.stdin.readline()
if sys.argv[4] == "close at once":  # by the clock, before anybody was told
    try:
        while True:
            hold.check()
    except tenure.LeaseLost:
        client.close()
print(hold.lost.wait(10), flush=True)
if sys.argv[4] == "close":
    client.close()
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("ends", ["stays", "close", "close at once"])
@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_stopped_holder_that_wakes_up_lost_does_not_free_the_lock(
    singles: dict[str, Cluster], kind: str, ends: str
) -> None:
    """What it had sent before it was stopped may still be under way: it ends nothing at the store, nor does its end."""
    cluster = singles[kind]
    url = cluster.url(f"delay-{time.monotonic_ns():x}", **({"tick": 0.2} if kind == "zookeeper" else {}))
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, str(TTL), str(DELAY), ends],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        believed_until = float(child.stdout.readline())
        if ends == "close at once":
            print(file=child.stdin, flush=True)
        child.send_signal(signal.SIGSTOP)
        time.sleep(2.5 * TTL)
        child.send_signal(signal.SIGCONT)
        print(file=child.stdin, flush=True)
        assert child.stdout.readline() == "True\n", "it was not lost: the scene was not set"
        assert child.stdout.readline() == "done\n"
        assert SYSTEM_CLOCK.now() < believed_until + DELAY, "it woke up too late: the scene was not set"
        with tenure.connect(url, ttl=20) as client, client.lock("delayed").acquire(timeout=30):
            assert SYSTEM_CLOCK.now() >= believed_until + DELAY
    finally:
        child.kill()
        child.communicate()
