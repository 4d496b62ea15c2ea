"""`tenure run` and `tenure elect` where no watchdog can do its work: told once, and nobody leads without a CMD."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

import tenure as library
from tenure.cli.supervise import watchdog
from tests.cli.program import eventually
from tests.cli.supervised import shell, started
from tests.servers import Cluster

OTHER_WATCHDOG = """
import sys
from tenure.cli import main
from tenure.cli.supervise import watchdog
watchdog.__file__ = sys.argv.pop(1)
sys.exit(main())
"""
AT_ONCE = "import sys; sys.exit(3)"
WITH_THE_HOLD = "import os, sys; os.read(int(os.environ['TENURE_WATCHDOG_ORDERS']), 1); sys.exit(3)"
"""A watchdog that ends when it is asked to start CMD."""
WITHOUT_TIMER = f"""
import ctypes, errno, runpy
real = ctypes.CDLL
class Sandboxed:
    def __init__(self, *arguments, **options):
        self._libc = real(*arguments, **options)
    def __getattr__(self, name):
        return getattr(self._libc, name)
    def timerfd_create(self, *_):
        ctypes.set_errno(errno.EPERM)
        return -1
ctypes.CDLL = Sandboxed
runpy.run_path({watchdog.__file__!r}, run_name="__main__")
"""
"""Ours, in a sandbox that refuses timers of the boot clock."""


@pytest.fixture
def url(singles: dict[str, Cluster]) -> str:
    """A namespace where nobody was before."""
    return singles["etcd"].url(f"unfit-{uuid.uuid4().hex}")


@pytest.mark.parametrize("command", ["run", "elect"])
@pytest.mark.parametrize(
    ("script", "says"),
    [(AT_ONCE, "exit code 3"), (WITH_THE_HOLD, "exit code 3"), (WITHOUT_TIMER, "timerfd_create")],
)
def test_watchdog_that_cannot_start_is_the_end(
    url: str, client: library.Client, tmp_path: Path, command: str, script: str, says: str
) -> None:
    """69, why, and no ticket is left: another one would not start either."""
    (tmp_path / "watchdog.py").write_text(script)
    program = (sys.executable, "-c", OTHER_WATCHDOG, str(tmp_path / "watchdog.py"))
    with started(command, "job", "--", *shell("echo up"), url=url, program=program) as ended:
        code, out, err = ended.end()
    assert (code, out) == (69, ""), err
    assert says in err
    assert "the watchdog could not start" in err
    assert client.operator().line("job").tickets == ()


def test_candidate_that_waits_does_not_wait_without_a_watchdog(
    url: str, client: library.Client, tmp_path: Path
) -> None:
    """The complaint comes while others lead, not when a watchdog is needed."""
    (tmp_path / "watchdog.py").write_text(AT_ONCE)
    program = (sys.executable, "-c", OTHER_WATCHDOG, str(tmp_path / "watchdog.py"))
    with (
        client.election("job").campaign(),
        started("elect", "job", "--", *shell("echo up"), url=url, program=program) as ended,
    ):
        assert ended.end()[0] == 69
        eventually(lambda: len(client.operator().line("job").tickets) == 1)
