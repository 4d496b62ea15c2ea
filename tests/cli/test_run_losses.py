"""No two CMDs of one lock ever run at once, as they measure it themselves, however the hold is lost.

TENURE_TEST_LOSSES says how many losses there are on each store (6), TENURE_TEST_LOCKS on how many locks (3), and
TENURE_TEST_SEED in which order (20).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.losses import fight
from tests.servers import Cluster

LOSSES = int(os.environ.get("TENURE_TEST_LOSSES", "6"))
LOCKS = int(os.environ.get("TENURE_TEST_LOCKS", "3"))
SEED = int(os.environ.get("TENURE_TEST_SEED", "20"))
REMOVED_SECONDS_MAX = 5.0
"""Limit for CMD to be dead after its hold was removed by hand, on a busy machine."""


@pytest.mark.timeout(60 + 30 * LOSSES)
@pytest.mark.parametrize("store", ["etcd", "zookeeper"])
def test_no_two_children_of_a_lock_run_at_once(store: str, singles: dict[str, Cluster], tmp_path: Path) -> None:
    """SIGKILL and SIGSTOP of tenure and a store that is cut off: CMD is dead, with what it forked away, before the
    next one starts. An operator's removal is told afterwards: it is measured how soon CMD is dead."""
    found = fight(singles[store], tmp_path, LOSSES, LOCKS, SEED)
    print(f"{store}: {found}", *found.failures, sep="\n")
    assert found.failures == []
    assert found.overlaps == []
    assert found.wrong_codes == []
    assert max(found.after_removal) < REMOVED_SECONDS_MAX
