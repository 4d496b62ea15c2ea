"""`tests/run mutants [WORD…]`: each mutant in a copy of the tree, with the tests named for it; names survivors.

First the tests run without any mutant: they have to pass. A copy has `src`, `tests` and pyproject.toml; nothing is
changed in the working tree. No server is started.

Exit codes: 0 all were found, 1 one survived, 2 the list is stale, or the tests fail without a mutant.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.verify.mutants import MUTANTS, Mutant, Stale, applied
from tests.verify.mutants.mutant import PACKAGE

ROOT: Final = Path(__file__).parent.parent.parent.parent
_PASSED: Final = 0
_FAILED: Final = 1
_TEST_SECONDS: Final = 60
"""A test that hangs because of a mutant has found it."""


class CouldNotRun(Exception):
    """The tests that a mutant names say nothing about it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="tests/run mutants", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only mutants with one of these in their name or file")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="default: one a core")
    parser.add_argument("--list", action="store_true", help="name them, and run nothing")
    asked = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if not asked.words or any(word in m.name or word in m.path for word in asked.words)]
    if not chosen:
        parser.error("no mutant has any of these words in its name or file")
    if asked.list:
        print("\n".join(f"{mutant.path}: {mutant.name}" for mutant in chosen))
        return 0
    try:
        survivors = run(chosen, asked.processes)
    except (Stale, CouldNotRun) as error:
        print(error, file=sys.stderr)
        return 2
    for mutant in survivors:
        print(f"SURVIVED {mutant.path}: {mutant.name}  ({' '.join(mutant.tests)})")
    return 1 if survivors else 0


def run(mutants: Sequence[Mutant], processes: int) -> list[Mutant]:
    """Those of `mutants` that their tests do not notice. Raises Stale, CouldNotRun."""
    for mutant in mutants:
        applied(mutant, ROOT)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tenure-mutants-") as folder, ThreadPoolExecutor(processes) as pool:
        pristine = Path(folder) / "pristine"
        _copy(ROOT, pristine)
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        code, output = _pytest(pristine, ["-p", "xdist", "-n", str(processes), *tests])
        if code != _PASSED:
            raise CouldNotRun(f"{output}\nthe tests named for mutants do not pass without one")
        print(f"{len(mutants)} mutants; without any, the tests pass ({time.monotonic() - began:.0f} s)", flush=True)
        try:
            found = list(pool.map(lambda mutant: _is_found(mutant, pristine), mutants))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    survivors = [mutant for mutant, noticed in zip(mutants, found, strict=True) if not noticed]
    print(f"{len(mutants) - len(survivors)} found, {len(survivors)} survived ({time.monotonic() - began:.0f} s)")
    return survivors


def _is_found(mutant: Mutant, pristine: Path) -> bool:
    with tempfile.TemporaryDirectory(prefix="tenure-mutant-") as folder:
        tree = Path(folder) / "tree"
        _copy(pristine, tree)
        (tree / PACKAGE / mutant.path).write_text(applied(mutant, tree))
        began = time.monotonic()
        code, output = _pytest(tree, ["-x", *mutant.tests])
    if code not in (_PASSED, _FAILED):  # nothing collected, nothing imported: that is no test that failed
        raise CouldNotRun(f"{output}\n{mutant.path}: {mutant.name}: pytest ended with {code}")
    verdict = "found" if code == _FAILED else "SURVIVED"
    print(f"{verdict:<9} {time.monotonic() - began:5.1f} s  {mutant.path}: {mutant.name}", flush=True)
    return code == _FAILED


def _copy(tree: Path, to: Path) -> None:
    """Copy what tests need; compiled files too, which keeps them valid and the start short."""
    to.mkdir()
    for name in ("src", "tests"):
        shutil.copytree(tree / name, to / name)
    shutil.copy2(tree / "pyproject.toml", to)


def _pytest(tree: Path, arguments: Sequence[str]) -> tuple[int, str]:
    """Run pytest in `tree`, on the package there; its exit code and its output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
    command += [f"--timeout={_TEST_SECONDS}", "--confcutdir=tests/unit", *arguments]
    # The path before an editable install. No plugins but these, and no conftest of tests that start servers: to import
    # all that takes longer than most tests. Hypothesis with the same examples each time, and no deadlines.
    own = {"PYTHONPATH": str(tree / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "1"}
    done = subprocess.run(
        command,
        cwd=tree,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
