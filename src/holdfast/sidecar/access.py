"""The access log: one JSON object a line for each request, without what it must not show.

Neither tokens, nor ids of holds (who knows one may release the hold), nor values: of the path only which route it was,
and the names that were asked for. Of a path that is none of ours nothing is written but that.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from holdfast.sidecar.auth import Caller
from holdfast.sidecar.exchange import Request
from holdfast.sidecar.problems import Code

_SHOWN: Final = ("resource", "name", "prefix", "leader")
"""The fields of a request that may be shown."""


@dataclass(slots=True)
class Asked:
    """What is known of a request by its end."""

    route: str = "none"
    caller: Caller | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    status: int = 500
    code: str | None = None
    problem: Code | None = None


class AccessLog:
    """Writes to `stream`; to nowhere where that is None."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, request: Request, asked: Asked, seconds: float) -> None:
        """One line."""
        if self._stream is None:
            return
        now = time.time()
        told: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z",
            "level": "info" if asked.status < 400 else "warning",
            "logger": "holdfast.access",
            "message": f"{request.method} {asked.route} {asked.status}",
            "method": request.method,
            "route": asked.route,
            "status": asked.status,
            "seconds": round(seconds, 6),
            "peer": request.peer,
        }
        if asked.code is not None:
            told["code"] = asked.code
        if asked.caller is not None:
            told["caller"], told["tenant"] = asked.caller.name, asked.caller.tenant.name
        told |= {name: asked.fields[name] for name in _SHOWN if asked.fields.get(name)}
        try:
            self._stream.write(json.dumps(told) + "\n")
            self._stream.flush()
        except OSError:  # whoever read the log has gone: locks matter more
            self._stream = None
