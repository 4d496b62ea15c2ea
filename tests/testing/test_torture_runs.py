"""Whole runs of the torture on real servers: what passes, what fails when it should, and what is only unknown."""

from __future__ import annotations

import dataclasses
import gzip
import json
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

import tenure
from tenure.testing import Event, History, Kind, Outcome, check_history
from tests.servers import Cluster, FaultProxy
from tests.testing.torture_rig import PlainRig, StopWriters
from tests.verify.torture import command
from tests.verify.torture.observers.jute import read_log
from tests.verify.torture.run import Trial, torture
from tests.verify.torture.summary import facts, text, updates
from tests.verify.torture.verdict import Judgement, stale_writes_refused

CALM_SECONDS = 3.0
CONTROL_SECONDS = 10.0
WARM_SECONDS = 2.0


@pytest.fixture(scope="module", params=["etcd", "zookeeper"])
def calm(
    request: pytest.FixtureRequest, singles: dict[str, Cluster], tmp_path_factory: pytest.TempPathFactory
) -> Judgement:
    """A run in which nothing is broken."""
    directory = tmp_path_factory.mktemp("calm")
    return torture(
        Trial(request.param, CALM_SECONDS, 7, directory, warm=WARM_SECONDS), PlainRig(singles[request.param])
    )


