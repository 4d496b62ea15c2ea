"""Plan of a worker, as one argument of its command line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

Face: TypeAlias = Literal["blocking", "asyncio"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one worker. `name` is its owner in the store and its client in the history."""

    name: str
    face: Face
    url: str
    options: dict[str, Any]
    """Of `connect`. Any: values of many types."""
    seed: str
    history: str
    register: str
    """The fenced store's socket."""
    actors: int = 3
    careless: float = 0.1
    """The share of writes before which an actor thinks for long, and does not look whether it still holds."""

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read what `str` wrote."""
        return cls(**json.loads(text))
