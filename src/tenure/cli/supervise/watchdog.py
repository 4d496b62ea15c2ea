"""The watchdog: a process of its own between tenure and CMD, which ends CMD in time whatever becomes of tenure.

It is run by its path, as `python -I -S watchdog.py`, and imports nothing of tenure: no thread, no lock, no client
that could stall. It starts CMD as its child, gets every new deadline, and acts by the clock alone:

* the time kept for CMD's own ending has come: SIGTERM to CMD and all that it started;
* the deadline is near: SIGKILL to all of them;
* the leadership is handed over: SIGTERM to CMD alone, to what it left behind once it has ended, then SIGKILL to all;
* the pipe from tenure has ended, so tenure has: SIGKILL to all of them, at once.

"All of them" is exact. The watchdog is a subreaper: whatever CMD starts, and however it forks away, is below the
watchdog in the tree of processes, and becomes its child when all between have gone. None is left when it has no child.

Orders and reports are JSON, one object a line. Orders: `start` once, then `deadline`, `signal`, `drain`, `kill`.
Reports: `ready` at first, `started` or `failed`, `ending` (time was up), `ended` with CMD's exit code, `gone` when
nothing is left.

Clocks: CLOCK_BOOTTIME, as the library's deadlines are. The alarm is a timerfd of that clock, so that a machine that was
suspended beyond the deadline ends CMD as soon as it wakes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

ORDERS_FD: Final = "TENURE_WATCHDOG_ORDERS"
REPORTS_FD: Final = "TENURE_WATCHDOG_REPORTS"
"""Variables of the watchdog's environment that name its two pipes. CMD does not see them."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_TFD_TIMER_ABSTIME: Final = 1
_STUBBORN_SECONDS: Final = 5.0
"""Limit for a killed process to be gone; then it is reported as stuck: it hangs in the kernel."""
_NOT_THERE: Final = 127
_NOT_EXECUTABLE: Final = 126
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def now() -> float:
    """The clock of all deadlines."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def adopt_orphans() -> None:
    """Make this process the parent of whatever below it loses its own."""
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def descendants(of: int) -> list[int]:
    """Processes below `of`, as far as can be seen in one walk."""
    children = _children_listed if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _children_searched()
    found: list[int] = []
    to_look_at = [of]
    while to_look_at:
        below = children(to_look_at.pop())
        found += below
        to_look_at += below
    return found


def end_descendants(reaped: Callable[[int, int], None]) -> list[int]:
    """Kill everything below this process until nothing is left; returns what could not be ended.

    `reaped` hears the pid and the status of each child. Rounds, because what forks between the walk and the kill is
    found in the next one.
    """
    give_up, pause = now() + _STUBBORN_SECONDS, 0.0005
    while True:
        if not reap(reaped):
            return []
        left = descendants(os.getpid())
        for pid in left:
            send(pid, signal.SIGKILL)
        if now() >= give_up:
            return left
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def reap(reaped: Callable[[int, int], None]) -> bool:
    """Take in all children that have ended. False: there is no child, and so nothing below this process."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        reaped(pid, status)


def send(pid: int, number: int) -> bool:
    """Send a signal. False: it has gone, or is not ours to signal."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def exit_code(status: int) -> int:
    """Exit code of a status, as a shell shows it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


