"""The thin client, `tenure.connect("http://…")`: one more holder in the same lines; its service's good and bad days.

That it keeps the laws is shown by the conformance suite (kinds http+etcd and http+zookeeper).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

import tenure
from tenure._admin.models import AuditRecord, stored_audit
from tenure._admin.protocol import RecordKind, StoredRecord, record_name
from tenure._backends.service import ServiceBackend
from tenure._backends.service.lease import ServiceLease
from tenure._core.base.limits import COMMIT_BYTES_MAX
from tenure._core.lease import Entry
from tenure._core.runtime import runtime_of
from tenure._transport.remote import Json, write_note
from tenure.fencing._fence import Fence
from tenure.testing.servers.certificates import make_tls_files
from tests.cli.program import eventually
from tests.cli.program import tenure as command
from tests.servers import FaultProxy
from tests.service.http.conftest import BILLING, ONCALL, SHIPPING
from tests.service.http.program import Service, User, serving, write_tokens

TTL = 2.0


@pytest.fixture
def thin(open_service: Service) -> Iterator[tenure.Client]:
    """A thin client of the open service."""
    with tenure.connect(open_service.url, ttl=20, owner="thin") as client:
        yield client


def as_tenant(service: Service, token: str) -> tenure.Client:
    """A thin client that shows this token."""
    return tenure.connect(service.url, user="me", password=token, ttl=20)


def soon(seconds: float = 10.0) -> float:
    from tenure._core.base.clock import SYSTEM_CLOCK

    return SYSTEM_CLOCK.now() + seconds


def test_library_service_and_thin_client_stand_in_one_line(
    thin: tenure.Client, client: tenure.Client, user: User, name: str
) -> None:
    """First come, first served among all three; tokens grow, and their fences are of one line."""
    direct = client.lock(name).acquire()
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(thin.lock(name).acquire, 30.0)
        eventually(lambda: len(client.operator().line(name).tickets) == 2)
        behind = pool.submit(user.held, name, waitSeconds=30)
        eventually(lambda: len(client.operator().line(name).tickets) == 3)
        direct.release()
        held = waits.result()
        assert not behind.done()
        held.release()
        last = behind.result()
    fence = Fence.parse(last["fence"])
    assert direct.fence.line == held.fence.line == fence.line
    assert direct.fence < held.fence < fence
    user.release(last["leaseId"])


def test_path_of_the_url_is_what_names_begin_with(
    open_service: Service, client: tenure.Client, user: User, name: str
) -> None:
    """`http://host/jobs/nightly` has the locks that curl calls jobs/nightly/…; fences say so, too."""
    with tenure.connect(f"{open_service.url}/jobs/nightly", ttl=20) as thin, thin.lock(name) as hold:
        assert hold.resource == name
        assert user.acquire(f"jobs/nightly/{name}").json()["acquired"] is False
        assert client.lock(f"jobs/nightly/{name}").try_acquire() is None
        assert [line.name for line in thin.operator().lines()] == [name]
        leader = client.election(f"jobs/nightly/{name}").leader()
        assert leader is not None
        assert leader.token == hold.token
        line = hold.fence.line
    with client.lock(f"jobs/nightly/{name}") as direct:
        assert direct.fence.line == line


def test_commit_may_be_as_big_as_the_library_says(thin: tenure.Client, name: str) -> None:
    """Many keys with half a megabyte of values between them, and one such value: through the service as without it."""
    with thin.lock(name) as hold:
        share = COMMIT_BYTES_MAX // 8
        for values in ([bytes([n]) * share for n in range(8)], [b"x" * COMMIT_BYTES_MAX]):
            keys = [f"data/{name}/{n}" for n in range(len(values))]
            hold.store.commit(*(tenure.Put(key, value) for key, value in zip(keys, values, strict=True)))
            stand = [hold.store.get(key) for key in keys]
            assert [record.value for record in stand if record is not None] == values
            hold.store.commit(*(tenure.Delete(key) for key in keys))


def test_tenants_see_and_touch_only_their_own(guarded_service: Service, name: str) -> None:
    """Locks, waiters, notes and keys of the same name do not meet; fences differ."""
    with as_tenant(guarded_service, BILLING.token) as billing, as_tenant(guarded_service, SHIPPING.token) as shipping:
        with billing.lock(name) as mine, shipping.lock(name) as theirs:
            assert mine.fence.line != theirs.fence.line
            assert [line.name for line in billing.operator().lines(name)] == [name]
            mine.store.put(f"data/{name}", b"billing's")
            theirs.store.put(f"data/{name}", b"shipping's")
            assert mine.store.get(f"data/{name}").value == b"billing's"  # type: ignore[union-attr]
            mine.store.delete(f"data/{name}")
            theirs.store.delete(f"data/{name}")
            with as_tenant(guarded_service, ONCALL.token) as oncall:
                names = {line.name for line in oncall.operator().lines()}
                assert {f"billing/{name}", f"shipping/{name}"} <= names


def test_what_is_another_tenant_s_can_t_be_used_though_it_is_known(guarded_service: Service, name: str) -> None:
    """The id of a lease and the handle of a ticket are good for their own tenant only."""
    with as_tenant(guarded_service, BILLING.token) as billing, as_tenant(guarded_service, SHIPPING.token) as shipping:
        with billing.lock(name) as mine, shipping.lock(name):
            lease, stranger = mine._lease, runtime_of(shipping).lease(20.0)
            with guarded_service.user(SHIPPING.token) as user:
                for verb in ("renew", "close", "survey", "leave"):
                    body = {"survey": {"resource": name}, "leave": {"resource": name, "ticketId": mine.id}}.get(
                        verb, {}
                    )
                    answer = user.request("POST", f"{lease._path}/{verb}", json=body)  # type: ignore[attr-defined]
                    assert (answer.status_code, verb) == (200 if verb in ("close", "leave") else 410, verb)
                    assert verb != "leave" or answer.json() == {"left": False, "leaseOver": True}
            assert mine.renew() > 10.0, "closed by somebody who has no such lease"
            line = lease.survey(name, soon())
            signal = stranger.wait_change(line, line.tickets, amendments=True)
            assert signal.wait(5.0), "a place of another tenant's is waited for by nobody"
            signal.close()


def test_nobody_withdraws_a_ticket_that_is_not_its_own(open_service: Service, thin: tenure.Client, name: str) -> None:
    """The id of a ticket may be read by every caller that may look."""
    with tenure.connect(open_service.url, ttl=20) as other, other.lock(name) as hold:
        lease = runtime_of(thin).lease(20.0)
        lease.renew(soon())
        stolen = Entry(name, "thief", id=hold.id)
        lease._withdraw(stolen, soon())  # type: ignore[attr-defined]
        assert lease.leave(hold._ticket, soon()) is False
        time.sleep(0.5)
        assert hold.renew() > 10.0
        assert [t.token for t in thin.operator().line(name).tickets] == [hold.token]


def test_force_release_is_written_down_under_the_name_of_the_token(guarded_service: Service, name: str) -> None:
    """The record has the actor by its token, whatever the client writes."""
    with as_tenant(guarded_service, BILLING.token) as billing:
        hold = billing.lock(name).acquire(timeout=20)
        with as_tenant(guarded_service, ONCALL.token) as oncall:
            operator = oncall.operator()
            operator.force_release(f"billing/{name}", token=hold.token, reason="stuck", actor="the boss")
            (record,) = operator.audit(f"billing/{name}")
            assert record.actor == "the boss (on-call)"
            assert record.resource == f"billing/{name}"
        assert hold.lost.wait(10.0)
        assert billing.operator().audit(name)[0].resource == name


@pytest.mark.parametrize("whose", ["anybody's", "a tenant's"])
def test_audit_record_is_the_services_own_and_so_is_a_warning(
    whose: str, open_service: Service, guarded_service: Service, name: str
) -> None:
    """Who, whom and when are what the service knows; nobody is forced out without a reason, and the log has it, too."""
    if whose == "anybody's":
        service, client, headers = open_service, tenure.connect(open_service.url, ttl=20), {}
    else:
        service, client = guarded_service, as_tenant(guarded_service, BILLING.token)
        headers = {"Authorization": f"Bearer {BILLING.token}"}
    url = f"{service.url.rstrip('/')}/v1/operate/remove"
    with client:
        hold = client.lock(name).acquire(timeout=20)
        forged = AuditRecord(name, hold.token, "somebody", "x", "the boss", 1.0, False, hold.id, "n" * 20)
        body: Json = {"resource": name, "ticketId": hold.id, "token": str(hold.token), "nonce": "n" * 20, "actor": "me"}
        for wrong in ({}, {"note": write_note(stored_audit(forged))}, {"reason": "x", "at": 1.0}, {"reason": "a\nb"}):
            assert httpx.post(url, json=body | wrong, headers=headers).status_code == 400
        elsewhere = {"ticketId": "0" * 20, "reason": "x"}
        assert httpx.post(url, json=body | elsewhere, headers=headers).json() == {"removed": False}
        assert hold.renew() > 10.0
        for _ in range(2):  # again after a lost answer
            assert httpx.post(url, json=body | {"reason": "stuck"}, headers=headers).json() == {"removed": True}
        (record,) = client.operator().audit(name)
        actor = "me" if whose == "anybody's" else "me (billing-app)"
        assert (record.holder, record.actor, record.reason, record.was_holding) == (hold.owner, actor, "stuck", True)
        assert abs(record.at - time.time()) < 60.0
    said = [line for line in service.log if line["level"] == "warning" and name in line["message"]]
    assert any("was forced out of" in line["message"] and actor in line["message"] for line in said)


def test_records_are_trimmed_by_the_service_alone(guarded_service: Service) -> None:
    """No token removes a record, not even one of its own."""
    with guarded_service.user(BILLING.token) as user:
        for verb, body in (("trim", {"resource": "a"}), ("trim-all", {})):
            answer = user.request("POST", f"/v1/operate/{verb}", json={"shelf": "%audit", "keep": 1, **body})
            assert answer.status_code == 404


def test_journal_is_written_by_the_service_and_by_nobody_else(guarded_service: Service, name: str) -> None:
    """Of a hold that it knows itself; there is no way to have anything else written down."""
    with guarded_service.user(BILLING.token) as user:
        note = StoredRecord(RecordKind.JOURNAL, name, record_name(1, "x"), "{}")
        answer = user.request("POST", "/v1/operate/write", json={"notes": [write_note(note)]})
        assert answer.status_code == 404
    with tenure.connect(guarded_service.url, user="me", password=BILLING.token, ttl=20, journal=True) as billing:
        operator = billing.operator()
        with billing.lock(name) as hold:
            eventually(lambda: operator.history(name) != ())
            (entry,) = operator.history(name)
            assert (entry.token, entry.ticket_id, entry.ended, entry.derived) == (hold.token, hold.id, None, False)
        eventually(
            lambda: operator.history(name)[0].ended is tenure.Ending.RELEASED and not operator.history(name)[0].derived
        )
        with as_tenant(guarded_service, SHIPPING.token) as shipping:
            assert shipping.operator().history(name) == ()


def test_program_that_dies_behind_a_living_service_loses_its_lock(
    open_service: Service, client: tenure.Client, name: str
) -> None:
    """The hold ends by its own TTL, and not before it: nobody renews for it."""
    program = (
        "import tenure, time\n"
        f"c = tenure.connect({open_service.url!r}, ttl=6)\n"
        f"h = c.lock({name!r}).acquire(timeout=20)\nprint(h.token, flush=True)\n"
        "while True:\n"
        "    now, left = time.monotonic(), h.remaining()\n"
        "    print(now + left if left else 0.0, flush=True)\n"  # until when it believes, in the clock of all processes
        "    time.sleep(0.1)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        token = int(process.stdout.readline())
        first = believed = float(process.stdout.readline())
        while time.monotonic() < first + 0.5:
            believed = float(process.stdout.readline())
        assert client.lock(name).try_acquire() is None, "it renews while it lives"
        process.kill()
        believed = max([believed, *map(float, process.stdout)])
        with client.lock(name).acquire(timeout=30) as hold:
            assert time.monotonic() > believed > first + 1.0
            assert hold.token > token


@pytest.mark.parametrize("how", ["killed", "stopped", "asked to end"])
def test_hold_ends_with_its_service_and_its_holder_knows_first(how: str, store_url: str, tmp_path: Path) -> None:
    """Killed, stopped for longer than the TTL, or shut down: it stops believing before anybody else is let in."""
    with serving(store_url, tmp_path) as service, tenure.connect(store_url, ttl=20) as direct:
        with tenure.connect(service.url, ttl=TTL, timeout=1.0) as thin:
            hold = thin.lock("ledger").acquire(timeout=20)
            with ThreadPoolExecutor() as pool:
                values = pool.submit(lambda: hold.lost.wait(60) and time.monotonic())
                next_one = pool.submit(lambda: (direct.lock("ledger").acquire(timeout=60), time.monotonic()))
                eventually(lambda: len(direct.operator().line("ledger").tickets) == 2)
                if how == "asked to end":
                    assert service.stop() == 0
                else:
                    service.process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
                successor, admitted_at = next_one.result()
            assert hold.state is tenure.HoldState.LOST
            assert hold.lost.is_set()
            assert 0.0 < values.result() < admitted_at
            with pytest.raises(tenure.LeaseLost):
                hold.check()
            assert successor.token > hold.token
            if how == "stopped":
                service.process.send_signal(signal.SIGCONT)
                again = thin.lock("other").acquire(timeout=20)  # a new lease, of the same service
                again.release()
            successor.release()


def test_release_does_not_call_gone_what_still_stands(open_service: Service, client: tenure.Client, name: str) -> None:
    """The service has let the lease go, and the lock delay keeps its ticket at the store: the answer says that."""
    with FaultProxy(open_service.url.removeprefix("http://").rstrip("/"), "etcd") as proxy:
        with tenure.connect(f"http://{proxy.endpoint}", ttl=TTL, timeout=2.0) as thin:
            hold = thin.lock(name, lock_delay=4.0).acquire(timeout=20)
            proxy.blackhole()
            assert hold.lost.wait(20)
            proxy.heal()
            time.sleep(0.5)  # the service is slower to give up than the client
            assert [ticket.id for ticket in client.operator().line(name).tickets] == [hold.id]
            with pytest.raises(tenure.StoreUnavailable, match="stands until"):
                hold._lease.leave(hold._ticket, soon(1.0))
            eventually(lambda: not client.operator().line(name).tickets)
            with pytest.raises(tenure.LeaseLost):
                hold._lease.leave(hold._ticket, soon())


def test_release_does_not_take_the_end_of_its_lease_for_its_own_work(open_service: Service, name: str) -> None:
    """The first try never arrived; before the second the lease ended, and the ticket with it."""
    endpoint = open_service.url.removeprefix("http://").rstrip("/")
    with FaultProxy(endpoint, "etcd") as proxy, tenure.connect(f"http://{proxy.endpoint}", ttl=20) as thin:
        hold = thin.lock(name).acquire(timeout=20)
        path = hold._lease._path  # type: ignore[attr-defined]
        assert httpx.post(f"{open_service.url.rstrip('/')}{path}/close", json={}).status_code == 200
        lost = proxy.lose_request(lambda _, path, __: path.endswith("/leave"))
        with pytest.raises(tenure.LeaseLost):
            hold._lease.leave(hold._ticket, soon())
        assert lost.is_set()
        assert hold.release() is False


def test_release_takes_an_answer_that_says_nothing_of_the_lease(
    thin: tenure.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that is older than its client: what it does say counts."""
    with thin.lock(name) as hold:
        lease = hold._lease
        assert isinstance(lease, ServiceLease)
        with monkeypatch.context() as patched:
            patched.setattr(lease._calls, "ask_once", lambda *_: {"left": True})
            assert lease.leave(hold._ticket, soon()) is True


