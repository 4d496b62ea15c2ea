"""Looking and mending over HTTP, on both stores."""

from __future__ import annotations

from typing import Any

import tenure
from tests.cli.program import eventually
from tests.service.http.program import User


def pages(user: User, **query: Any) -> list[list[str]]:
    """The names of all pages."""
    found, after = [], ""
    while True:
        reply = user.get("/v1/locks", after=after, **query).json()
        found.append([line["name"] for line in reply["lines"]])
        after = reply["after"]
        if after is None:
            return found


def test_list_comes_in_pages_that_miss_and_repeat_nothing(user: User, client: tenure.Client, name: str) -> None:
    """Twenty names by seven: every one once, whatever characters they have."""
    names = sorted([*(f"{name}/{number:02}" for number in range(18)), f"{name}/.", f"{name} é%"])
    holds = [client.lock(one).acquire() for one in names]
    found = pages(user, prefix=name, limit=7)
    assert all(len(page) <= 7 for page in found)
    assert sorted(one for page in found for one in page) == names
    assert [one for page in pages(user, prefix=f"{name}/1") for one in page] == [f"{name}/{n}" for n in range(10, 18)]
    for hold in holds:
        hold.release()
    assert [one for page in pages(user, prefix=name) for one in page] == []


def test_list_shows_who_holds_and_how_many_wait(user: User, client: tenure.Client, name: str) -> None:
    """The list shows what people on call need first; ids that would release a hold are not shown."""
    seats = [client.semaphore(name, limit=12).acquire() for _ in range(12)]
    line = user.get("/v1/locks", prefix=name).json()["lines"][0]
    assert (line["kind"], line["slots"], line["holderCount"], line["waiterCount"]) == ("semaphore", 12, 12, 0)
    assert len(line["holders"]) == 10
    assert {holder["ownerId"] for holder in line["holders"]} == {"library"}
    assert not any(seat.id in str(line) or (seat.lease_id and seat.lease_id in str(line)) for seat in seats)
    assert len(user.line(name)["holders"]) == 12
    for seat in seats:
        seat.release()


def test_name_that_nobody_uses_is_an_empty_line(user: User, name: str) -> None:
    """No 404: whether a name is used changes at any moment."""
    line = user.line(name)
    assert (line["name"], line["kind"], line["holders"], line["waiters"]) == (name, None, [], [])


def test_names_with_slashes_dots_and_percent_signs_stand_for_themselves(
    user: User, client: tenure.Client, name: str
) -> None:
    """A name is one segment, percent-encoded once."""
    for odd in (f"{name}/../x", f"{name}%2e%2e", f"{name}//", f"{name}?a=b#c", f"{name} ü"):
        with client.lock(odd) as hold:
            line = user.line(odd)
            assert (line["name"], line["holders"][0]["token"]) == (odd, str(hold.token))


def test_history_and_why_tell_how_the_last_hold_ended(user: User, client: tenure.Client, name: str) -> None:
    """The history is that of the library's journal."""
    hold = client.lock(name).acquire()
    hold.release()
    eventually(lambda: user.get(f"/v1/resources/{name}/history").json()["holds"])
    entry = user.get(f"/v1/resources/{name}/history").json()["holds"][-1]
    assert (entry["token"], entry["ownerId"], entry["ended"]) == (str(hold.token), "library", "released")
    why = user.get(f"/v1/resources/{name}/why").json()
    assert why["sentences"][0] == f"Nobody holds '{name}'."
    assert why["last"]["token"] == str(hold.token)


def test_force_release_ends_that_hold_and_is_written_down(user: User, name: str) -> None:
    """A force release is by token, with a reason; the owner learns of it at its next renewal, and the audit has it."""
    reply = user.held(name, "stuck-worker")
    record = user.force(name, reply["fencingToken"], "stuck since noon", actor="alice").json()
    assert (record["token"], record["ownerId"], record["actor"]) == (reply["fencingToken"], "stuck-worker", "alice")
    assert record["wasHolding"] is True
    assert user.line(name)["holders"] == []
    eventually(lambda: user.renew(reply["leaseId"]).status_code == 410)
    assert user.get("/v1/audit", prefix=name).json()["records"] == [record]
    assert user.force(name, reply["fencingToken"], "stuck since noon", actor="alice").json() == record
    why = user.get(f"/v1/resources/{name}/why").json()
    assert why["forced"] == record


def test_force_release_by_a_wrong_token_hits_nobody(user: User, name: str) -> None:
    """409 where others stand there, 404 where nobody does."""
    answer = user.force(name, "1")
    assert (answer.status_code, answer.json()["code"]) == (404, "nobody-there")
    reply = user.held(name)
    answer = user.force(name, "1")
    assert (answer.status_code, answer.json()["code"]) == (409, "wrong-token")
    assert user.line(name)["holders"][0]["token"] == reply["fencingToken"]
    for body in (
        {"token": 1, "reason": "x"},
        {"token": "1"},
        {"token": "1", "reason": ""},
        {"token": "-1", "reason": "x"},
    ):
        answer = user.request("POST", f"/v1/resources/{name}/release", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-field")
    user.release(reply["leaseId"])


def test_events_tell_lines_now_and_every_change(user: User, other: User, name: str) -> None:
    """First all of them; then each that changed, and each that is gone."""
    reply = user.held(f"{name}/a")
    with other.events("/v1/events", prefix=name) as events:
        kind, lines = events.next()
        assert (kind, [line["name"] for line in lines["lines"]]) == ("lines", [f"{name}/a"])
        second = user.held(f"{name}/b")
        _, line = events.until(lambda kind, line: kind == "line" and line["name"] == f"{name}/b")
        assert line["holders"][0]["token"] == second["fencingToken"]
        user.release(reply["leaseId"])
        assert events.until(lambda kind, line: kind == "gone")[1] == {"name": f"{name}/a"}
    user.release(second["leaseId"])


def test_streams_of_one_prefix_share_their_watch_and_end_with_their_clients(user: User, other: User, name: str) -> None:
    """A stream that is closed leaves the others as they are."""
    with user.events("/v1/events", prefix=name) as first:
        assert first.next()[0] == "lines"
        with other.events("/v1/events", prefix=name) as second:
            assert second.next()[0] == "lines"
        reply = other.held(name)
        assert first.until(lambda kind, line: kind == "line")[1]["name"] == name
    other.release(reply["leaseId"])


def test_list_fields_that_are_wrong_are_400(user: User) -> None:
    """Each refusal is one sentence."""
    for query in ({"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"after": "!"}, {"after": "e30"}, {"pre": "x"}):
        answer = user.get("/v1/locks", **query)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-field"), query