class Watchdog:
    """The watch over CMD, from its start to the last of what it started."""

    def __init__(self, orders: int, reports: int) -> None:
        self._orders, self._reports = orders, reports
        self._parent = os.getppid()
        self._unread = b""
        self._inherited: dict[int, object] = {}
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        os.set_blocking(orders, False)
        self._ignore_signals(wake)
        self._alarm = _alarm()
        self._shown = os.memfd_create("tenure-deadline")
        self._poll = select.poll()
        for each in (orders, self._wake, self._alarm):
            self._poll.register(each, select.POLLIN)
        self._child: int | None = None
        self._status: int | None = None
        self._executing: int | None = None
        self._deadline = self._grace = self._margin = 0.0
        self._drained_at: float | None = None
        self._decided = self._over = False
        self._ready_file: str | None = None

    def watch(self) -> None:
        """Watch until nothing is left."""
        self._report(ready=True)
        while True:
            happened = {fd for fd, _ in self._poll.poll()}
            if self._wake in happened:
                os.read(self._wake, 4096)
            if self._alarm in happened:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._alarm, 8)
            orders = self._read_orders()
            self._hear_of_exec()
            if orders is None or os.getppid() != self._parent:
                return self._kill()
            for order in orders:
                self._obey(order)
            if self._over or (self._child is not None and self._look()):
                return None

    def _look(self) -> bool:
        """Do what has to be done by now. True when all is over."""
        if not reap(self._reaped):
            self._hear_of_exec()
            self._gone([])
            return True
        moment = now()
        asks = self._drained_at is None and moment >= self._deadline - self._grace
        if not self._decided and (asks or moment >= self._deadline - self._margin):
            self._decided = True
            self._report(ending=True)
            self._terminate(*descendants(os.getpid()))
        if moment >= self._kill_at():
            self._kill()
            return True
        self._set_alarm()
        return False

    def _kill_at(self) -> float:
        last = self._deadline - self._margin
        return last if self._drained_at is None else min(last, self._drained_at)

    def _set_alarm(self) -> None:
        ordered = self._decided or self._drained_at is not None
        due = self._kill_at() if ordered else min(self._kill_at(), self._deadline - self._grace)
        whole = int(due)
        value = struct.pack("@4l", 0, 0, whole, max(1, int((due - whole) * 1e9)))
        _LIBC.timerfd_settime(self._alarm, _TFD_TIMER_ABSTIME, value, None)

    # Orders.

    def _read_orders(self) -> list[Mapping[str, Any]] | None:
        """Orders of tenure; None: it has gone."""
        while True:
            try:
                read = os.read(self._orders, 65536)
            except BlockingIOError:
                break
            if not read:
                return None
            self._unread += read
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines]

    def _obey(self, order: Mapping[str, Any]) -> None:
        if "start" in order:
            self._start(**order["start"])
        elif self._child is None:
            return  # an order that crossed the report that nothing runs
        elif "deadline" in order:
            if not self._decided:
                self._move(**order)
        elif "signal" in order:
            self._pass_on(order["signal"])
        elif "drain" in order:
            self._withdraw_readiness()
            at = now() + order["drain"]
            self._drained_at = at if self._drained_at is None else min(self._drained_at, at)
            # CMD alone while it lives: a script that drains must not lose its running job.
            self._terminate(*([self._child] if self._status is None else descendants(os.getpid())))
        elif "kill" in order:
            self._drained_at = 0.0

    def _move(self, deadline: float, grace: float, margin: float) -> None:
        self._deadline, self._grace, self._margin = deadline, grace, margin
        os.pwrite(self._shown, f"{int(deadline * 1000) / 1000:.3f}\n".encode(), 0)

    def _pass_on(self, number: int) -> None:
        """Pass a signal on to CMD, as if it had been sent there; to what it left behind once it has ended."""
        for pid in [self._child] if self._child and self._status is None else descendants(os.getpid()):
            send(pid, number)

    def _terminate(self, *pids: int) -> None:
        self._withdraw_readiness()
        for pid in pids:
            send(pid, signal.SIGTERM)
            send(pid, signal.SIGCONT)  # what is stopped could not hear it

    def _kill(self) -> None:
        self._withdraw_readiness()
        self._gone(end_descendants(self._reaped))

    # CMD.

    def _start(
        self,
        command: list[str],
        environment: dict[str, str],
        group: int,
        deadline: float,
        grace: float,
        margin: float,
        ready_file: str | None,
    ) -> None:
        self._ready_file = ready_file
        self._move(deadline, grace, margin)
        if now() >= self._kill_at():  # it took too long to get here
            self._report(ending=True)
            self._gone([])
            return
        variables = {**os.environ, **environment, "TENURE_DEADLINE_FILE": f"/proc/{os.getpid()}/fd/{self._shown}"}
        self._executing, exec_failed = os.pipe()
        os.set_blocking(self._executing, False)
        watchdog, child = os.getpid(), os.fork()
        if child == 0:
            self._become(command, variables, group, exec_failed, watchdog)
        self._child = child
        os.close(exec_failed)
        self._poll.register(self._executing, select.POLLIN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # they are CMD's now: a pipe must end when CMD closes it
            os.dup2(nothing, stream)

    def _become(
        self, command: list[str], variables: dict[str, str], group: int, exec_failed: int, watchdog: int
    ) -> NoReturn:
        """Become CMD, in the child, with everything as it would find it without us."""
        try:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != watchdog:  # it ended before the line above
                os._exit(_NOT_EXECUTABLE)
            with contextlib.suppress(PermissionError, ProcessLookupError):  # that group has gone, and tenure with it
                os.setpgid(0, group)
            for number, before in self._inherited.items():
                kept = before == signal.SIG_IGN and number not in (signal.SIGINT, signal.SIGQUIT)
                signal.signal(number, signal.SIG_IGN if kept else signal.SIG_DFL)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            os.execvpe(command[0], command, variables)
        except OSError as error:
            os.write(exec_failed, f"{error.errno} {error.strerror}".encode())
        finally:
            os._exit(_NOT_EXECUTABLE)

    def _hear_of_exec(self) -> None:
        if self._executing is None:
            return
        try:
            failure = os.read(self._executing, 4096).decode()
        except BlockingIOError:
            return
        self._poll.unregister(self._executing)
        os.close(self._executing)
        self._executing = None
        if failure:
            number, _, why = failure.partition(" ")
            self._report(failed=_NOT_THERE if int(number) == 2 else _NOT_EXECUTABLE, why=why)
            return
        self._report(started=self._child)
        if not self._decided and self._drained_at is None and self._status is None:
            self._show_readiness()

    def _reaped(self, pid: int, status: int) -> None:
        if pid == self._child:
            self._status = status
            self._withdraw_readiness()
            self._report(ended=exit_code(status))
            if self._drained_at is not None:  # what it left behind has nobody to wait for it
                self._terminate(*descendants(os.getpid()))

    def _gone(self, stuck: Iterable[int]) -> None:
        self._over = True
        self._report(gone=True, spare=round(self._deadline - now(), 3), stuck=list(stuck))

    # The readiness file.

    def _show_readiness(self) -> None:
        if self._ready_file is None:
            return
        written = f"{self._ready_file}.{os.getpid()}"  # whoever sees the file is to find something in it
        try:
            with open(written, "w") as shown:
                shown.write(f"{self._child}\n")
            os.replace(written, self._ready_file)
        except OSError as error:
            self._report(unready=f"{self._ready_file}: {error.strerror}")

    def _withdraw_readiness(self) -> None:
        if self._ready_file is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._ready_file)
            self._ready_file = None

    def _report(self, **facts: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # tenure has gone: the pipe's end says so too
            os.write(self._reports, json.dumps(facts).encode() + b"\n")

    def _ignore_signals(self, wake: int) -> None:
        """Ignore all signals: tenure decides, and passes on. A child's end wakes the watchdog, and so does tenure's."""
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
            with contextlib.suppress(OSError, ValueError):  # those that the C library keeps for itself
                self._inherited[number] = signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, _awake)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGCHLD, 0, 0, 0)


