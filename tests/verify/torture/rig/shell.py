"""Commands of the system, run to their end. What they print is an answer or, when they fail, the message."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tenure.testing.servers import ServersMissing

_SECONDS = 20.0


class RigMissing(ServersMissing):
    """A machine or rig that can't do what was asked; the message says what is missing."""


def run(*command: str, feed: str = "") -> str:
    """Run a command and return what it printed. Raises RigMissing with its complaint when it fails."""
    try:
        done = subprocess.run(
            command, input=feed, capture_output=True, text=True, timeout=_SECONDS, check=False, start_new_session=True
        )
    except FileNotFoundError as error:
        raise RigMissing(f"{command[0]} is not installed") from error
    if done.returncode != 0:
        raise RigMissing(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def run_all(command: Sequence[str], lines: Sequence[str]) -> None:
    """Run one command that takes many lines from its standard input. Raises RigMissing."""
    run(*command, feed="".join(f"{line}\n" for line in lines))
