"""Locks over HTTP, on both stores: what a program in any language may rely on."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

import tenure
from tests.cli.program import eventually
from tests.service.http.program import TTL, Service, User


def test_acquire_answers_with_all_that_its_owner_needs(user: User, name: str) -> None:
    """Token and fence as text, the granted TTL, and what is left of it, by the service's clock and without one."""
    before = datetime.now(UTC)
    reply = user.held(name, "worker-1", ttlSeconds=20, value="10.0.0.7")
    assert (reply["resource"], reply["ownerId"]) == (name, "worker-1")
    assert int(reply["fencingToken"]) > 0
    fence = tenure.Fence.parse(reply["fence"])
    assert (str(fence.token), fence.shared) == (reply["fencingToken"], False)
    assert 0 < reply["remainingSeconds"] <= reply["ttlSeconds"] <= 21
    ends = datetime.fromisoformat(reply["expiresAt"])
    assert before < ends
    assert (ends - before).total_seconds() <= 25
    line = user.line(name)
    assert (line["kind"], line["holderCount"], line["waiterCount"]) == ("election", 1, 0)
    assert line["holders"][0]["token"] == reply["fencingToken"]
    assert line["holders"][0]["ownerId"] == "worker-1"
    assert user.release(reply["leaseId"]).json() == {"released": True}
    assert user.line(name)["holders"] == []


def test_nothing_is_lost_on_who_reads_numbers_as_doubles(user: User, name: str) -> None:
    """Tokens are texts in every answer, and in requests: the numbers of a store go beyond 2^53."""
    reply = json.loads(user.acquire(name).content, parse_int=float)
    line = json.loads(json.dumps(user.line(name)), parse_int=float)
    assert isinstance(reply["fencingToken"], str)
    assert line["holders"][0]["token"] == reply["fencingToken"]
    assert user.renew(reply["leaseId"]).json()["fencingToken"] == reply["fencingToken"]
    number: Any = int(reply["fencingToken"])
    assert user.force(name, number).status_code == 400
    assert user.force(name, reply["fencingToken"]).status_code == 200


def test_second_owner_is_told_that_it_has_nothing_and_leaves_nothing(user: User, other: User, name: str) -> None:
    """409: `curl -f` and its like take it for no success. It says who holds, and how many wait; no ticket stays."""
    reply = user.held(name, "early")
    answer = other.acquire(name, "late", waitSeconds=0.2)
    assert (answer.status_code, answer.json()["code"], answer.json()["happened"]) == (409, "not-acquired", "no")
    assert (answer.json()["acquired"], answer.json()["retry"]) == (False, True)
    assert (answer.json()["heldBy"], answer.json()["waiterCount"]) == (["early"], 0)
    with waiting(other, name) as waiter:
        eventually(lambda: user.line(name)["waiterCount"] == 1)
        assert user.acquire(name, "late").json()["waiterCount"] == 1
        user.release(reply["leaseId"])
        reply = waiter().json()
    assert user.line(name)["waiterCount"] == 0
    user.release(reply["leaseId"])


def test_waiting_owner_gets_it_when_it_is_released_with_a_higher_token(user: User, other: User, name: str) -> None:
    """First come, first served, and tokens that grow."""
    reply = user.held(name)
    with waiting(other, name) as waiter:
        eventually(lambda: user.line(name)["waiterCount"] == 1)
        user.release(reply["leaseId"])
        got = waiter().json()
    assert got["acquired"]
    assert int(got["fencingToken"]) > int(reply["fencingToken"])
    other.release(got["leaseId"])


