"""Leases for clients behind HTTP, as the service keeps them: on the memory store, in real time."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import Mock

import pytest

import tenure.aio
from tenure._admin import journal
from tenure._backends import memory
from tenure._core.base.clock import SYSTEM_CLOCK, VirtualClock
from tenure._core.base.limits import WORKERS_MAX
from tenure._core.base.signals import Signal
from tenure._core.lease import Entry, LeaseState, Line, Ticket, Workers
from tenure._core.runtime import runtime_of
from tenure._core.turn import Amend, Leave, Operate, Step
from tenure.errors import StoreRefused, StoreUnavailable
from tenure.service import limits
from tenure.service.api import audit
from tenure.service.auth.tokens import EVERYBODY, Tenant
from tenure.service.http.problems import Problem, ProblemCode
from tenure.service.metrics import RemoteLeaseCounts
from tenure.service.remote import leases
from tenure.service.remote.leases import LeaseTotals, RemoteEnding, RemoteLease, RemoteLeases
from tenure.service.remote.waits import BrokenHandle, TicketHandles, WaitStream, WaitStreams
from tenure.service.shutdown import Shutdown

NONCE = "n" * 16
BILLING, SHIPPING = Tenant.of("billing"), Tenant.of("shipping")


def soon() -> float:
    return SYSTEM_CLOCK.now() + 5.0


@asynccontextmanager
async def lender(
    name: str, holds_max: int = 100, timeout: float = 5.0
) -> AsyncIterator[tuple[RemoteLeases, memory.MemoryStore]]:
    """Make RemoteLeases over a memory store of its own, and that store."""
    name = name.replace(" ", "-")
    async with tenure.aio.connect(f"memory://lending-{name}", ttl=20, timeout=timeout) as client:
        keeps = RemoteLeases(runtime_of(client), holds_max, Shutdown())
        try:
            yield keeps, memory.store(f"lending-{name}", SYSTEM_CLOCK)
        finally:
            await keeps.end()


async def eventually(what: Callable[[], bool], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not happen"
        await asyncio.sleep(0.01)


@contextmanager
def busy(workers: Workers) -> Iterator[None]:
    """No worker comes free meanwhile."""
    done = threading.Event()
    for _ in range(WORKERS_MAX):
        workers.submit(done.wait)
    try:
        yield
    finally:
        done.set()


def tickets(store: memory.MemoryStore) -> list[str]:
    return [ticket.id for line in store.lines.values() for ticket in line]


def values(store: memory.MemoryStore) -> list[str]:
    return [ticket.value for line in store.lines.values() for ticket in line]


async def entered(keeps: RemoteLeases, lease: RemoteLease, entry: Entry) -> Ticket:
    ticket = (await keeps.enter(lease, entry, soon())).find(entry.id)
    assert ticket is not None
    return ticket


@pytest.mark.parametrize("lock_delay", [0.0, 0.6])
def test_lease_that_nobody_renews_ends_at_the_store(lock_delay: float) -> None:
    """After its TTL, and the lock delay; not before, and it is known here no more."""

    async def scenario() -> None:
        async with lender(f"unrenewed-{lock_delay}") as (keeps, store):
            began = time.monotonic()
            lease_id, lease = await keeps.open(EVERYBODY, NONCE, 4.0, lock_delay, soon())
            await entered(keeps, lease, Entry("a", "me"))
            await eventually(lambda: lease.over)
            assert time.monotonic() - began > 3.9
            await eventually(lambda: tickets(store) == [])
            assert time.monotonic() - began > 3.9 + lock_delay
            with pytest.raises(Problem) as caught:
                keeps.find(EVERYBODY, lease_id)
            assert caught.value.code is ProblemCode.LEASE_GONE
            await eventually(lambda: len(keeps) == 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["closed", "not renewed"])
def test_lease_that_could_not_be_closed_is_closed_later(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker came free to ask the store, and its beats went on: it is over for its client, and never forgotten."""

    async def scenario() -> None:
        async with lender(f"later-{how}", timeout=0.2) as (keeps, store):
            lease_id, lease = await keeps.open(EVERYBODY, NONCE, 5.0, 0.0, soon())
            await entered(keeps, lease, Entry("a", "me"))
            closings = 0

            def counted(step: Step) -> Any:
                nonlocal closings
                closings += isinstance(step, Operate)
                return RemoteLeases.run(keeps, step)

            monkeypatch.setattr(keeps, "run", counted)
            with busy(runtime_of(keeps).workers):
                if how == "closed":
                    for _ in range(2):
                        with pytest.raises(StoreUnavailable):
                            await keeps.close(EVERYBODY, lease_id, SYSTEM_CLOCK.now() + 0.2)
                await eventually(lambda: closings > 2, 20.0)
                assert lease.store_lease.state not in (LeaseState.LOST, LeaseState.CLOSED)
                with pytest.raises(Problem) as caught:
                    keeps.find(EVERYBODY, lease_id)
                assert caught.value.code is ProblemCode.LEASE_GONE
                with pytest.raises(Problem) as caught:
                    await keeps.open(EVERYBODY, NONCE, 5.0, 0.0, soon())
                assert caught.value.code is ProblemCode.LEASE_GONE
            await eventually(lambda: tickets(store) == [] and not store.leases)
            await eventually(lambda: len(keeps) == 0)

    asyncio.run(scenario())


