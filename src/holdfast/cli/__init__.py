"""The command line: `holdfast demo`. An ordinary user of the package's face.

    demo.py      the command: its options, its parts in order, its exit code
    scenes.py    the story that is played
    stage.py     what a scene does: wait for reports, tell them, expect things of them
    crew.py      the worker processes          worker.py   what runs in each of them
    ledger.py    the fenced resource           etcd.py     the store, embedded
    inbox.py     the one place the demo waits  screen.py   the terminal
    leash.py     children die with their parent

Exit codes: 0 all went as promised, 1 something did not, 2 it could not be tried, 128 + n stopped by signal n.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from holdfast.cli import demo
from holdfast.errors import HoldfastError

_NOT_TRIED = 2
_INTERRUPTED = 130
_READER_GONE = 141  # what a shell shows for a program ended by SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(prog="holdfast", description="Holds on named things, granted by a store.")
    demo.add_to(parser.add_subparsers(title="commands", required=True, metavar="COMMAND"))
    chosen = parser.parse_args(arguments)
    logging.getLogger().addHandler(logging.NullHandler())  # what matters is told on the screen
    try:
        code: int = chosen.run(chosen)
    except HoldfastError as error:
        print(f"holdfast: {' '.join(str(error).split())}", file=sys.stderr)
        return _NOT_TRIED
    except KeyboardInterrupt:  # before or after the command listens to signals itself
        return _INTERRUPTED
    except BrokenPipeError:  # `holdfast demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter's last flush complains
        return _READER_GONE
    return code