def test_calm_run_passes_by_every_property_it_can_be_judged_by(calm: Judgement) -> None:
    """A calm run passes by all that is asked for, with the store's own word and the fenced store's."""
    assert (calm.broke, calm.doubts) == ((), ())
    assert calm.outcome is Outcome.PASSED, str(calm.report)
    asked = {verdict.name for verdict in calm.report.verdicts}
    assert asked >= {"S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "L2", "L3", "L6"}


@pytest.mark.parametrize("command", [["tenure.testing.check"], ["tests.verify.torture", "check"]])
def test_calm_run_can_be_checked_again_from_its_files(calm: Judgement, command: list[str]) -> None:
    """`python -m tenure.testing.check`, or of the torture, comes to the same end."""
    files = [str(path) for path in sorted(calm.trial.directory.glob("*.jsonl"))]
    asked = ["--properties", "S1,S2,S3,S4,S5,S6,S7,S8,S9,L6"]
    done = subprocess.run([sys.executable, "-m", *command, *files, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_report_tells_what_was_done_and_how_to_do_it_again(calm: Judgement) -> None:
    """Figures, versions, seed and command, for people and for machines."""
    told = facts(calm, servers="1 × etcd 3", names="none")
    assert json.loads(json.dumps(told)) == told
    assert told["outcome"] == "passed"
    assert told["grants"] > 20
    assert told["hand_overs"] > 5
    assert told["updates"]["lost"] == 0
    assert 0.0 < told["without_progress_seconds"]["during"] < CALM_SECONDS
    shown = text(told, calm)
    assert f"--backend {calm.trial.backend} --nemesis none --seconds 3 --seed 7" in shown
    assert shown.endswith("\npassed")


def test_workers_speak_grpc_where_that_is_asked_for(singles: dict[str, Cluster], tmp_path: Path) -> None:
    """`--transport grpc`: every request of every worker; the report says so, and the run passes like the others."""
    cluster = singles["etcd"]
    with FaultProxy(cluster.endpoints[0], "etcd") as proxy:
        rig = PlainRig(cluster, url=f"etcd://{proxy.endpoint}")
        trial = Trial("etcd", CALM_SECONDS, 7, tmp_path, warm=WARM_SECONDS, transport="grpc")
        judgement = torture(trial, rig)
        asked = proxy.requests
    assert judgement.outcome is Outcome.PASSED, str(judgement.report)
    assert asked["/etcdserverpb.KV/Txn"] > 20
    assert asked["/etcdserverpb.Watch/Watch"] > 0
    assert [path for path in asked if not str(path).startswith("/etcdserverpb.")] == []
    assert "--transport grpc" in text(facts(judgement, servers="1 × etcd 3", names="none"), judgement)


def test_truth_knows_every_hold_of_the_run(calm: Judgement) -> None:
    """The observer saw a ticket for every hold, with its owner and token, and saw it removed."""
    truth = {event.hold: event for event in calm.history.of(Kind.TRUTH) if event.operation == "created"}
    removed = {event.hold for event in calm.history.of(Kind.TRUTH) if event.operation == "removed"}
    held = [event for event in calm.history if event.acquired]
    assert all(truth[event.hold].token == event.token for event in held)
    assert all(truth[event.hold].client == event.client for event in held)
    assert all(truth[event.hold].mode is event.mode for event in held)
    assert {event.hold for event in held} <= removed
    assert all(event.earliest > 0.0 for event in calm.history.of(Kind.TRUTH) if event.operation == "created")


def test_forged_hold_fails_s4(calm: Judgement) -> None:
    """A hold that the store knows nothing of."""
    real = next(event for event in calm.history if event.acquired and event.resource == "lock-a")
    invoke = Event(real.at, real.client, Kind.INVOKE, "acquire", "lock-a", call=10**6)
    forged = dataclasses.replace(real, hold="0" * 20, call=10**6)
    assert _verdict(calm, "S4") is Outcome.PASSED
    assert _verdict(calm, "S4", [*calm.history, invoke, forged]) is Outcome.FAILED


def test_removal_by_nobody_fails_s8(calm: Judgement) -> None:
    """A held ticket that goes although nobody released it, and its lease goes on."""
    release = next(call for call in calm.history.calls if call.invoke.operation == "release" and call.ok)
    told = [event for event in calm.history if event not in (release.invoke, release.outcome)]
    kept = [event for event in told if event.operation != "close" and not _ends_lease_of(event, release.invoke.client)]
    assert _verdict(calm, "S8") is Outcome.PASSED
    assert _verdict(calm, "S8", kept) is Outcome.FAILED


def test_ticket_that_nobody_holds_fails_s9(calm: Judgement) -> None:
    """An acquire that failed, and whose ticket has its turn all the same until the end."""
    at, who = calm.history.start + 0.5, calm.history.clients[0]
    last = max(event.revision or 0 for event in calm.history.of(Kind.TRUTH))
    forged = [
        Event(at, who, Kind.INVOKE, "acquire", "forged", call=10**6),
        Event(at + 0.1, who, Kind.FAIL, "acquire", "forged", call=10**6),
        Event(at + 0.05, who, Kind.TRUTH, "created", "forged", hold="f" * 20, token=last + 1, revision=last + 1),
    ]
    assert _verdict(calm, "S9") is Outcome.PASSED
    assert _verdict(calm, "S9", [*calm.history, *forged]) is Outcome.FAILED


def _ends_lease_of(event: Event, client: str) -> bool:
    return event.kind is Kind.TRUTH and event.operation == "lease_ended" and event.client == client


def _verdict(calm: Judgement, name: str, events: Iterable[Event] | None = None) -> Outcome:
    history = calm.history if events is None else History(events)
    return check_history(history, [name])[name].outcome


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "unfenced"])
def test_writers_that_stand_still_lose_updates_only_without_the_fence(
    fenced: bool, singles: dict[str, Cluster], tmp_path: Path
) -> None:
    """The positive control: the very run that passes with the fence loses updates without it."""
    trial = Trial(
        "etcd",
        CONTROL_SECONDS,
        3,
        tmp_path,
        [[StopWriters(tmp_path)]],
        ttl=1.0,
        fenced=fenced,
        warm=WARM_SECONDS,
        careless=0.7,
    )
    judgement = torture(trial, PlainRig(singles["etcd"]))
    lost = updates(judgement.history)["lost"]
    s5 = next(verdict for verdict in judgement.report.verdicts if verdict.name == "S5")
    assert judgement.faults["stop"] >= 6
    if fenced:
        assert (lost, s5.outcome) == (0, Outcome.PASSED), str(judgement.report)
        assert judgement.outcome is Outcome.PASSED, str(judgement.report)
    else:
        assert lost > 0
        assert s5.outcome is Outcome.FAILED
        assert stale_writes_refused(judgement.history) == 0


@pytest.mark.parametrize("backend", ["etcd", "zookeeper"])
def test_run_that_did_not_pass_keeps_what_the_servers_said(
    backend: Literal["etcd", "zookeeper"], singles: dict[str, Cluster], tmp_path: Path
) -> None:
    """The logs are kept with ZooKeeper's transaction logs, which can be read once more."""
    with tenure.connect(singles[backend].url()) as client:
        client.lock("a").acquire().release()
    trial = Trial(backend, 1.0, 3, tmp_path, [], clients=2, actors=1, warm=0.5)
    judgement = torture(trial, PlainRig(singles[backend], url=f"{backend}://127.0.0.1:1/"))
    assert judgement.outcome is Outcome.UNKNOWN, str(judgement.report)
    assert (tmp_path / "server-0.log").stat().st_size > 0
    kept = sorted(tmp_path.glob("server-0-log.*.gz"))
    assert bool(kept) is (backend == "zookeeper")
    if kept:
        (tmp_path / "log").write_bytes(gzip.decompress(kept[0].read_bytes()))
        assert next(read_log(tmp_path / "log")).zxid > 0


def test_run_without_traffic_is_unknown(
    singles: dict[str, Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workers that reach no server hold nothing, and nothing is shown: exit code 2, histories kept."""
    nowhere = "etcd://127.0.0.1:1/"
    monkeypatch.setattr(command, "make_rig", lambda *_, **__: PlainRig(singles["etcd"], url=nowhere))
    monkeypatch.setattr(command, "Trial", partial(Trial, actors=1, warm=WARM_SECONDS))
    asked = [
        "--backend",
        "etcd",
        "--nemesis",
        "none",
        "--seconds",
        "1",
        "--clients",
        "2",
        "--keep",
        str(tmp_path / "k"),
    ]
    assert command.main(asked) == 2
    told = capsys.readouterr().out
    assert "unknown: only 0 grants" in told
    assert sorted(path.name for path in (tmp_path / "k").glob("*.jsonl"))[-1] == "w1.jsonl"
