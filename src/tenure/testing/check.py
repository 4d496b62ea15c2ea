"""Check recorded histories again: `python -m tenure.testing.check FILE… [--properties S1,S2,L1]`.

The files are of one run. Exit codes: 0 passed, 1 failed, 2 unknown, 3 unreadable (or a property that is none).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from tenure.errors import UsageError
from tenure.testing.history.history import History
from tenure.testing.history.report import LIVENESS, PROPERTIES, SAFETY, check_history
from tenure.testing.history.verdicts import Outcome

_CODES: Final = {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.UNKNOWN: 2}
UNREADABLE: Final = 3
_GROUPS: Final = {"safety": SAFETY, "liveness": LIVENESS, "all": PROPERTIES}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, check, print the table; the exit code."""
    parser = _CheckParser(prog="python -m tenure.testing.check", description="Judge the recorded history of one run.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="one file per recorder")
    parser.add_argument(
        "--properties",
        metavar="NAMES",
        help="such as S1,S2,L1, or safety, liveness, all; left out: whatever the history has something to say about",
    )
    asked = parser.parse_args(arguments)
    try:
        report = check_history(History.read(*asked.files), _named(asked.properties))
    except (UsageError, OSError) as error:
        print(f"unreadable: {error}", file=sys.stderr)
        return UNREADABLE
    print(report)
    return _CODES[report.outcome]


def _named(names: str | None) -> list[str] | None:
    if names is None:
        return None
    return [name for word in names.split(",") for name in _GROUPS.get(word, (word,))]


class _CheckParser(argparse.ArgumentParser):
    """A wrong call exits with UNREADABLE: argparse's own 2 would say "unknown"."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        super().exit(UNREADABLE if status else 0, message)


if __name__ == "__main__":
    sys.exit(main())
