"""`tenure ls`: what is in use, at terminals of all sizes, in pipes, and 10,000 of it."""

from __future__ import annotations

import os
import re
import subprocess
import time

import pytest
from rich.cells import cell_len

import tenure as library
from tests.cli.people import crowd, waiting
from tests.cli.program import ESCAPES, NOT_PLAIN, PROGRAM, at_terminal, environment, shown, tenure
from tests.servers import Cluster, etcdctl

CPU_SECONDS_MAX = 10.0
LONG = "a-name-that-nobody-should-have-chosen:" + "x" * 150


@pytest.fixture
def busy(client: library.Client, other: library.Client, url: str) -> dict[str, library.Hold]:
    """A line of each kind."""
    return {
        "billing-close": client.lock("billing-close").acquire(),
        "api": client.semaphore("api", limit=10).acquire(weight=2),
        "api too": other.semaphore("api", limit=10).acquire(weight=3),
        "config": client.rwlock("config").read().acquire(),
        "scheduler": client.election("scheduler", value="10.0.0.7:8080").campaign().acquire(),
        "größe 名前": client.lock("größe 名前").acquire(),
        LONG: client.lock(LONG).acquire(),
    }


def test_in_a_pipe_each_line_has_all_there_is_to_know(busy: dict[str, library.Hold], url: str) -> None:
    """Fields parted by tabs, nothing cut, no escape code, no heading: to be grepped and cut."""
    with waiting(url, "billing-close"):
        done = tenure("ls", url=url)
    assert (done.code, done.err) == (0, "")
    assert not NOT_PLAIN.search(done.out)
    records = {record[0]: record for record in done.records}
    assert records.keys() == {"billing-close", "api", "config", "scheduler", "größe 名前", LONG}
    token = {name: str(hold.token) for name, hold in busy.items()}
    _, kind, holders, tokens, since, waits, values = records["billing-close"]
    assert (kind, holders, tokens, waits, values) == ("lock", "worker-1", token["billing-close"], "1", "-")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", since)
    assert records["api"][1:4] == ["semaphore 5/10", "worker-1, worker-2", f"{token['api']}, {token['api too']}"]
    assert records["scheduler"][1] == "election"
    assert records["scheduler"][-1] == "10.0.0.7:8080"
    assert records["config"][1] == "rwlock"


def test_json_is_one_array_with_tokens_as_strings(busy: dict[str, library.Hold], url: str) -> None:
    """Machines get everything, one element a line."""
    with waiting(url, "billing-close"):
        done = tenure("ls", "--json", "b", url=url)
    (line,) = done.json
    assert len(done.out.splitlines()) == 3
    assert (line["name"], line["kind"], line["limit"]) == ("billing-close", "lock", None)
    (holder,), (waiter,) = line["holders"], line["waiters"]
    assert holder["token"] == str(busy["billing-close"].token)
    assert (holder["owner"], holder["holds"], holder["orphaned"]) == ("worker-1", True, False)
    assert holder["since"].endswith("Z")
    assert holder["age_seconds"] >= 0
    assert (waiter["owner"], waiter["holds"]) == ("waiter", False)


def test_at_a_terminal_no_line_is_wider_than_it(busy: dict[str, library.Hold], url: str) -> None:
    """Names are cut in the middle, columns go; who holds what stays as long as there is room."""
    for columns in (200, 80, 60, 40, 24):
        done = shown("ls", url=url, columns=columns)
        assert done.code == 0
        lines = done.out.splitlines()
        assert max(map(cell_len, lines)) <= columns
        assert lines[0].split()[0] == "NAME"
        assert any(line.startswith("bill") and "wor" in line for line in lines)
        assert LONG not in done.out
        assert columns < 40 or "worker-1 +1" in done.out
        assert columns < 80 or re.search(r"api +semaphore 5/10 +worker-1 \+1 ", done.out)
    assert f"6 lines in use in {url.partition('?')[0]}" in shown("ls", url=url, columns=200).out


def test_wide_cuts_nothing(busy: dict[str, library.Hold], url: str) -> None:
    """`--wide` shows every name as it is; lines are the terminal's to break."""
    assert LONG in shown("ls", "--wide", url=url, columns=60).out