def test_lease_whose_end_the_store_did_not_answer_is_known_until_that_has_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease is left to its TTL after tries in vain; until then no answer says that it is closed."""

    async def scenario() -> None:
        async with lender("unanswered") as (keeps, _):
            lease_id, lease = await keeps.open(EVERYBODY, NONCE, 1.0, 0.0, soon())
            right = lease.store_lease.close

            def unanswered(until: float) -> None:
                with monkeypatch.context() as patched:
                    patched.setattr(lease.store_lease, "_ask", lambda *_: None)
                    right(until)
                raise StoreUnavailable("no answer")

            monkeypatch.setattr(lease.store_lease, "close", unanswered)
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="not ended"):
                await keeps.close(EVERYBODY, lease_id, SYSTEM_CLOCK.now() + 0.2)
            await eventually(lambda: lease.store_lease.state is LeaseState.CLOSED)
            await keeps.close(EVERYBODY, lease_id, SYSTEM_CLOCK.now() + 20.0)
            assert time.monotonic() - began >= 1.0
            assert len(keeps) == 0

    asyncio.run(scenario())


def test_client_that_closes_too_late_cuts_no_lock_delay_short() -> None:
    """A lease that was over when its client closed it keeps its lock delay, as after any loss."""

    async def scenario() -> None:
        async with lender("too-late") as (keeps, store):
            began = time.monotonic()
            lease_id, lease = await keeps.open(EVERYBODY, NONCE, 4.0, 0.8, soon())
            await entered(keeps, lease, Entry("a", "me"))
            await eventually(lambda: lease.over)
            await keeps.close(EVERYBODY, lease_id, soon())
            assert tickets(store) == []
            assert time.monotonic() - began > 4.7

    asyncio.run(scenario())


def test_renewals_let_it_live_on() -> None:
    """The lease lives beyond its TTL, and no answer exceeds what the store can prove."""

    async def scenario() -> None:
        async with lender("renewed") as (keeps, store):
            lease_id, lease = await keeps.open(EVERYBODY, NONCE, 5.0, 0.0, soon())
            await entered(keeps, lease, Entry("a", "me"))
            would_end = time.monotonic() + 5.0
            while time.monotonic() < would_end + 0.5:
                await asyncio.sleep(0.2)
                ended_at = lease.ends_at
                await keeps.renew(keeps.find(EVERYBODY, lease_id), soon())
                assert lease.ends_at > ended_at
                before = SYSTEM_CLOCK.now()
                remaining, proven = keeps.remaining(lease), lease.store_lease.remaining()
                assert remaining > 0.0
                assert before + remaining <= SYSTEM_CLOCK.now() + proven
            assert len(tickets(store)) == 1

    asyncio.run(scenario())


def ended(keeps: RemoteLeases) -> dict[str, int]:
    """Return the endings that at least one lease has had."""
    return {ending.value: count for ending, count in keeps.ended.items() if count}


def test_what_is_lent_is_counted_and_so_is_why_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endings are counted once each: by the client, by a missing renewal, by the store."""

    async def scenario() -> None:
        async with lender("counted") as (keeps, store):
            closed_id, closed = await keeps.open(EVERYBODY, NONCE, 60.0, 0.0, soon())
            _, lost = await keeps.open(BILLING, NONCE, 60.0, 0.0, soon())
            await entered(keeps, closed, Entry("a", "me"))
            waiting = Entry("a", "me")
            await entered(keeps, closed, waiting)
            assert keeps.totals == LeaseTotals(leases=2, tickets=2)
            keeps.abandon(closed, waiting)
            assert keeps.totals == LeaseTotals(leases=2, tickets=1)
            store.expire(lost.store_lease.id)
            for _ in range(2):
                with pytest.raises(Problem):
                    await keeps.renew(lost, soon())
            assert keeps.totals == LeaseTotals(leases=1, tickets=1)
            for _ in range(2):
                await keeps.close(EVERYBODY, closed_id, soon())
            assert keeps.totals == LeaseTotals(leases=0, tickets=0)
            assert ended(keeps) == {"lost": 1, "closed": 1}
            _, left = await keeps.open(SHIPPING, NONCE, 1.0, 0.0, soon())
            await eventually(lambda: left.over)
            assert ended(keeps) == {"lost": 1, "closed": 1, "expired": 1}

    asyncio.run(scenario())