def test_hold_lives_by_its_own_ttl_and_renew_moves_it(user: User, other: User, name: str) -> None:
    """A dead owner behind a living service loses its lock; a renewing one keeps it."""
    grant, lost = user.held(f"{name}-kept", ttlSeconds=5), user.held(f"{name}-lost", ttlSeconds=5)
    until = time.monotonic() + 6.0
    while time.monotonic() < until:
        assert 0 < user.renew(grant["leaseId"]).json()["remainingSeconds"] <= grant["ttlSeconds"]
        time.sleep(0.5)
    assert other.acquire(f"{name}-kept").json()["acquired"] is False
    successor = other.held(f"{name}-lost", waitSeconds=30)
    assert int(successor["fencingToken"]) > int(lost["fencingToken"])
    assert user.renew(lost["leaseId"]).json()["code"] == "hold-gone"
    assert user.release(lost["leaseId"]).status_code == 410
    assert user.line(f"{name}-lost")["holders"][0]["token"] == successor["fencingToken"]
    user.release(grant["leaseId"])
    other.release(successor["leaseId"])


def test_renew_and_release_after_the_release_are_410(user: User, name: str) -> None:
    """A hold that has ended never comes back."""
    reply = user.held(name)
    user.release(reply["leaseId"])
    for answer in (user.renew(reply["leaseId"]), user.release(reply["leaseId"])):
        assert (answer.status_code, answer.json()["code"]) == (410, "hold-gone")


def test_late_release_of_an_old_hold_frees_nobody(user: User, name: str) -> None:
    """A release frees only that very hold, never its successor."""
    first = user.held(name)
    user.release(first["leaseId"])
    second = user.held(name)
    assert user.release(first["leaseId"]).status_code == 410
    assert user.line(name)["holders"][0]["token"] == second["fencingToken"]
    user.release(second["leaseId"])


@pytest.mark.parametrize("hold", ["x", "tnonsense", "..", "t" + "A" * 3000, "e30", "%F0%9F%94%92"])
def test_what_is_no_id_is_404(user: User, hold: str) -> None:
    """Texts that are no ids are all refused, in the same words."""
    answers = [user.renew(hold), user.release(hold)] if hold != ".." else [user.release("%2e%2e")]
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(404, "unknown-hold")}


def test_seats_are_shared_up_to_their_number(user: User, name: str) -> None:
    """A semaphore: two of three seats at once, then one, then none."""
    two, one = user.held(name, slots=3, weight=2), user.held(name, slots=3)
    assert user.acquire(name, slots=3).json()["acquired"] is False
    line = user.line(name)
    assert (line["kind"], line["slots"], line["holderCount"]) == ("semaphore", 3, 2)
    answer = user.acquire(name, slots=4)
    assert (answer.status_code, answer.json()["code"]) == (409, "line-mismatch")
    for reply in (two, one):
        user.release(reply["leaseId"])


def test_readers_share_and_exclude_the_writer(user: User, name: str) -> None:
    """The two sides of a read/write lock."""
    readers = [user.held(name, shared=True) for _ in range(2)]
    assert user.acquire(name).json()["acquired"] is False
    for reply in readers:
        user.release(reply["leaseId"])
    writer = user.held(name)
    assert user.acquire(name, shared=True).json()["acquired"] is False
    user.release(writer["leaseId"])


def test_service_and_library_exclude_each_other(user: User, client: tenure.Client, name: str) -> None:
    """Owners stand in one line, whatever language they are written in."""
    reply = user.held(name)
    assert client.lock(name).try_acquire() is None
    user.release(reply["leaseId"])
    with client.lock(name) as hold:
        assert hold.token > int(reply["fencingToken"])
        assert user.acquire(name).json()["acquired"] is False


def test_retry_with_its_key_finds_the_hold_and_takes_no_other(user: User, other: User, name: str) -> None:
    """A lost answer costs nothing: the same request finds what the first one did."""
    key = str(uuid.uuid4())
    reply = user.held(name, key=key)
    again = other.held(name, key=key)
    assert (again["leaseId"], again["fencingToken"]) == (reply["leaseId"], reply["fencingToken"])
    assert user.line(name)["holderCount"] == 1
    answer = other.acquire(f"{name}-else", key=key)
    assert (answer.status_code, answer.json()["code"]) == (422, "key-reused")
    user.release(reply["leaseId"])
    answer = other.acquire(name, key=key)
    assert (answer.status_code, answer.json()["code"]) == (409, "key-spent")
    assert user.line(name)["holderCount"] == 0


