"""Scheduler: one of any number of these processes runs the jobs, in order, each once; SIGTERM drains it.

    TENURE_URL=zookeeper://127.0.0.1:2181/reports python scheduler.py 60 ./report

The leader runs `./report 1`, `./report 2`, …, with 60 seconds between the end of one and the next. On SIGTERM the job
that runs comes to its end, and another process leads at once. A job is written down before it begins: should its
leader crash or stand still, it is not run again.
"""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import tenure


class Scheduler:
    """What one process does while it leads."""

    def __init__(self, pause_seconds: float, command: list[str]) -> None:
        self.stop = threading.Event()
        self._pause_seconds = pause_seconds
        self._command = command

    def drain(self, *_: object) -> None:
        """Begin no other job. Runs as a signal handler, so it prints nothing: that might interrupt a print."""
        self.stop.set()
        os.write(1, b"drains\n")

    def lead(self, hold: tenure.Hold) -> None:
        """Run jobs until this process shall end. Raises LeaseLost or StaleToken once another one may lead."""
        print(f"leads with token {hold.token}", flush=True)
        while not self.stop.is_set():
            begun = hold.store.get("begun")
            number = str(int(begun.value) + 1 if begun else 1)
            hold.store.put("begun", number.encode())  # refused unless this very ticket leads
            subprocess.run([*self._command, number], check=False)
            self.stop.wait(self._pause_seconds)


def main() -> None:
    """Lead, or wait for that, until SIGTERM comes."""
    scheduler = Scheduler(float(sys.argv[1]), sys.argv[2:])
    signal.signal(signal.SIGTERM, scheduler.drain)
    with tenure.connect() as client, ThreadPoolExecutor(1) as pool:
        election = client.election("scheduler")
        # In another thread: the handler runs in the main one, which must not be within `stop.wait` then.
        pool.submit(election.run, scheduler.lead, stop=scheduler.stop).result()


if __name__ == "__main__":
    main()
