"""Holds that share the service's lease, in virtual time: their own TTLs are timers, and belief ends first."""

from __future__ import annotations

import asyncio
import gc
import types
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tenure import ClientClosed, InvalidOption
from tenure.service.holds import idempotency
from tenure.service.holds.keeper import HeldElsewhere, HoldGone, Keeper, KeyReused, NoSuchHold
from tests.service.keepers import until, wanted
from tests.unit.rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


@asynccontextmanager
async def keeper_of(rig: Rig, **options: Any) -> AsyncIterator[Keeper]:
    async with rig.aclient(ttl=30) as client:
        keeper = Keeper(client, **options)
        yield keeper
        await keeper.close()


def test_hold_ends_with_its_own_ttl_though_the_service_lives(rig: Rig) -> None:
    """A dead app behind a living service loses its lock: belief at its TTL, and then the ticket."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            grant = await keeper.acquire(wanted(ttl=4.0), wait_seconds=0)
            assert grant is not None
            assert grant.ttl == 4.0
            assert grant.remaining() == 4.0
            (hold,) = keeper._timer_holds._holds.values()
            rig.clock.advance(3.9)
            assert rig.tickets == 1
            rig.clock.advance(0.2)
            assert grant.remaining() == 0.0
            await until(lambda: rig.tickets == 0)
            assert [e.reason for e in rig.heard("lost")] == ["its owner did not renew it within its time to live"]
            for late in (keeper.renew, keeper.release):
                with pytest.raises(HoldGone):
                    await late(grant.id)
            assert hold.extend() is False, "a renewal that was under way brought it back"

    asyncio.run(test())


def test_renewals_move_the_end_and_nothing_else_does(rig: Rig) -> None:
    """Renewed at half its TTL a hold lives on; `Kept.remaining()` of before goes on counting down."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            first = await keeper.acquire(wanted(ttl=4.0), wait_seconds=0)
            assert first is not None
            for _ in range(10):
                rig.clock.advance(2.0)
                grant = await keeper.renew(first.id)
                assert (grant.id, grant.token, grant.fence) == (first.id, first.token, first.fence)
                assert grant.remaining() == 4.0
            assert first.remaining() == 0.0
            assert rig.tickets == 1
            await keeper.release(first.id)
            assert rig.tickets == 0

    asyncio.run(test())


def test_what_is_told_is_never_more_than_what_is_proven_of_the_shared_lease(rig: Rig) -> None:
    """An owner's TTL above the service's is granted as the service's, and remaining() is the least of both."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            grant = await keeper.acquire(wanted(ttl=300.0), wait_seconds=0)
            assert grant is not None
            assert grant.ttl == 30.0
            assert grant.remaining() < 30.0
            rig.clock.advance(9.0)  # the service renews at a third: not yet
            assert (await keeper.renew(grant.id)).remaining() < 21.0

    asyncio.run(test())


def test_shared_lease_that_is_lost_ends_its_holds(rig: Rig) -> None:
    """Owners stop believing in what the service can't prove any longer."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            grant = await keeper.acquire(wanted(ttl=30.0), wait_seconds=0)
            assert grant is not None
            rig.store.expire(rig.store.leases[0])
            rig.clock.advance(11.0)
            with pytest.raises(HoldGone):
                await keeper.renew(grant.id)
            assert keeper.statistics()["timer_holds"] == 0
            again = await keeper.acquire(wanted(), wait_seconds=0)
            assert again is not None
            assert again.token > grant.token

    asyncio.run(test())


