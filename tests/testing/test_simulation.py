"""The simulation: it finds nothing in the library, finds every seeded bug, and a seed is one run for ever."""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import tenure._core.lease
from tenure.testing import check_history
from tests.testing.seeded_bugs import BUGS, FOUND_BY_DEMANDING_PROGRESS, LAWS
from tests.verify.simulation import Mode, Plan, Totals, carry_out, plan, shrink, simulate
from tests.verify.simulation.clocks import Rate
from tests.verify.simulation.command import main, run
from tests.verify.simulation.plan import Action, Actor, Client, Fault, Section
from tests.verify.simulation.run import recorded_run
from tests.verify.simulation.scheduler import Blocked, Scheduler
from tests.verify.simulation.shrink import law

SEEDS = 1500
"""In each mode."""
FOUND_WITHIN = 2000
_ONCE_NOT_EXPLAINED = (209, 387, 673, 737, 2027, 2034, 3121)
"""Seeds whose recorded runs the checkers of real histories once failed, for reasons of their own."""
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def totals() -> Totals:
    """Every seed in both modes, once for this module."""
    return run(range(SEEDS), list(Mode))


@pytest.mark.timeout(300)
def test_nothing_is_wrong_in_any_seed(totals: Totals, capsys: pytest.CaptureFixture[str]) -> None:
    """The laws hold whatever goes wrong, and enough goes on to say so."""
    with capsys.disabled():
        print(f"\n{totals}")
    assert totals.verdict == "passed", totals
    assert totals.hand_overs.total() > 8 * totals.runs
    assert totals.outcomes.total() > 50 * totals.runs


def test_every_operation_and_every_fault_is_met(totals: Totals) -> None:
    """A kind that never happens is not tested."""
    kinds = {"lock", "seat", "read", "write", "campaign", "put", "get", "amend", "renew", "check", "leader", "observed"}
    assert all(totals.outcomes[kind] > 20 for kind in kinds), totals
    assert all(totals.outcomes[f"{kind} not at once"] > 5 for kind in ("lock", "seat", "read", "write", "campaign"))
    faults = {"cut", "slow", "pause", "cancel", "close", "crash", "expire", "remove"}
    assert all(totals.faults[fault] > 5 for fault in faults), totals
    assert all(totals.faults[fate] > 50 for fate in ("lost request", "lost answer", "late request")), totals
    assert totals.outcomes["cancelled"] > 20
    assert all(totals.outcomes[f"with {error}"] > 5 for error in ("LeaseLost", "ClientClosed")), totals
    assert set(totals.hand_overs) == {"L", "S", "R", "E"}


def test_seed_run_twice_is_the_same_run() -> None:
    """A seed is the same run, whatever ran before."""
    once = [_print_of(seed) for seed in range(10)]
    assert [_print_of(seed) for seed in reversed(range(10))] == once[::-1]


@pytest.mark.parametrize("hash_seed", ["0", "1", "4711"])
def test_seed_in_another_process_is_the_same_run(hash_seed: str) -> None:
    """Byte by byte: neither hashes nor addresses nor the clock get into it."""
    program = (
        "from tests.testing.test_simulation import _print_of\nfor seed in range(20, 30):\n    print(_print_of(seed))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert done.stdout.split() == [_print_of(seed) for seed in range(20, 30)]


def _print_of(seed: int) -> str:
    """The trace of a seed in both modes, as one fingerprint."""
    results = [simulate(seed, mode) for mode in Mode]
    told = "\n".join(line for result in results for line in (*result.trace, str(result.steps), str(result.plan)))
    return hashlib.sha256(told.encode()).hexdigest()


def test_tracing_changes_nothing() -> None:
    """A seed that failed without a trace fails with one."""
    for seed in range(5):
        silent, told = (simulate(seed, Mode.SAFETY, traced=traced) for traced in (False, True))
        assert (silent.steps, silent.outcomes, silent.trace) == (told.steps, told.outcomes, ())
        assert told.trace


def test_no_thread_is_started_and_nothing_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation takes one thread and no real time."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the simulation is single-threaded and never waits")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(time, "sleep", refuse)
    assert run(range(20), list(Mode)).failed == []


def test_chance_outside_is_as_before() -> None:
    """A run gives back what it takes over."""
    state = random.getstate()
    simulate(1, Mode.SAFETY)
    assert random.getstate() == state
    assert vars(tenure._core.lease)["secrets"] is secrets


def test_wait_where_nothing_may_wait_is_refused() -> None:
    """An event loop that is blocked is a bug, and shows as one."""
    with pytest.raises(Blocked):
        Scheduler().park()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BUGS)