def test_client_knows_that_it_forwards_before_anybody_was_asked() -> None:
    """The kind of backend decides: where its lines are is not known yet. Other backends name their lines themselves."""
    with tenure.connect("http://127.0.0.1:1/jobs") as client:
        assert isinstance(runtime_of(client)._forwards, ServiceBackend)
        with pytest.raises(tenure.StoreUnavailable, match="was not asked yet"):
            runtime_of(client).line_name("a")
    with tenure.connect("memory://forwards/ns") as client:
        assert runtime_of(client)._forwards is None
        assert runtime_of(client).line_name("a") == "ns/a"


def test_second_endpoint_serves_when_the_first_is_not_there(open_service: Service, name: str) -> None:
    """`http://a,b`: the client goes on to the next."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
    endpoint = open_service.url.removeprefix("http://").rstrip("/")
    with tenure.connect(f"http://{dead},{endpoint}", ttl=20) as client, client.lock(name) as hold:
        hold.check()


def test_lease_stays_with_the_replica_that_lent_it(store_url: str, tmp_path: Path) -> None:
    """Another replica says that it is not the one: the client asks on, and ends no hold for it."""
    with serving(store_url, tmp_path) as one, serving(store_url, tmp_path) as two:
        both = [service.url.removeprefix("http://").rstrip("/") for service in (one, two)]
        with tenure.connect(f"http://{','.join(both)}", ttl=20) as client, client.lock("a") as hold:
            _move_on(client, both[0])
            assert hold.renew() > 10.0
            assert hold.state is tenure.HoldState.HELD


def test_leases_of_two_replicas_disturb_each_other_in_nothing(store_url: str, tmp_path: Path) -> None:
    """Each lease is renewed where it was opened, and its waits end there: no client is sent elsewhere, or woken."""
    with serving(store_url, tmp_path) as one, serving(store_url, tmp_path) as two:
        both = [service.url.removeprefix("http://").rstrip("/") for service in (one, two)]
        with tenure.connect(f"http://{','.join(both)}", ttl=20) as client, client.lock("a") as first:
            _move_on(client, both[0])
            with client.lock("b", ttl=30) as second:
                signals = []
                for hold in (first, second):
                    assert hold.renew() > 10.0
                    line = hold._lease.survey(hold.resource, soon())
                    signals.append(hold._lease.wait_change(line, line.tickets, amendments=True))
                eventually(lambda: client.statistics()["backend"]["streams"] == 2)  # type: ignore[index]
                assert not any(signal.wait(0.5) for signal in signals)
                for hold, signal in zip((first, second), signals, strict=True):
                    assert hold._lease.amend(hold._ticket, "new", soon()) is True
                    assert signal.wait(10.0)
                    signal.close()
                assert client.statistics()["backend"]["endpoints_failed"] == 1  # type: ignore[index]


def test_replica_that_is_silent_costs_the_leases_of_another_nothing(store_url: str, tmp_path: Path) -> None:
    """Nothing is left, not even the thread on which leases are renewed."""
    with serving(store_url, tmp_path) as one, serving(store_url, tmp_path) as two:
        both = [service.url.removeprefix("http://").rstrip("/") for service in (one, two)]
        with FaultProxy(both[0], "etcd") as proxy:
            with tenure.connect(f"http://{proxy.endpoint},{both[1]}", ttl=60) as client, client.lock("a") as first:
                _move_on(client, proxy.endpoint)
                with client.lock("b", ttl=30) as second:
                    proxy.blackhole()
                    at = second._lease._belief.deadline  # type: ignore[attr-defined]
                    for hold in (first, second):  # each beat of the first takes five seconds now
                        hold._lease._heartbeat._soon()  # type: ignore[attr-defined]
                    eventually(lambda: second._lease._belief.deadline > at, 4.0)  # type: ignore[attr-defined]
                    proxy.heal()


def test_lease_that_can_not_be_renewed_keeps_no_other_from_being_renewed(
    thin: tenure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All leases are renewed on one thread: a renewal that is refused for a while is not repeated there; renew() is."""
    lease = runtime_of(thin).lease(20.0)
    lease.renew(soon())
    assert isinstance(lease, ServiceLease)
    asked: list[str] = []
    right = lease._calls.ask_once

    def counted(path: str, body: Json, until: float) -> object:
        asked.append(path)
        return right(path, body, until)

    monkeypatch.setattr(lease._calls, "ask_once", counted)
    with monkeypatch.context() as patched:
        patched.setattr(lease, "_path", "/v1/leases/of-another-replica")
        assert lease._heartbeat is not None
        lease._heartbeat._beat()
        assert len(asked) == 1
        with pytest.raises(tenure.StoreUnavailable, match="elsewhere"):
            lease.renew(soon(1.0))
        assert len(asked) > 2
    assert lease.renew(soon()) > 10.0


