"""The oldest versions that pyproject.toml allows, tried: `tests/run --floors [PATH…]`.

What it promises to users is taken at its lower bound, and what the tests need besides at its newest, into an
environment of its own; then the unit tests, the conformance suite and the guards run there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
PLACE: Final = ROOT / ".venv" / "floors"
_REQUIREMENT: Final = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)")
_BESIDES: Final = ("aiomysql", "aiosqlite", "opentelemetry-sdk", "pyyaml")
_TESTS: Final = ("tests/unit", "tests/conformance", "tests/fencing")


def floors(project: dict[str, Any]) -> dict[str, str]:
    """Each package that users are promised, and the oldest version that is allowed of it."""
    required: list[str] = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        required += extra
    found = {}
    for text in required:
        match = _REQUIREMENT.match(text)
        if match is None:
            raise SystemExit(f"pyproject.toml: {text!r} has no lower bound")
        found[match.group(1).lower()] = match.group(2)
    return found


def main() -> int:
    """Make the environment and run the tests in it; their exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = PLACE / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", PLACE], check=True)
    constraints = PLACE / "floors.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in floors(project).items()))
    pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "pip>=25.1"], check=True)
    extras = ",".join(project["optional-dependencies"])
    subprocess.run(
        [*pip, "-c", constraints, "-e", f".[{extras}]", "--group", "unit", "--group", "stores", *_BESIDES],
        cwd=ROOT,
        check=True,
    )
    arguments = sys.argv[1:] or _TESTS
    processes = os.environ.get("TENURE_TEST_PROCESSES", "4")
    run = [python, "-m", "pytest", "-q", "-n", processes, "--dist", "loadscope", "--no-loadscope-reorder", *arguments]
    return subprocess.run(run, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
