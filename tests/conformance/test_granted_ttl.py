"""A TTL that a store grants otherwise, on every backend of our own."""

from __future__ import annotations

import pytest

from tenure.testing.conformance.store_world import StoreWorld


def test_ttl_that_the_store_grants_otherwise_is_said_once_and_shown(
    world: StoreWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A store has a shortest TTL: who asks for less hears of it, once per client and TTL."""
    client = world.client()
    lock = client.lock("a", ttl=0.5)
    assert "ttl=0.5>" in repr(lock)
    with lock as hold:
        granted = hold.ttl
    for other in (lock, client.lock("b", ttl=0.5)):
        assert other.acquire().release() is True
    said = [record.getMessage() for record in caplog.records if "was asked for" in record.getMessage()]
    if granted == 0.5:
        assert said == []
        assert "ttl=0.5>" in repr(lock)
        return
    (message,) = said
    assert f"granted a ttl of {granted:g} s where ttl=0.5 was asked for" in message
    assert f"ttl={granted:g} (asked for 0.5)>" in repr(lock)