def test_lease_that_runs_out_because_the_service_ends_is_counted_as_that() -> None:
    """Renewals during the shutdown are refused: such a lease counts as ended by it, also at the very end."""

    async def scenario() -> None:
        async with tenure.aio.connect("memory://lending-shutdown", ttl=20) as client:
            shutdown = Shutdown()
            keeps = RemoteLeases(runtime_of(client), 100, shutdown)
            _, short = await keeps.open(BILLING, NONCE, 1.0, 0.0, soon())
            await keeps.open(SHIPPING, NONCE, 60.0, 0.0, soon())
            shutdown.begin()
            await eventually(lambda: short.over)
            assert ended(keeps) == {"shutdown": 1}
            await keeps.end()
            await keeps.end()
            assert ended(keeps) == {"shutdown": 2}

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [StoreUnavailable("no answer"), StoreRefused("not so long")])
def test_lease_that_was_never_granted_is_counted_as_nothing(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease without a grant does not end; whether it is refused, runs out or is closed."""

    async def scenario() -> None:
        async with lender(f"never-{type(error).__name__}") as (keeps, _):

            async def fails(_: Step) -> Any:
                raise error

            with monkeypatch.context() as patched:
                patched.setattr(keeps, "run", fails)
                for tenant, lock_delay in ((BILLING, 0.0), (SHIPPING, 1.0)):
                    with pytest.raises((type(error), Problem)):
                        await keeps.open(tenant, NONCE, 1.0, lock_delay, soon())
                with pytest.raises(type(error)):
                    await keeps.open(EVERYBODY, NONCE, 60.0, 0.0, soon())
            assert keeps.totals == LeaseTotals(leases=0, tickets=0)
            await keeps.close(EVERYBODY, f"{keeps._replica}.{NONCE}", soon())
            await eventually(lambda: len(keeps) == 0)
            assert ended(keeps) == {}

    asyncio.run(scenario())


def test_metrics_of_what_is_lent_have_every_ending_from_the_start() -> None:
    """A counter that comes into being with its first event shows no growth by it; no label is a client's to make."""

    async def scenario() -> None:
        async with lender("metrics") as (keeps, _):
            _, lease = await keeps.open(BILLING, NONCE, 60.0, 0.0, soon())
            await entered(keeps, lease, Entry("a", "me"))
            samples = [sample for family in RemoteLeaseCounts(keeps).collect() for sample in family.samples]
            found = {(sample.name, *sample.labels.values()): sample.value for sample in samples}
            expected: dict[tuple[str, ...], float] = {("tenure_lent_leases",): 1, ("tenure_lent_tickets",): 1}
            expected |= {("tenure_lent_leases_ended_total", ending.value): 0 for ending in RemoteEnding}
            assert found == expected

    asyncio.run(scenario())


def test_same_nonce_is_the_same_lease_and_other_tenants_have_their_own() -> None:
    """A retry after a lost answer finds it; nobody else does."""

    async def scenario() -> None:
        async with lender("nonce") as (keeps, store):
            one_id, one = await keeps.open(BILLING, NONCE, 5.0, 0.0, soon())
            again_id, again = await keeps.open(BILLING, NONCE, 5.0, 0.0, soon())
            other_id, other = await keeps.open(SHIPPING, NONCE, 5.0, 0.0, soon())
            assert (one_id, one) == (again_id, again)
            assert other is not one
            assert keeps.find(SHIPPING, other_id) is other
            assert len(store.leases) == 2
            await keeps.close(SHIPPING, one_id, soon())  # by its id, which both have: its own and no other
            assert keeps.find(BILLING, one_id) is one

    asyncio.run(scenario())


def test_lease_of_another_replica_is_told_apart_from_one_that_is_gone() -> None:
    """The one may live there; the other is over."""

    async def scenario() -> None:
        async with lender("replica") as (keeps, _):
            lease_id, _ = await keeps.open(EVERYBODY, NONCE, 5.0, 0.0, soon())
            await keeps.close(EVERYBODY, lease_id, soon())
            for name, code in ((lease_id, ProblemCode.LEASE_GONE), (f"elsewhere.{NONCE}", ProblemCode.LEASE_ELSEWHERE)):
                with pytest.raises(Problem) as caught:
                    keeps.find(EVERYBODY, name)
                assert caught.value.code is code

    asyncio.run(scenario())


def test_closed_lease_takes_no_memory_until_its_ttl_is_over() -> None:
    """A tenant that opens and closes leases of a day in a loop does not fill the replica."""
    references: list[weakref.ref[RemoteLease]] = []

    def are_gone() -> bool:
        gc.collect()
        return not any(each() for each in references)

    async def scenario() -> None:
        async with lender("closed") as (keeps, _):
            for number in range(20):
                lease_id, one = await keeps.open(EVERYBODY, f"{NONCE}{number}", 86_400.0, 0.0, soon())
                references.append(weakref.ref(one))
                del one
                await keeps.close(EVERYBODY, lease_id, soon())
            assert len(keeps) == 0
            await eventually(are_gone)

    asyncio.run(scenario())


def test_tickets_that_have_left_are_remembered_for_a_while_and_in_bounded_room() -> None:
    """However many leave meanwhile: a request may be late by as long as its body may take."""

    async def scenario() -> None:
        async with lender("left") as (keeps, _):
            _, first = await keeps.open(EVERYBODY, NONCE, 5.0, 0.0, soon())
            clock = VirtualClock(0.0)
            lease = RemoteLease("of-a-test", first.store_lease, EVERYBODY, 0.0, clock)
            lease.ticket_gone("late")
            for number in range(5_000):
                lease.ticket_gone(str(number))
            assert lease.has_left("late")
            for number in range(20_000):
                lease.ticket_gone(str(number))
            assert lease.has_left("19999")
            assert len(lease._left) == limits.LEFT_KNOWN_MAX
            clock.advance(limits.LEFT_KNOWN_SECONDS + 1.0)
            lease.ticket_gone("new")
            assert list(lease._left) == ["new"]

    asyncio.run(scenario())


def test_journal_of_a_tenant_pushes_out_nothing_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries of every tenant are bounded apart, however much one of them holds."""
    monkeypatch.setattr(journal, "_TRIM_ALL_EVERY", 1)
    monkeypatch.setattr(leases, "JOURNAL_MAX", 3)

    async def go() -> None:
        async with lender("journals") as (keeps, store):

            def lines() -> list[str]:
                return sorted(note.resource for note in store.notes.values())

            async def hold(tenant: Tenant, name: str) -> None:
                _, lease = await keeps.open(tenant, NONCE, 20.0, 0.0, soon(), journal=True)
                ticket = await entered(keeps, lease, Entry(tenant.inside(name), "me"))
                await keeps.leave(lease, Leave(lease.store_lease, ticket, soon()))
                await eventually(lambda: tenant.inside(name) in lines())

            await hold(SHIPPING, "first")
            for number in range(5):
                await hold(BILLING, f"name-{number}")
            await eventually(lambda: len(store.notes) == 4)
            assert lines() == ["billing/name-2", "billing/name-3", "billing/name-4", "shipping/first"]

    asyncio.run(go())


def test_audit_of_a_tenant_pushes_out_nothing_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does that of who has all names: records of every tenant are bounded apart."""
    monkeypatch.setattr(audit, "AUDIT_MAX", 2)

    async def go() -> None:
        async with tenure.aio.connect("memory://lending-audit", ttl=20) as client:
            service: Any = Mock(client=client, tokens=Mock(tenants=3))

            async def force(tenant: Tenant, name: str) -> None:
                hold = await client.lock(name).acquire()
                call: Any = Mock(fields={"token": hold.token, "reason": "stuck"}, caller=Mock(tenant=tenant))
                assert (await audit.force_out(service, call, name, "me")).resource == name

            await force(SHIPPING, "shipping/first")
            for number in range(4):
                await force(BILLING, f"billing/{number}")
            for number in range(3):
                await force(EVERYBODY, f"all-{number}")
            left = [record.resource for record in await client.operator().audit()]
            assert left == ["shipping/first", "billing/2", "billing/3", "all-0", "all-1", "all-2"]

    asyncio.run(go())


def test_entry_that_is_sent_twice_at_once_is_one_ticket() -> None:
    """The second waits for what the first comes to."""

    async def scenario() -> None:
        async with lender("twice") as (keeps, store):
            _, lease = await keeps.open(EVERYBODY, NONCE, 5.0, 0.0, soon())
            entry = Entry("a", "me")
            one, two = await asyncio.gather(keeps.enter(lease, entry, soon()), keeps.enter(lease, entry, soon()))
            assert one.find(entry.id) == two.find(entry.id)
            assert tickets(store) == [entry.id]

    asyncio.run(scenario())


def test_entry_that_comes_after_its_ticket_has_left_puts_none() -> None:
    """A request that was held up on its way must not stand in the line for ever."""

    async def scenario() -> None:
        async with lender("late") as (keeps, store):
            _, lease = await keeps.open(EVERYBODY, NONCE, 5.0, 0.0, soon())
            left, abandoned = Entry("a", "me"), Entry("a", "me")
            ticket = await entered(keeps, lease, left)
            assert await keeps.leave(lease, Leave(lease.store_lease, ticket, soon())) is True
            keeps.abandon(lease, abandoned)  # before it was ever heard of
            for entry in (left, abandoned):
                assert (await keeps.enter(lease, entry, soon())).tickets == ()
            assert tickets(store) == []

    asyncio.run(scenario())


def test_ticket_that_is_given_up_while_it_is_put_goes() -> None:
    """The fate of the entry is awaited first, and then the ticket is withdrawn."""

    async def scenario() -> None:
        async with lender("given-up") as (keeps, store):
            _, lease = await keeps.open(EVERYBODY, NONCE, 5.0, 0.0, soon())
            entry = Entry("a", "me")
            putting = asyncio.create_task(keeps.enter(lease, entry, soon()))
            await asyncio.sleep(0)
            keeps.abandon(lease, entry)
            await putting
            await eventually(lambda: tickets(store) == [])
            assert lease.tickets == {}

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [StoreRefused("out of order"), ValueError("a bug"), StoreUnavailable("no answer")])
def test_ticket_of_an_entry_that_failed_goes_when_it_is_given_up(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ticket may stand though its entry failed: the client does not ask for it again, and its end is passed on."""

    async def scenario() -> None:
        async with lender(f"failed-{type(error).__name__}") as (keeps, store):
            _, lease = await keeps.open(EVERYBODY, NONCE, 60.0, 0.0, soon())
            put = lease.store_lease.enter

            def put_and_fail(entry: Entry, until: float) -> Line:
                put(entry, until)
                raise error

            monkeypatch.setattr(lease.store_lease, "enter", put_and_fail)
            entry = Entry("a", "me")
            for _ in range(2):
                with pytest.raises(type(error)):
                    await keeps.enter(lease, entry, soon())
            assert tickets(store) == [entry.id]
            keeps.abandon(lease, entry)
            await eventually(lambda: tickets(store) == [])

    asyncio.run(scenario())


def test_entry_that_never_reached_the_store_may_be_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry without a slot of the enter limit is not sent, and the next try is a first one."""

    async def scenario() -> None:
        async with lender("gate") as (keeps, store):
            _, lease = await keeps.open(EVERYBODY, NONCE, 5.0, 0.0, soon())
            entry = Entry("a", "me")

            async def no_place(*_: object) -> Line:
                raise StoreUnavailable("others wait")

            with monkeypatch.context() as patched:
                patched.setattr(keeps._enter_limit, "run", no_place)
                with pytest.raises(StoreUnavailable):
                    await keeps.enter(lease, entry, soon())
            await entered(keeps, lease, entry)
            assert tickets(store) == [entry.id]

    asyncio.run(scenario())


def test_tenant_has_so_many_tickets_and_leases_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """429 for it; others have theirs."""
    monkeypatch.setattr(leases, "LEASES_OF_TENANT_MAX", 1)

    async def scenario() -> None:
        async with lender("limits", holds_max=2) as (keeps, _):
            _, lease = await keeps.open(BILLING, NONCE, 5.0, 0.0, soon())
            for resource in ("billing/a", "billing/b"):
                await entered(keeps, lease, Entry(resource, "me"))
            with pytest.raises(Problem) as caught:
                await keeps.enter(lease, Entry("billing/c", "me"), soon())
            assert caught.value.code is ProblemCode.TOO_MANY_HOLDS
            with pytest.raises(Problem) as caught:
                await keeps.open(BILLING, NONCE[::-1] + "x", 5.0, 0.0, soon())
            assert caught.value.code is ProblemCode.TOO_MANY_LEASES
            _, theirs = await keeps.open(SHIPPING, NONCE, 5.0, 0.0, soon())
            await entered(keeps, theirs, Entry("shipping/a", "me"))

    asyncio.run(scenario())


def test_amendment_that_was_overtaken_does_nothing_and_its_ticket_stands() -> None:
    """A later one came first; each try of the last one is carried out. For one that is gone all are answered False."""

    async def scenario() -> None:
        async with lender("overtaken") as (keeps, store):
            _, lease = await keeps.open(EVERYBODY, NONCE, 5.0, 0.0, soon())
            ticket = await entered(keeps, lease, Entry("a", "me"))
            for order, stands in ((1, "1"), (1, "1"), (3, "3"), (2, "3"), (3, "3")):
                assert await keeps.amend(lease, Amend(lease.store_lease, ticket, str(order), soon()), order) is True
                assert values(store) == [lease.tickets[ticket.id].value] == [stands]
            await keeps.run_for(lease, Leave(lease.store_lease, ticket, soon()))
            for order in (5, 4):
                assert await keeps.amend(lease, Amend(lease.store_lease, ticket, "", soon()), order) is False

    asyncio.run(scenario())


def test_amendments_of_a_ticket_are_carried_out_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An amendment that is slow at the store does not replace the next one, which was confirmed."""

    async def scenario() -> None:
        async with lender("one-at-a-time") as (keeps, store):
            _, lease = await keeps.open(EVERYBODY, NONCE, 5.0, 0.0, soon())
            ticket = await entered(keeps, lease, Entry("a", "me"))
            right, begun, go_on = lease.store_lease.amend, threading.Event(), threading.Event()

            def slow(ticket: Ticket, value: str, until: float) -> bool:
                if value == "A":
                    begun.set()
                    assert go_on.wait(10.0)
                return right(ticket, value, until)

            monkeypatch.setattr(lease.store_lease, "amend", slow)
            first = asyncio.create_task(keeps.amend(lease, Amend(lease.store_lease, ticket, "A", soon()), 1))
            await eventually(begun.is_set)
            second = asyncio.create_task(keeps.amend(lease, Amend(lease.store_lease, ticket, "B", soon()), 2))
            await asyncio.wait((second,), timeout=0.3)  # it may, and must not
            go_on.set()
            assert all(await asyncio.gather(first, second))
            assert values(store) == ["B"]

    asyncio.run(scenario())


def test_wait_is_told_once_and_gives_back_its_watch() -> None:
    """A wait ends when its signal is set, by any thread; and not when the client has dropped it."""

    async def scenario() -> None:
        channel, closed = WaitStream(), list[int]()
        for number in (1, 2, 3):
            signal = Signal()
            signal.on_close(lambda number=number: closed.append(number))  # type: ignore[misc]  # bound now
            channel.wait_for(number, signal)
            if number == 1:
                await asyncio.to_thread(signal.set)
            elif number == 2:
                channel.drop(2)
                signal.set()
        assert await channel.news(5.0) == [1]
        assert await channel.news(0.05) == []
        assert closed == [1, 2] or closed == [2, 1]
        channel.close()
        assert 3 in closed

    asyncio.run(scenario())


def test_wait_that_can_not_be_kept_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many, twice the same number, or none to tell: to wake early is always right."""
    monkeypatch.setattr("tenure.service.remote.waits.WAITS_OF_STREAM_MAX", 1)
    assert limits.WAITS_OF_STREAM_MAX > 1

    async def scenario() -> None:
        channel = WaitStream()
        channel.wait_for(1, Signal())
        channel.wait_for(2, Signal())
        assert await channel.news(5.0) == [2]
        channel.wait_for(1, Signal())
        assert await channel.news(5.0) == [1]

    asyncio.run(scenario())


def test_second_stream_of_a_name_ends_the_first() -> None:
    """A replaced stream is read no longer; each tenant's names are its own."""

    async def scenario() -> None:
        wait_streams = WaitStreams()
        with wait_streams.opened(BILLING, "s") as first:
            with wait_streams.opened(BILLING, "s") as second, wait_streams.opened(SHIPPING, "s") as theirs:
                assert first.over
                assert wait_streams.find(BILLING, "s") is second
                assert wait_streams.find(SHIPPING, "s") is theirs
            with pytest.raises(Problem) as caught:
                wait_streams.find(BILLING, "s")
            assert caught.value.code is ProblemCode.UNKNOWN_STREAM

    asyncio.run(scenario())


def test_seal_opens_for_its_tenant_and_its_replica_alone() -> None:
    """A handle is good only as it was made: every single byte of it counts."""
    handles, ticket = TicketHandles(), Ticket("billing/a", "0123", "key/of/the/store", 33)
    handle = handles.make(BILLING, ticket)
    opened = handles.open(BILLING, handle)
    assert (opened.resource, opened.id, opened.key) == (ticket.resource, ticket.id, ticket.key)
    for tenant, keeper, text in [
        (SHIPPING, handles, handle),
        (BILLING, TicketHandles(), handle),
        (BILLING, handles, ""),
        (BILLING, handles, "not base64!"),
        *[
            (BILLING, handles, handle[:at] + ("A" if handle[at] != "A" else "B") + handle[at + 1 :])
            for at in range(len(handle))
        ],
    ]:
        try:
            again = keeper.open(tenant, text)
        except BrokenHandle:
            continue
        assert again == opened, "only the bits that base64 ignores may differ"
