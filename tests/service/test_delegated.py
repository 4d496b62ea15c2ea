"""Holds with a lease of their own, on etcd: any replica serves them, and none is lost with the one that took it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from tenure import ClientClosed, LeaseLost, StoreUnavailable
from tenure._backends.etcd.delegated.single_lease import EtcdSingleLease
from tenure._backends.etcd.requests import LeaseGone
from tenure._backends.etcd.wire import Wire
from tenure._core.base import yielding
from tenure.events import Event
from tenure.service.holds import delegated
from tenure.service.holds.hold_id import DelegatedId, read_id, write_id
from tenure.service.holds.keeper import HoldGone, Keeper, KeyReused, NoSuchHold
from tests.conformance.store_worlds import EtcdWorld, StoreWorld
from tests.faults.transports import KEEP_ALIVE, TXN, count
from tests.service.keepers import DELEGATED, keeper_of, on, run, until, wanted

ETCD = on(*DELEGATED)


@ETCD
def test_any_replica_renews_and_releases(store: StoreWorld) -> None:
    """Renewals and releases need not go to the replica that took the hold."""

    async def test() -> None:
        async with keeper_of(store) as one, keeper_of(store) as two:
            first = await one.acquire(wanted(value="v"), wait_seconds=0)
            assert first is not None
            grant = await two.renew(first.id)
            assert (grant.id, grant.token, grant.fence, grant.owner) == (first.id, first.token, first.fence, "me")
            assert 0.8 * grant.ttl < grant.remaining() < grant.ttl
            await two.release(first.id)
            with pytest.raises(HoldGone):
                await one.renew(first.id)
            second = await one.acquire(wanted(), wait_seconds=0)
            assert second is not None
            async with keeper_of(store) as three:  # which has never heard of it
                await three.release(second.id)
                for late in (one.release, two.release, three.renew):
                    with pytest.raises(HoldGone):
                        await late(second.id)

    run(test())


@ETCD
def test_renewal_that_is_answered_for_a_revoked_lease_is_none(
    store: StoreWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug 10 (etcd #20590): the lease goes while it is renewed, and the answer says that it lives."""

    def late(wire: Wire, number: int, until: float) -> float:
        wire.revoke(number, until)
        return 10.0

    async def test() -> None:
        async with keeper_of(store) as keeper:
            grant = await keeper.acquire(wanted(), wait_seconds=0)
            assert grant is not None
            monkeypatch.setattr(Wire, "keep_alive", late)
            with pytest.raises(HoldGone):
                await keeper.renew(grant.id)

    run(test())


