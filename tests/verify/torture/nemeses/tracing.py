"""System calls of a server that take longer, or fail, by strace's injection.

strace stops the server at every system call, not only at those that it changes: a traced server is slower altogether,
and a fault of the disk never comes without that. It detaches at the end; when the runner dies strace dies with it,
and the kernel lets the server go.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tenure.testing.servers import Member, ServerFailed
from tenure.testing.servers.processes import ServerProcess

_ATTACH_SECONDS = 15.0
_LOOK_SECONDS = 0.02


@contextmanager
def injected(member: Member, calls: str, fault: str) -> Iterator[None]:
    """While this lasts, these calls of the server meet this fault: `error=EIO`, `delay_enter=200000` (microseconds).

    Raises ServerFailed where strace doesn't get hold of the server.
    """
    with ExitStack() as undo:
        directory = undo.enter_context(tempfile.TemporaryDirectory(prefix="tenure-strace-"))
        options = ["-f", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:{fault}"]
        strace = ServerProcess(["strace", *options, "-p", str(member.pid)], Path(directory))
        undo.callback(strace.end)
        strace.launch()
        _wait_attached(strace, member)
        yield


def _wait_attached(strace: ServerProcess, member: Member) -> None:
    """strace tells it to people only, in its log."""
    deadline = time.monotonic() + _ATTACH_SECONDS
    while "attached" not in strace.log_tail():
        strace.check_alive()
        if time.monotonic() > deadline:
            raise ServerFailed(f"strace did not attach to {member} within {_ATTACH_SECONDS} s: {strace.log_tail()}")
        time.sleep(_LOOK_SECONDS)
