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
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.contestants.place import Contestant, Program
from benchmarks.measure import Block, Samples

ROOT: Final = Path(__file__).parent.parent
_READY_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 90.0
_END_SECONDS: Final = 20.0
_TAIL_BYTES: Final = 2000


class Player:
    """One such process. It ends with its stack; `kill` and `pause` do to it what takes leaders away."""

    def __init__(self, command: list[str], stack: ExitStack) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the stack, as is the process
        stack.callback(self._log.close)
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        self._buffer = b""
        stack.callback(self._end)

    def ready(self) -> Player:
        """Once it has connected."""
        line = self._line(_READY_SECONDS)
        if line != b"ready":
            raise RuntimeError(f"{self._process.args!r} said {line[:200]!r} instead of ready")
        return self

    def ask(self, *words: object) -> None:
        """Ask, and do not wait."""
        stdin = self._process.stdin
        assert stdin is not None  # it was given a pipe
        try:
            stdin.write(" ".join(map(str, words)).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise self._gone() from None

    def answer(self, seconds: float = _ANSWER_SECONDS) -> Any:  # Any: JSON
        """What it says to the question before."""
        return json.loads(self._line(seconds))

    def kill(self) -> None:
        self._process.kill()

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def _line(self, seconds: float) -> bytes:
        stdout, until = self._process.stdout, time.monotonic() + seconds
        assert stdout is not None  # it was given a pipe
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        while b"\n" not in self._buffer:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise RuntimeError(f"{self._process.args!r} did not answer within {seconds:g} s; {self._tail()}")
            piece = os.read(stdout.fileno(), 1 << 16)
            if not piece:
                raise self._gone()
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _gone(self) -> RuntimeError:
        self._process.kill()
        return RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}; {self._tail()}")

    def _tail(self) -> str:
        self._log.seek(max(0, self._log.tell() - _TAIL_BYTES))
        return f"it wrote: {self._log.read().decode(errors='replace')}"

    def dismiss(self) -> None:
        """The end of its input: it goes, and nobody waits for that yet."""
        stdin = self._process.stdin
        assert stdin is not None  # it was given a pipe
        with contextlib.suppress(BrokenPipeError):
            stdin.close()

    def _end(self) -> None:
        """By the end of its input; SIGKILL for one that is stopped or stuck."""
        with contextlib.suppress(OSError):
            os.kill(self._process.pid, signal.SIGCONT)
        self.dismiss()
        stdout = self._process.stdout
        assert stdout is not None  # it was given a pipe
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        stdout.close()


def player(mode: str, who: Contestant, endpoint: str, name: str, number: float, stack: ExitStack) -> Player:
    """A contestant in a process of its own; in Python that is `play.py`."""
    if isinstance(who, Program):
        return Player([*who.command(), mode, endpoint, who.word, name, f"{number:g}"], stack)
    return Player(python("play", mode, endpoint, who.name, name, f"{number:g}"), stack)


def python(module: str, *words: str) -> list[str]:
    """The command of one of our own modules."""
    return [sys.executable, "-m", f"benchmarks.{module}", *words]


def block(who: Program, endpoint: str, name: str, stack: ExitStack) -> Block:
    """Blocks of cycles that a program runs and times itself."""
    program = player("cycle", who, endpoint, name, 1, stack).ready()

    def cycles(seconds: float) -> Samples:
        program.ask(seconds, 1)
        told = program.answer()
        return Samples(told["seconds"], told["cpu_seconds"] / len(told["seconds"]))

    return cycles
