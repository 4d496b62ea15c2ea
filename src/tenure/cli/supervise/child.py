"""CMD as tenure sees it: it starts the watchdog, gives it orders, and hears its reports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from tenure._core.base.options import ENVIRONMENT_VARIABLE
from tenure.cli.codes import CommandStopped, ExitCode
from tenure.cli.supervise import watchdog
from tenure.cli.supervise.inbox import Reported, SupervisorInbox, has_terminal

_BITE_SECONDS: Final = 2.0


class Child:
    """CMD, its watchdog, and the pipes to that. The watchdog is started at once, CMD by `start`."""

    def __init__(self, inbox: SupervisorInbox) -> None:
        self._inbox = inbox
        self._deadline = 0.0
        self._heard = False
        theirs_orders, self._orders = os.pipe()
        self._reports, theirs_reports = os.pipe()
        pipes = {watchdog.ORDERS_FD: str(theirs_orders), watchdog.REPORTS_FD: str(theirs_reports)}
        try:
            self._watchdog = subprocess.Popen(
                (sys.executable, "-I", "-S", watchdog.__file__),
                env=_environment() | pipes,
                pass_fds=_inherited(theirs_orders, theirs_reports),
                process_group=0,  # what is sent to the job as a whole must not reach it
            )
        finally:
            os.close(theirs_orders)
            os.close(theirs_reports)
        threading.Thread(target=self._listen, name="tenure-reports", daemon=True).start()

    @property
    def deadline(self) -> float:
        """The last deadline that the watchdog was given."""
        return self._deadline

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        deadline: float,
        grace: float,
        margin: float,
        ready_file: str | None,
    ) -> None:
        """Have CMD started, unless the time for it is over."""
        order = {
            "command": list(command),
            "environment": dict(environment),
            "group": os.getpgrp() if has_terminal() else 0,
            "deadline": deadline,
            "grace": grace,
            "margin": margin,
            "ready_file": ready_file,
        }
        self._deadline = deadline
        written = memoryview(json.dumps({"start": order}).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):  # its reports end as well, and that is heard
            while written:
                written = written[os.write(self._orders, written) :]
        os.set_blocking(self._orders, False)

    def move(self, deadline: float, grace: float, margin: float) -> None:
        """Send the new deadline, and the time kept before it for SIGTERM and for SIGKILL."""
        if self._order(deadline=deadline, grace=grace, margin=margin):
            self._deadline = deadline

    def pass_on(self, number: int) -> None:
        """Pass a signal on to CMD."""
        self._order(signal=int(number))

    def drain(self, seconds: float) -> None:
        """Order SIGTERM to CMD now, SIGKILL to all when that time is over or the deadline near."""
        self._order(drain=seconds)

    def kill(self) -> None:
        """Order SIGKILL now."""
        self._order(kill=True)

    def is_below(self, pid: int) -> bool:
        """True when the process is CMD, or was started by it."""
        return pid in self.below()

    def below(self) -> list[int]:
        """Process ids of CMD, and of what it has started."""
        return watchdog.descendants(self._watchdog.pid)

    def take_over(self) -> list[int]:
        """End the watchdog, and all that it watched, which is below this process; returns what could not be ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._watchdog.pid, signal.SIGKILL)
        return watchdog.end_descendants(lambda _pid, _status: None)

    def refuse_unfit(self) -> None:
        """Check a watchdog that has ended. Raises CommandStopped if it never watched: the next would not either."""
        if self._heard:
            return
        try:
            code = self._watchdog.wait(_BITE_SECONDS)
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        except subprocess.TimeoutExpired:
            how = "a closed pipe"
        raise CommandStopped(
            ExitCode.UNREACHABLE, f"the watchdog could not start, and nothing is run without it: {how}"
        )

    def close(self) -> None:
        """Give the pipe back: a watchdog that has nothing to watch ends."""
        with contextlib.suppress(OSError):
            os.close(self._orders)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._watchdog.wait(_BITE_SECONDS)

    def _order(self, **order: object) -> bool:
        """Send an order. False: the watchdog reads no more. It acts by earlier orders, which is safe."""
        try:
            return os.write(self._orders, json.dumps(order).encode() + b"\n") > 0
        except (BlockingIOError, BrokenPipeError):
            return False

    def _listen(self) -> None:
        with os.fdopen(self._reports, "rb") as reports:
            for line in reports:
                self._heard = True
                self._inbox.put(Reported(json.loads(line), self))
        self._inbox.put(Reported({}, self))


def _environment() -> dict[str, str]:
    """Variables that CMD gets of ours: without the store's URL where that has a password in it."""
    variables = dict(os.environ)
    authority = variables.get(ENVIRONMENT_VARIABLE, "").partition("://")[2].partition("/")[0]
    if ":" in authority.rpartition("@")[0]:
        del variables[ENVIRONMENT_VARIABLE]
    return variables


def _inherited(*ours: int) -> tuple[int, ...]:
    """Descriptors that CMD inherits through tenure, as its starter wanted, and `ours`."""
    open_now = {int(name) for name in os.listdir("/proc/self/fd")}
    return (*ours, *(fd for fd in open_now if fd > 2 and _is_inheritable(fd)))


def _is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:  # the listing's own, closed meanwhile
        return False
