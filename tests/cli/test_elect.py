"""`tenure elect`: CMD while we lead, again after every win, and a hand-over at the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.error
import urllib.request
import uuid
from contextlib import closing
from pathlib import Path

import pytest

import tenure as library
from tests.cli.program import eventually, tenure
from tests.cli.supervised import now, shell, started
from tests.servers import Cluster, FaultProxy

LEAD = shell("echo up; exec sleep 600")
NOWHERE = ("--url", "etcd://127.0.0.1:1/x?timeout=0.5")


@pytest.fixture(params=["etcd", "zookeeper"])
def url(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> str:
    """A namespace where nobody was before, on each store."""
    options = {"tick": 0.2} if request.param == "zookeeper" else {}
    return singles[request.param].url(f"elect-{uuid.uuid4().hex}", **options)


def depose(client: library.Client, name: str) -> None:
    """Force the holder out, as an operator does."""
    operator = client.operator()
    operator.force_release(name, token=operator.line(name).holders[0].token, reason="a test", actor="test")


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, dict[str, object]]:
    """Status and body."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_cmds_own_end_is_ours(url: str, client: library.Client) -> None:
    """CMD ended by itself: its code is ours, and we have resigned."""
    done = tenure("elect", "job", "--", *shell("echo $TENURE_NAME; exit 5"), url=url)
    assert (done.code, done.out, done.err) == (5, "job\n", "")
    assert client.election("job").leader() is None


def test_value_is_what_others_read(url: str, client: library.Client) -> None:
    """Others read the value while it leads."""
    with started("elect", "job", "--value", "10.0.0.7:8080", "--", *LEAD, url=url) as leader:
        leader.up()
        seen = client.election("job").leader()
    assert seen is not None
    assert seen.value == "10.0.0.7:8080"


def test_cmd_runs_again_after_every_win(url: str, client: library.Client) -> None:
    """Lost, CMD is ended; won again, it runs again with a higher token."""
    script = "trap '' TERM; echo $TENURE_TOKEN; while :; do sleep 0.1; done"
    with started("elect", "job", "--ttl", "4", "--", *shell(script), url=url) as leader:
        first = int(leader.line())
        depose(client, "job")
        second = int(leader.line())
        depose(client, "job")
        third = int(leader.line())
    assert first < second < third


def test_stopped_leader_runs_cmd_again_when_it_wakes_and_wins(url: str, client: library.Client) -> None:
    """SIGSTOP beyond the time to live: another leads meanwhile, and then it is its turn again."""
    script = "trap '' TERM; echo $TENURE_TOKEN; while :; do sleep 0.1; done"
    with started("elect", "job", "--ttl", "4", "--", *shell(script), url=url) as leader:
        first = int(leader.line())
        leader.signal(signal.SIGSTOP)
        with client.election("job").campaign().acquire(timeout=60) as between:
            leader.signal(signal.SIGCONT)
        assert first < between.token < int(leader.line())


def test_once_ends_after_one_term(url: str, client: library.Client) -> None:
    """Lost: 76, and one line."""
    with started("elect", "job", "--once", "--", *LEAD, url=url) as leader:
        family = leader.up()
        depose(client, "job")
        family.dead_at()
        code, _, err = leader.end()
    assert code == 76
    assert err.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_hands_over(url: str, client: library.Client, number: int) -> None:
    """CMD gets SIGTERM, tidies up, and the next one leads at once, long before the time to live is over."""
    script = "trap 'echo tidied; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    with started("elect", "job", "--ttl", "60", "--", *shell(script), url=url) as leader:
        leader.up()
        leader.signal(number)
        assert leader.line() == "tidied"
        with client.election("job").campaign().acquire(timeout=40):
            assert leader.end()[0] == 3


@pytest.mark.parametrize("script", ["trap 'echo asked' TERM", "trap '' TERM"])
def test_signal_while_a_leadership_is_being_lost_is_the_end(singles: dict[str, Cluster], script: str) -> None:
    """CMD is told that time is up, or dead by now, and the store is away: asked to end, we do not stand again."""
    with closing(FaultProxy(singles["etcd"].endpoints[0], "etcd")) as proxy:
        url = f"etcd://{proxy.endpoint}/elect-{uuid.uuid4().hex}?timeout=1"
        cmd = shell(f"{script}; echo up; while :; do sleep 0.1; done")
        with started("elect", "job", "--ttl", "4", "--", *cmd, url=url) as leader:
            family = leader.up()
            proxy.blackhole()
            if "asked" in script:
                assert leader.line() == "asked"
            else:
                family.dead_at()
            leader.signal(signal.SIGTERM)
            code, out, err = leader.end()
        assert code == 76, err
        assert "up" not in out


