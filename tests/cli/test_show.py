"""`tenure show`: one line, ticket by ticket."""

from __future__ import annotations

import re
import threading

import tenure as library
from tests.cli.people import crowd, waiting
from tests.cli.program import NOT_PLAIN, eventually, shown, tenure


def test_holder_and_waiters_in_order_with_all_their_facts(client: library.Client, url: str) -> None:
    """Holder, token, since when, TTL, then the waiters, the next one first, each with its wait."""
    hold = client.lock("ledger").acquire()
    with waiting(url, "ledger", "first") as first, waiting(url, "ledger", "second") as second:
        done, document = tenure("show", "ledger", url=url), tenure("show", "ledger", "--json", url=url).json
        screen = shown("show", "ledger", url=url, columns=100)
    assert [(record[0], record[1], record[3]) for record in done.records] == [
        ("holds", "worker-1", str(hold.token)),
        ("1", "first", str(first)),
        ("2", "second", str(second)),
    ]
    assert all(float(record[5]) >= 0 for record in done.records)
    assert not NOT_PLAIN.search(done.out)
    assert (document["name"], document["kind"], document["limit"]) == ("ledger", "lock", None)
    assert [ticket["owner"] for ticket in document["waiters"]] == ["first", "second"]
    (holder,) = document["holders"]
    assert holder["since"].endswith("Z")
    if url.startswith("etcd"):
        assert (holder["ttl_seconds"], 0 < holder["left_seconds"] <= 20) == (20, True)
        assert re.search(rf"holds +worker-1 +{hold.token} +\d\d:\d\d:\d\d +[\d.]+s +20s +\d+s\n", screen.out)
    else:
        assert (holder["ttl_seconds"], holder["left_seconds"]) == (None, None)
        assert re.search(rf"holds +worker-1 +{hold.token} +\d\d:\d\d:\d\d +[\d.]+s\n", screen.out)
    assert screen.out.startswith("ledger   lock, 2 wait\n")
    assert re.search(rf"\n1 +first +{first} .*\n2 +second +{second} ", screen.out)


def test_kinds_are_told_apart(client: library.Client, other: library.Client, url: str) -> None:
    """Seats and how many are left, who reads, what a leader says of itself."""
    seat = client.semaphore("api", limit=5).acquire(weight=2)
    reading = [client.rwlock("config").read().acquire(), other.rwlock("config").read().acquire()]
    leading = client.election("boss", value="10.0.0.7:8080").campaign().acquire()
    with waiting(url, "config", wanted=lambda client: client.rwlock("config").write()):
        config = shown("show", "config", url=url, columns=120).out
    assert "api   semaphore, 2 of 5 seats taken, nobody waits" in shown("show", "api", url=url).out
    assert tenure("show", "api", url=url).records[0][2] == "2 seats"
    assert "config   rwlock, 2 readers, 1 waits" in config
    assert re.search(r"holds +worker-1 +reads ", config)
    assert re.search(r"1 +waiter +writes ", config)
    assert "10.0.0.7:8080" in shown("show", "boss", url=url, columns=100).out
    for hold in (seat, *reading, leading):
        hold.release()


def test_narrow_terminal(client: library.Client, url: str) -> None:
    """No line is wider than the terminal; owner and token stay."""
    with client.lock("ledger").acquire() as hold:
        for columns in (60, 30):
            done = shown("show", "ledger", url=url, columns=columns)
            assert max(map(len, done.out.splitlines())) <= columns
            assert re.search(rf"holds +worker-1 +{hold.token}", done.out)


def test_a_name_that_is_not_there(url: str) -> None:
    """Code 66, one line that says where it was looked for; JSON says that it is free."""
    done = tenure("show", "nobody", url=url)
    assert (done.code, done.out) == (66, "")
    assert "nobody holds 'nobody' or waits for it" in done.complaint
    assert url.partition("?")[0] in done.complaint
    done = tenure("show", "nobody", "--json", url=url)
    assert (done.code, done.json) == (
        66,
        {"name": "nobody", "kind": None, "limit": None, "holders": [], "waiters": []},
    )


def test_many_who_wait_are_told_in_number_unless_all_are_asked_for(client: library.Client, url: str) -> None:
    """A terminal shows the first twenty; `--all` and a pipe have everybody."""
    with crowd(url, ["ledger"]), library.connect(url, owner="many") as many:
        lock = many.lock("ledger")
        threads = [threading.Thread(target=_wait, args=(lock,)) for _ in range(25)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(client.operator().line("ledger").waiters) == 25)
        some, everybody = shown("show", "ledger", url=url), shown("show", "--all", "ledger", url=url)
        piped = tenure("show", "ledger", url=url)
        many.close()
        for thread in threads:
            thread.join()
    assert "… and 5 more who wait: --all shows them" in some.out
    assert len(re.findall("^[0-9]+ +many", some.out, re.MULTILINE)) == 20
    assert len(re.findall("^[0-9]+ +many", everybody.out, re.MULTILINE)) == 25
    assert "more who wait" not in everybody.out
    assert len(piped.records) == 26


def _wait(lock: library.Lock) -> None:
    try:
        lock.acquire(timeout=300)
    except library.TenureError:  # closed
        pass
