"""An owner of locks behind HTTP, as a process of its own: `python -m tests.service.http.owner PLAN`, the plan as JSON.

It does what the service's documents tell an owner to do, and no more: a fresh Idempotency-Key for every wish, the same
request again (at the next address) after an answer that did not come, renewals in time; and it believes in its hold
until `remainingSeconds` have passed since it *sent* the request that it was answered. With its token it adds elements
to a fenced store, reading first. All of it is written down as tenure.testing's histories are; a hold is known there
by its token, since an owner behind HTTP knows nothing of tickets.

SIGTERM ends it, once what it is about is done.
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import httpx

import tenure
from tenure._core.lease import Mode
from tenure.testing import Kind, Log, Recorder, monotonic
from tenure.testing.history.record import Calling
from tests.service.http.program import User
from tests.verify.torture.worker.fenced import BlockingStore

WAIT_SECONDS: Final = 1.0
"""Time that the service is asked to wait. Less than a TTL: an answer counts from when it was asked for."""
_ANSWER_SECONDS: Final = 1.0
"""Time for an answer beyond that, before the next address is tried."""
_PATIENCE_SECONDS: Final = 5.0
"""Time for which one request is repeated."""
_AGAIN_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.02
_KEEPS_SHARE: Final = 0.1
_RENEWS_SHARE: Final = 0.5
_FRESH: Final = 0.6
"""Share of its TTL below which a hold is renewed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one owner. `name` is its ownerId and its client in the history."""

    name: str
    addresses: list[str]
    resources: list[str]
    seed: str
    history: str
    register: str
    """The fenced store's socket."""
    ttl: float
    careless: float = 0.05
    """The share of its holds that it never renews, and writes under when they are over."""
    overstays: float = 0.0
    """The seeded bug: seconds for which it believes longer than it was granted."""
    thin: bool = False
    """True for an owner with the remote client, which renews by itself."""

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read what `str` wrote."""
        return cls(**json.loads(text))


@dataclass(slots=True)
class Held:
    """A hold, as its owner knows it."""

    resource: str
    lease_id: str
    token: int
    fence: str
    ttl: float
    until: float
    """The end of the owner's belief, by its own clock."""

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of an event that tell this hold from all others."""
        return {"resource": self.resource, "hold": str(self.token), "token": self.token}


class Owner:
    """Takes, uses and gives up one lock after another, until `ending` is set."""

    def __init__(self, plan: Plan, recorder: Recorder, ending: threading.Event) -> None:
        self._plan = plan
        self._log = Log(recorder, plan.name)
        self._ending = ending
        self._lots = random.Random(plan.seed)
        self._numbers = itertools.count(1)
        self._store = BlockingStore(plan.register)
        self._services = [User(httpx.Client(base_url=address)) for address in plan.addresses]
        self._turn = 0

    def work(self) -> None:
        """Work until the signal to end."""
        while not self._ending.is_set():
            held = self._acquire(self._lots.choice(self._plan.resources))
            if held is None:
                continue
            if self._lots.random() < self._plan.careless:
                self._neglect(held)
            elif self._lots.random() < _KEEPS_SHARE:
                self._keep(held)
            else:
                self._add(held)

    def close(self) -> None:
        """Give back its sockets."""
        self._store.close()
        for service in self._services:
            service.http.close()

    # What becomes of a hold.

    def _add(self, held: Held) -> None:
        """The usual: a few elements, perhaps a renewal, and away."""
        for _ in range(self._lots.randint(1, 4)):
            if self._looks_held(held):
                self._write(held, think=self._lots.uniform(0.0, 0.02))
        if self._lots.random() < _RENEWS_SHARE:
            self._renew(held)
        self._release(held)

    def _keep(self, held: Held) -> None:
        """Hold for longer than the TTL, by renewals."""
        until = monotonic() + self._lots.uniform(1.0, 1.4) * held.ttl
        while monotonic() < until and not self._ending.is_set() and self._looks_held(held):
            self._write(held, think=_LOOK_SECONDS)
            self._stay_fresh(held)
        self._release(held)

    def _neglect(self, held: Held) -> None:
        """Never renewed, looked at until its time is over; then one write more, without a look, and a late release."""
        while self._looks_held(held):
            time.sleep(_LOOK_SECONDS)
        self._write(held, think=self._lots.uniform(0.0, 0.5) * held.ttl)
        self._release(held)

    def _looks_held(self, held: Held) -> bool:
        since = monotonic()
        is_held = since < held.until
        deadline = held.until if is_held else None
        self._log.record(Kind.CHECK, since=since, held=is_held, deadline=deadline, **held.facts)
        return is_held

    def _write(self, held: Held, *, think: float) -> None:
        """Read, think, write what was read with one element more. The fenced store may refuse either."""
        request = {"fence": held.fence, "resource": held.resource, "client": self._plan.name}
        request |= {"hold": str(held.token), "mode": Mode.EXCLUSIVE.value}
        read = self._store.ask({**request, "operation": "read"})
        if not read.accepted:
            return
        time.sleep(think)
        element = uuid.uuid4().hex
        with self._call("write", **held.facts, value=element) as call:
            done = self._store.ask({**request, "operation": "write", "element": element, "basis": read.basis})
            (call.ok if done.accepted else call.fail)()

    # What is asked of the service.

    def _acquire(self, resource: str) -> Held | None:
        """Acquire: all tries are one call, as they have one key and together get one hold."""
        plan, key = self._plan, str(uuid.uuid4())
        seconds = WAIT_SECONDS + _ANSWER_SECONDS
        with self._call("acquire", resource=resource) as call:
            sent, answer = self._ask_until_answered(
                lambda service: service.acquire(
                    resource, plan.name, key, ttlSeconds=plan.ttl, waitSeconds=WAIT_SECONDS, timeout=seconds
                )
            )
            if answer is not None and answer.json().get("code") == "not-acquired":
                call.fail()
                return None
            if answer is None or answer.status_code != 200:
                return None  # whether it had the hold, and lost it meanwhile, is not known
            reply = answer.json()
            token, until = int(reply["fencingToken"]), self._until(sent, reply)
            held = Held(resource, reply["leaseId"], token, reply["fence"], reply["ttlSeconds"], until)
            call.ok(**held.facts, ttl=held.ttl, deadline=until, at=monotonic())
        self._stay_fresh(held)
        return held

    def _stay_fresh(self, held: Held) -> None:
        if held.until - monotonic() < _FRESH * held.ttl:
            self._renew(held)

    def _renew(self, held: Held) -> None:
        with self._call("renew", **held.facts) as call:
            sent, answer = self._ask(lambda service: service.renew(held.lease_id, timeout=_ANSWER_SECONDS))
            if answer is not None and answer.status_code == 200:
                held.until = max(held.until, self._until(sent, answer.json()))
                call.ok(deadline=held.until, at=monotonic())
            elif answer is not None and answer.status_code == 410:
                held.until = 0.0
                call.fail()
        if not held.until:
            self._log.record(Kind.TOLD, operation="lost", **held.facts)

    def _release(self, held: Held) -> None:
        """Release: each try is a call of its own, as one that was answered with 410 surely released nothing."""
        give_up = monotonic() + _PATIENCE_SECONDS
        while monotonic() < give_up:
            with self._call("release", **held.facts) as call:
                _, answer = self._ask(lambda service: service.release(held.lease_id, timeout=_ANSWER_SECONDS))
                status = 0 if answer is None else answer.status_code
                if status == 200:
                    call.ok()
                elif status == 410:
                    call.fail()
            if status in (200, 410):
                return
            time.sleep(_AGAIN_SECONDS)

    def _until(self, sent: float, reply: dict[str, Any]) -> float:
        """Return the end of belief: it counts from before the request was sent."""
        return sent + float(reply["remainingSeconds"]) + self._plan.overstays

    def _ask_until_answered(self, ask: Callable[[User], httpx.Response]) -> tuple[float, httpx.Response | None]:
        """Ask one address after the other. None where no address answers within all patience."""
        give_up = monotonic() + _PATIENCE_SECONDS
        while True:
            sent, answer = self._ask(ask)
            if answer is not None or monotonic() > give_up:
                return sent, answer
            time.sleep(_AGAIN_SECONDS)

    def _ask(self, ask: Callable[[User], httpx.Response]) -> tuple[float, httpx.Response | None]:
        """Once; before it was sent, and the answer. None where there is none, or one that says "not now, not here"."""
        service = self._services[self._turn % len(self._services)]
        sent = monotonic()
        try:
            answer = ask(service)
        except httpx.TransportError:
            self._turn += 1
            return sent, None
        if answer.status_code in (429, 502, 503):
            self._turn += 1
            return sent, None
        assert answer.status_code in (200, 409, 410), answer.text
        return sent, answer

    def _call(self, operation: str, **facts: Any) -> Calling:
        return Calling(self._log, {"operation": operation, "call": next(self._numbers), **facts}, None)


@dataclass(slots=True)
class ThinlyHeld(Held):
    """A hold of the thin client."""

    hold: tenure.Hold


class ThinOwner(Owner):
    """The same by `tenure.connect("http://…")`. It neglects nothing: the client renews what it holds."""

    def __init__(self, plan: Plan, recorder: Recorder, ending: threading.Event) -> None:
        super().__init__(plan, recorder, ending)
        endpoints = ",".join(address.removeprefix("http://") for address in plan.addresses)
        self._client = tenure.connect(f"http://{endpoints}", ttl=plan.ttl, timeout=_ANSWER_SECONDS, owner=plan.name)

    def close(self) -> None:
        self._client.close()
        super().close()

    def _acquire(self, resource: str) -> Held | None:
        with self._call("acquire", resource=resource) as call:
            try:
                hold = self._client.lock(resource).acquire(timeout=WAIT_SECONDS)
                until, ttl = monotonic() + hold.remaining(), hold._lease.ttl
                fence = str(hold.fence)
            except tenure.AcquireTimeout:
                call.fail()
                return None
            except tenure.TenureError:
                return None
            held = ThinlyHeld(resource, hold.id, hold.token, fence, ttl, until, hold)
            call.ok(**held.facts, ttl=ttl, deadline=until, at=monotonic())
            hold.on_change(lambda *_: self._told(held))
        return held

    def _told(self, held: ThinlyHeld) -> None:
        if held.hold.state is tenure.HoldState.LOST:
            self._log.record(Kind.TOLD, operation="lost", **held.facts)

    def _neglect(self, held: Held) -> None:
        self._keep(held)

    def _looks_held(self, held: Held) -> bool:
        assert isinstance(held, ThinlyHeld)
        since, left = monotonic(), held.hold.remaining()
        held.until = since + left if left else 0.0
        return super()._looks_held(held)

    def _renew(self, held: Held) -> None:
        assert isinstance(held, ThinlyHeld)
        with self._call("renew", **held.facts) as call:
            try:
                held.until = monotonic() + held.hold.renew()
            except tenure.LeaseLost:
                held.until = 0.0
                call.fail()
            except tenure.TenureError:
                return
            else:
                call.ok(deadline=held.until, at=monotonic())

    def _release(self, held: Held) -> None:
        assert isinstance(held, ThinlyHeld)
        with self._call("release", **held.facts) as call:
            try:
                (call.ok if held.hold.release() else call.fail)()
            except tenure.TenureError:
                return


def main() -> int:
    """Work until SIGTERM."""
    plan, ending = Plan.parse(sys.argv[1]), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with Recorder(plan.history) as recorder:
        owner = (ThinOwner if plan.thin else Owner)(plan, recorder, ending)
        print("ready", flush=True)
        try:
            owner.work()
        finally:
            owner.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
