"""A worker process of `tenure demo`: it stands in the election, and while it leads it writes to the ledger.

Reports go out as lines on standard output, and so do lines for the ledger, whose verdicts come on standard input.
"resign" there ends the time in office; the end of standard input ends the process. Run as `python -m
tenure.cli.demo_worker NAME ELECTION TTL PARENT`, with the store in TENURE_URL: a command line is everybody's to read,
and a URL may have a password in it.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from typing import Final, Literal, NamedTuple

import tenure
from tenure.cli.embedded_etcd import die_with

_BEAT_SECONDS: Final = 0.5
_LEADS: Final = "LEADS with token {0.token}; TTL granted {0.ttl:g} s, {1:.1f} s of it left"


Kind = Literal[
    "in line", "elected", "writing", "wrote", "refused", "lost", "remark", "resigning", "failed", "ended", "leader"
]  # fmt: skip
"""A worker says the first nine; that a process has ended, and whom the store names, the demo sees by itself."""


class WorkerReport(NamedTuple):
    """An event, and its sentence for the reader, if any. `at` is time.monotonic(), one clock for all processes."""

    kind: Kind
    who: str
    text: str
    at: float
    token: int = 0
    remaining: float = 0.0
    ttl: float = 0.0
    highest: int = 0
    """The highest token the ledger has seen."""

    def send(self) -> None:
        """Write one line of JSON, at once, so that threads don't mix their lines and nothing is left to flush."""
        os.write(sys.stdout.fileno(), json.dumps(self).encode() + b"\n")


class Candidate:
    """A candidate of the election."""

    def __init__(self, name: str, election: str, ttl: float) -> None:
        self._name = name
        self._client = tenure.connect(owner=name, ttl=ttl)
        self._client.subscribe(self._on_event)
        self._election = self._client.election(election, value=name)
        self._verdicts: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._resign = threading.Event()
        self._leaving = threading.Event()

    def run(self) -> None:
        """Campaign, lead, resign or lose, and campaign again, until asked to leave."""
        commands = threading.Thread(target=self._obey, name="demo-commands", daemon=True)
        commands.start()
        try:
            while not self._leaving.is_set():
                self._election.run(self._lead)
        except tenure.ClientClosed:
            pass  # asked to leave while waiting
        finally:
            if self._leaving.is_set():
                commands.join()  # it is closing the client; a process that ended first would leave its ticket behind

    def _lead(self, hold: tenure.Hold) -> None:
        """Stay in office until asked to resign. Raises LeaseLost."""
        self._resign.clear()
        self._report("elected", hold, "LEADS with token {0.token}; TTL granted {0.ttl:g} s, {1:.1f} s of it left")
        while not (self._resign.is_set() or self._leaving.is_set()):
            try:
                hold.check()
            except tenure.LeaseLost as error:
                if self._leaving.is_set():
                    return
                self._report("lost", hold, "its first check() raises LeaseLost; remaining() is {1:.1f} s")
                for remark in (str(error), f"writes all the same, with token {hold.token}"):
                    WorkerReport("remark", self._name, remark, time.monotonic()).send()
                self._write(hold)  # what a worker that does not check would do
                raise
            self._write(hold)
            self._resign.wait(_BEAT_SECONDS)
        self._report("resigning", hold, "resigns: it releases its hold")

    def _write(self, hold: tenure.Hold) -> None:
        self._report("writing", hold)
        verdict, highest = self._verdicts.get()  # standard input ends at the latest with the demo
        if verdict == "wrote":
            self._report("wrote", hold, "writes with token {0.token}, the ledger takes it; {1:.1f} s left")
        elif verdict:
            self._report("refused", hold, highest=highest)

    def _obey(self) -> None:
        for line in sys.stdin:
            order, _, highest = line.strip().partition(" ")
            if order == "resign":
                self._resign.set()
            else:
                self._verdicts.put((order, int(highest)))
        self._leaving.set()
        self._verdicts.put(("", 0))
        self._client.close()  # gives up the hold, or the place in the line, at once
        self._resign.set()

    def _on_event(self, event: tenure.Event) -> None:
        if event.event == "entered":
            text = f"stands in line with token {event.token}"
            WorkerReport("in line", self._name, text, time.monotonic()).send()

    def _report(self, kind: Kind, hold: tenure.Hold, text: str = "", *, highest: int = 0) -> None:
        """Report an event; `text` is a format of the hold, {0}, and of the seconds that are left of it, {1}."""
        at = time.monotonic()  # before remaining(): the end computed from both must not come out too late
        left = hold.remaining()
        WorkerReport(kind, self._name, text.format(hold, left), at, hold.token, left, hold.ttl, highest).send()


def main() -> None:
    name, election, ttl, parent = sys.argv[1:]
    die_with(int(parent))
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        Candidate(name, election, float(ttl)).run()
    except tenure.TenureError as error:
        WorkerReport("failed", name, str(error), time.monotonic()).send()
    except BrokenPipeError:
        return  # the demo is gone; there is nobody to tell


if __name__ == "__main__":
    main()