def test_signal_that_hands_over_leaves_a_draining_scripts_job_alone(
    url: str, client: library.Client, tmp_path: Path
) -> None:
    """CMD alone gets SIGTERM: a shell script that waits for its running job does not lose it."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    opened = os.open(gate, os.O_RDWR)  # so that neither side waits for the other to open it
    job = f"(trap 'echo lost; exit' TERM; echo up; read go < {gate}; echo done)"
    script = f"trap 'echo draining' TERM; {job} & echo up; wait; wait; exit 3"
    with started("elect", "job", "--ttl", "60", "--grace", "60", "--", *shell(script), url=url) as leader:
        leader.up(2)
        leader.signal(signal.SIGTERM)
        assert leader.line() == "draining"
        os.write(opened, b"go\n")
        assert leader.line() == "done"
        assert leader.end()[0] == 3
    os.close(opened)  # not before: what was written goes with the last who has it open


def test_what_cmd_leaves_behind_at_a_hand_over_is_asked_to_end(url: str, client: library.Client) -> None:
    """CMD has ended by SIGTERM: what it had started gets SIGTERM then, and need not wait for SIGKILL at the grace."""
    job = "(trap 'echo asked; exit' TERM; echo up; while :; do sleep 0.1; done)"
    with started("elect", "job", "--grace", "600", "--", *shell(f"{job} & echo up; wait"), url=url) as leader:
        leader.up(2)
        leader.signal(signal.SIGTERM)
        assert leader.line() == "asked"
        assert leader.end()[0] == 143


def test_drain_ends_with_sigkill(url: str, client: library.Client) -> None:
    """CMD that ignores SIGTERM is killed when the grace is over, and then the next one leads."""
    script = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    with started("elect", "job", "--ttl", "60", "--grace", "1", "--", *shell(script), url=url) as leader:
        family = leader.up()
        asked = now()
        leader.signal(signal.SIGTERM)
        assert 0.9 < family.dead_at() - asked < 40
        assert leader.end()[0] == 137
    assert client.election("job").campaign().try_acquire() is not None


def test_other_signals_pass_through(url: str) -> None:
    """SIGHUP is CMD's: to read its configuration again, say."""
    script = "trap 'echo again' HUP; echo up; while :; do sleep 0.1; done"
    with started("elect", "job", "--", *shell(script), url=url) as leader:
        leader.up()
        leader.signal(signal.SIGHUP)
        assert leader.line() == "again"
        assert leader.process.poll() is None


def test_candidate_that_waits_leaves_on_sigterm(url: str, client: library.Client) -> None:
    """143, and no ticket is left."""
    with client.election("job").campaign(), started("elect", "job", "--", "true", url=url) as candidate:
        eventually(lambda: len(client.operator().line("job").tickets) == 2)
        candidate.signal(signal.SIGTERM)
        code, out, err = candidate.end()
        assert (code, out, err) == (143, "", "")
        assert len(client.operator().line("job").tickets) == 1


def test_readiness_file_is_there_only_while_cmd_runs(url: str, client: library.Client, tmp_path: Path) -> None:
    """The candidate is not ready while it waits, after a loss, or after SIGTERM, while CMD still tidies up."""
    ready = tmp_path / "ready"
    ready.write_text("of a candidate that was killed\n")
    script = "trap 'sleep 1; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    hold = client.election("job").campaign().acquire()
    with started("elect", "job", "--ready-file", str(ready), "--", *shell(script), url=url) as leader:
        eventually(lambda: len(client.operator().line("job").tickets) == 2)
        assert not ready.exists()
        hold.release()
        family = leader.up()
        eventually(ready.exists)
        assert int(ready.read_text()) == family.pids[0]
        depose(client, "job")
        family.dead_at()
        leader.up()
        eventually(ready.exists)
        leader.signal(signal.SIGTERM)
        eventually(lambda: not ready.exists())
        assert leader.process.poll() is None
        assert leader.end()[0] == 0


