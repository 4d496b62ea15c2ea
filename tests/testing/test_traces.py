"""The memory store behaves like the real ones, verb by verb; and the comparison that says so can fail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tenure._core.lease import Mode, Reach
from tests.servers import Cluster, etcdctl
from tests.testing.seeded_differences import DIFFERENCES
from tests.verify.traces import (
    EARLY,
    FREEDOMS,
    MEMORY,
    Comparison,
    Store,
    Trace,
    compare,
    open_store,
    shrink,
    trace,
    watching,
)
from tests.verify.traces import commands as c
from tests.verify.traces.command import main

SEEDS = range(60)
REAL = ("etcd", "zookeeper")
NOT_WAITED_FOR_LONG = 1.0
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def urls(singles: dict[str, Cluster]) -> dict[str, str]:
    """The URLs of the stores."""
    return {"etcd": singles["etcd"].url(), "zookeeper": singles["zookeeper"].url(tick=0.2)}


@pytest.fixture(scope="module")
def stores(urls: dict[str, str]) -> Iterator[dict[str, Store]]:
    """The memory store and both real ones, with an administrator each."""
    with closing(open_store(urls["etcd"])) as etcd, closing(open_store(urls["zookeeper"])) as zookeeper:
        yield {"memory": open_store(MEMORY), "etcd": etcd, "zookeeper": zookeeper}


@pytest.fixture(scope="module")
def played(stores: dict[str, Store]) -> dict[str, Comparison]:
    """The comparison of all seeds on each real store, added up; the first difference ends it."""
    return {kind: _all_seeds(stores, kind) for kind in REAL}


def _all_seeds(stores: dict[str, Store], kind: str) -> Comparison:
    total = Comparison()
    for seed in SEEDS:
        one = compare(trace(seed), stores["memory"], stores[kind])
        total.commands += one.commands
        total.freedoms += one.freedoms
        total.lost += one.lost
        total.signals += one.signals
        total.difference = total.difference or one.difference
        if total.difference:
            break
    return total


@pytest.mark.parametrize("kind", REAL)
def test_memory_store_behaves_like_the_real_one(played: dict[str, Comparison], kind: str) -> None:
    """Every answer, signal, state and told end of every seed is the same, but for what freedom.py names."""
    assert played[kind].difference is None, str(played[kind].difference)


@pytest.mark.parametrize("kind", REAL)
def test_every_command_is_met_with_every_fate(played: dict[str, Comparison], kind: str) -> None:
    """A command or fate that never happens is not compared."""
    met = played[kind].commands
    assert met.total() > 1500
    assert {name.split(" ")[0] for name in met} == {
        kind.__name__.removesuffix("Command") for kind in c.Command.__args__
    }
    fates = [f"Commit {fate}" for fate in ("done", "differs", "amended", "gone", "StoreUnavailable")]
    fates += [f"{verb} {stood}" for verb in ("Amend", "Leave") for stood in (True, False)]
    fates += ["Enter LeaseLost", "Enter ClientClosed", "Revoke LeaseLost"]
    assert [fate for fate in fates if met[fate] < 5] == []
    assert played[kind].signals > 50
    assert all(played[kind].lost[verb] for verb in ("enter", "amend", "leave", "touch", "commit")), played[kind].lost


def test_every_freedom_is_needed(played: dict[str, Comparison]) -> None:
    """A freedom that no seed takes would only hide what it does not name."""
    taken = {name for kind in REAL for name, count in played[kind].freedoms.items() if count}
    assert {freedom.name for freedom in FREEDOMS} <= taken <= {freedom.name for freedom in (*FREEDOMS, *EARLY)}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_seeded_difference_is_found(
    stores: dict[str, Store], name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The comparison can fail: each of these memory stores is told from a real one within the same seeds."""
    monkeypatch.setattr(watching, "SECONDS", NOT_WAITED_FOR_LONG)
    with DIFFERENCES[name]():
        for seed in SEEDS:
            found = compare(trace(seed), stores["memory"], stores["etcd"]).difference
            if found is not None:
                break
        else:
            pytest.fail(f"not found within {len(SEEDS)} seeds")
    with capsys.disabled():
        print(f"\n{name}: seed {seed}, {found.what}")


def test_difference_made_small_still_differs(stores: dict[str, Store]) -> None:
    """Three commands are left of forty, and tell the whole story."""
    with DIFFERENCES["touch_that_moves_nothing"]():
        found = next(d for seed in SEEDS if (d := compare(trace(seed), stores["memory"], stores["etcd"]).difference))
        small = shrink(found, lambda shorter: compare(shorter, stores["memory"], stores["etcd"]).difference)
    assert len(small.trace.commands) <= 4
    assert isinstance(small.command, c.TouchCommand)
    told = str(small)
    assert told.count("memory:") == told.count("etcd:") == 1
    assert "TouchCommand(" in told


