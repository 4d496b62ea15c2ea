"""`tenure release`: asked for at a terminal, by token, and never without a record."""

from __future__ import annotations

import getpass
import random
import signal
import subprocess
import time

import pytest

import tenure as library
from tests.cli.people import waiting
from tests.cli.program import PROGRAM, Terminal, at_terminal, environment, eventually, tenure
from tests.faults.transports import all_transports
from tests.servers import Cluster, FaultProxy

QUESTION = "Force it out? [y/N] "
WHY = ("--reason", "stuck since noon", "--actor", "alice")


def asked(terminal: Terminal) -> None:
    terminal.read_until(QUESTION)


def test_yes_at_a_terminal_forces_out_and_writes_it_down(client: library.Client, url: str) -> None:
    """The question shows who goes, who comes and what is written down; then it is so, and the holder hears why."""
    hold = client.lock("ledger").acquire()
    with (
        waiting(url, "ledger") as next_token,
        at_terminal("release", "ledger", "--token", str(hold.token), *WHY, url=url, columns=100) as terminal,
    ):
        asked(terminal)
        assert f"worker-1 (token {hold.token}) holds 'ledger', in line for " in terminal.text
        assert f"Next is waiter (token {next_token})." in terminal.text
        assert "'stuck since noon', by alice" in terminal.text
        assert hold.lost.is_set() is False
        terminal.type("y\n")
        assert terminal.end() == 0
        assert f"worker-1 (token {hold.token}) was forced out of 'ledger', where it held it." in terminal.text
        assert hold.lost.wait(30)
        (record,) = client.operator().audit("ledger")
        assert (record.token, record.actor, record.reason) == (hold.token, "alice", "stuck since noon")
        eventually(lambda: client.operator().line("ledger").holders[0].token == next_token)


@pytest.mark.parametrize(
    ("keys", "code"), [("n\n", 1), ("\n", 1), ("no, why?\n", 1), ("\x04", 1), ("\x03", 130)], ids=repr
)
def test_anything_but_yes_leaves_everything_as_it_was(singles: dict[str, Cluster], keys: str, code: int) -> None:
    """No, nothing, nonsense and the end of input: 1; Ctrl-C: 130. Nobody is forced out, nothing written."""
    url = singles["etcd"].url("cli-asked")
    with library.connect(url, owner="worker-1") as client, client.lock("ledger").acquire() as hold:
        with at_terminal("release", "ledger", "--token", str(hold.token), *WHY, url=url) as terminal:
            asked(terminal)
            terminal.type(keys)
            assert terminal.end() == code
        assert "Traceback" not in terminal.text
        assert ("nobody was forced out" in terminal.text) is (code == 1)
        assert client.operator().line("ledger").holders[0].token == hold.token
        assert client.operator().audit("ledger") == ()


def test_without_a_terminal_it_wants_yes(client: library.Client, url: str) -> None:
    """64, and nothing done, whatever is piped in; with --yes it is done, and the same again finds its own record."""
    hold = client.lock("ledger").acquire()
    command = ("release", "ledger", "--token", str(hold.token), *WHY)
    done = tenure(*command, url=url, stdin="y\n")
    assert (done.code, done.out) == (64, "")
    assert "give --yes" in done.complaint
    assert client.operator().audit() == ()
    done = tenure(*command, "--yes", "--json", url=url)
    assert (done.code, done.err) == (0, "")
    assert done.json["token"] == str(hold.token)
    assert (done.json["holder"], done.json["was_holding"]) == ("worker-1", True)
    assert tenure(*command, "--yes", "--json", url=url).json == done.json
    assert len(client.operator().audit()) == 1


def test_a_token_that_is_not_there(client: library.Client, url: str) -> None:
    """66; the message says who is there; nothing is written, and the successor stays."""
    old = client.lock("ledger").acquire()
    old.release()
    hold = client.lock("ledger").acquire()
    for given in (str(old.token), "999999999"):
        done = tenure("release", "ledger", "--token", given, *WHY, "--yes", url=url)
        assert (done.code, done.out) == (66, "")
        assert f"Held now by worker-1 (token {hold.token})" in done.complaint
    with at_terminal("release", "ledger", "--token", str(old.token), *WHY, url=url) as terminal:
        assert terminal.end() == 66
        assert QUESTION not in terminal.text
    done = tenure("release", "nobody", "--token", "1", *WHY, "--yes", url=url)
    assert done.code == 66
    assert "The line is empty" in done.complaint
    assert hold.release() is True
    assert client.operator().audit() == ()


