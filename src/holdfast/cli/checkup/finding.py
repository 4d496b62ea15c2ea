"""What a check says."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """How it is."""

    OK = "ok"
    WARN = "warn"
    """It works, and may not always."""
    FAIL = "fail"
    """It does not, or will hurt somebody."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's."""

    state: State
    check: str
    """What was looked at, in a word."""
    where: str
    """At which endpoint; "" for the store as a whole, or this machine."""
    told: str
    do: str = ""
    """What to do about it."""


def ok(check: str, where: str, told: str) -> Finding:
    return Finding(State.OK, check, where, told)


def warn(check: str, where: str, told: str, do: str) -> Finding:
    return Finding(State.WARN, check, where, told, do)


def fail(check: str, where: str, told: str, do: str) -> Finding:
    return Finding(State.FAIL, check, where, told, do)
