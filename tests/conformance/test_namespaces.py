"""Whose the keys of `hold.store` are, on every backend of our own and on both faces."""

from __future__ import annotations

import pytest

from tenure import CompareFailed, InvalidName, InvalidOption
from tenure._core.runtime import runtime_of
from tenure.testing.conformance.store_world import StoreWorld, inner


def test_same_key_in_two_namespaces_is_two_keys(world: StoreWorld) -> None:
    """Services that share a store do not overwrite each other, and no key is taken for a ticket of a line."""
    client, other = world.client(ttl=20), world.client(ttl=20, namespace=f"{world.namespace}-other")
    with client.lock("data") as ours, other.lock("data") as theirs, client.lock("%data"):
        ours.store.put("data/a", b"ours")
        theirs.store.put("data/a", b"theirs", version=0)
        assert (ours.store.get("data/a").value, theirs.store.get("data/a").value) == (b"ours", b"theirs")
        theirs.store.delete("data/a")
        theirs.store.delete("data")
        assert ours.store.get("data/a").value == b"ours"
        assert [len(world.tickets(name)) for name in ("data", "%data")] == [1, 1]
        assert sorted(line.name for line in client.operator().lines()) == ["%data", "data"]
        ours.store.delete("data/a")
        ours.store.delete("data")


def test_absolute_key_is_one_for_all_namespaces_and_not_to_be_had_through_a_service(world: StoreWorld) -> None:
    """Asked for by its own handle; one that stands where the lines do is refused."""
    key, client = f"{world.namespace}-data", world.client(ttl=20)
    other = world.client(ttl=20, namespace=f"{world.namespace}-other")
    with client.lock("a") as ours, other.lock("a") as theirs:
        if runtime_of(inner(client)).options.key_places[1] is None:
            with pytest.raises(InvalidOption, match="through a service"):
                ours.store.absolute.put(key, b"ours")
            with pytest.raises(InvalidOption, match="through a service"):
                ours.store.absolute.get(key)
            return
        ours.store.absolute.put(key, b"ours")
        assert (theirs.store.absolute.get(key).key, theirs.store.get(key)) == (key, None)
        with pytest.raises(CompareFailed, match=key):
            theirs.store.absolute.delete(key, version=1)
        theirs.store.absolute.delete(key)
        with pytest.raises(InvalidName, match="keep your data elsewhere"):
            ours.store.absolute.put(f"{world.namespace}/x", b"")
