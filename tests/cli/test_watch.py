"""`tenure watch`: a table that lives and gives the terminal back, and lines for whoever reads on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import tenure as library
from tests.cli.people import waiting
from tests.cli.program import (
    ESCAPES,
    NOT_PLAIN,
    OTHER_SCREEN,
    OWN_SCREEN,
    PROGRAM,
    Terminal,
    at_terminal,
    environment,
    eventually,
)
from tests.faults.transports import over
from tests.servers import Cluster, EtcdSpec, FaultProxy, Provider, ZooKeeperSpec

HOME = "\x1b[H"
HIDDEN, VISIBLE = "\x1b[?25l", "\x1b[?25h"


@contextmanager
def piped(*arguments: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """`tenure watch` with its output in a pipe."""
    process = subprocess.Popen(
        [*PROGRAM, "watch", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"TENURE_URL": url}),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    """The next line; it comes at once, or the test runs out of its time."""
    assert process.stdout is not None
    got = process.stdout.readline()
    assert got.endswith("\n")
    assert not NOT_PLAIN.search(got)
    return got.rstrip("\n")


def given_back(terminal: Terminal) -> bool:
    """True when the terminal shows its own screen again, and its cursor."""
    raw = terminal.raw
    return raw.rindex(OWN_SCREEN) > raw.rfind(OTHER_SCREEN) and raw.rindex(VISIBLE) > raw.rfind(HIDDEN)


def test_in_a_pipe_there_is_a_line_now_and_one_for_each_change(client: library.Client, url: str) -> None:
    """Held, waited for, handed over, free: each one line, at once, with all it takes to grep it."""
    hold = client.lock("ledger").acquire()
    client.lock("mail").acquire()
    with piped("led", url=url) as process:
        _, name, kind, holders, tokens, _, waits, _ = line(process).split("\t")
        assert (name, kind, holders, tokens, waits) == ("ledger", "lock", "worker-1", str(hold.token), "0")
        with waiting(url, "ledger") as next_token:
            assert line(process).split("\t")[6] == "1"
            hold.release()
            assert line(process).split("\t")[3:5] == ["waiter", str(next_token)]
        assert line(process).split("\t")[1:3] == ["ledger", "free"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_json_lines(client: library.Client, url: str) -> None:
    """The same, one object a line."""
    with piped("--json", url=url) as process:
        hold = client.lock("ledger").acquire()
        document = json.loads(line(process))
        assert (document["name"], document["kind"], document["holders"][0]["token"]) == (
            "ledger",
            "lock",
            str(hold.token),
        )
        assert document["time"].endswith("Z")
        hold.release()
        document = json.loads(line(process))
        assert (document["name"], document["kind"], document["holders"]) == ("ledger", None, [])


def test_a_reader_who_has_gone_ends_it_quietly(client: library.Client, url: str) -> None:
    """A reader that leaves, as in `| head -1`, ends it at the next change, 141, without a complaint."""
    with piped(url=url) as process:
        hold = client.lock("ledger").acquire()
        line(process)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        hold.release()
        assert process.wait(60) == 141
        assert process.stderr.read() == ""
        process.stdout = None


def test_at_a_terminal_it_lives(client: library.Client, url: str) -> None:
    """Changes are shown as they come; what is free again goes; Ctrl-C gives the terminal back."""
    with at_terminal("watch", "led", url=url) as terminal:
        terminal.read_until("nothing in use")
        assert "Ctrl-C ends" in terminal.text
        hold = client.lock("ledger").acquire()
        terminal.read_until(str(hold.token))
        with waiting(url, "ledger"):
            terminal.read_until("1 with somebody waiting")
        terminal.forget()
        hold.release()
        terminal.read_until("free")
        terminal.forget()
        terminal.read_until("nothing in use")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert OWN_SCREEN in terminal.raw
        assert "Traceback" not in terminal.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whatever_ends_it_the_terminal_is_given_back(singles: dict[str, Cluster], number: signal.Signals) -> None:
    """Ctrl-C, SIGTERM, SIGHUP: own screen, cursor and settings are back; 128 + n."""
    with at_terminal("watch", url=singles["etcd"].url("cli-ended")) as terminal:
        before = terminal.settings
        terminal.read_until("nothing in use")
        terminal.process.send_signal(number)
        assert terminal.end() == 128 + number
        assert given_back(terminal)
        assert terminal.settings == before
        assert "Traceback" not in terminal.text


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(singles: dict[str, Cluster]) -> None:
    """Stopped it leaves the screen as it was; continued it draws again."""
    with at_terminal("watch", url=singles["etcd"].url("cli-stopped")) as terminal:
        terminal.read_until("nothing in use")
        terminal.type("\x1a")
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
        while OWN_SCREEN not in terminal.raw:
            terminal._read()
        terminal.forget()
        terminal.process.send_signal(signal.SIGCONT)
        terminal.read_until("nothing in use")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert given_back(terminal)


def test_at_a_dumb_terminal_it_tells_lines(client: library.Client, url: str) -> None:
    """A terminal that can move no cursor is written to like a pipe."""
    with at_terminal("watch", url=url, given={"TERM": "dumb"}) as terminal:
        hold = client.lock("ledger").acquire()
        terminal.read_until(f"\tledger\tlock\tworker-1\t{hold.token}\t")
        assert "\x1b" not in terminal.raw
        terminal.type("\x03")
        assert terminal.end() == 130


def test_small_terminals_and_ones_that_change_their_size(singles: dict[str, Cluster]) -> None:
    """Lines that do not fit are counted; nothing is wider than the screen; a resize is followed."""
    url = singles["etcd"].url("cli-small")
    with library.connect(url, owner="worker-1") as client:
        holds = [client.lock(f"line-{number:02}").acquire() for number in range(30)]
        with at_terminal("watch", url=url, columns=40, rows=12) as terminal:
            terminal.read_until("23 more do not fit")
            for frame in terminal.raw.split(HOME):
                assert max(map(len, ESCAPES.sub("", frame).splitlines()), default=0) <= 40
            terminal.resize(100, 40)
            terminal.read_until("line-29")
            terminal.type("\x03")
            assert terminal.end() == 130
        for hold in holds:
            hold.release()


@pytest.mark.parametrize("kind", ["etcd", "etcd+grpc", "zookeeper"])
def test_a_store_that_is_away_for_a_while(provider: Provider, kind: str) -> None:
    """The table says that the store is away, waits for it, and goes on with what is in use then."""
    spec = ZooKeeperSpec() if kind == "zookeeper" else EtcdSpec()
    options = {"tick": 0.2} if kind == "zookeeper" else {}
    cluster = over(provider.zookeeper(spec) if isinstance(spec, ZooKeeperSpec) else provider.etcd(spec), kind)
    try:
        url = cluster.url("cli-away", ttl=3, **options)
        with library.connect(url, owner="worker-1") as client, at_terminal("watch", url=url, columns=100) as terminal:
            client.lock("ledger").acquire()
            terminal.read_until("worker-1")
            cluster.members[0].pause()
            terminal.read_until("the store has not answered for")
            cluster.members[0].resume()
            terminal.forget()
            eventually(lambda: client.lock("mail").try_acquire() is not None)
            terminal.read_until("mail")
            terminal.forget()
            terminal.read_until("Ctrl-C ends")
            assert "has not answered" not in terminal.text
            terminal.type("\x03")
            assert terminal.end() == 130
    finally:
        cluster.close()


def test_unreachable_from_the_start(singles: dict[str, Cluster]) -> None:
    """69 and one line; a terminal is given back before."""
    with FaultProxy(singles["etcd"].endpoints[0], "etcd") as proxy:
        proxy.refuse()
        url = f"etcd://{proxy.endpoint}/cli-unreachable?timeout=1"
        with piped(url=url) as process:
            assert process.wait(60) == 69
            assert process.stderr is not None
            assert process.stderr.read().startswith("tenure: ")
        with at_terminal("watch", url=url) as terminal:
            assert terminal.end() == 69
            assert terminal.raw.rindex("tenure: ") > terminal.raw.rindex(OWN_SCREEN)
