"""Log records as JSON, one object a line: what tenure logs, with its facts as fields, for machines to read.

    handler = logging.StreamHandler()
    handler.setFormatter(tenure.jsonlog.JSONFormatter())
    logging.getLogger("tenure").addHandler(handler)

or `switch_on()`, which does just that. Tokens are strings: they exceed what a JSON number holds in most languages.
"""

from __future__ import annotations

import json
import logging
import math
from datetime import UTC, datetime
from typing import Final, TextIO

_ORDINARY: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class JSONFormatter(logging.Formatter):
    """Renders any record; of tenure's own, `event` and its facts (see events.py) are fields of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record in one line, however many its message has."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts = {name: value for name, value in vars(record).items() if name not in _ORDINARY and name not in line}
        line |= {name: _sound(value) for name, value in facts.items()}
        if line.get("token") is not None:
            line["token"] = str(line["token"])
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _sound(value: object) -> object:
    """Write NaN and infinities as texts: JSON has no numbers for them."""
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def switch_on(stream: TextIO | None = None, level: int = logging.INFO) -> logging.Handler:
    """Write what is logged to `tenure` to `stream` (standard error), as JSON. Returns the handler, to be taken off."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter())
    logger = logging.getLogger("tenure")
    logger.addHandler(handler)
    logger.setLevel(level)
    return handler