def test_seeded_bug_is_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The simulation can fail: each of these is found within 2,000 seeds, by the law it breaks."""
    modes = [Mode.LIVENESS] if name in FOUND_BY_DEMANDING_PROGRESS else list(Mode)
    with BUGS[name]():
        for seed in range(FOUND_WITHIN):
            found = next((r for mode in modes if (r := simulate(seed, mode, traced=False)).violation), None)
            if found is not None:
                break
        else:
            pytest.fail(f"not found within {FOUND_WITHIN} seeds")
    with capsys.disabled():
        print(f"\n{name}: found with {seed + 1} seeds, {found.plan.mode.value}: {found.violation}")
    assert law(found) in LAWS[name]


def test_failing_seed_shrinks_and_still_fails() -> None:
    """A shrunk plan fails by the same law, is smaller in every way, and runs the same again."""
    with BUGS["release_by_name"]():
        seed = next(s for s in range(50) if simulate(s, Mode.SAFETY, traced=False).violation)
        whole = plan(seed, Mode.SAFETY)
        small = shrink(whole)
        assert small is not None
        again = carry_out(small.plan, salt=small.salt)
    assert law(again) == law(small.result) == "S8"
    assert again.trace == small.result.trace
    assert all(less <= more for less, more in zip(small.plan.size, whole.size, strict=True))
    assert small.plan.size[0] == 1
    assert small.plan.size[2] <= 3
    assert len(again.trace) < 20


def test_amend_carried_out_late_does_not_put_the_older_value_back() -> None:
    """A confirmed value stays until the next amend: observers never see it go back."""
    section = Section("campaign", 0.0, None, 1, (Action("amend"), Action("amend"), Action("stay", 5.0)), False)
    client = Client("A", False, 5.0, 0.0, Rate(), (Actor("A1", (section,)),))
    late = Fault(0.0, "late request", "A", what="amend")
    assert carry_out(Plan(1, Mode.SAFETY, (client,), (late,))).setbacks == 0


def test_ticket_removed_by_an_administrator_does_not_come_back() -> None:
    """Law 7: the first try of an enter that comes late is nobody's, once the hold was lost to an administrator."""
    stay = Section("lock", 0.0, None, 1, (Action("stay", 0.5), Action("renew"), Action("stay", 9.0)), False)
    again = Section("lock", 0.0, None, 1, (), False, at=30.0)
    client = Client("A", False, 5.0, 0.0, Rate(), (Actor("A1", (stay, again)),))
    faults = (Fault(0.0, "late request", "A", what="enter"), Fault(0.0, "remove", "A", on="renew"))
    runs = [carry_out(Plan(1, Mode.LIVENESS, (client,), faults), salt=salt) for salt in range(10)]
    assert sum(run.risen for run in runs) == 0


def test_seed_that_does_not_fail_does_not_shrink() -> None:
    """A seed that does not fail has nothing to shrink."""
    assert shrink(plan(0, Mode.SAFETY)) is None


@pytest.mark.parametrize("mode", list(Mode))
def test_run_passes_before_the_checkers(mode: Mode) -> None:
    """The checkers for real histories judge a run by what was recorded, and find nothing either."""
    for seed in (*range(200), *_ONCE_NOT_EXPLAINED):
        result, history = recorded_run(plan(seed, mode))
        report = check_history(history)
        assert result.violation == ""
        assert not [verdict for verdict in report.verdicts if verdict.failed], report


def test_command_says_how_it_came_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 where all is well, with what was covered."""
    assert main(["--seeds", "5", "--from", "3"]) == 0
    told = capsys.readouterr().out
    assert "10 runs" in told
    assert "a minute" in told
    assert "hand-overs" in told
    assert told.endswith("passed\n")


def test_command_given_a_failing_seed_prints_it_small(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, the seed, the shortened trace."""
    with BUGS["wake_taken_for_success"]():
        assert main(["--seeds", "5", "--mode", "safety", "--shrink"]) == 1
        told = capsys.readouterr().out
        assert "smallest found" in told
        assert "VIOLATION S4" in told
        seed = next(s for s in range(5) if simulate(s, Mode.SAFETY, traced=False).violation)
        assert main(["--replay", str(seed), "--mode", "safety"]) == 1
    assert main(["--replay", str(seed), "--mode", "safety"]) == 0


def test_run_without_hand_overs_is_unknown() -> None:
    """Too little went on: that is no pass."""
    assert Totals().verdict == "unknown"
    assert main(["--seeds", "0"]) == 1
