"""Processes that take part, and the protocol they are spoken to in: a line asks, a line of JSON answers.

    PROGRAM cycle|contend|lead|pace|chain HOST:PORT WHO NAME NUMBER

First it says `ready`: connected, places opened. Then, by its first word:

    cycle     SECONDS 1        {"seconds": [each cycle…], "cpu_seconds": in all}
    contend   SECONDS COUNT    so many of NUMBER contenders take turns for so long:
                               {"turns": [[[called, acquired, releasing, token?], …] for each contender]}
    lead      campaign         wait for the leadership: {"at": acquired}; NUMBER is the TTL
              resign | exit    give it up; or close the client: {"at": before that}
    pace      cycle            one, after however long a sleep: {"seconds": both of its round trips}
    chain     lay COUNT        {"since": revision}
              watch COUNT SINCE PARITY   watch what the other one will delete: {}
              run COUNT SINCE PARITY     {"cut": {number: before its delete}, "told": {number: heard of it}}

Times are seconds of CLOCK_MONOTONIC, which all processes of one machine share. At the end of its input it goes.
"""

from __future__ import annotations

import contextlib
import json
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.contestants.place import Contestant, Program
from benchmarks.measure import Block, Samples
from tests.processes import ROOT, ProcessFailed, WorkerProcess, python_module

_READY_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 90.0
_END_SECONDS: Final = 20.0


class Player:
    """One such process. It ends with its stack; `kill` and `pause` do to it what takes leaders away."""

    def __init__(self, command: list[str], stack: ExitStack) -> None:
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "stderr"
        self._process = WorkerProcess(command, log=log, directory=ROOT, tied=False)
        stack.callback(self._end)

    def ready(self) -> Player:
        """Wait until it has connected, and return it. Raises ProcessFailed."""
        self._process.wait_ready(_READY_SECONDS)
        return self

    def ask(self, *words: object) -> None:
        """Ask, and do not wait. Raises ProcessFailed where it has ended."""
        if not self._process.send(" ".join(map(str, words))):
            self._process.wait()
            raise self._process.failed("ended by itself")

    def answer(self, seconds: float = _ANSWER_SECONDS) -> Any:  # Any: JSON
        """The answer to the question before. Raises ProcessFailed where none comes within `seconds`."""
        return json.loads(self._process.line(seconds))

    def kill(self) -> None:
        """SIGKILL, and do not wait."""
        self._process.signal(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP, and do not wait."""
        self._process.signal(signal.SIGSTOP)

    def dismiss(self) -> None:
        """End its input: it goes, and nobody waits for that yet."""
        self._process.end_input()

    def _end(self) -> None:
        """Order it to go, and wait; SIGKILL for one that is stopped or stuck."""
        self._process.resume()
        self.dismiss()
        with contextlib.suppress(ProcessFailed):
            self._process.wait(_END_SECONDS)
        self._process.close()


def player(mode: str, who: Contestant, endpoint: str, name: str, number: float, stack: ExitStack) -> Player:
    """A contestant in a process of its own; in Python that is `play.py`."""
    if isinstance(who, Program):
        return Player([*who.command(), mode, endpoint, who.word, name, f"{number:g}"], stack)
    return Player(python("play", mode, endpoint, who.name, name, f"{number:g}"), stack)


def python(module: str, *words: str) -> list[str]:
    """The command of one of our own modules."""
    return python_module(f"benchmarks.{module}", *words)


def block(who: Program, endpoint: str, name: str, stack: ExitStack) -> Block:
    """Blocks of cycles that a program runs and times itself."""
    program = player("cycle", who, endpoint, name, 1, stack).ready()

    def cycles(seconds: float) -> Samples:
        program.ask(seconds, 1)
        answer = program.answer()
        return Samples(answer["seconds"], answer["cpu_seconds"] / len(answer["seconds"]))

    return cycles
