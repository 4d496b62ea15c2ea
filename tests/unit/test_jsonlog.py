"""Log records as JSON: tenure's own with their facts, anybody's as one line."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest

import tenure
from tenure import jsonlog

BIG = 2**60


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is logged by tenure meanwhile."""
    logger, stream = logging.getLogger("tenure"), io.StringIO()
    level = logger.level
    handler = jsonlog.switch_on(stream)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_events_are_objects_with_their_facts(stream: io.StringIO) -> None:
    """What happened, to whom, with which token: as fields."""
    with tenure.connect("memory://jsonlog", owner="me") as client, client.lock("ledger").acquire() as hold:
        pass
    told = {line["event"]: line for line in lines(stream)}
    assert {"lease_opened", "acquired"} <= told.keys()
    acquired = told["acquired"]
    assert (acquired["level"], acquired["logger"], acquired["resource"]) == ("info", "tenure", "ledger")
    assert (acquired["token"], acquired["owner"]) == (str(hold.token), "me")
    assert datetime.fromisoformat(str(acquired["time"])).tzinfo is not None
    assert str(acquired["time"]).endswith("Z")


def test_anything_else_is_one_line_too(stream: io.StringIO) -> None:
    """Line breaks, exceptions, what JSON does not know, tokens beyond 2^53, names that are ours."""
    logger = logging.getLogger("tenure")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception(
            "it %s\nfailed", "has", extra={"token": BIG, "what": object(), "time": "forged", "nan": float("nan")}
        )
    (line,) = lines(stream)
    assert stream.getvalue().count("\n") == 1
    assert line["message"] == "it has\nfailed"
    assert line["token"] == str(BIG)
    assert str(line["time"]).endswith("Z")
    assert "ValueError: two\nlines" in str(line["exception"])
    assert str(line["what"]).startswith("<object object")
    json.loads(stream.getvalue(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