def test_amendment_that_was_overtaken_ends_no_hold(thin: tenure.Client, name: str) -> None:
    """Two threads amend one hold over two connections, and the later one is there first."""
    with thin.lock(name) as hold:
        lease, ticket = hold._lease, hold._ticket
        assert isinstance(lease, ServiceLease)
        earlier = next(lease._orders)
        assert lease.amend(ticket, "later", soon()) is True
        lease._orders = iter([earlier])  # type: ignore[assignment]  # what the other thread had taken
        assert lease.amend(ticket, "earlier", soon()) is True
        assert [t.value for t in lease.survey(name, soon()).tickets] == ["later"]


def test_metrics_tell_what_the_service_has_lent_and_why_it_ended(store_url: str, tmp_path: Path, name: str) -> None:
    """Prometheus reads the present leases and tickets, and each ending."""

    def values(user: User) -> dict[str, float]:
        lines = [line for line in user.get("/metrics").text.splitlines() if line.startswith("tenure_lent_")]
        return {sample: float(value) for sample, value in (line.rsplit(" ", 1) for line in lines)}

    with serving(store_url, tmp_path) as service, service.user() as user:
        with tenure.connect(service.url, ttl=20) as client, client.lock(name):
            assert values(user)["tenure_lent_leases"] == 1.0
            assert values(user)["tenure_lent_tickets"] == 1.0
        assert values(user) == {
            "tenure_lent_leases": 0.0,
            "tenure_lent_tickets": 0.0,
            'tenure_lent_leases_ended_total{ending="closed"}': 1.0,
            'tenure_lent_leases_ended_total{ending="expired"}': 0.0,
            'tenure_lent_leases_ended_total{ending="lost"}': 0.0,
            'tenure_lent_leases_ended_total{ending="shutdown"}': 0.0,
        }


