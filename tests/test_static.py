"""What a tool can check without running anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def check(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_mypy_strict_is_clean() -> None:
    """Strict types on the library, the tests and the benchmarks."""
    check("mypy", "--no-incremental")


def test_ruff_is_clean() -> None:
    """Lint and format."""
    check("ruff", "check", ".")
    check("ruff", "format", "--check", ".")