def test_second_release_says_that_the_first_was_done(rig: Rig) -> None:
    """After a lost answer of release, HoldGone means what the owner wanted; a successor is not touched."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            first = await keeper.acquire(wanted(), wait_seconds=0)
            assert first is not None
            await keeper.release(first.id)
            second = await keeper.acquire(wanted(owner="other"), wait_seconds=0)
            assert second is not None
            assert second.token > first.token
            with pytest.raises(HoldGone):
                await keeper.release(first.id)
            assert (await keeper.renew(second.id)).owner == "other"

    asyncio.run(test())


def test_another_replica_says_where_the_hold_is(rig: Rig) -> None:
    """A hold belongs to the replica whose timer ends it; where that was started anew, it is gone."""

    async def test() -> None:
        async with keeper_of(rig, address="http://one") as one, keeper_of(rig, address="http://two") as two:
            grant = await one.acquire(wanted(), wait_seconds=0)
            assert grant is not None
            for elsewhere in (two.renew, two.release):
                with pytest.raises(HeldElsewhere) as refused:
                    await elsewhere(grant.id)
                assert refused.value.address == "http://one"
            async with keeper_of(rig, address="http://one") as restarted:
                with pytest.raises(HoldGone):
                    await restarted.renew(grant.id)
            assert (await one.renew(grant.id)).token == grant.token

    asyncio.run(test())


@pytest.mark.parametrize("text", ["", "t", "x" * 30, "tW10", "tWzEsMiwzXQ", "t\u00fc", "t" + "A" * 10_000, "tbnVsbA"])
def test_text_that_is_no_id_is_told_so(rig: Rig, text: str) -> None:
    """Nothing is asked of the store for it."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            with pytest.raises(NoSuchHold):
                await keeper.renew(text)

    asyncio.run(test())


def test_id_is_safe_in_a_url_and_not_shown(rig: Rig) -> None:
    """An id is a capability: neither repr() nor logs have it."""

    async def test() -> None:
        async with keeper_of(rig, address="https://répliqué:8443") as keeper:
            grant = await keeper.acquire(wanted(), wait_seconds=0)
            assert grant is not None
            assert grant.id.replace("-", "").replace("_", "").isalnum()
            assert grant.id not in repr(grant)

    asyncio.run(test())


def test_closing_ends_waits_and_releases(rig: Rig) -> None:
    """Drain: nothing new, waits end with ClientClosed, and the tickets go at once."""

    async def test() -> None:
        async with rig.aclient(ttl=30) as client:
            keeper = Keeper(client)
            grant = await keeper.acquire(wanted(), wait_seconds=0)
            assert grant is not None
            waits = [asyncio.create_task(keeper.acquire(wanted(), wait_seconds=60)) for _ in range(3)]
            keyed = asyncio.create_task(keeper.acquire(wanted(idempotency="k"), wait_seconds=60))
            await until(lambda: rig.tickets == 5)
            await keeper.close()
            for wait in (*waits, keyed):
                with pytest.raises(ClientClosed):
                    await wait
            with pytest.raises(ClientClosed):
                await keeper.acquire(wanted(), wait_seconds=0)
            await until(lambda: rig.tickets == 0)
            assert keeper.statistics()["waiting"] == 0

    asyncio.run(test())


def test_service_that_ends_waits_until_no_owner_believes(rig: Rig) -> None:
    """Belief ends first: nothing is renewed any more, and nobody else is admitted before the last granted deadline."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            short = await keeper.acquire(wanted("short", ttl=4.0), wait_seconds=0)
            granted = await keeper.acquire(wanted("long", ttl=12.0), wait_seconds=0)
            assert short is not None
            assert granted is not None
            ending = asyncio.create_task(keeper.until_unbelieved())
            await asyncio.sleep(0)
            with pytest.raises(ClientClosed):
                await keeper.renew(granted.id)
            rig.clock.advance(11.9)
            assert granted.remaining() > 0
            assert not ending.done()
            assert rig.tickets >= 1
            rig.clock.advance(0.2)
            await asyncio.wait_for(ending, 20)
            assert granted.remaining() == 0

    asyncio.run(test())


def test_owners_that_release_let_the_service_end_at_once(rig: Rig) -> None:
    """No time passes here; without a hold there is nothing to wait for at all."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            granted = [await keeper.acquire(wanted(name), wait_seconds=0) for name in ("a", "b")]
            ending = asyncio.create_task(keeper.until_unbelieved())
            for grant in granted:
                await asyncio.sleep(0)
                assert not ending.done()
                assert grant is not None
                await keeper.release(grant.id)
            await asyncio.wait_for(ending, 20)
            assert rig.tickets == 0
            await asyncio.wait_for(keeper.until_unbelieved(), 20)

    asyncio.run(test())