def test_two_hundred_waiters_of_one_client_cost_one_stream(open_service: Service, name: str) -> None:
    """No thread and no socket each; a release wakes the next."""

    async def scenario() -> tuple[list[int], int, int]:
        async with tenure.aio.connect(open_service.url, ttl=20) as client:
            first = await client.lock(name).acquire()
            tokens: list[int] = []

            async def wait() -> None:
                async with client.lock(name) as hold:
                    tokens.append(hold.token)

            tasks = [asyncio.create_task(wait()) for _ in range(200)]
            while client.statistics()["backend"]["waits"] < 200:  # type: ignore[index]
                await asyncio.sleep(0.05)
            threads, sockets = threading.active_count(), _sockets()
            await first.release()
            await asyncio.gather(*tasks)
            assert client.statistics()["backend"]["streams"] == 1  # type: ignore[index]
            return tokens, threads, sockets

    threads_before, sockets_before = threading.active_count(), _sockets()
    tokens, threads, sockets = asyncio.run(scenario())
    assert len(tokens) == 200
    assert tokens == sorted(tokens)
    assert threads - threads_before <= 10
    assert sockets - sockets_before <= 14  # connections in use and kept, the stream, two pairs that ring, the loop's


def test_waits_that_ended_are_forgotten_by_the_service(store_url: str, tmp_path: Path) -> None:
    """Tries that ran out of time leave no watch and no ticket there."""

    names = [f"a-{number}" for number in range(60)]  # in one line they would wake each other as they go

    def try_in_vain(client: tenure.Client, name: str) -> None:
        with pytest.raises(tenure.AcquireTimeout):
            client.lock(name).acquire(timeout=4.0)

    def tickets(client: tenure.Client) -> list[int]:
        return [len(client.operator().line(name).tickets) for name in names]

    with serving(store_url, tmp_path) as service, tenure.connect(service.url, ttl=20) as client:
        holds = [client.lock(name).acquire() for name in names]
        with ThreadPoolExecutor(len(names)) as pool:
            for tried in [pool.submit(try_in_vain, client, name) for name in names]:
                tried.result()
        # a withdrawal that took too long for its caller is seen to later
        eventually(lambda: tickets(client) == [1] * len(names))
        eventually(lambda: client.statistics()["backend"]["waits"] <= len(holds))  # type: ignore[index]
        for hold in holds:
            hold.release()


