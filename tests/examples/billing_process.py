"""Process of the billing service that stops itself, once, at one moment: `python -m tests.examples.billing_process AT`.

    outside     it has the lock, and begins no transaction yet
    reading     its transaction has read the invoice, and writes nothing yet
    writing     its transaction has written, and is not committed yet
    idle        no invoice is open

A second word, `unguarded`, takes the guard out. It says `stops`, `done` at its end, and what the program says.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, event

import tenure
from docs.examples import billing

_stopped: Final[list[str]] = []
_find: Final = billing.open_invoices
_begin: Final = billing.guard.transaction if len(sys.argv) < 3 else lambda engine, _: engine.begin()


def stop(at: str) -> None:
    """SIGSTOP to this very process, the first time that `at` is where it shall stop."""
    if sys.argv[1] == at and not _stopped:
        _stopped.append(at)
        print("stops", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)


@contextmanager
def transaction(engine: Engine, hold: tenure.Hold) -> Iterator[Connection]:
    """A transaction as the program begins it, with a stop before."""
    stop("outside")
    with _begin(engine, hold) as connection:
        yield connection


def open_invoices(engine: Engine) -> list[int]:
    """What the program finds open, with a stop where that is nothing."""
    found = _find(engine)
    if not found:
        stop("idle")
    return found or _find(engine)


@event.listens_for(Engine, "before_cursor_execute")
def before(connection: Connection, cursor: Any, statement: str, *_: object) -> None:
    """A stop before the first write."""
    if statement.startswith("INSERT INTO charges"):
        stop("reading")


@event.listens_for(Engine, "after_cursor_execute")
def after(connection: Connection, cursor: Any, statement: str, *_: object) -> None:
    """A stop after the last write."""
    if statement.startswith("UPDATE invoices"):
        stop("writing")


if __name__ == "__main__":
    setattr(billing.guard, "transaction", transaction)  # noqa: B010 (of an object)
    billing.open_invoices = open_invoices
    billing.main()
    print("done", flush=True)
