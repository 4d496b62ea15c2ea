"""Law 16: the end of the interpreter gives up what a program forgot to give up; SIGTERM, where it asked for that."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid

import pytest

import tenure
from tests.servers import Cluster

SECONDS = 60.0
CASES = ["etcd", "etcd+grpc", "zookeeper"]
BLOCKING = """
import os, signal, sys, time, tenure
client = tenure.connect(sys.argv[1], ttl=30)
hold = client.lock("a").acquire()
{way}
"""
ASYNCIO = """
import asyncio, os, signal, sys, time, tenure
async def main():
    client = tenure.aio.connect(sys.argv[1], ttl=30)
    hold = await client.lock("a").acquire()
    {way}
asyncio.run(main())
"""
WAYS = {
    "end": ("pass", 0),
    "forgotten": ("import gc; del client, hold; gc.collect()", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "traceback": ("raise ValueError('a bug')", 1),
    "Ctrl-C": ("signal.raise_signal(signal.SIGINT); {sleep}", -signal.SIGINT),
    "SIGTERM": ("tenure.on_sigterm(); os.kill(os.getpid(), signal.SIGTERM); {sleep}", -signal.SIGTERM),
}


@pytest.fixture(params=CASES)
def url(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> str:
    """URL of a namespace of its own, where nothing may be left."""
    found = singles[request.param.partition("+")[0]].url(f"end-{uuid.uuid4().hex}")
    return found.replace("etcd:", f"{request.param}:")


def ended(program: str, url: str) -> subprocess.CompletedProcess[str]:
    """The program after its end, with what it wrote."""
    command = [sys.executable, "-c", program, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env={**os.environ})


def holders(url: str) -> list[str | None]:
    with tenure.connect(url) as client:
        return [ticket.owner for ticket in client.operator().line("a").tickets]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_end_of_the_interpreter_gives_up_at_once(url: str, face: str, way: str) -> None:
    """A bare acquire() costs the next holder no TTL, however the program ends; how it ends stays as it was."""
    does, status = WAYS[way]
    sleep = "time.sleep(60)" if face == "threads" else "await asyncio.sleep(60)"
    program = (BLOCKING if face == "threads" else ASYNCIO).replace("{way}", does.replace("{sleep}", sleep))
    done = ended(program, url)
    assert done.returncode == status, done.stderr
    assert holders(url) == []
    assert ("ValueError: a bug" in done.stderr) == (way == "traceback")
    assert "tenure" not in done.stderr.partition("Traceback")[0]


def test_end_of_a_forked_child_leaves_the_parents_hold(url: str) -> None:
    """Law 14: what runs at the end of a child's interpreter does not touch the parent's lease."""
    way = """
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(len(client.operator().line("a").tickets), hold.renew() > 0, flush=True)
"""
    done = ended(BLOCKING.replace("{way}", way), url)
    assert done.stdout.split() == ["1", "True"], done.stderr
    assert holders(url) == []


def test_hold_whose_event_loop_has_ended_is_given_up_while_the_program_goes_on(url: str) -> None:
    """The next holder does not wait for as long as the program runs, nor for the TTL."""
    client = tenure.aio.connect(url, ttl=60)

    async def acquire() -> tenure.aio.Hold:
        return await client.lock("a").acquire()

    def take_over() -> None:
        hold = asyncio.run(acquire())
        with tenure.connect(url) as other:
            other.lock("a").acquire(timeout=30).release()
        assert hold.state is tenure.HoldState.RELEASED

    with pytest.warns(ResourceWarning, match="was held when its event loop ended"):
        take_over()
    asyncio.run(client.close())