def test_wrong_token_and_missing_scope_are_told_as_such(guarded_service: Service, tmp_path: Path) -> None:
    """AuthenticationFailed and PermissionDenied, without the token."""
    with as_tenant(guarded_service, "wr0ng-token") as client:
        with pytest.raises(tenure.AuthenticationFailed, match="does not accept this token") as caught:
            client.lock("a").acquire(timeout=5)
        assert "wr0ng" not in str(caught.value)
        assert "wr0ng" not in repr(client)
    with as_tenant(guarded_service, "looker-secret") as client:
        with pytest.raises(tenure.PermissionDenied, match="scope 'acquire'"):
            client.lock("a").acquire(timeout=5)


@pytest.mark.parametrize(
    ("status", "error", "match"),
    [
        (200, tenure.StoreRefused, "not as `tenure serve` does"),
        (404, tenure.StoreRefused, "HTTP 404"),
        (503, tenure.StoreUnavailable, "HTTP 503"),
    ],
)
def test_something_else_at_that_port_is_told_as_such(status: int, error: type[tenure.TenureError], match: str) -> None:
    """A web server, a proxy without anybody behind it."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "13")
            self.end_headers()
            self.wfile.write(b"<html></html>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        serving_it = threading.Thread(target=server.serve_forever)
        serving_it.start()
        try:
            with tenure.connect(f"http://127.0.0.1:{server.server_port}", timeout=1.0) as client:
                with pytest.raises(error, match=match) as caught:
                    client.lock("a").acquire(timeout=1.0)
                assert type(caught.value) is error
        finally:
            server.shutdown()
            serving_it.join()


def test_https_with_a_token(url: str, tmp_path: Path) -> None:
    """`https://` verifies the service; a stranger's certificate is refused."""
    files = make_tls_files(tmp_path / "certificates", mutual=False)
    tokens = write_tokens(tmp_path / "tokens", BILLING)
    listen = ("--listen", "127.0.0.1:0", "--tls-cert", str(files.server_cert), "--tls-key", str(files.server_key))
    with serving(url, tmp_path, *listen, "--tokens", str(tokens)) as service:
        endpoint = service.url.removeprefix("https://").rstrip("/")
        with tenure.connect(f"https://me:{BILLING.token}@{endpoint}", ca=str(files.ca), ttl=20) as client:
            with client.lock("a") as hold:
                assert hold.fence.line.endswith("billing%2Fa")
        with tenure.connect(f"https://me:{BILLING.token}@{endpoint}", timeout=2.0) as client:
            with pytest.raises(tenure.TLSFailed):
                client.lock("a").acquire(timeout=2.0)