def _awake(_number: int, _frame: object) -> None:
    """Having been called is enough: it writes to the pipe that wakes the loop."""


def _alarm() -> int:
    """A timer of the clock of all deadlines. Raises OSError: a sandbox may refuse it."""
    timer: int = _LIBC.timerfd_create(time.CLOCK_BOOTTIME, os.O_NONBLOCK | os.O_CLOEXEC)
    if timer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "timerfd_create(CLOCK_BOOTTIME)")
    return timer


def _children_listed(of: int) -> list[int]:
    """Children as the kernel lists them; it may leave out some while others end, which the next round finds."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{of}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{of}/task/{task}/children") as children:
                found += map(int, children.read().split())
    return found


def _children_searched() -> Callable[[int], list[int]]:
    """Children for kernels that keep no such list: from the parents of all processes there are."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as stat:
                below.setdefault(int(stat.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    return lambda of: below.get(of, [])


def main() -> None:
    """Watch until CMD has ended, and end with it."""
    pipes = (int(os.environ.pop(ORDERS_FD)), int(os.environ.pop(REPORTS_FD)))
    for pipe in pipes:
        os.set_inheritable(pipe, False)
    try:
        adopt_orphans()
        watching = Watchdog(*pipes)
    except OSError as error:
        sys.exit(f"tenure: no process can be watched here: {error}")
    watching.watch()
    sys.exit(0)


if __name__ == "__main__":
    main()