def test_who_did_it_is_the_user_unless_told(client: library.Client, url: str) -> None:
    """A person at a host, not a process."""
    hold = client.lock("ledger").acquire()
    done = tenure("release", "ledger", "--token", str(hold.token), "--reason", "x", "--yes", url=url)
    assert done.code == 0
    assert client.operator().audit()[0].actor.startswith(f"{getpass.getuser()}@")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--reason", "x"), "--token"),
        (("--token", "1"), "--reason"),
        (("--token", "x", "--reason", "x"), "--token"),
        (("--token", "0", "--reason", "x"), "token"),
        (("--token", str(2**63), "--reason", "x"), "token"),
        (("--token", "1", "--reason", " "), "reason"),
        (("--token", "1", "--reason", "two\nlines"), "control character"),
        (("--token", "1", "--reason", "x" * 1025), "1024 bytes"),
        (("--token", "1", "--reason", "x", "--actor", ""), "actor"),
    ],
)
def test_what_is_written_wrong_is_refused(singles: dict[str, Cluster], arguments: tuple[str, ...], says: str) -> None:
    """64 in one line that names it."""
    done = tenure("release", "ledger", "--yes", *arguments, url=singles["etcd"].url("cli-wrong"))
    assert done.code == 64
    assert says in done.complaint


@pytest.mark.parametrize("kind", ["etcd", "etcd+grpc", "zookeeper"])
def test_killed_at_any_moment_it_leaves_record_and_removal_or_neither(singles: dict[str, Cluster], kind: str) -> None:
    """SIGKILL between its start and its end: whoever is out of the line is in the audit, and nobody else."""
    options = {"tick": 0.2} if kind == "zookeeper" else {}
    url = all_transports(singles)[kind].url("cli-killed", **options)
    out = still = 0
    with library.connect(url, ttl=20, owner="worker-1") as client:
        operator = client.operator()
        undisturbed = 0.0
        for number in range(16):
            name = f"ledger-{kind}-{number}"
            hold = client.lock(name).acquire()
            process = subprocess.Popen(
                [*PROGRAM, "release", name, "--token", str(hold.token), *WHY, "--yes", "--log-json"],
                env=environment({"TENURE_URL": url}),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            undisturbed = undisturbed or _until_removed(operator, name)
            try:
                process.wait(undisturbed * random.uniform(0.5, 1.1) if number else 30)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            process.communicate()
            gone, recorded = not operator.line(name).tickets, len(operator.audit(name))
            if recorded and not gone:  # they come together, perhaps only now: what was sent may still be carried out
                gone = not operator.line(name).tickets
            assert recorded == gone, (name, gone, recorded)
            out, still = out + gone, still + (not gone)
            hold.release()
    assert out, "none was forced out"
    print(f"{kind}: {out} forced out, {still} still in line when it was killed")


def _until_removed(operator: library.Operator, name: str) -> float:
    began = time.monotonic()
    eventually(lambda: not operator.line(name).tickets)
    return time.monotonic() - began


def test_when_the_answer_is_lost_it_says_what_to_do(singles: dict[str, Cluster]) -> None:
    """69; whether it was done is not known; the same command again finds its own record."""
    cluster = singles["etcd"]
    with (
        FaultProxy(cluster.endpoints[0], "etcd") as proxy,
        library.connect(cluster.url("cli-lost-answer"), owner="worker-1") as client,
    ):
        hold = client.lock("ledger").acquire()
        proxy.lose_answer(lambda method, path, body: b"request_delete_range" in body, 100)
        command = ("release", "ledger", "--token", str(hold.token), *WHY, "--yes")
        there = f"etcd://{proxy.endpoint}/cli-lost-answer"
        done = tenure(*command, "--request-timeout", "1", url=there)
        assert done.code == 69
        assert "the same command again finds its own record" in done.complaint
        (record,) = client.operator().audit("ledger")
        done = tenure(*command, "--json", url=cluster.url("cli-lost-answer"))
        assert (done.code, done.json["ticket_id"]) == (0, record.ticket_id)
        assert len(client.operator().audit("ledger")) == 1
