"""The exit codes of the command line: one meaning each, by the numbers of sysexits.h where it has one.

Besides these: 128 + n, ended by signal n; and a command that runs a program of yours ends with that program's own.
"""

from __future__ import annotations

import enum
from typing import Final

from tenure import errors


class ExitCode(enum.IntEnum):
    """The code that a command ends with; `SUMMARIES` says what each means."""

    OK = 0
    NOT_SO = 1
    USAGE = 64
    NOT_THERE = 66
    UNREACHABLE = 69
    BUG = 70
    BUSY = 75
    LOST = 76
    DENIED = 77
    BAD_URL = 78
    NOT_EXECUTABLE = 126
    NO_PROGRAM = 127
    INTERRUPTED = 130
    READER_GONE = 141


SUMMARIES: Final = {
    ExitCode.OK: "done; or the code of the program that was run",
    ExitCode.NOT_SO: "looked, and it is not so: a promise not kept, a fault found",
    ExitCode.USAGE: "the command is written wrong",
    ExitCode.NOT_THERE: "no such name, token or ticket",
    ExitCode.UNREACHABLE: "the store can't be reached, or can't do it; something is not installed",
    ExitCode.BUG: "a defect of tenure",
    ExitCode.BUSY: "held by others: try again later",
    ExitCode.LOST: "the hold was lost, and the program that ran under it was ended",
    ExitCode.DENIED: "wrong user or password, or no permission",
    ExitCode.BAD_URL: "no URL of a store, or a bad one",
    ExitCode.NOT_EXECUTABLE: "the program can't be executed",
    ExitCode.NO_PROGRAM: "there is no such program",
}
"""Explanation of each code that the help shows."""


class CommandStopped(Exception):
    """A command can't go on: its one line, and the code to end with."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


_BY_ERROR: dict[type[errors.TenureError], ExitCode] = {
    # The nearest class above an error decides.
    errors.TenureError: ExitCode.BUG,
    errors.UsageError: ExitCode.USAGE,
    errors.InvalidURL: ExitCode.BAD_URL,
    errors.AcquireTimeout: ExitCode.BUSY,
    errors.GuardBusy: ExitCode.BUSY,
    errors.LeaseLost: ExitCode.LOST,
    errors.LineMismatch: ExitCode.USAGE,
    errors.StaleToken: ExitCode.NOT_SO,
    errors.FenceMismatch: ExitCode.NOT_SO,
    errors.CompareFailed: ExitCode.NOT_SO,
    errors.NoSuchTicket: ExitCode.NOT_THERE,
    errors.StoreError: ExitCode.UNREACHABLE,
    errors.AuthenticationFailed: ExitCode.DENIED,
    errors.PermissionDenied: ExitCode.DENIED,
}


def code_of(error: errors.TenureError) -> ExitCode:
    """Exit code of a command that can't go on because of this error."""
    return next(code for kind in type(error).__mro__ if (code := _BY_ERROR.get(kind)) is not None)
