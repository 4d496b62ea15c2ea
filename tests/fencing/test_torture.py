"""The torture: every guard under processes that are stopped, deposed and killed, and go on writing all the same.

Each guard once, and once more without the guard where that is worth it: the positive control, which must lose updates.
What judges a run has tests of its own, in torture/test_check.py: each judge fails on a bad history made for it.
TENURE_TORTURE_SECONDS makes the runs longer, TENURE_TORTURE_SEED repeats the lots of one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.servers import Cluster

from .torture import check
from .torture.resources import KINDS
from .torture.run import CONTROL_SECONDS, SECONDS, STORE_OF, Trial, torture

CONTROLS = ("postgresql", "redis", "etcd", "zookeeper")


@pytest.fixture
def trial(kind: str, singles: dict[str, Cluster], request: pytest.FixtureRequest, tmp_path: Path) -> Trial:
    """The guarded run of this kind."""
    return Trial(kind, True, SECONDS, singles[STORE_OF[kind]], tmp_path, request.getfixturevalue)


@pytest.mark.timeout(SECONDS + 90)
@pytest.mark.parametrize("kind", KINDS)
def test_guard_loses_no_update_and_accepts_no_stale_write(trial: Trial) -> None:
    """Whatever happens to the holders, no update is lost, no stale write accepted, and nobody told a lie."""
    verdict = torture(trial)
    assert verdict.violations == []
    assert check.too_little(verdict.figures) == [], "not enough happened, and nothing was shown"


@pytest.mark.parametrize("kind", CONTROLS)
def test_without_the_guard_updates_are_lost(trial: Trial) -> None:
    """The positive control: the same run past the guard loses updates, so the run above could have failed."""
    verdict = torture(replace(trial, guarded=False, seconds=CONTROL_SECONDS))
    assert verdict.violations != []
    assert verdict.figures.lost > 0
