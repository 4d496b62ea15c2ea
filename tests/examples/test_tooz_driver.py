"""docs/examples/tooz_driver.py under tooz's own tests of locks and leaders, on every kind of store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Final

import pytest

from tests.processes import ROOT
from tests.servers import Cluster

SCHEMES: Final = ("etcd", "zookeeper", "memory")
WORDS: Final = ("lock", "lead", "elect", "start", "stop", "connection")
"""Words in the names of the tests that are about locks and leaders."""
IN_MEMORY: Final = "FAILED (failures=1, skipped=1)"
"""No host is there to be wrong, and a lock of another process finds a memory of its own."""


def distribution(folder: Path) -> None:
    """Put a distribution there whose entry points are the driver."""
    information = folder / "driver-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: driver\nVersion: 1\n")
    points = "".join(f"tenure+{scheme} = tests.examples.tooz_coordinator:Coordinator\n" for scheme in SCHEMES)
    (information / "entry_points.txt").write_text(f"[tooz.backends]\n{points}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tooz_tests_of_locks_and_leaders_pass(singles: dict[str, Cluster], tmp_path: Path, scheme: str) -> None:
    """All of them, on every store that several processes share."""
    distribution(tmp_path)
    namespace = f"tooz-{uuid.uuid4().hex}"
    url = f"memory://{namespace}" if scheme == "memory" else singles[scheme].url(namespace)
    environment = {
        **os.environ,
        "TOOZ_TEST_URL": f"tenure+{url}",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), *sys.path]),
        "XDG_CACHE_HOME": str(tmp_path),  # where stevedore remembers the entry points
    }
    words = [word for each in WORDS for word in ("-k", f"*TestAPI.test_*{each}*")]
    ran = subprocess.run(
        [sys.executable, "-m", "unittest", *words, "tooz.tests.test_coordination"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    outcome = re.search(r"^Ran (\d+) tests.*\n\n(.*)", ran.stderr, re.MULTILINE)
    assert outcome, ran.stderr
    assert int(outcome[1]) >= 36
    assert outcome[2] == (IN_MEMORY if scheme == "memory" else "OK"), ran.stderr
    failed = re.findall(r"^(?:FAIL|ERROR): (\w+)", ran.stderr, re.MULTILINE)
    assert failed == (["test_get_lock_concurrency_locking_two_lock_process"] if scheme == "memory" else [])