# What traces have found, kept.


def entered(lease: str, ticket: str, resource: str = c.KEPT) -> c.EnterCommand:
    return c.EnterCommand(lease, ticket, resource, Mode.EXCLUSIVE, 1, 1, "me", "one", Reach.AHEAD)


L1, L2 = c.Open("L1", "A", 15.0, 0.0), c.Open("L2", "B", 15.0, 0.0)
LATEST, OLDER = c.View.LATEST, c.View.OLDER
PUT = (("k0", b"1"),)
FIRST_VERBS: dict[str, c.Command] = {
    "look": c.LookCommand("L2", "t1", LATEST, Reach.AHEAD),
    "amend": c.AmendCommand("L2", "t1", LATEST, "two"),
    "leave": c.LeaveCommand("L2", "t1", LATEST),
    "read": c.ReadCommand("L2", "t1", LATEST, c.KEYS),
    "commit": c.CommitCommand("L2", "t1", LATEST, (), PUT),
    "touch": c.TouchCommand("L2", "t1", LATEST),
}
FOUND: dict[str, tuple[c.Command, ...]] = {
    # ZooKeeper's lease connected at enter, survey and renew only, and was lost at any other first verb.
    **{f"first verb is {name}": (L1, L2, entered("L1", "t1"), verb) for name, verb in FIRST_VERBS.items()},
    # ZooKeeper's signals on several tickets, or on any change, did not hear of amendments.
    "amendment of one of several": (
        *(L1, entered("L1", "t1"), entered("L1", "t2"), entered("L1", "t3")),
        *(c.WatchCommand("w1", "L1", c.KEPT, c.Pick.ALL, amendments=True), c.AmendCommand("L1", "t1", LATEST, "two")),
    ),
    "amendment as any change": (
        *(L1, entered("L1", "t1", "b"), c.SurveyCommand("L1", "b", None)),
        *(c.WatchCommand("w1", "L1", "b", c.Pick.NONE, amendments=False), c.AmendCommand("L1", "t1", LATEST, "two")),
    ),
    # There, a line nested below another one was always news to who waited for any change of that.
    "nested line": (
        L1,
        c.SurveyCommand("L1", c.KEPT, None),
        c.WatchCommand("w1", "L1", c.KEPT, c.Pick.NONE, amendments=True),
    ),
    # There, and in memory, a gone ticket was shown in place of another one under its id.
    "look of yesterday": (
        *(L1, entered("L1", "t1"), c.LeaveCommand("L1", "t1", LATEST), c.Again("L1", "t1")),
        c.LookCommand("L1", "t1", OLDER, Reach.AHEAD),
    ),
    # There, a comparison that did not hold was told of before the amendment that the commit had to hear of.
    "two reasons": (
        *(L1, entered("L1", "t1"), c.TouchCommand("L1", "t1", LATEST)),
        c.CommitCommand("L1", "t1", c.View.ENTERED, (("k0", c.Known.WRONG),), PUT),
    ),
    # There, a lease closed just after its connection was lost left its tickets to the session's time-out.
    "close between connections": (
        *(L1, entered("L1", "t1"), c.CommitCommand("L1", "t1", LATEST, (("k0", c.Known.LATEST),), PUT, "request")),
        *(c.Close("L1"), L2, c.SurveyCommand("L2", c.KEPT, None)),
    ),
    # In memory, a retry knew whether a request or its answer had been lost.
    "request to leave lost": (
        *(L1, entered("L1", "t1"), c.LeaveCommand("L1", "t1", LATEST), c.LeaveCommand("L1", "t1", LATEST, "request")),
    ),
    # There, a reaper removed what another lease had entered.
    "another's entry abandoned": (
        *(
            L1,
            L2,
            entered("L1", "t1"),
            entered("L2", "t2"),
            c.AbandonCommand("L2", "t1"),
            c.SurveyCommand("L1", c.KEPT, None),
        ),
    ),
}


@pytest.mark.parametrize("kind", REAL)
@pytest.mark.parametrize("name", FOUND)
def test_difference_once_found_stays_away(stores: dict[str, Store], name: str, kind: str) -> None:
    """Each was a difference; each trace has something to do at every step."""
    came = compare(Trace(0, FOUND[name]), stores["memory"], stores[kind])
    assert came.difference is None, str(came.difference)
    assert came.commands.total() == len(FOUND[name])