def test_colours_are_for_terminals_that_want_them(busy: dict[str, library.Hold], url: str) -> None:
    """NO_COLOR and a dumb terminal are heeded; FORCE_COLOR does not reach a pipe."""
    for given, coloured in (({}, True), ({"TERM": "dumb"}, False)):
        with at_terminal("ls", url=url, given=given) as terminal:
            assert terminal.end() == 0
            assert bool(ESCAPES.search(terminal.raw)) is coloured
    with at_terminal("ls", url=url, given={"NO_COLOR": "1"}) as terminal:
        assert terminal.end() == 0
        assert not re.search(r"\x1b\[[\d;]*3[0-7]m", terminal.raw)
    assert not NOT_PLAIN.search(tenure("ls", url=url, given={"FORCE_COLOR": "1"}).out)


def test_nothing_in_use(url: str) -> None:
    """No table, code 0: a quiet word at a terminal that names the namespace, nothing in a pipe, [] in JSON."""
    assert (tenure("ls", url=url).out, tenure("ls", url=url).code) == ("", 0)
    assert tenure("ls", "--json", url=url).json == []
    done = shown("ls", "led", url=url, columns=200)
    assert done.out.splitlines() == [f"nothing in use in {url.partition('?')[0]} below 'led'"]
    assert done.code == 0


def test_strangers_are_told_as_such_and_their_text_is_harmless(singles: dict[str, Cluster]) -> None:
    """An escape sequence in a stranger's ticket moves no cursor, breaks no line, forges no record."""
    cluster = singles["etcd"]
    namespace = f"cli-hostile-{time.monotonic_ns():x}"
    url = cluster.url(namespace)
    etcdctl(cluster, "put", f"{namespace}/victim/1-abc", "by hand")
    with library.connect(url, owner="worker-1") as client:
        hold = client.lock("mine").acquire()
        (key,) = etcdctl(cluster, "get", "--prefix", "--keys-only", f"{namespace}/mine/").stdout.split()
        text = etcdctl(cluster, "get", "--print-value-only", key).stdout
        etcdctl(cluster, "put", "--ignore-lease", key, "--", text.replace("worker-1", "\\u001b[2J\\nroot\\ud800"))
        for arguments in (["ls"], ["show", "mine"], ["show", "victim"], ["ls", "--json"], ["why", "mine"]):
            done = tenure(*arguments, url=url)
            assert done.code == 0, done.err
            assert not NOT_PLAIN.search(done.out), (arguments, done.out)
            assert not any(line.startswith("root") for line in done.out.splitlines())
        assert [record[0] for record in tenure("ls", url=url).records] == ["mine", "victim"]
        screen = shown("ls", url=url, columns=120)
        assert "\\x1b[2J\\nroot" in screen.out
        assert "orphaned" in screen.out
        hold.release()
    etcdctl(cluster, "del", "--prefix", f"{namespace}/")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_ten_thousand_locks(singles: dict[str, Cluster], kind: str) -> None:
    """Lines are listed page by page; the first are there before the last were asked for; `| head` is quiet."""
    options = {"tick": 0.2} if kind == "zookeeper" else {}
    url = singles[kind].url(f"cli-crowd-{time.monotonic_ns():x}", **options)
    names = [f"tenant_{number:05}:billing-close" for number in range(10_000)]
    with crowd(url, names):
        program = subprocess.Popen(
            [*PROGRAM, "ls", "--url", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
        )
        assert program.stdout is not None
        assert program.stderr is not None
        with program.stdout as out, program.stderr as complaints:
            began = time.monotonic()
            first = out.readline()
            first_after = time.monotonic() - began
            rest = out.read()
            all_after = time.monotonic() - began
            assert complaints.read() == ""
        _, status, used = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
        assert program.returncode == 0
        assert sorted(line.split("\t")[0] for line in (first + rest).splitlines()) == names
        assert first_after < all_after
        assert used.ru_utime + used.ru_stime < CPU_SECONDS_MAX  # not of the clock: others are at work on this machine
        piped = subprocess.run(
            f"{' '.join(PROGRAM)} ls --url '{url}' | head -3; echo ${{PIPESTATUS[0]}}",
            shell=True,
            executable="/bin/bash",
            capture_output=True,
            text=True,
            env=environment(),
            check=True,
        )
        assert piped.stderr == ""
        *lines, code = piped.stdout.splitlines()
        assert len(lines) == 3
        assert code == "141"
        assert len(tenure("ls", "tenant_0012", url=url).records) == 10
        done = shown("ls", url=url)
        assert done.out.count("\n") == 10_000 + 3
        assert "10,000 lines in use" in done.out
