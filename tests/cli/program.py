"""The program itself: run to its end in a pipe, or at a terminal of a given size, where its user types."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest

PATIENCE_SECONDS = 60.0
PROGRAM = (sys.executable, "-m", "tenure.cli")
LOOKING_AND_MENDING = (
    ("ls",),
    ("ls", "--json"),
    ("show", "ledger"),
    ("watch",),
    ("why", "ledger"),
    ("history", "ledger"),
    ("audit",),
    ("release", "ledger", "--token", "1", "--reason", "x", "--yes"),
)
"""Commands that need a store and run nothing."""
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-_])")
NOT_PLAIN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
"""Characters that no pipe is to be given: any that moves a terminal's cursor."""
OTHER_SCREEN, OWN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
AT_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Done:
    """A program that has ended."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[list[str]]:
        """Records that were written into the pipe: lines, and their fields."""
        return [line.split("\t") for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        """Output as JSON."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line on standard error."""
        assert self.err.startswith("tenure: "), self.err
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err


def environment(given: Mapping[str, str] = _NONE) -> dict[str, str]:
    """Ours, without what would change what is shown."""
    unwanted = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TENURE_URL", "TENURE_LOG_JSON")
    return {k: v for k, v in os.environ.items() if k not in unwanted} | {"TERM": "xterm", "PYTHONUTF8": "1", **given}


def tenure(*arguments: str, url: str | None = None, given: Mapping[str, str] = _NONE, stdin: str = "") -> Done:
    """Run the command to its end, in pipes."""
    where = {"TENURE_URL": url} if url is not None else {}
    ended = subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        env=environment({**where, **given}),
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return Done(ended.returncode, ended.stdout, ended.stderr)


class Terminal:
    """A program at a terminal: what it wrote so far, and a keyboard."""

    def __init__(self, process: subprocess.Popen[bytes], ours: int) -> None:
        self.process = process
        self.raw = ""
        self._ours = ours
        self._bytes = b""

    @property
    def text(self) -> str:
        """Output without colours and the like."""
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n")

    @property
    def settings(self) -> list[Any]:
        """Settings of the terminal: a program that changes them has to restore them."""
        return termios.tcgetattr(self._ours)

    def read_until(self, text: str) -> None:
        """Read on until `text` is shown."""
        while text not in self.text:
            if not self._read():
                pytest.fail(f"it ended before it showed {text!r}:\n{self.text}")

    def type(self, keys: str) -> None:
        """Type."""
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Another size, as when somebody pulls at the window."""
        set_size(self._ours, columns, rows)

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_SECONDS)

    def forget(self) -> None:
        """Look only at what comes from now on."""
        self._bytes, self.raw = b"", ""

    def _read(self) -> bool:
        readable, _, _ = select.select([self._ours], [], [], PATIENCE_SECONDS)
        if not readable:
            pytest.fail(f"nothing more was shown for {PATIENCE_SECONDS} s after:\n{self.text}")
        try:
            got = os.read(self._ours, 65536)
        except OSError:  # a terminal whose last user has gone
            return False
        self._bytes += got
        self.raw = self._bytes.decode(errors="replace")
        return bool(got)


@contextmanager
def at_terminal(
    *arguments: str, url: str, columns: int = 80, rows: int = 24, given: Mapping[str, str] = _NONE
) -> Iterator[Terminal]:
    """The command in a session of its own, with a terminal of this size."""
    ours, theirs = pty.openpty()
    set_size(ours, columns, rows)
    process = subprocess.Popen(
        [sys.executable, "-c", AT_TERMINAL, *PROGRAM, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment({"TENURE_URL": url, **given}),
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        os.close(ours)


def shown(*arguments: str, url: str, columns: int = 80, rows: int = 24, given: Mapping[str, str] = _NONE) -> Done:
    """Output of the command at a terminal, without colours; run to its end."""
    with at_terminal(*arguments, url=url, columns=columns, rows=rows, given=given) as terminal:
        code = terminal.end()
        return Done(code, terminal.text, "")


def set_size(terminal: int, columns: int, rows: int) -> None:
    """Tell a terminal how large it is."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def eventually(condition: Any, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until it is so."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not so within {seconds} s: {condition}"
        time.sleep(0.02)
