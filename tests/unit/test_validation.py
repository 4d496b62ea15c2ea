"""Names: one name is one line, everywhere."""

from __future__ import annotations

import os
import socket
import string
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenure._admin.protocol import name_of
from tenure._core.base.limits import NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, OWNER_BYTES_MAX
from tenure._core.base.validation import (
    DEFAULT_NAMESPACE,
    checked_absolute_key,
    checked_key,
    checked_owner,
    decode,
    encode,
    keys_root,
    namespace_path,
)
from tenure.errors import InvalidName
from tests.unit.rig import Rig

USABLE = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=60)
SHARP = [
    *("..", ".", "...", "/", "//", "%", "%2F", "%2E", "%2E%2E", "a/b", "a b", " ", "~", "+"),
    *("\u00e9", "e\u0301", "\U0001f512", "\u200b", "\uffff"),
]


@given(USABLE)
def test_name_encoded_and_decoded_is_itself(name: str) -> None:
    """Whatever a user may call a thing comes back as it was."""
    assert decode(encode(name)) == name


@pytest.mark.parametrize("name", SHARP)
def test_sharp_name_encoded_and_decoded_is_itself(name: str) -> None:
    """Dots, slashes, percents, spaces and emoji are names like any other."""
    assert decode(encode(name)) == name


@given(USABLE, USABLE)
@example("a/b", "a%2Fb")
@example("..", "%2E%2E")
@example("\u00e9", "e\u0301")
def test_two_names_are_two_segments(one: str, other: str) -> None:
    """One name is one line: two names never meet in one."""
    assert (encode(one) == encode(other)) == (one == other)


def test_all_sharp_names_are_distinct_segments() -> None:
    """None of the tricky spellings meets another."""
    assert len({encode(name) for name in SHARP}) == len(SHARP)


@given(USABLE)
@example(".")
@example("..")
@example("/")
def test_segment_is_one_printable_path_segment(name: str) -> None:
    """ZooKeeper refuses most characters, and a slash would nest one line in another."""
    segment = encode(name)
    assert set(segment) <= set(string.ascii_letters + string.digits + string.punctuation + " ")
    assert "/" not in segment
    assert segment not in ("", ".", "..")


@given(st.text(string.ascii_letters + string.digits + "-_:.@=,", min_size=3))
def test_plain_name_stands_for_itself(name: str) -> None:
    """What people usually write is readable at the store."""
    if set(name) == {"."} or len(name) > NAME_BYTES_MAX:
        return
    assert encode(name) == name


@pytest.mark.parametrize("bad", ["", "a\0b", "\n", "a\tb", "\x7f", "\x85", "\ud800", "a\udfff", "\x00"])
def test_unusable_name_raises_invalid_name(bad: str) -> None:
    """Empty names, control characters, NUL and lone surrogates are refused before anything is sent."""
    with pytest.raises(InvalidName):
        encode(bad)
    with pytest.raises(InvalidName):
        checked_owner(bad)


@pytest.mark.parametrize("bad", [None, 7, b"bytes", 1.5, True, ("a",)])
def test_name_that_is_no_text_raises_invalid_name(bad: str) -> None:
    """A number or bytes where a name belongs is told as such."""
    with pytest.raises(InvalidName, match="is a str"):
        encode(bad)


@pytest.mark.parametrize(("character", "size"), [("a", 1), ("é", 2), ("🔒", 4), ("/", 1)])
def test_name_length_is_bounded_in_bytes(character: str, size: int) -> None:
    """The bound is in bytes of UTF-8, and exact."""
    longest = character * (NAME_BYTES_MAX // size)
    assert decode(encode(longest)) == longest
    with pytest.raises(InvalidName, match=f"at most {NAME_BYTES_MAX}"):
        encode(longest + character)


def test_message_about_an_over_long_name_is_short_itself() -> None:
    """A megabyte of name does not become a megabyte of log."""
    with pytest.raises(InvalidName) as raised:
        encode("x" * 1_000_000)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("", DEFAULT_NAMESPACE),
        ("/", DEFAULT_NAMESPACE),
        ("billing", "billing"),
        ("/billing/", "billing"),
        ("a/b", "a/b"),
        ("a b/ü", "a b/%C3%BC"),
        ("a%b", "a%25b"),
    ],
)
def test_namespace_is_stored_as_encoded_segments(given: str, stored: str) -> None:
    """A namespace may have several segments; each is encoded like a name."""
    assert namespace_path(given) == stored