def test_closing_over_many_holds_takes_the_time_of_one_request(rig: Rig) -> None:
    """The store is silent: all are given up within one deadline, not each within its own; the reaper has the rest."""

    async def test() -> None:
        async with rig.aclient(ttl=30, timeout=5.0) as client:
            keeper = Keeper(client)
            for number in range(20):
                assert await keeper.acquire(wanted(f"n{number}"), wait_seconds=0) is not None
            rig.faults(client).cut_off = True
            closing = asyncio.create_task(keeper.close())
            try:
                await until(lambda: keeper.statistics()["timer_holds"] == 0)
                rig.clock.advance(5.1)
                await asyncio.wait((closing,), timeout=20)
                assert closing.done()
            finally:  # in virtual time nobody would wait for a silent store
                rig.faults(client).cut_off = False
                rig.clock.advance(5.1)
            await closing

    asyncio.run(test())


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": 0},
        {"weight": 2},
        {"slots": 0},
        {"slots": 2, "weight": 3},
        {"slots": 2, "shared": True},
        {"resource": ""},
        {"owner": "a\nb"},
        {"value": "x" * 100_000},
    ],
)
def test_wrong_wish_is_refused_before_anything_is_sent(rig: Rig, wrong: dict[str, Any]) -> None:
    """The error is one clear sentence, and no request is made."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            with pytest.raises(ValueError):
                await keeper.acquire(wanted(**wrong), wait_seconds=0)
            with pytest.raises(InvalidOption):
                await keeper.acquire(wanted(), wait_seconds=-1)
            assert rig.store.requests.total() == 0

    asyncio.run(test())


def test_same_key_and_wish_finds_the_hold(rig: Rig) -> None:
    """A retry after a lost answer gets that very hold, renewed; another wish under the key is an error."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            first = await keeper.acquire(wanted(ttl=5.0, idempotency="k"), wait_seconds=0)
            assert first is not None
            rig.clock.advance(3.0)
            again = await keeper.acquire(wanted(ttl=5.0, idempotency="k"), wait_seconds=0)
            assert again is not None
            assert (again.id, again.token) == (first.id, first.token)
            assert again.remaining() == 5.0
            assert rig.tickets == 1
            with pytest.raises(KeyReused):
                await keeper.acquire(wanted(ttl=6.0, idempotency="k"), wait_seconds=0)
            await keeper.release(first.id)
            with pytest.raises(HoldGone):  # the key is spent
                await keeper.acquire(wanted(ttl=5.0, idempotency="k"), wait_seconds=0)
            assert rig.tickets == 0

    asyncio.run(test())


def test_key_is_forgotten_after_its_time(rig: Rig) -> None:
    """The memory is bounded: then the key stands for a new wish."""

    async def test() -> None:
        async with keeper_of(rig, remembers_seconds=60.0) as keeper:
            first = await keeper.acquire(wanted(ttl=5.0, idempotency="k"), wait_seconds=0)
            assert first is not None
            rig.clock.advance(61.0)
            await until(lambda: rig.tickets == 0)
            second = await keeper.acquire(wanted("b", idempotency="k"), wait_seconds=0)
            assert second is not None
            assert keeper.statistics()["idempotency_keys"] == 1

    asyncio.run(test())