@ETCD
def test_lease_that_ended_before_its_grant_was_heard_of_is_replaced(
    store: StoreWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost, and the TTL was over before the next try had one."""
    grant, tries = Wire.grant_or_find, list[int]()

    def late(wire: Wire, number: int, ttl: int, until: float) -> tuple[float, bool]:
        tries.append(number)
        if len(tries) == 1:
            raise LeaseGone
        return grant(wire, number, ttl, until)

    async def test() -> None:
        async with keeper_of(store) as keeper:
            monkeypatch.setattr(Wire, "grant_or_find", late)
            grant = await keeper.acquire(wanted(), wait_seconds=0)
            assert grant is not None
            assert len(set(tries)) == 2
            await keeper.release(grant.id)

    run(test())


@ETCD
def test_hold_outlives_its_replica(store: StoreWorld) -> None:
    """The service is started anew, cleanly or not: its etcd holds go on, and their owners with them."""

    async def test() -> None:
        async with store.client(ttl=10) as client:
            keeper = Keeper(client, remembers_seconds=2.0)
            crashed = await keeper.acquire(wanted("crashed"), wait_seconds=0)
        async with keeper_of(store) as keeper:
            stopped = await keeper.acquire(wanted("stopped"), wait_seconds=0)
        async with keeper_of(store) as keeper:
            for grant in (crashed, stopped):
                assert grant is not None
                assert (await keeper.renew(grant.id)).token == grant.token
                await keeper.release(grant.id)
            last = await keeper.acquire(wanted("last"), wait_seconds=0)
            assert last is not None
            await keeper.close(release_delegated=True)
            assert store.tickets("last") == []
            with pytest.raises(ClientClosed):
                await keeper.acquire(wanted(), wait_seconds=0)

    run(test())


@ETCD
def test_id_that_was_made_up_is_of_no_use(store: StoreWorld) -> None:
    """Facts that others can see of a hold (its ticket's id, its token, its lease) are not enough to touch it."""

    async def test() -> None:
        async with keeper_of(store) as keeper, keeper_of(store) as other:
            grant = await keeper.acquire(wanted(), wait_seconds=0)
            assert grant is not None
            known = read_id(grant.id)
            assert isinstance(known, DelegatedId)
            forged = write_id(DelegatedId("a", known.token, known.lease_id, False, known.hold.ticket_id, ()))
            for replica in (keeper, other):
                for touch in (replica.renew, replica.release):
                    with pytest.raises(HoldGone):
                        await touch(forged)
                with pytest.raises(NoSuchHold):
                    await replica.renew(grant.id[:-3])
            await other.release(grant.id)

    run(test())


@ETCD
def test_acquire_and_release_are_two_transactions(store: StoreWorld) -> None:
    """A hold costs what it costs in the library: no grant, no revocation and no read, and hardly a keep-alive."""
    assert isinstance(store, EtcdWorld)

    async def test() -> None:
        async with store.client(ttl=10) as client:
            keeper = Keeper(client)
            for cycle in range(21):
                if cycle == 1:
                    before = store.proxy(client).requests
                grant = await keeper.acquire(wanted(ttl=30.0), wait_seconds=0)
                assert grant is not None
                assert grant.remaining() > 0.9 * grant.ttl
                await keeper.release(grant.id)
            after = store.proxy(client).requests
            assert count(after, TXN) - count(before, TXN) == 40
            others = (after - before).total() - 40 - (count(after, KEEP_ALIVE) - count(before, KEEP_ALIVE))
            assert others <= 1  # the watch's own look at the server
            await keeper.close()

    run(test())


@ETCD
def test_what_is_told_counts_from_before_the_proof_was_asked_for(store: StoreWorld) -> None:
    """Law 2 for owners behind HTTP: however late the store's answer comes, remaining() is no more than it promised."""
    assert isinstance(store, EtcdWorld)

    async def test() -> None:
        async with store.client(ttl=10) as client:
            keeper = Keeper(client)
            store.proxy(client).delay(to_client=0.6)
            grant = await keeper.acquire(wanted(ttl=5.0), wait_seconds=0)
            assert grant is not None
            assert grant.remaining() < grant.ttl - 0.6
            assert (await keeper.renew(grant.id)).remaining() < grant.ttl - 0.6
            store.proxy(client).heal()
            await keeper.release(grant.id)
            await keeper.close()

    run(test())


@ETCD
@pytest.mark.parametrize("fault", ["lose_answer", "lose_request"])
def test_lost_answers_of_release_free_nobody_else(store: StoreWorld, fault: str) -> None:
    """Made good within the call; and where it could not be, said again it is HoldGone, and the successor stands."""

    async def test() -> None:
        async with store.client(timeout=1.0) as client, keeper_of(store) as other:
            keeper = Keeper(client, remembers_seconds=2.0)
            first = await keeper.acquire(wanted(), wait_seconds=0)
            assert first is not None
            getattr(store, fault)(client, "leave")
            await keeper.release(first.id)
            assert store.tickets("a") == []

            second = await keeper.acquire(wanted(), wait_seconds=0)
            assert second is not None
            getattr(store, fault)(client, "leave", times=100)
            with pytest.raises(StoreUnavailable):
                await keeper.release(second.id)
            store.forget(client)
            if fault == "lose_request":
                await keeper.release(second.id)
            successor = await other.acquire(wanted(owner="next"), wait_seconds=10)
            assert successor is not None
            for replica in (keeper, other):
                with pytest.raises(HoldGone):
                    await replica.release(second.id)
            assert (await keeper.renew(successor.id)).token == successor.token
            await other.release(successor.id)
            await keeper.close()

    run(test())


@ETCD
def test_id_of_a_hold_takes_more_than_its_key_to_derive(store: StoreWorld) -> None:
    """Whoever reads the key somewhere does not know the id: a secret of its caller's is in it."""

    async def test() -> None:
        async with keeper_of(store, remembers_seconds=4.0) as one, keeper_of(store, remembers_seconds=4.0) as two:
            grant = await one.acquire(wanted(idempotency="6d0c9e53", secret="token"), wait_seconds=0)
            assert grant is not None
            for secret in ("", "guessed"):
                with pytest.raises(KeyReused):
                    await two.acquire(wanted(idempotency="6d0c9e53", secret=secret), wait_seconds=0)
            again = await two.acquire(wanted(idempotency="6d0c9e53", secret="token"), wait_seconds=0)
            assert again is not None
            assert again.token == grant.token
            await two.release(again.id)

    run(test())


@ETCD
def test_key_finds_the_hold_at_another_replica(store: StoreWorld) -> None:
    """The answer was lost, or its replica died: the retry gets the very hold, and no second one."""

    async def test() -> None:
        async with keeper_of(store, remembers_seconds=4.0) as one, keeper_of(store, remembers_seconds=4.0) as two:
            request = wanted(idempotency="6d0c9e53", ttl=8.0)
            first = await one.acquire(request, wait_seconds=0)
            again = await two.acquire(request, wait_seconds=0)
            assert first is not None
            assert again is not None
            assert (again.token, again.fence, again.owner) == (first.token, first.fence, first.owner)
            assert len(store.tickets("a")) == 1
            with pytest.raises(KeyReused):
                await two.acquire(wanted("b", idempotency="6d0c9e53", ttl=8.0), wait_seconds=0)
            await one.release(again.id)
            for replica in (one, two):
                with pytest.raises(HoldGone):
                    await replica.acquire(request, wait_seconds=0)
            with pytest.raises(HoldGone):
                await two.renew(first.id)
            assert store.tickets("a") == []

    run(test())


@ETCD
def test_key_finds_the_hold_whose_grant_was_never_answered(store: StoreWorld) -> None:
    """The ticket was put, and its replica heard nothing of it before its caller had gone elsewhere."""

    async def test() -> None:
        async with store.client(timeout=1.0) as client, keeper_of(store, remembers_seconds=4.0) as other:
            keeper = Keeper(client, remembers_seconds=4.0)
            request = wanted(idempotency="key-of-one-try", ttl=8.0)
            store.lose_answer(client, "enter", times=100)
            lost = asyncio.create_task(keeper.acquire(request, wait_seconds=0))
            await until(lambda: len(store.tickets("a")) == 1)
            grant = await other.acquire(request, wait_seconds=5)
            assert grant is not None
            with pytest.raises(StoreUnavailable):
                await lost
            store.forget(client)
            await until(lambda: keeper.statistics()["leases"]["chores"] == 0)  # type: ignore[index]  # it is a dict
            assert (await other.renew(grant.id)).token == grant.token, "what was taken over was withdrawn"
            assert len(store.tickets("a")) == 1
            await other.release(grant.id)
            await keeper.close()

    run(test())


@ETCD
def test_waits_that_the_end_dismissed_leave_nothing_behind_their_client(store: StoreWorld) -> None:
    """Many were given up a moment before: when the client is closed their tickets are gone, long before their TTLs."""

    async def test() -> None:
        before = store.leases()
        async with store.client(ttl=60, timeout=30.0) as client:
            keeper = Keeper(client, remembers_seconds=2.0)
            request = wanted(ttl=60.0)
            assert await keeper.acquire(request, wait_seconds=0) is not None
            waits = [asyncio.create_task(keeper.acquire(request, wait_seconds=600)) for _ in range(200)]
            await until(lambda: len(store.tickets("a")) == 201)
            await keeper.close(release_delegated=True)
            for ended in await asyncio.gather(*waits, return_exceptions=True):
                assert isinstance(ended, ClientClosed)
        assert store.tickets("a") == []
        assert store.leases() <= before  # those of tests before may run out meanwhile

    run(test())


@ETCD
def test_retry_at_another_replica_keeps_the_place_in_the_line(store: StoreWorld) -> None:
    """The first caller has hung up, or is about to: its ticket is the second one's, and is withdrawn by nobody else."""

    async def test() -> None:
        async with keeper_of(store, remembers_seconds=4.0) as one, keeper_of(store, remembers_seconds=4.0) as two:
            holder = await one.acquire(wanted(owner="holder"), wait_seconds=0)
            assert holder is not None
            request = wanted(idempotency="0a1b2c3d")
            first = asyncio.create_task(one.acquire(request, wait_seconds=60))
            await until(lambda: len(store.tickets("a")) == 2)
            second = asyncio.create_task(two.acquire(request, wait_seconds=60))
            # One more behind it, which must not overtake. By then the second one has taken the ticket over.
            await until(lambda: len(two._delegated._delegation._parts.renewal) == 1)  # type: ignore[union-attr]
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            behind = asyncio.create_task(one.acquire(wanted(owner="behind"), wait_seconds=60))
            await until(lambda: len(store.tickets("a")) == 3)
            await one.release(holder.id)
            grant = await second
            assert grant is not None
            assert not behind.done()
            await two.release(grant.id)
            last = await behind
            assert last is not None
            assert holder.token < grant.token < last.token
            await one.release(last.id)

    run(test())


@ETCD
@pytest.mark.parametrize("first", ["served", "hung up"])
def test_retry_that_hangs_up_takes_no_hold_from_its_owner(store: StoreWorld, first: str) -> None:
    """The hold stands, whichever replica granted it, and whenever the other's caller goes."""

    async def test() -> None:
        async with keeper_of(store, remembers_seconds=2.0) as one, keeper_of(store, remembers_seconds=2.0) as two:
            for tenths in range(0, 60, 4):
                request = wanted(f"a{tenths}", idempotency=f"key{tenths}", ttl=20.0)
                served, other = (one, two) if first == "served" else (two, one)
                if first == "served":
                    grant = await served.acquire(request, wait_seconds=0)
                    hung = asyncio.create_task(other.acquire(request, wait_seconds=0))
                    await asyncio.sleep(tenths / 10_000)
                    hung.cancel()
                else:
                    hung = asyncio.create_task(other.acquire(request, wait_seconds=0))
                    await asyncio.sleep(tenths / 10_000)
                    hung.cancel()
                    grant = await served.acquire(request, wait_seconds=0)
                with contextlib.suppress(asyncio.CancelledError):
                    await hung
                assert grant is not None
                await until(lambda idle=other: idle.statistics()["leases"]["chores"] == 0)  # type: ignore[misc]
                await asyncio.sleep(0.02)  # an undoing that is on its way is no chore
                assert (await served.renew(grant.id)).token == grant.token
                await served.release(grant.id)

    run(test())


@ETCD
@pytest.mark.parametrize("key", [None, "k"])
def test_caller_that_hangs_up_at_any_moment_leaves_nothing(store: StoreWorld, key: str | None) -> None:
    """A little later each time, up to the very moment in which its turn has come: no ticket stays, and no lease."""

    async def test() -> None:
        async with keeper_of(store, remembers_seconds=2.0) as keeper:
            granted = 0
            for tenths in range(40):
                request = wanted(idempotency=None if key is None else f"{key}{tenths}")
                one = asyncio.create_task(keeper.acquire(request, wait_seconds=60))
                await asyncio.sleep(tenths / 10_000)
                if one.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await one
                else:
                    grant = one.result()
                    assert grant is not None
                    await keeper.release(grant.id)
                    granted += 1
                await until(lambda: store.tickets("a") == [])
            assert granted < 40

    run(test())


@ETCD
@pytest.mark.parametrize("how", ["renew", "delegate", "hangs up"])
def test_turn_that_becomes_no_hold_is_told_as_abandoned(
    store: StoreWorld, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Law 15: nobody waits there any more, or the gauge of those who wait would count it for ever."""
    renewing, go_on = threading.Event(), threading.Event()

    def fails(*_: object) -> None:
        raise LeaseLost("it is over")

    def waits(*_: object) -> float:
        renewing.set()
        yielding.elsewhere(lambda: go_on.wait(30.0), 30.0)  # as a lease waits for its store
        return 10.0

    async def test() -> None:
        events: list[Event] = []
        async with store.client(ttl=10) as client:
            client.subscribe(events.append)
            keeper = Keeper(client)
            monkeypatch.setattr(delegated, "_FRESH", 2.0)  # every turn is renewed once, as one that has waited for long
            monkeypatch.setattr(EtcdSingleLease, "delegate" if how == "delegate" else "renew", fails)
            if how == "hangs up":
                monkeypatch.setattr(EtcdSingleLease, "renew", waits)
            one = asyncio.create_task(keeper.acquire(wanted(), wait_seconds=60))
            if how == "hangs up":
                await until(renewing.is_set)
                one.cancel()
                go_on.set()
            with pytest.raises(asyncio.CancelledError if how == "hangs up" else LeaseLost):
                await one
            of_tickets = [event for event in events if event.ticket]
            assert [event.event for event in of_tickets] == ["entered", "abandoned"]
            assert of_tickets[0].ticket == of_tickets[1].ticket
            await until(lambda: store.tickets("a") == [])
            await keeper.close()

    run(test())


@ETCD
def test_burst_of_callers_is_let_in_bit_by_bit(store: StoreWorld) -> None:
    """More than the store can answer within the time of a request: nobody fails, and nobody waits on a thread."""
    assert isinstance(store, EtcdWorld)

    async def test() -> None:
        async with store.client(timeout=2.0) as client:
            keeper = Keeper(client)
            holder = await keeper.acquire(wanted(ttl=60.0), wait_seconds=0)
            assert holder is not None
            store.proxy(client).delay(to_server=0.15)  # 120 tickets on 4 workers: 9 s
            waits = [asyncio.create_task(keeper.acquire(wanted(ttl=30.0), wait_seconds=60)) for _ in range(120)]
            statistics: Any = keeper.statistics
            await until(lambda: statistics()["leases"]["waiting"] == 120, 60.0)
            assert not any(wait.done() for wait in waits)
            store.proxy(client).heal()
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            await until(lambda: len(store.tickets("a")) == 1, 30.0)
            await keeper.close(release_delegated=True)

    run(test())