@pytest.mark.parametrize("bad", ["a//b", "a/../b", "..", ".", "a/.", "./a", "a\0", "\ud800", "x" * 513])
def test_unusable_namespace_raises_invalid_name(bad: str) -> None:
    """A namespace can't climb out of itself or hold an empty segment."""
    with pytest.raises(InvalidName):
        namespace_path(bad)


def test_namespace_and_owner_are_bounded() -> None:
    """Bounds are exact for them too."""
    assert namespace_path("n" * NAMESPACE_BYTES_MAX)
    assert checked_owner("o" * OWNER_BYTES_MAX) == "o" * OWNER_BYTES_MAX
    with pytest.raises(InvalidName, match=str(OWNER_BYTES_MAX)):
        checked_owner("o" * (OWNER_BYTES_MAX + 1))


def test_owner_that_is_not_given_is_this_host_and_process() -> None:
    """Whoever reads the line finds the process."""
    assert checked_owner(None) == f"{socket.gethostname()}:{os.getpid()}"


@pytest.mark.parametrize("bad", ["", "a\0b", "\ud800", "x" * 513, None, 7])
def test_every_recipe_refuses_an_unusable_name_before_anything_is_sent(rig: Rig, bad: str) -> None:
    """The check stands at the public edge of each recipe, and talks to nobody."""
    client = rig.client()
    for make in (client.lock, client.rwlock, client.election, lambda name: client.semaphore(name, limit=2)):
        with pytest.raises(InvalidName):
            make(bad)
    assert sum(rig.store.requests.values()) == 0


@pytest.mark.parametrize("name", SHARP)
def test_sharp_name_can_be_held_and_excludes_only_itself(rig: Rig, name: str) -> None:
    """One name is one line: every other sharp name is free meanwhile."""
    client = rig.client()
    with client.lock(name) as hold:
        assert hold.resource == name
        assert client.lock(name).try_acquire() is None
        for other in SHARP:
            if other != name:
                free = client.lock(other).try_acquire()
                assert free is not None, other
                free.release()


@pytest.mark.parametrize(
    "key", ["app", "/app", "app/locks", "/app/locks", "app/locks/ledger", "/app/locks/a/b", "zookeeper/quota"]
)
def test_key_in_the_namespace_or_above_it_is_refused(key: str) -> None:
    """On ZooKeeper a parent that was made for the lines goes with the last client, and data in it would go as well."""
    with pytest.raises(InvalidName, match="keep your data elsewhere"):
        checked_absolute_key(key, "app/locks")


@pytest.mark.parametrize("key", ["apple", "app/lock", "app/locks2", "data/app/locks", "/app/data"])
def test_key_beside_the_namespace_is_the_users_own(key: str) -> None:
    """Neighbours that only look alike are no part of it."""
    assert checked_absolute_key(key, "app/locks") == key


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/", "a/../b", ".", "\ufff0", "\ue000", "k" * 1025, "\0", None])
def test_unusable_key_raises_invalid_name(key: Any) -> None:
    """A key can't climb out of its namespace, and an absolute one is not taken for another by mistake."""
    with pytest.raises(InvalidName) as refused:
        checked_key(key)
    assert ("store.absolute" in str(refused.value)) == (key == "/a")


def test_place_of_user_keys_is_no_lines() -> None:
    """What stands behind the namespace there is what no name is encoded to: a name `%data` is `%25data`."""
    segment = keys_root("app").removeprefix("app/").rstrip("/")
    assert segment == "%data"
    assert name_of(segment) is None
    assert encode(segment) != segment


def test_memory_names_that_differ_only_in_their_namespaces_end_are_two_lines(rig: Rig) -> None:
    """One name is one line: a slash in a name does not reach into another namespace."""
    inner, outer = rig.client(namespace="x/a"), rig.client(namespace="x")
    with inner.lock("b") as one, outer.lock("a/b").acquire(timeout=0) as other:
        assert one.token != other.token
        assert len(rig.store.lines) == 2


@pytest.mark.parametrize("bad", [["a"], {"a": 1}, {"a"}, bytearray(b"a")])
def test_name_that_can_not_even_be_hashed_raises_invalid_name(rig: Rig, bad: Any) -> None:
    """A list where a name belongs is told like a number there."""
    with pytest.raises(InvalidName, match="is a str"):
        encode(bad)
    with pytest.raises(InvalidName, match="is a str"):
        rig.client().lock(bad)
