"""The command line, `tenure`: an ordinary user of the package's face. In reading order:

    app             the commands by name, and how they all end
    codes           the exit codes
    store           --url and the other options that lead to the store
    terminal        lines on standard error, signals, and kinds of parameters
    commands/       the commands
    screens/        tables, sentences, JSON
    supervise/      programs that run under a hold
    doctor/         the checks of `tenure doctor`
    tuning          the measurements of `tenure tune`
    embedded_etcd   an etcd on loopback, for `tenure dev` and the demo
    demo            the story that `tenure demo` plays

A command imports what it needs when it is called: `tenure --help` knows neither a store's client nor rich.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

_NOT_INSTALLED = 69
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    logging.getLogger().addHandler(logging.NullHandler())  # what matters is shown on the screen
    try:
        from tenure.cli.app import run  # needs click, which not everybody who has tenure has

        return run(arguments)
    except KeyboardInterrupt:  # while that was imported
        return _INTERRUPTED
    except ModuleNotFoundError as missing:
        from tenure.errors import how_to_install

        package = (missing.name or "").partition(".")[0]
        needed = f"the command line needs the package {package}: {how_to_install('cli')}"
        print(f"tenure: {needed}", file=sys.stderr)
        return _NOT_INSTALLED
