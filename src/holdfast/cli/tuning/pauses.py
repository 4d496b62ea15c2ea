"""How late this machine wakes a thread and an event loop that asked to be woken at a time.

What comes late here comes late to renewals too: other programs on the processors, the interpreter's lock, a frozen
container. It is measured in this process, which does nothing else; a busy program of yours makes longer ones itself.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from holdfast.cli.tuning.samples import Samples

_EVERY_SECONDS: Final = 0.005
_BEGIN_SECONDS: Final = 5.0
_END_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Pauses:
    """What was measured."""

    thread: Samples = field(default_factory=Samples)
    loop: Samples = field(default_factory=Samples)


@contextmanager
def measuring_pauses() -> Iterator[Pauses]:
    """Both are measured, each in a thread of its own, for as long as the block lasts: not before both have begun."""
    pauses, stop, begun = Pauses(), threading.Event(), (threading.Event(), threading.Event())
    threads = [
        threading.Thread(target=_sleep, args=(pauses.thread, stop, begun[0]), name="tune-thread", daemon=True),
        threading.Thread(
            target=lambda: asyncio.run(_alarms(pauses.loop, stop, begun[1])), name="tune-loop", daemon=True
        ),
    ]
    for thread in threads:
        thread.start()
    try:
        for each in begun:
            each.wait(_BEGIN_SECONDS)
        yield pauses
    finally:
        stop.set()
        for thread in threads:
            thread.join(_END_SECONDS)


def _sleep(late: Samples, stop: threading.Event, begun: threading.Event) -> None:
    while not stop.is_set():
        due = time.monotonic() + _EVERY_SECONDS
        time.sleep(_EVERY_SECONDS)  # not `stop.wait`: its lock would be measured too
        late.add(time.monotonic() - due)
        begun.set()


async def _alarms(late: Samples, stop: threading.Event, begun: threading.Event) -> None:
    loop = asyncio.get_running_loop()
    while not stop.is_set():
        due, rung = loop.time() + _EVERY_SECONDS, asyncio.Event()
        loop.call_at(due, rung.set)
        await rung.wait()
        late.add(loop.time() - due)
        begun.set()
