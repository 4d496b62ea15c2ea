"""`tenure run`: CMD and all that it started are dead before the hold ends, whoever of the three processes fails."""

from __future__ import annotations

import os
import re
import signal
import uuid
from pathlib import Path

import pytest

import tenure as library
from tenure.cli.supervise.watchdog import send
from tests.cli.program import eventually
from tests.cli.supervised import STUBBORN, now, python, shell, started
from tests.servers import Cluster, FaultProxy

TTL = ("--ttl", "4")
FAMILY = f'({STUBBORN}) & setsid sh -c \'(setsid sh -c "$0" &)\' "{STUBBORN}"; {STUBBORN}'
"""CMD, a child of it, and a grandchild in a session of its own whose parents have gone."""
LEAVES = 3
WHYS_FORCED_OUT = (
    "its ticket was removed from the store, by an administrator or with its lease",
    "forced: a test by test",
)
"""The loss comes at once, who forced it once the audit record has been read; tenure says what it knows by then."""
OBEDIENT = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.1; done"


@pytest.fixture(params=["etcd", "zookeeper"])
def store(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> Cluster:
    """A store of each kind."""
    return singles[request.param]


@pytest.fixture
def url(store: Cluster) -> str:
    """A namespace where nobody was before."""
    options = {"tick": 0.2} if store.kind == "zookeeper" else {}
    return store.url(f"ending-{uuid.uuid4().hex}", **options)


def deadline_of(pid: int) -> float:
    """The deadline that CMD is shown now."""
    for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if entry.startswith(b"TENURE_DEADLINE_FILE="):
            return float(Path(entry.partition(b"=")[2].decode()).read_text())
    raise AssertionError("CMD is not shown any")


def force_out(url: str, name: str) -> None:
    """Force the holder out, as an operator does."""
    with library.connect(url) as client:
        operator = client.operator()
        operator.force_release(name, token=operator.line(name).holders[0].token, reason="a test", actor="test")


def why_lost(err: str) -> str:
    """The reason in the sentence that tells that the hold was lost."""
    found = re.search(r"the hold of 'a' was lost: (.*)\. sh was ended, ", err)
    assert found, err
    return found[1]


def test_tenure_killed_takes_all_with_it(url: str) -> None:
    """SIGKILL: the watchdog ends CMD, its children, and what forked away, at once and before the deadline."""
    with started("run", "a", "--ttl", "60", "--", *shell(FAMILY), url=url) as run:
        family = run.up(LEAVES)
        deadline = deadline_of(family.pids[0])
        run.signal(signal.SIGKILL)
        assert family.dead_at() < deadline - 10


def test_tenure_killed_takes_stopped_children_with_it(url: str) -> None:
    """A stopped process can't hear SIGTERM, and is killed all the same."""
    with started("run", "a", "--ttl", "60", "--", *shell(FAMILY), url=url) as run:
        family = run.up(LEAVES)
        deadline = deadline_of(family.pids[0])
        for pid in family.pids:
            send(pid, signal.SIGSTOP)  # a shell's `sleep 0.1` may have ended
        run.signal(signal.SIGKILL)
        assert family.dead_at() < deadline - 10


def test_tenure_stopped_ends_before_the_deadline(url: str) -> None:
    """SIGSTOP: no renewal, no deadline is sent; the watchdog acts by the clock. Continued, tenure says so: 76."""
    # the watchdog keeps a tenth of the TTL for what the machine may take, and no more than a second
    with started("run", "a", "--ttl", "10", "--", *shell(FAMILY), url=url) as run:
        family = run.up(LEAVES)
        run.signal(signal.SIGSTOP)
        deadline = deadline_of(family.pids[0])
        assert family.dead_at() < deadline
        run.signal(signal.SIGCONT)
        code, _, err = run.end()
    assert code == 76
    assert "the hold of 'a' was lost" in err
    assert "before the end of what was proven" in err


def test_watchdog_killed_ends_cmd_and_tenure(url: str) -> None:
    """Children of the watchdog become tenure's, which ends them, gives the hold up, and exits."""
    with started("run", "a", "--ttl", "60", "--", *shell(FAMILY), url=url) as run:
        family = run.up(LEAVES)
        os.kill(run.watchdog, signal.SIGKILL)
        family.dead_at()
        code, _, err = run.end()
    assert code == 76
    assert "the watchdog was killed" in err
    with library.connect(url) as client:
        assert client.lock("a").try_acquire() is not None


def test_watchdog_stopped_does_not_keep_cmd_alive(url: str) -> None:
    """A watchdog that does not act is killed, and tenure does its work."""
    with started("run", "a", "--ttl", "60", "--", *shell(FAMILY), url=url) as run:
        family = run.up(LEAVES)
        os.kill(run.watchdog, signal.SIGSTOP)
        force_out(url, "a")
        family.dead_at()
        code, _, err = run.end()
    assert code == 76
    assert why_lost(err) in WHYS_FORCED_OUT


def test_cmd_that_was_ended_too_late_is_told_as_such(url: str) -> None:
    """Tenure and watchdog are stopped, CMD is not: nothing could end it in time, and the log has to say so."""
    with started("run", "a", "--ttl", "3", "--", *shell(STUBBORN), url=url) as run:
        family, watchdog = run.up(), run.watchdog
        run.signal(signal.SIGSTOP)
        os.kill(watchdog, signal.SIGSTOP)
        eventually(lambda: now() > deadline_of(family.pids[0]) + 0.1)
        os.kill(watchdog, signal.SIGCONT)
        run.signal(signal.SIGCONT)
        family.dead_at()
        code, _, err = run.end()
    assert code == 76
    assert "s after the end of what was proven" in err


def test_store_cut_off_sends_sigterm_and_then_sigkill_before_the_deadline(store: Cluster) -> None:
    """CMD is asked first; what does not obey is dead before the deadline; 76."""
    protocol = "etcd" if store.kind == "etcd" else "zookeeper"
    with FaultProxy(store.endpoints[0], protocol) as proxy:  # type: ignore[arg-type]  # one of the two kinds
        tick = "&tick=0.2" if store.kind == "zookeeper" else ""
        url = f"{store.kind}://{proxy.endpoint}/ending-{uuid.uuid4().hex}?timeout=1{tick}"
        script = "trap 'echo asked' TERM; echo up; while :; do sleep 0.1; done"
        with started("run", "a", "--ttl", "15", "--", *shell(script), url=url) as run:
            family = run.up()
            proxy.blackhole()
            assert run.line() == "asked"
            deadline = deadline_of(family.pids[0])
            assert now() < deadline
            assert family.dead_at() < deadline
            code, _, err = run.end()
    assert code == 76
    assert "no renewal was answered in time" in err


def test_cmd_that_obeys_sigterm_ends_by_itself(store: Cluster) -> None:
    """The grace is CMD's: it may tidy up. The code says all the same that the hold was lost."""
    protocol = "etcd" if store.kind == "etcd" else "zookeeper"
    with FaultProxy(store.endpoints[0], protocol) as proxy:  # type: ignore[arg-type]  # one of the two kinds
        tick = "&tick=0.2" if store.kind == "zookeeper" else ""
        url = f"{store.kind}://{proxy.endpoint}/ending-{uuid.uuid4().hex}?timeout=1{tick}"
        with started("run", "a", "--ttl", "15", "--", *shell(OBEDIENT), url=url) as run:
            run.up()
            proxy.refuse()
            assert run.line() == "asked"
            assert run.end()[0] == 76


def test_forced_out_by_an_operator_cmd_is_killed_at_once(url: str) -> None:
    """CMD is killed long before the deadline: as soon as the store tells of the loss."""
    with started("run", "a", "--ttl", "60", "--", *shell(FAMILY), url=url) as run:
        family = run.up(LEAVES)
        deadline = deadline_of(family.pids[0])
        force_out(url, "a")
        assert family.dead_at() < deadline - 30
        code, _, err = run.end()
    assert code == 76
    assert why_lost(err) in WHYS_FORCED_OUT


def test_cmd_that_ignores_sigterm_ends_when_it_ends(url: str) -> None:
    """SIGTERM is CMD's to ignore: tenure passes it on, keeps the hold, and waits."""
    script = "trap '' TERM; echo up; read wait; exit 9"
    with started("run", "a", "--", *shell(script), url=url) as run:
        run.up()
        run.signal(signal.SIGTERM)
        run.process.stdin.write("go\n")  # type: ignore[union-attr]  # it is a pipe
        assert run.end()[0] == 9


def test_children_that_fork_as_fast_as_they_can_are_all_ended(url: str) -> None:
    """Processes fork and end, so that no list of them is right for long: none gets away."""
    runaway = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('up', flush=True)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    while True:\n"
        "        if os.fork() != 0:\n"
        "            os._exit(0)\n"
        "        time.sleep(0.002)\n"
        "time.sleep(600)\n"
    )
    with started("run", "a", *TTL, "--", *python(runaway), url=url) as run:
        family = run.up()
        watchdog = run.watchdog
        run.signal(signal.SIGKILL)
        family.dead_at()
        eventually(lambda: not Path(f"/proc/{watchdog}").exists())  # it ends when nothing is left below it
    with library.connect(url) as client:
        client.lock("a").acquire(timeout=60)
