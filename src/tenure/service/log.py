"""The log: lines about requests, and the way of all lines to standard error, which holds up nobody.

Who reads standard error may stop reading, and a write to it would then stop the service, and its renewals would go on.
So a thread writes, from a queue with a bound. Lines beyond it are dropped and counted: in the log itself, once it is
read again, and in `tenure_log_lines_dropped_total`.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from tenure.jsonlog import JSONFormatter
from tenure.service.auth.tokens import Caller
from tenure.service.http.problems import ProblemCode
from tenure.service.http.request import HttpRequest
from tenure.service.limits import LOG_CHARACTERS_MAX, LOG_END_SECONDS

_SHOWN: Final = ("resource", "name", "prefix", "leader")
"""The fields of a request that may be logged."""


@dataclass(slots=True)
class LoggedRequest:
    """The facts about a request, gathered on its way, that the log shows."""

    route: str = "none"
    caller: Caller | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    status: int = 500
    code: str | None = None
    problem: ProblemCode | None = None


class AccessLog:
    """The access log: one JSON object a line for each request. Without a stream it writes nothing.

    Tokens, ids of holds (who knows one may release the hold) and values are not logged: of the path only its route, and
    the names in the request; of a path without a route nothing but that.
    """

    def __init__(self, stream: io.TextIOBase | None) -> None:
        self._stream = stream

    def write(self, request: HttpRequest, logged: LoggedRequest, seconds: float) -> None:
        """Write one line."""
        if self._stream is None:
            return
        now = time.time()
        entry: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z",
            "level": "info" if logged.status < 400 else "warning",
            "logger": "tenure.access",
            "message": f"{request.method} {logged.route} {logged.status}",
            "method": request.method,
            "route": logged.route,
            "status": logged.status,
            "seconds": round(seconds, 6),
            "peer": request.peer,
        }
        if logged.code is not None:
            entry["code"] = logged.code
        if logged.caller is not None:
            entry["caller"], entry["tenant"] = logged.caller.name, logged.caller.tenant.name
        entry |= {name: logged.fields[name] for name in _SHOWN if logged.fields.get(name)}
        self._stream.write(json.dumps(entry) + "\n")


class LogWriter(io.TextIOBase, Collector):
    """A stream of lines that a thread writes to a descriptor. `write` never waits; `dropped` counts lost lines."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.dropped = 0
        self._waiting: list[str] = []
        self._length = 0  # of what waits, and of what is being written
        self._ended = False
        self._changed = threading.Condition()  # guards all of the above
        self._thread = threading.Thread(target=self._run, name="tenure-log", daemon=True)
        self._thread.start()

    def write(self, text: str, /) -> int:
        """Add text to what is written next, or drop it where too much waits already."""
        with self._changed:
            if self._length + len(text) > LOG_CHARACTERS_MAX:
                self.dropped += 1
            else:
                self._waiting.append(text)
                self._length += len(text)
                self._changed.notify()
        return len(text)

    def end(self) -> None:
        """Write what waits, unless nobody reads it in time."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(LOG_END_SECONDS)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the metric; see prometheus_client."""
        yield CounterMetricFamily(
            "tenure_log_lines_dropped", "Lines of the log that nobody read in time.", value=self.dropped
        )

    def _run(self) -> None:
        noted = 0  # dropped lines of which the log itself tells
        while lines := self._next():
            text, lost = "".join(lines), len(lines)
            try:
                self._write(text)
                lost = 0
                if (dropped := self.dropped) > noted:
                    self._write(_note(dropped - noted))
                    noted = dropped
            except OSError:  # a full disk, or nobody reads any more: serving locks matters more
                pass
            with self._changed:
                self.dropped += lost
                self._length -= len(text)

    def _next(self) -> list[str]:
        """Wait for lines, and take all of them; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            lines, self._waiting = self._waiting, []
            return lines

    def _write(self, text: str) -> None:
        data = text.encode(errors="backslashreplace")
        while data:
            data = data[os.write(self._descriptor, data) :]


def _note(dropped: int) -> str:
    message = f"{dropped} lines of the log were dropped: nobody read it in time"
    facts = {"name": "tenure.service", "levelname": "WARNING", "msg": message}
    return JSONFormatter().format(logging.makeLogRecord(facts)) + "\n"


@contextmanager
def written_aside() -> Iterator[LogWriter]:
    """Have a thread write what goes to standard error inside the block, by way of the library's log or past it."""
    before = sys.stderr
    writer = LogWriter(before.fileno())
    handlers = [
        handler
        for handler in logging.getLogger("tenure").handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is before
    ]
    try:
        sys.stderr = cast("Any", writer)  # as far as lines go, it is one
        for handler in handlers:
            handler.setStream(writer)
        yield writer
    finally:
        sys.stderr = before
        for handler in handlers:
            handler.setStream(before)
        writer.end()
