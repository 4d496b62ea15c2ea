"""The worker processes: started, told, killed, stopped, continued; none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from types import TracebackType

from holdfast.cli.demo.inbox import Inbox, Kind, Report
from holdfast.options import ENVIRONMENT_VARIABLE

_LEAVE_SECONDS = 3.0


class Crew:
    """Workers by name. A context manager: at its end all have left, or have been killed."""

    def __init__(self, inbox: Inbox, *, url: str, election: str, ttl: float, ledger_port: int) -> None:
        self._inbox = inbox
        self._arguments = (election, repr(ttl), str(ledger_port), str(os.getpid()))
        self._environment = {**os.environ, ENVIRONMENT_VARIABLE: url}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []

    def start(self, name: str) -> int:
        """Start one worker; its process id."""
        process = self._processes[name] = subprocess.Popen(
            [sys.executable, "-P", "-m", "holdfast.cli.demo.worker", name, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,  # a Ctrl-C at the terminal is for the demo alone
        )
        reader = threading.Thread(target=self._read, args=(name, process), name=f"demo-{name}")
        self._readers.append(reader)
        reader.start()
        return process.pid

    def tell(self, name: str, command: str) -> None:
        """Send a worker one line. To one that has gone it goes nowhere; that it has gone is reported."""
        stdin = self._processes[name].stdin
        if stdin is not None:
            try:
                stdin.write(command.encode() + b"\n")
                stdin.flush()
            except BrokenPipeError:
                pass

    def signal(self, name: str, number: signal.Signals) -> float:
        """Send a worker a signal; when that was."""
        at = time.monotonic()
        self._processes[name].send_signal(number)
        return at

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            _close(process)
        until = time.monotonic() + _LEAVE_SECONDS
        for process in self._processes.values():
            _end(process, until)
        for reader in self._readers:
            reader.join()

    def _read(self, name: str, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            raise TypeError("a worker is started with a pipe to read from")
        with process.stdout as lines:
            for line in lines:
                self._inbox.put(Report.from_line(line))
        self._inbox.put(Report(Kind.ENDED, name, time.monotonic()))


def _close(process: subprocess.Popen[bytes]) -> None:
    """The end of its input asks a worker to leave the line and go."""
    if process.stdin is not None:
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has gone already


def _end(process: subprocess.Popen[bytes], until: float) -> None:
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:  # its ticket ends with its lease
        process.kill()
        process.wait()
