"""Children that cannot outlive the demo, even one that was killed with SIGKILL.

Run as `python -m holdfast.cli.leash PARENT PROGRAM ARGUMENT...` it ties itself to PARENT and becomes
PROGRAM: the tie survives exec, and nothing runs between fork and exec in a process that has threads.
Only Linux can do this; elsewhere children end when the demo cleans up or closes their standard input.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`'s thread that started it ends."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        raise SystemExit(0)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
