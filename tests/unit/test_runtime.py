"""The runtime of a client: how it makes holds, and how it closes."""

# its inside has no public name: tests reach for it
from __future__ import annotations

import re
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import tenure
from tenure import HoldState
from tenure._backends import memory
from tenure._backends.memory import MemoryBackend
from tenure._core import runtime as runtime_module
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.retry import jittered
from tenure._core.drivers.blocking import run
from tenure._core.lease import Entry, Lease
from tenure._core.runtime import Runtime, runtime_of
from tenure._core.turn import Turn
from tenure.errors import ClientClosed, LeaseLost
from tests.unit.fakes import Interrupted
from tests.unit.rig import Background, Rig, reached

TTL = 12.0


def test_hold_interrupted_while_it_is_made_leaves_no_ticket(rig: Rig) -> None:
    """Law 7: between the turn and the hold nobody else would ever release it."""
    client = rig.client()
    runtime = runtime_of(client)

    def make(_turn: Turn, _entry: Entry, _lease: Lease, _runtime: Runtime) -> tenure.Hold:
        raise Interrupted

    with pytest.raises(Interrupted):
        run(runtime.holding(client.lock("a")._request, runtime.patience(None), make), rig.clock)
    rig.await_event("reaped")
    assert rig.tickets == 0
    (told,) = rig.heard("abandoned")  # or whoever counts who waits would count it for ever
    assert (told.ticket, told.reason) == (rig.heard("entered")[0].ticket, "Interrupted")


def test_client_closed_while_a_hold_is_being_made_releases_the_others_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 16: a half-made hold hears of the lease's end like any other, and keeps nobody else from hearing."""
    client = rig.client(ttl=TTL)
    other = client.lock("other").acquire()
    schedule = rig.clock.schedule

    def close_first(due: float, call: Callable[[], None]) -> Any:
        monkeypatch.undo()
        client.close()  # stands for another thread's close, at the first thing a hold's making does with its clock
        return schedule(due, call)

    def make(turn: Turn, entry: Entry, lease: Lease, runtime: Runtime) -> tenure.Hold:
        monkeypatch.setattr(rig.clock, "schedule", close_first)
        return tenure.Hold(turn, entry, lease, runtime)

    runtime = runtime_of(client)
    hold = run(runtime.holding(client.lock("a")._request, runtime.patience(None), make), rig.clock)
    assert hold is not None
    assert (hold.state, other.state) == (HoldState.RELEASED, HoldState.RELEASED)
    assert sorted(e.resource or "" for e in rig.heard("released")) == ["a", "other"]
    assert rig.tickets == 0


def test_close_while_a_callback_blocks_is_bounded(rig: Rig) -> None:
    """Law 16: a user's callback that never comes back does not hold up the end of the program."""
    client = rig.client(timeout=0.1)
    hold = client.lock("a").acquire()
    running, gate = threading.Event(), threading.Event()

    def block(_: HoldState) -> None:
        running.set()
        gate.wait()

    hold.on_change(block)
    hold.release()
    reached(running)
    try:
        Background(client.close).result()
    finally:
        gate.set()


def test_close_during_the_grant_leaves_no_lease(rig: Rig) -> None:
    """Law 16: a lease that is granted while its client is being closed is given back, not left to run out."""
    client = rig.client()
    grant = rig.store.grant
    closings: list[Background] = []

    def close_meanwhile(ttl: float) -> str:
        lease_id = grant(ttl)
        closed = threading.Event()
        lease: Lease = next(iter(runtime_of(client)._leases.values()))
        lease.on_end(lambda _state, _reason: closed.set())
        closings.append(Background(client.close))
        reached(closed)
        assert not closings[0].joined(0.1)  # it waits for this grant, whose lease it has to give back
        return lease_id

    rig.store.grant = close_meanwhile  # type: ignore[method-assign]  # to close while the request is under way
    with pytest.raises((ClientClosed, LeaseLost)):
        client.lock("a").acquire()
    closings[0].result()
    assert rig.store.leases == ()
    assert rig.tickets == 0


