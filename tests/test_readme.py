"""The README's code runs as it stands, against a real etcd."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Cluster, etcdctl

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)


def test_readme_has_code_for_both_faces() -> None:
    """The blocks below are found at all, and one of them is asyncio's."""
    assert len(BLOCKS) >= 3
    assert any("holdfast.aio.connect" in block for block in BLOCKS)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_readme_block_runs(singles: dict[str, Cluster], number: int) -> None:
    """Each block is a whole program that ends well and leaves nothing in the store."""
    etcd = singles["etcd"]
    assert "127.0.0.1:2379/billing" in BLOCKS[number]
    program = BLOCKS[number].replace("127.0.0.1:2379/billing", f"{etcd.endpoints[0]}/readme-{number}")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert etcdctl(etcd, "get", "--prefix", "--keys-only", f"readme-{number}/").stdout.strip() == ""


def test_first_lock_takes_at_most_ten_lines() -> None:
    """A first lock in ten lines, for each face."""
    for block in BLOCKS[:2]:
        assert len([line for line in block.splitlines() if line.strip()]) <= 10