def test_readiness_file_goes_with_a_tenure_that_is_killed(url: str, tmp_path: Path) -> None:
    """The watchdog takes it away."""
    ready = tmp_path / "ready"
    with started("elect", "job", "--ready-file", str(ready), "--", *LEAD, url=url) as leader:
        family = leader.up()
        eventually(ready.exists)
        leader.signal(signal.SIGKILL)
        family.dead_at()
        assert not ready.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_readiness_file_goes_with_a_watchdog_that_is_ended(
    url: str, client: library.Client, tmp_path: Path, number: int
) -> None:
    """Killed, or stopped and killed by tenure when CMD has to end: it takes nothing away, and others may lead."""
    ready = tmp_path / "ready"
    with started("elect", "job", "--ready-file", str(ready), "--once", "--", *LEAD, url=url) as leader:
        leader.up()
        eventually(ready.exists)
        os.kill(leader.watchdog, number)
        if number == signal.SIGSTOP:
            depose(client, "job")
        assert leader.end()[0] == 76
    assert not ready.exists()


def test_health_port_answers_probes(url: str, client: library.Client) -> None:
    """Healthy from the start, ready only while CMD runs; who leads is asked of the store."""
    port = free_port()
    hold = client.election("job", value="other").campaign().acquire()
    with started("elect", "job", "--value", "me", "--health-port", f"127.0.0.1:{port}", "--", *LEAD, url=url) as leader:
        eventually(lambda: len(client.operator().line("job").tickets) == 2)
        assert get(port, "/healthz") == (200, {"healthy": True})
        assert get(port, "/readyz") == (503, {"ready": False})
        code, body = get(port, "/leader")
        assert (code, body["leading"], body["leader"]["value"]) == (200, False, "other")  # type: ignore[index]
        hold.release()
        leader.up()
        eventually(lambda: get(port, "/readyz")[0] == 200)
        code, body = get(port, "/leader")
        assert (code, body["leading"], body["leader"]["value"]) == (200, True, "me")  # type: ignore[index]
        assert get(port, "/nothing")[0] == 404
        assert get(port, "/healthz")[0] == 200


@pytest.mark.parametrize(("given", "asked"), [("{}", "127.0.0.1"), ("{}", "[::1]"), ("[::1]:{}", "[::1]")])
def test_health_port_answers_over_both_protocols(singles: dict[str, Cluster], given: str, asked: str) -> None:
    """A probe comes to the pod's address, of whichever kind that is."""
    port, url = free_port(), singles["etcd"].url(f"elect-{uuid.uuid4().hex}")
    with started("elect", "job", "--health-port", given.format(port), "--", *LEAD, url=url) as leader:
        leader.up()
        assert get(port, "/healthz", asked) == (200, {"healthy": True})


def test_killed_leader_is_followed_by_the_next(url: str) -> None:
    """Two candidates: the first one's CMD is dead before the second one's starts."""
    with started("elect", "job", "--ttl", "4", "--", *LEAD, url=url) as first:
        family = first.up()
        with started("elect", "job", "--ttl", "4", "--", *LEAD, url=url) as second:
            first.signal(signal.SIGKILL)
            second.up()
            assert not [pid for pid in family.pids if os.path.exists(f"/proc/{pid}/exe")]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("elect", "job"), 64, "CMD"),
        (("elect", "job", *NOWHERE, "--grace", "nan", "--", "true"), 64, "--grace"),
        (("elect", "job", *NOWHERE, "true", "--once"), 64, "-- before the program"),
        (("elect", "job", *NOWHERE, "--health-port", "x", "--", "true"), 64, "[HOST:]PORT"),
        (("elect", "job", *NOWHERE, "--health-port", "203.0.113.1:80", "--", "true"), 64, "203.0.113.1:80"),
        (("elect", "job", *NOWHERE, "--ready-file", "/no/such/file", "--", "true"), 64, "/no/such/file"),
        (("elect", "job", *NOWHERE, "--", "no-such-program"), 127, "no-such-program"),
        (("elect", "job", *NOWHERE, "--", "true"), 69, "127.0.0.1:1"),
        (("elect", "job", "--", "true"), 78, "--url"),
    ],
)
def test_what_cannot_be_run_is_told_in_one_line(arguments: tuple[str, ...], code: int, says: str) -> None:
    """A documented code, and what to do."""
    done = tenure(*arguments)
    assert done.code == code
    assert says in done.complaint
