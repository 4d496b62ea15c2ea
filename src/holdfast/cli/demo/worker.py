"""What runs in each worker process: stand in the election, and while leading write to the ledger.

Reports go out as lines on standard output. "resign" on standard input ends the time in office; the end
of standard input ends the process. Run as `python -m holdfast.cli.demo.worker NAME ELECTION TTL LEDGER PARENT`,
with the store in HOLDFAST_URL: a command line is everybody's to read, and a URL may have a password in it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

import holdfast
from holdfast.cli.demo import ledger
from holdfast.cli.demo.inbox import Kind, Report
from holdfast.cli.leash import die_with

_BEAT_SECONDS = 0.5


class Worker:
    """One candidate."""

    def __init__(self, name: str, election: str, ttl: float, ledger_port: int) -> None:
        self._name = name
        self._ledger_port = ledger_port
        self._client = holdfast.connect(owner=name, ttl=ttl)
        self._client.subscribe(self._heard)
        self._election = self._client.election(election, value=name)
        self._resign = threading.Event()
        self._leaving = threading.Event()

    def run(self) -> None:
        """Campaign, lead, resign or lose, and campaign again, until told to leave."""
        commands = threading.Thread(target=self._obey, name="demo-commands", daemon=True)
        commands.start()
        try:
            while not self._leaving.is_set():
                self._election.run(self._lead)
        except holdfast.ClientClosed:
            pass  # told to leave while waiting
        finally:
            if self._leaving.is_set():
                commands.join()  # it is closing the client; a process that ended first would leave its ticket behind

    def _lead(self, hold: holdfast.Hold) -> None:
        """In office until told to resign. Raises LeaseLost."""
        self._resign.clear()
        self._tell(Kind.ELECTED, hold)
        while not (self._resign.is_set() or self._leaving.is_set()):
            try:
                hold.check()
            except holdfast.LeaseLost as error:
                if self._leaving.is_set():
                    return
                self._tell(Kind.LOST, hold, text=str(error))
                self._write(hold)  # what a worker that does not check would do
                raise
            self._write(hold)
            self._resign.wait(_BEAT_SECONDS)
        self._tell(Kind.RESIGNING, hold)

    def _write(self, hold: holdfast.Hold) -> None:
        verdict = ledger.write(self._ledger_port, ledger.Line(self._name, hold.token))
        kind = Kind.WROTE if verdict.accepted else Kind.REFUSED
        self._tell(kind, hold, highest=verdict.highest)

    def _obey(self) -> None:
        for line in sys.stdin:
            if line.strip() == "resign":
                self._resign.set()
        self._leaving.set()
        self._client.close()  # gives up the hold, or the place in the line, at once
        self._resign.set()

    def _heard(self, event: holdfast.Event) -> None:
        if event.event == "entered":
            tell(Report(Kind.IN_LINE, self._name, time.monotonic(), event.token or 0))

    def _tell(self, kind: Kind, hold: holdfast.Hold, *, highest: int = 0, text: str = "") -> None:
        at = time.monotonic()  # before remaining(): the end computed from both must not come out too late
        tell(Report(kind, self._name, at, hold.token, hold.remaining(), hold.ttl, highest, text))


def tell(report: Report) -> None:
    """One write, so that threads don't mix their lines, and nothing is left to flush at the end."""
    os.write(sys.stdout.fileno(), report.to_line())


def main() -> None:
    name, election, ttl, ledger_port, parent = sys.argv[1:]
    die_with(int(parent))
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        Worker(name, election, float(ttl), int(ledger_port)).run()
    except holdfast.HoldfastError as error:
        tell(Report(Kind.FAILED, name, time.monotonic(), text=str(error)))
    except BrokenPipeError:
        return  # the demo is gone; there is nobody to tell


if __name__ == "__main__":
    main()
