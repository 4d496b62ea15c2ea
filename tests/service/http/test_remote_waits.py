"""The thin client's waits: registered for its stream in requests that the service takes, however much they name."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tenure
from tenure._backends.service.changes import Changes
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.signals import Signal
from tenure._core.runtime import runtime_of
from tenure.service.limits import BODY_BYTES_MAX
from tests.cli.program import eventually
from tests.service.http.program import Service


class Asked:
    """Stands for the requests to a service: what was asked for."""

    def __init__(self) -> None:
        self.session: Any = self
        self.on_move: Any = None
        self.bodies: list[Any] = []

    def ask(self, _path: str, body: Any, _until: float) -> None:
        self.bodies.append(json.loads(json.dumps(body)))


class Around:
    """A stand-in for a backend's context, as far as waits need it."""

    clock = SYSTEM_CLOCK


def test_wait_that_names_more_than_a_body_takes_is_kept(open_service: Service, name: str) -> None:
    """Long names, many seats: it waits on its one stream, instead of looking again and again."""
    name, seats = f"{name}-{'n' * 450}", 120
    with tenure.connect(open_service.url, ttl=20, owner="thin") as thin, ThreadPoolExecutor() as pool:
        semaphore = thin.semaphore(name, limit=seats)
        holds = [semaphore.acquire() for _ in range(seats)]
        waiting = pool.submit(semaphore.acquire, 60.0)
        changes: Any = runtime_of(thin)._backend._replicas.any.changes  # type: ignore[attr-defined]  # the service's
        named = set[str]()

        def is_registered() -> bool:
            waits = list(changes._waits.values())
            named.update(ticket["key"] for wait in waits for ticket in wait.body["tickets"])
            return len(named) >= seats and bool(waits) and all(wait.registered.is_set() for wait in waits)

        eventually(is_registered)
        assert sum(map(len, named)) > BODY_BYTES_MAX
        holds.pop().release()
        holds.append(waiting.result())
        assert thin.statistics()["backend"]["streams"] == 1  # type: ignore[index]  # it is a dict
        for hold in holds:
            hold.release()


def test_waits_are_registered_in_requests_that_the_service_takes() -> None:
    """Waits end each once, in their order; those that the client has dropped are left out, and delay none."""
    asked: Any = Asked()
    context: Any = Around()
    changes = Changes(asked, context)
    changes._thread = threading.current_thread()  # no stream: this test is its thread
    stops = [changes.wait_for(Signal(), {"leaseId": "l", "text": "t" * (number * 40)}) for number in range(1, 601)]
    for stop in stops[:250]:
        stop()
    changes._register("stream")
    assert [wait["wait"] for body in asked.bodies for wait in body["tickets"]] == list(range(251, 601))
    assert max(len(json.dumps(body)) for body in asked.bodies) < BODY_BYTES_MAX * 3 // 4
    changes.close()