def test_known_key_keeps_nothing_of_its_request(rig: Rig) -> None:
    """A key is known for minutes: by then the value, of which there may be thousands, is not kept for it."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            values = [f"{number}" * 60_000 for number in range(8)]
            ids = {id(value) for value in values}
            for number, value in enumerate(values):
                grant = await keeper.acquire(wanted(value=value, idempotency=f"k{number}"), wait_seconds=0)
                assert grant is not None
                await keeper.release(grant.id)
            del grant, value
            await until(lambda: rig.tickets == 0)
            assert keeper.statistics()["idempotency_keys"] == 8
            known = [keeper._calls]
            reached: set[int] = set()
            while known and not reached & ids:
                known = [one for one in gc.get_referents(*known) if id(one) not in reached and _is_ours(one)]
                reached |= set(map(id, known))
            assert not reached & ids

    asyncio.run(test())


def _is_ours(one: object) -> bool:
    return not isinstance(one, (type, types.ModuleType, types.FunctionType, asyncio.AbstractEventLoop))


def test_keys_of_one_tenant_push_out_none_of_another(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has so many, and beyond that its own oldest is forgotten."""
    monkeypatch.setattr(idempotency, "KEYS_MAX", 2)

    async def test() -> None:
        async with keeper_of(rig) as keeper:

            async def token(tenant: str, key: str) -> int:
                request = wanted(f"{tenant}-{key}", shared=True, tenant=tenant, idempotency=f"{tenant} {key}")
                grant = await keeper.acquire(request, wait_seconds=0)
                assert grant is not None
                return grant.token

            quiet, first = await token("quiet", "k"), await token("loud", "1")
            for key in ("2", "3", "4"):
                await token("loud", key)
            assert keeper.statistics()["idempotency_keys"] == 3
            assert await token("quiet", "k") == quiet
            assert await token("loud", "1") != first

    asyncio.run(test())


def test_key_without_a_grant_is_free_again(rig: Rig) -> None:
    """`acquired: false` is no hold: the next try with the key is a new one."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            first = await keeper.acquire(wanted(), wait_seconds=0)
            assert first is not None
            assert await keeper.acquire(wanted(idempotency="k"), wait_seconds=0) is None
            await keeper.release(first.id)
            assert await keeper.acquire(wanted(idempotency="k"), wait_seconds=0) is not None

    asyncio.run(test())


def test_retry_joins_the_wait_of_the_first_try_and_keeps_its_place(rig: Rig) -> None:
    """Two requests of one key are one ticket; the first caller hangs up, the second gets the hold."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            holder = await keeper.acquire(wanted(), wait_seconds=0)
            assert holder is not None
            first = asyncio.create_task(keeper.acquire(wanted(idempotency="k"), wait_seconds=60))
            await until(lambda: rig.tickets == 2)
            second = asyncio.create_task(keeper.acquire(wanted(idempotency="k"), wait_seconds=60))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert rig.tickets == 2
            await keeper.release(holder.id)
            grant = await second
            assert grant is not None
            assert grant.token > holder.token

    asyncio.run(test())


def test_last_caller_of_a_key_hangs_up_and_nothing_is_left(rig: Rig) -> None:
    """A call with a key ends as one without: the wait ends, and the key is free."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            holder = await keeper.acquire(wanted(), wait_seconds=0)
            assert holder is not None
            tries = [asyncio.create_task(keeper.acquire(wanted(idempotency="k"), wait_seconds=60)) for _ in range(3)]
            await until(lambda: rig.tickets == 2)
            for one in tries:
                one.cancel()
            await asyncio.gather(*tries, return_exceptions=True)
            await until(lambda: rig.tickets == 1)
            assert keeper.statistics()["idempotency_keys"] == 0

    asyncio.run(test())


@pytest.mark.parametrize("key", [None, "k"])
def test_caller_that_hangs_up_at_any_step_leaves_nothing(rig: Rig, key: str | None) -> None:
    """Cancelled after each number of turns of the loop, with its turn come or not: no ticket stays, whatever it met."""

    async def test() -> None:
        async with keeper_of(rig) as keeper:
            for steps in range(40):
                one = asyncio.create_task(keeper.acquire(wanted(idempotency=key), wait_seconds=60))
                for _ in range(steps):
                    await asyncio.sleep(0.0005)
                if one.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await one
                else:
                    grant = one.result()
                    assert grant is not None
                    await keeper.release(grant.id)
                    break
                await until(lambda: rig.tickets == 0)
                assert keeper.statistics()["timer_holds"] == 0
            else:
                pytest.fail("it never came to its end")

    asyncio.run(test())
