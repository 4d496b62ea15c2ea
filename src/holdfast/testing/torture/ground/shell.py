"""Commands of the system, run to their end. What they print is an answer or, when they fail, the message."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from holdfast.testing.servers import ServersMissing

_SECONDS = 20.0


class GroundMissing(ServersMissing):
    """This machine, or this ground, can't do what was asked; the message says what is missing."""


def run(*command: str, feed: str = "") -> str:
    """What the command printed. Raises GroundMissing with its complaint when it fails."""
    try:
        done = subprocess.run(
            command, input=feed, capture_output=True, text=True, timeout=_SECONDS, check=False, start_new_session=True
        )
    except FileNotFoundError as error:
        raise GroundMissing(f"{command[0]} is not installed") from error
    if done.returncode != 0:
        raise GroundMissing(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def run_all(command: Sequence[str], lines: Sequence[str]) -> None:
    """One command that takes many lines from its standard input. Raises GroundMissing."""
    run(*command, feed="".join(f"{line}\n" for line in lines))