def test_command_line_works_over_the_service(open_service: Service, name: str) -> None:
    """`tenure run`, `ls`, `doctor`: a URL like any other."""
    ran = command("run", name, "--", "sh", "-c", "echo $TENURE_NAME", url=open_service.url)
    assert (ran.code, ran.out.strip()) == (0, name)
    with tenure.connect(open_service.url, ttl=20) as client, client.lock(name) as hold:
        listed = json.loads(command("ls", name, "--json", url=open_service.url).out)
        assert [line["holders"][0]["token"] for line in listed] == [str(hold.token)]
    looked = command("doctor", url=open_service.url)
    assert "a lock was taken" in looked.out, looked.out + looked.complaint


def test_service_of_a_service_is_refused(open_service: Service) -> None:
    """Neither of two services in a row could say which of them is to renew."""
    done = command("serve", "--listen", "0", url=open_service.url)
    assert done.code == 78
    assert "needs the store itself" in done.complaint


def _move_on(client: tenure.Client, endpoint: str) -> None:
    """Leases are opened at the next one from now on."""
    backend = runtime_of(client)._backend
    assert isinstance(backend, ServiceBackend)
    backend._replicas.any.calls.session.move_on(_endpoint(endpoint), "a rumour")


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _sockets() -> int:
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += str(entry.readlink()).startswith("socket:")
    return count
