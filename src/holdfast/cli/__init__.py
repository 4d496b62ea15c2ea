"""The command line, `holdfast`: an ordinary user of the package's face.

    app.py       the commands by name, and how they all end          codes.py   the exit codes
    session.py   --url and what else leads to the store              commands/  one module each
    parameters.py  spans of time, and a program to run               screens/   tables, sentences, JSON
    supervise/   programs that run under a hold                      checkup/   what `holdfast doctor` looks at
    tuning/      what `holdfast tune` measures                       demo/      the story that `holdfast demo` plays
    telling.py   what is said on standard error
    hearing.py   signals that are heard before they end it           leash.py   children die with their parent

Reading order: app.py, session.py, commands/ls.py, screens/.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

_NOT_INSTALLED = 69
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    logging.getLogger().addHandler(logging.NullHandler())  # what matters is told on the screen
    try:
        from holdfast.cli.app import run  # needs click, which not everybody who has holdfast has

        return run(arguments)
    except KeyboardInterrupt:  # while that was imported
        return _INTERRUPTED
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        needed = f"the command line needs the package {package}: pip install 'holdfast[cli]'"
        print(f"holdfast: {needed}", file=sys.stderr)
        return _NOT_INSTALLED
