"""The README's code runs as it stands, against a real etcd."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Cluster, DatabaseServer, etcdctl

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)


def test_readme_has_code_for_both_faces() -> None:
    """The blocks below are found at all, and one of them is asyncio's."""
    assert len(BLOCKS) >= 3
    assert any("holdfast.aio.connect" in block for block in BLOCKS)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_readme_block_runs(
    singles: dict[str, Cluster], redis_server: DatabaseServer, tmp_path: Path, number: int
) -> None:
    """Each block is a whole program that ends well and leaves nothing in the store but the notes it asks for."""
    etcd = singles["etcd"]
    assert "127.0.0.1:2379/billing" in BLOCKS[number]
    program = BLOCKS[number].replace("127.0.0.1:2379/billing", f"{etcd.endpoints[0]}/readme-{number}")
    program = program.replace("6379", str(redis_server.port)).replace("/tmp/", f"{tmp_path}/")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    for prefix in (f"readme-{number}/", "ledger"):
        left = etcdctl(etcd, "get", "--prefix", "--keys-only", prefix).stdout.split()
        assert [key for key in left if "/%audit/" not in key and "/%journal/" not in key] == []


def test_readme_has_an_example_for_every_guard() -> None:
    """Whoever protects a resource finds a whole program for it."""
    for word in ("hold.store.put", "SQLGuard()", "RedisGuard(", "FencingMiddleware(", "FileGuard(", "lock_delay="):
        assert any(word in block for block in BLOCKS), word


def test_first_lock_takes_at_most_ten_lines() -> None:
    """A first lock in ten lines, for each face."""
    for block in BLOCKS[:2]:
        assert len([line for line in block.splitlines() if line.strip()]) <= 10
