"""The one place where what the library draws at random comes from the seed instead.

Ticket ids (`secrets.token_hex` in lease.py) and the pauses between retries (tenacity, from the module `random`). Wall
time gets into a ticket's `created_at` only, which is compared with nothing and shown in no trace.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

from tenure._core import lease
from tenure.events import logger


class _Ids:
    """`secrets`, as far as lease.py uses it."""

    def __init__(self, choices: random.Random) -> None:
        self._choices = choices

    def token_hex(self, size: int) -> str:
        return self._choices.randbytes(size).hex()


@contextlib.contextmanager
def seeded(seed: str) -> Iterator[None]:
    """Let everything random in the library follow from `seed`; what was there before comes back afterwards."""
    core: Any = lease  # Any: a module's names can't be assigned to otherwise
    before, state = core.secrets, random.getstate()
    quiet, logger.disabled = logger.disabled, True  # what happens stands in the trace
    core.secrets = _Ids(random.Random(f"ids {seed}"))
    random.seed(f"pauses {seed}")
    try:
        yield
    finally:
        core.secrets, logger.disabled = before, quiet
        random.setstate(state)
