"""`lock_delay`: after a holder that crashed or was lost the next one waits longer; a clean release frees at once."""

from __future__ import annotations

import time
from typing import Any

import pytest

import tenure
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure.testing.conformance.store_world import StoreWorld, needs

TTL, DELAY = 1.0, 1.2
SERVERS_OWN_TIME = 8.0
"""How much later than it may a server ends a lease: ticks, expiry loops, a busy machine."""

RECIPES: dict[str, Any] = {
    "lock": lambda client, delay: client.lock("delayed", lock_delay=delay),
    "election": lambda client, delay: client.election("delayed", value="me", lock_delay=delay).campaign(),
}


@pytest.fixture(params=RECIPES)
def recipe(request: pytest.FixtureRequest) -> Any:
    return RECIPES[request.param]


def free_at(hold: Any) -> float:
    """The moment, going by the last proof so far, before which no other client may hold it."""
    now = SYSTEM_CLOCK.now()
    left: float = hold.remaining()
    return now + left + DELAY if left else 0.0  # lost by now: its end is not known any more


def test_clean_release_frees_at_once(world: StoreWorld, recipe: Any) -> None:
    """No client waits for a delay after a release, after leaving the block, after close()."""
    a, b = world.client(ttl=20), world.client(ttl=20)
    began = time.monotonic()
    recipe(a, 30.0).acquire().release()
    with recipe(a, 30.0):
        pass
    recipe(a, 30.0).acquire()
    a.close()
    recipe(b, 30.0).acquire(timeout=15).release()
    assert time.monotonic() - began < 20, "somebody waited for the delay, or for the lease"


def test_belief_is_of_the_ttl_alone(world: StoreWorld, recipe: Any) -> None:
    """The delay is not time to work in."""
    hold = recipe(world.client(ttl=TTL), DELAY).acquire()
    assert 0 < hold.remaining() <= hold.ttl < TTL + DELAY
    hold.renew()
    assert hold.remaining() <= hold.ttl < TTL + DELAY
    hold.release()


@needs("cut")
def test_next_holder_waits_after_a_holder_that_fell_silent(world: StoreWorld) -> None:
    """A crash or a partition: ttl and delay from the last proof, and not for ever. A leader as well as a lock."""
    recipe = RECIPES["election"]
    a, b = world.client(ttl=TTL), world.client(ttl=20)
    first = recipe(a, DELAY).acquire()
    world.cut(a)
    not_before = free_at(first)
    assert first.lost.wait(TTL + 5)
    second = recipe(b, 0.0).try_acquire() or recipe(b, 0.0).acquire(timeout=TTL + DELAY + SERVERS_OWN_TIME)
    assert SYSTEM_CLOCK.now() >= not_before
    assert second.token > first.token
    second.release()


@needs("cut")
def test_lost_holder_that_lives_on_shortens_nothing(world: StoreWorld) -> None:
    """Connected again, leaving its block, closing its client: once lost, the delay is kept."""
    a, b = world.client(ttl=TTL), world.client(ttl=20)
    first = a.lock("delayed", lock_delay=DELAY).acquire()
    world.cut(a)
    not_before = free_at(first)
    assert first.lost.wait(TTL + 5)
    world.heal(a)
    assert first.release() is False
    a.close()
    second = b.lock("delayed").acquire(timeout=TTL + DELAY + SERVERS_OWN_TIME)
    assert SYSTEM_CLOCK.now() >= not_before
    second.release()


@needs("cut")
def test_same_client_waits_for_its_own_delay(world: StoreWorld) -> None:
    """A client waits for the delay after its own crash too: what it did may still be under way."""
    a = world.client(ttl=TTL)
    first = a.lock("delayed", lock_delay=DELAY).acquire()
    world.cut(a)
    not_before = free_at(first)
    assert first.lost.wait(TTL + 5)
    world.heal(a)
    second = a.lock("delayed").acquire(timeout=TTL + DELAY + SERVERS_OWN_TIME)
    assert SYSTEM_CLOCK.now() >= not_before
    second.release()


def test_waiter_behind_needs_no_delay_of_its_own(world: StoreWorld) -> None:
    """A waiter that gave up cleanly delays no other."""
    a, b, c = (world.client(ttl=20) for _ in range(3))
    b.lock("connected", lock_delay=30).acquire().release()  # its time below is for standing in line
    first = a.lock("delayed", lock_delay=30).acquire()
    with pytest.raises(tenure.AcquireTimeout):
        b.lock("delayed", lock_delay=30).acquire(timeout=1.0)
    first.release()
    c.lock("delayed").acquire(timeout=10).release()


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 601, "5", True])
def test_bad_delay_is_refused(world: StoreWorld, delay: Any) -> None:
    """Bounded, and a number of seconds."""
    client = world.client()
    with pytest.raises(tenure.InvalidOption, match="lock_delay"):
        client.lock("delayed", lock_delay=delay)
    with pytest.raises(tenure.InvalidOption, match="lock_delay"):
        client.election("delayed", lock_delay=delay)


def test_delay_that_the_store_does_not_grant_is_refused(world: StoreWorld) -> None:
    """A store with a longest lease refuses: a ttl and delay beyond it are an error, not a shorter delay."""
    lock = world.client(ttl=30).lock("delayed", lock_delay=400)
    if world.refuses_long_leases:
        with pytest.raises(tenure.StoreRefused, match=world.refuses_long_leases):
            lock.acquire(timeout=5)
    else:
        lock.acquire(timeout=5).release()