def test_lease_that_takes_all_its_time_to_close_leaves_some_to_the_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 16: one server is silent; what is held at another is given up all the same."""
    client = rig.client(timeout=6.0)
    holds = [client.lock(name, ttl=ttl).acquire() for name, ttl in (("a", 10.0), ("b", 20.0), ("c", 30.0))]
    given: list[float] = []
    for hold in holds:
        lease = hold._lease

        def close(until: float, end: Callable[[float], None] = lease.close) -> None:
            given.append(until - rig.clock.now())
            rig.clock.advance(given[-1])
            end(until)

        monkeypatch.setattr(lease, "close", close)
    client.close()
    assert given == [pytest.approx(2.0)] * 3


def test_close_in_a_signal_handler_within_close_returns_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 16: a second SIGTERM does not wait for the very call that it interrupts."""
    client = rig.client()
    hold = client.lock("a").acquire()
    lease: Lease = next(iter(runtime_of(client)._leases.values()))
    close = lease.close
    took: list[float] = []

    def interrupted(until: float) -> None:
        started = time.monotonic()
        client.close()
        took.append(time.monotonic() - started)
        close(until)

    monkeypatch.setattr(lease, "close", interrupted)
    client.close()
    assert took[0] < runtime_of(client).request_seconds / 2
    assert hold.state is HoldState.RELEASED


@pytest.fixture
def open_clients(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The clients that are open, as `close_open_clients` sees them: none but the test's own."""
    mine: weakref.WeakSet[Runtime] = weakref.WeakSet()
    monkeypatch.setattr(runtime_module, "_open", mine)
    return mine


def test_end_of_the_process_waits_a_bounded_time_for_silent_stores(
    open_clients: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 16: silent stores take no more than the time for all, and leave the others theirs."""
    monkeypatch.setattr(runtime_module, "EXIT_SECONDS", 0.4)
    clients = [tenure.connect(f"memory://exit-{number}", ttl=30) for number in range(4)]
    holds = [client.lock("a").acquire() for client in clients]
    backends = [cast(MemoryBackend, runtime_of(client)._backend) for client in clients]
    for backend in backends[:3]:
        backend.faults.cut_off = True
    started = time.monotonic()
    runtime_module.close_open_clients()
    assert time.monotonic() - started < 2.0  # of 5 s for each
    assert [hold.state for hold in holds] == [HoldState.RELEASED] * 4
    assert not memory.store("exit-3", SYSTEM_CLOCK).lines
    assert not open_clients


def test_closed_client_is_none_that_the_end_has_to_close(open_clients: Any, rig: Rig) -> None:
    """What is closed is forgotten, and what lives in virtual time is its test's."""
    client = tenure.connect("memory://exit-closed")
    assert list(open_clients) == [runtime_of(client)]
    client.close()
    rig.client()
    assert not open_clients


def test_sigterm_closes_clients_and_goes_on_to_the_handler_before(open_clients: Any) -> None:
    """Holds are given up first; a server's own handler still hears of it."""
    states: list[HoldState] = []
    client = tenure.connect("memory://sigterm")
    hold = client.lock("a").acquire()
    before = signal.signal(signal.SIGTERM, lambda *_: states.append(hold.state))
    try:
        tenure.on_sigterm()
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert states == [HoldState.RELEASED]
    assert not open_clients


def test_sigterm_that_is_ignored_stays_ignored(open_clients: Any) -> None:
    """A process that SIGTERM is not to end keeps its holds."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        tenure.on_sigterm()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not open_clients


@pytest.mark.parametrize("url", ["etcd://127.0.0.1:{port}", "zookeeper://127.0.0.1:{port}", "http://127.0.0.1:{port}"])
def test_client_whose_store_never_answered_closes_without_a_word_about_leases(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """There never was a lease that somebody would have to wait for."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with tenure.connect(url.format(port=port), timeout=0.3) as client, pytest.raises(tenure.StoreUnavailable):
        client.lock("a").try_acquire()
    assert [r.getMessage() for r in caplog.records if r.name == "tenure" and "lease" in r.getMessage()] == []


def test_lease_that_was_granted_and_could_not_be_closed_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Others wait for its TTL."""
    client = tenure.connect("memory://never-closed", timeout=0.05)
    client.lock("a").acquire()
    cast(MemoryBackend, runtime_of(client)._backend).faults.cut_off = True
    client.close()
    assert "could not be closed" in caplog.text


def test_every_pause_between_tries_has_jitter() -> None:
    """Clients that lost a server at one moment do not come back to it at one moment."""
    drawn = [jittered(0.5) for _ in range(200)]
    assert 0.25 <= min(drawn) < 0.3 < 0.45 < max(drawn) <= 0.5
    bare = re.compile(r"(now\(\) \+|sleep\(|wait\() ?(\w+\.)?(RETRY_PAUSE_\w+|pause)\b")
    found = {str(path): bare.findall(path.read_text()) for path in Path(tenure.__file__).parent.rglob("*.py")}
    assert found.pop(next(path for path in found if path.endswith("cli/supervise/watchdog.py"))), (
        "it waits for processes"
    )
    # One more: callbacks that found no thread are delivered later in their order, and ask no server.
    assert len(found.pop(next(path for path in found if path.endswith("_core/runtime.py")))) == 1
    assert {path: pauses for path, pauses in found.items() if pauses} == {}
