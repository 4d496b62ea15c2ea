"""Removals that a closing client sends first, and sends again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.exceptions import ConnectionLoss, NoNodeError

from tenure._backends.zookeeper.sweeper import Sweeper
from tenure._core.base.clock import VirtualClock
from tenure._core.base.limits import REQUESTS_AT_ONCE_MAX

LINE = "/ns/a"
UNTIL = 2000.0


class Answer:
    """One of kazoo's, that comes when the test says so."""

    def __init__(self) -> None:
        self.exception: Exception | None = None
        self._told: list[Callable[[Answer], None]] = []

    def rawlink(self, told: Callable[[Answer], None]) -> None:
        self._told.append(told)

    def successful(self) -> bool:
        return self.exception is None

    def come(self, exception: Exception | None = None) -> None:
        self.exception = exception
        for told in self._told:
            told(self)


class Connection:
    """It writes down what is deleted, and answers when asked to wait."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.answers: list[Answer] = []

    def delete(self, path: str) -> Answer:
        self.deleted.append(path)
        self.answers.append(Answer())
        return self.answers[-1]

    def ask(self, until: float, *requests: Any) -> list[Any]:
        return [None for _ in requests]


def with_tickets(count: int) -> tuple[Sweeper, Connection]:
    connection = Connection()
    sweeper = Sweeper(connection, VirtualClock())  # type: ignore[arg-type]  # a fake
    for number in range(count):
        sweeper.entering(f"{number}", LINE)
        sweeper.entered(f"{number}", f"{LINE}/{number}")
    return sweeper, connection


def test_removals_are_sent_at_once_and_in_bounded_number() -> None:
    """Nobody waits for an answer between them, and a thousand tickets do not make a thousand requests at once."""
    sweeper, connection = with_tickets(REQUESTS_AT_ONCE_MAX + 5)
    sweeper.send_removals()
    assert connection.deleted == [f"{LINE}/{number}" for number in range(REQUESTS_AT_ONCE_MAX)]


def test_only_what_was_not_removed_is_removed_again() -> None:
    """A removal whose answer was lost is sent once more; one that was done, or found nothing to do, is not."""
    sweeper, connection = with_tickets(3)
    sweeper.send_removals()
    for answer, exception in zip(connection.answers, (None, NoNodeError(), ConnectionLoss()), strict=True):
        answer.come(exception)
    del connection.deleted[:]
    sweeper.remove_all("ns", (), UNTIL)
    assert connection.deleted == [f"{LINE}/2", LINE]