def test_signal_that_is_early_has_a_reason(stores: dict[str, Store]) -> None:
    """Each store sets the signals that its watches can't keep apart, and no others."""
    few: tuple[c.Command, ...] = (L1, entered("L1", "t1"), entered("L1", "t2"))
    many: tuple[c.Command, ...] = (L1, *(entered("L1", f"t{number}") for number in (1, 2, 4, 5, 6, 7, 8, 9, 10)))
    comes, goes = entered("L1", "t3"), c.LeaveCommand("L1", "t3", LATEST)

    def reasons(
        kind: str, line: Sequence[c.Command], pick: c.Pick, *then: c.Command, amendments: bool = False
    ) -> list[str]:
        played = (*line, c.WatchCommand("w1", "L1", c.KEPT, pick, amendments), *then)
        came = compare(Trace(0, played), stores["memory"], stores[kind])
        assert came.difference is None, str(came.difference)
        return sorted(early.name for early in EARLY if came.freedoms[early.name])

    # etcd's watches begin with what comes: what came before that is looked for ticket by ticket, and sets none early
    assert reasons("etcd", few, c.Pick.ALL, comes, goes) == []
    assert reasons("etcd", few, c.Pick.ALL, comes, amendments=True) == []
    assert reasons("etcd", few, c.Pick.LAST, comes, goes, c.TouchCommand("L1", "t2", LATEST)) == []
    assert reasons("etcd", many, c.Pick.ALL, comes) == []
    assert reasons("etcd", many, c.Pick.ALL, comes, goes) in ([], ["another's departure"])
    assert reasons("etcd", many, c.Pick.ALL, comes, amendments=True) in ([], ["anything in the range"])
    assert reasons("zookeeper", few, c.Pick.ALL, comes, goes) == []
    assert reasons("zookeeper", few, c.Pick.ALL, c.TouchCommand("L1", "t2", LATEST)) == ["amended unasked"]
    assert reasons("zookeeper", many, c.Pick.ALL, comes) == ["another child"]
    assert reasons("zookeeper", many, c.Pick.ALL, c.TouchCommand("L1", "t2", LATEST)) == []
    assert reasons("zookeeper", few, c.Pick.LAST, c.TouchCommand("L1", "t2", LATEST)) == ["amended unasked"]
    assert reasons("zookeeper", few, c.Pick.LAST, comes, goes, c.TouchCommand("L1", "t1", LATEST)) == []
    assert reasons("zookeeper", few, c.Pick.LAST, c.TouchCommand("L1", "t1", LATEST, "answer")) == [
        "a watch that broke"
    ]


# The plan and the command.


def test_seed_is_one_trace_in_any_process() -> None:
    """A trace depends neither on hashes nor on the clock."""
    program = "from tests.verify.traces import trace\nprint(hash(str(trace(7))) and trace(7))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert told.stdout == f"{trace(7)}\n"
    assert len({str(trace(seed)) for seed in SEEDS}) == len(SEEDS)


def test_command_passes_where_nothing_differs(urls: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, with what was met."""
    assert main(["--seeds", "2", "--from", "5", "--stores", urls["etcd"], urls["zookeeper"]]) == 0
    told = capsys.readouterr().out
    assert told.count("2 seeds") == told.count(": 0 differ") == 2
    assert "freedoms taken: " in told


def test_command_fails_where_something_differs(
    urls: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1, and the first difference made small."""
    monkeypatch.setattr(watching, "SECONDS", NOT_WAITED_FOR_LONG)
    with DIFFERENCES["commit_that_ignores_compares"]():
        assert main(["--seeds", "4", "--stores", urls["etcd"]]) == 1
    told = capsys.readouterr().out
    assert "memory and etcd differ in the answer" in told
    assert "made small" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["--stores", "etcd://127.0.0.1:1"],
        ["--stores", "mysql://127.0.0.1"],
        ["--stores", "etcd://127.0.0.1:1,127.0.0.1:2"],
        ["--stores", "etcd://root:secret@127.0.0.1:1"],
    ],
)
def test_command_that_can_compare_nothing_says_so(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3: neither equal nor different."""
    assert main(arguments) == 3
    assert "nothing could be compared" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--seeds", "0", "--stores", MEMORY], ["--seeds", "x", "--stores", MEMORY]])
def test_command_called_wrongly_exits_with_3(arguments: list[str]) -> None:
    """A wrong call does not exit with 1, which would mean a difference."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 3


def test_place_leaves_nothing(stores: dict[str, Store], singles: dict[str, Cluster]) -> None:
    """A place leaves neither keys, nor lines, nor what kept their places."""
    for kind in REAL:
        compare(trace(1), stores["memory"], stores[kind])
    assert etcdctl(singles["etcd"], "get", "--prefix", "--keys-only", "traces-").stdout.strip() == ""
    zookeeper = KazooClient(singles["zookeeper"].endpoints[0])
    zookeeper.start()
    try:
        assert [node for node in zookeeper.get_children("/") if node.startswith("traces-")] == []
    finally:
        zookeeper.stop()
        zookeeper.close()
