"""The exit codes of the command line: one meaning each, by the numbers of sysexits.h where it has one.

Besides these: 128 + n, ended by signal n; and a command that runs a program of yours ends with that program's own.
"""

from __future__ import annotations

import enum

from holdfast import errors


class Code(enum.IntEnum):
    """What a command ended with."""

    OK = 0
    """It was done, or shown."""
    NOT_SO = 1
    """It looked, and found that it is not so: a promise that was not kept, a fault."""
    USAGE = 64
    """The command is written wrong; nothing was asked of the store."""
    NOT_THERE = 66
    """No such name, token or ticket."""
    UNREACHABLE = 69
    """The store can't be reached, or can't do its work; or a program or package that is needed is not installed."""
    BUG = 70
    """A defect of holdfast's own."""
    BUSY = 75
    """Others hold it: nothing was done. Try again later."""
    LOST = 76
    """The hold was lost, and what ran under it was ended."""
    DENIED = 77
    """The store does not know this user, or does not let it."""
    BAD_URL = 78
    """No URL of a store, or one that can't be read."""
    NOT_EXECUTABLE = 126
    """The program is there and can't be executed."""
    NO_PROGRAM = 127
    """There is no such program."""
    INTERRUPTED = 130
    """Ctrl-C."""
    READER_GONE = 141
    """Whoever read the output has gone, as in `| head`."""


class Stop(Exception):
    """A command can't go on: what it says in one line, and what it ends with."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


_BY_ERROR: dict[type[errors.HoldfastError], Code] = {
    # The nearest class above an error decides.
    errors.HoldfastError: Code.BUG,
    errors.UsageError: Code.USAGE,
    errors.InvalidURL: Code.BAD_URL,
    errors.AcquireTimeout: Code.BUSY,
    errors.GuardBusy: Code.BUSY,
    errors.LeaseLost: Code.LOST,
    errors.LineMismatch: Code.USAGE,
    errors.StaleToken: Code.NOT_SO,
    errors.FenceMismatch: Code.NOT_SO,
    errors.CompareFailed: Code.NOT_SO,
    errors.NoSuchTicket: Code.NOT_THERE,
    errors.StoreError: Code.UNREACHABLE,
    errors.AuthenticationFailed: Code.DENIED,
    errors.PermissionDenied: Code.DENIED,
}


def code_of(error: errors.HoldfastError) -> Code:
    """What a command ends with that can't go on because of this."""
    return next(code for kind in type(error).__mro__ if (code := _BY_ERROR.get(kind)) is not None)
