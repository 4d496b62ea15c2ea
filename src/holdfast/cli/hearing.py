"""Signals, heard by whoever has something to put in order before the program ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a polite request, a terminal that was closed."""


@contextmanager
def hearing(
    heard: Callable[[int], object], numbers: tuple[signal.Signals, ...] = ENDING
) -> Iterator[tuple[signal.Signals, ...]]:
    """Call `heard` with the number of each that arrives, and do no more about it. Only from the main thread.

    A signal that whoever started us had set to be ignored (nohup, a shell's background job) stays ignored. Gives those
    that are heard.
    """
    heeded = tuple(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)
    before = [signal.signal(number, lambda got, _: heard(got)) for number in heeded]
    try:
        yield heeded
    finally:
        for number, handler in zip(heeded, before, strict=True):
            signal.signal(number, handler)
