"""What a tool can check without running anything."""

from __future__ import annotations

import json
import os
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
    """Strict types on the library, the tests, the examples and the benchmarks."""
    check("mypy", "--no-incremental")


def test_ruff_is_clean() -> None:
    """Lint and format."""
    check("ruff", "check", ".")
    check("ruff", "format", "--check", ".")


@pytest.mark.timeout(300)
def test_types_of_all_that_is_public_are_known_to_strict_checkers() -> None:
    """What has no annotation is unknown to some checker of a user's, and hides whatever is made of it."""
    command = (sys.executable, "-m", "basedpyright", "--verifytypes", "tenure", "--ignoreexternal", "--outputjson")
    here = {**os.environ, "PYTHONPATH": str(ROOT / "src")}  # it does not read where an editable install points
    done = subprocess.run(command, cwd=ROOT, env=here, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["typeCompleteness"]
    unknown = [symbol["name"] for symbol in found["symbols"] if symbol["isExported"] and not symbol["isTypeKnown"]]
    assert found["completenessScore"] >= 0.97, f"{found['completenessScore']:.1%}; among the unknown: {unknown[:20]}"