def test_caller_that_hangs_up_while_it_waits_leaves_nothing(user: User, open_service: Service, name: str) -> None:
    """The ticket of a caller that hangs up goes at once, and the next in line does not wait for it."""
    reply = user.held(name)
    gone = httpx.Client(base_url=open_service.url)
    with pytest.raises(httpx.ReadTimeout), gone:
        body = {"resource": name, "ownerId": "gone", "ttlSeconds": TTL, "waitSeconds": 600}
        gone.post("/v1/locks/acquire", json=body, timeout=httpx.Timeout(30, read=1.0))
    eventually(lambda: user.line(name)["waiterCount"] == 0)
    user.release(reply["leaseId"])
    assert user.line(name)["holderCount"] == 0
    eventually(lambda: any(line.get("code") == "hung-up" for line in open_service.log))


def test_many_wait_and_go_and_leave_nothing(user: User, open_service: Service, name: str) -> None:
    """Fifty at once: each has its turn, one at a time, and the line is empty at the end."""
    holding = threading.Lock()
    tokens = []

    def work(_: int) -> None:
        with open_service.user() as worker:
            reply = worker.held(name, waitSeconds=300)
            assert holding.acquire(blocking=False)
            tokens.append(int(reply["fencingToken"]))
            holding.release()
            assert worker.release(reply["leaseId"]).status_code == 200

    with ThreadPoolExecutor(50) as crowd:
        list(crowd.map(work, range(50)))
    assert tokens == sorted(tokens)
    assert len(tokens) == 50
    assert user.line(name)["holders"] == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"resource": ""}, "resource can't be empty"),
        ({"resource": 7}, "resource must be a string, not a number"),
        ({"resource": None}, "not null"),
        ({"resource": "a\x00b"}, "control character"),
        ({"resource": "x" * 600}, "at most 512 bytes"),
        ({"ownerId": "x" * 300}, "at most 256 bytes"),
        ({"ttlSeconds": 0.9}, "ttlSeconds must be from 1 to 86400 seconds"),
        ({"ttlSeconds": "15"}, "ttlSeconds must be a number of seconds, not a string"),
        ({"ttlSeconds": True}, "not true or false"),
        ({"ttlSeconds": 1e308}, "86400"),
        ({"waitSeconds": -1}, "waitSeconds must be from 0 to 3600 seconds"),
        ({"slots": 0}, "slots must be from 1"),
        ({"slots": 1.5}, "whole number"),
        ({"slots": 10**30}, "slots must be from 1"),
        ({"slots": 2, "weight": 3}, "weight"),
        ({"weight": 2}, "weight"),
        ({"slots": 2, "shared": True}, "slots"),
        ({"shared": "yes"}, "shared must be true or false"),
        ({"value": "x" * 70_000}, "value may have at most 65536 bytes"),
        ({"values": ""}, "there is no field 'values'"),
    ],
)
def test_wrong_field_is_400_and_names_it(user: User, name: str, fields: dict[str, Any], says: str) -> None:
    """The refusal is one sentence for the programmer; nothing was acquired."""
    body = {"resource": name, "ownerId": "me", "ttlSeconds": 5, **fields}
    answer = user.request("POST", "/v1/locks/acquire", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-field")
    assert says in answer.json()["detail"]
    assert answer.json()["retry"] is False
    assert user.line(name)["holders"] == []


@pytest.mark.parametrize("missing", ["resource", "ownerId", "ttlSeconds"])
def test_missing_field_is_400_and_named(user: User, name: str, missing: str) -> None:
    """No defaults for what nobody can guess."""
    body = {"resource": name, "ownerId": "me", "ttlSeconds": 5}
    del body[missing]
    answer = user.request("POST", "/v1/locks/acquire", json=body)
    assert (answer.status_code, answer.json()["detail"].partition(":")[0]) == (400, f"{missing} is missing")


@contextmanager
def waiting(user: User, name: str) -> Iterator[Any]:
    """Acquire in a thread; the returned function waits for the answer."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(user.acquire, name, "waiter", waitSeconds=120)
        yield lambda: future.result(120)
