"""Which process is this? After a fork the child's clients and holds are dead (law 14).

The parent's sockets, leases and tickets are untouched by what the child does: the child refuses
before it takes a lock or writes a byte.
"""

from __future__ import annotations

import os

from holdfast.errors import ForkedClient

_generation = 0


def _count() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_count)


def generation() -> int:
    """A number that is another one in every forked child."""
    return _generation


def refuse_child(born: int, what: str) -> None:
    """Raise ForkedClient where `what`, made in generation `born`, is used in a child."""
    if born != _generation:
        raise ForkedClient(
            f"{what} belongs to the process that this one was forked from, and can't be used here. "
            "The parent still has it. Connect again in the child."
        )
