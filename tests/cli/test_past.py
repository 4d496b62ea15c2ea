"""`tenure history`, `why` and `audit`: what was written down."""

from __future__ import annotations

import re

import tenure as library
from tests.cli.people import waiting
from tests.cli.program import NOT_PLAIN, eventually, shown, tenure

FORCED = {"reason": "stuck since noon, and the pager would not stop ringing until somebody came", "actor": "alice"}


def written(client: library.Client, name: str, ends: int) -> None:
    """Wait until the journal has that many ends."""
    operator = client.operator()
    eventually(lambda: sum(entry.ended is not None for entry in operator.history(name)) >= ends)


def test_history_tells_how_each_hold_ended(client: library.Client, url: str) -> None:
    """Released, forced, and the one that stands: in order, with wait and time held."""
    with client.lock("ledger").acquire():
        pass
    forced = client.lock("ledger").acquire()
    client.operator().force_release("ledger", token=forced.token, **FORCED)
    now = client.lock("ledger").acquire()
    written(client, "ledger", 2)
    eventually(lambda: len(client.operator().history("ledger")) == 3)
    done, document = tenure("history", "ledger", url=url), tenure("history", "ledger", "--json", url=url).json
    assert [record[5] for record in done.records] == ["released", "forced", "holds"]
    assert not NOT_PLAIN.search(done.out)
    assert [entry["token"] for entry in document][1:] == [str(forced.token), str(now.token)]
    assert document[1]["reason"] == f"forced: {FORCED['reason']} by alice"
    assert document[2]["ended"] is None
    assert all(entry["waited_seconds"] >= 0 for entry in document)
    screen = shown("history", "ledger", url=url)
    assert screen.code == 0
    assert max(map(len, screen.out.splitlines())) <= 80
    assert re.search(r"worker-1 .* released", screen.out)
    assert re.search(r"worker-1 .* holds", screen.out)


def test_history_of_what_nobody_wrote_down(other: library.Client, url: str) -> None:
    """Code 66, and how to have it written down."""
    with other.lock("ledger").acquire():
        done = tenure("history", "ledger", url=url)
    assert (done.code, done.out) == (66, "")
    assert "journal=1" in done.complaint
    assert tenure("history", "ledger", "--json", url=url).json == []


def test_why_says_it_in_sentences(client: library.Client, url: str) -> None:
    """Sentences say who holds it, who waits, how the last hold ended, who was forced out."""
    with client.lock("ledger").acquire() as first:
        pass
    written(client, "ledger", 1)
    hold = client.lock("ledger").acquire()
    with waiting(url, "ledger") as next_token:
        done, document = tenure("why", "ledger", url=url), tenure("why", "ledger", "--json", url=url).json
        client.operator().force_release("ledger", token=hold.token, **FORCED)
        after = tenure("why", "ledger", url=url)
    assert done.code == 0
    assert f"'ledger' is held by worker-1 (token {hold.token})" in done.out
    assert f"1 waiting, the next of them waiter (token {next_token})" in done.out
    assert f"The last hold was worker-1's (token {first.token})" in done.out
    assert (document["last"]["ended"], document["forced"]) == ("released", None)
    assert document["line"]["waiters"][0]["token"] == str(next_token)
    assert f"worker-1 (token {hold.token}) was forced out by alice" in after.out


def test_why_of_a_name_that_nothing_is_known_of(url: str) -> None:
    """Code 66."""
    done = tenure("why", "nobody", url=url)
    assert (done.code, done.out) == (66, "")
    assert "nothing is known of 'nobody'" in done.complaint


def test_audit_lists_records_below_a_prefix(client: library.Client, url: str) -> None:
    """Records say when, whom, from what, by whom, why; reasons are wrapped at a terminal and whole in a pipe."""
    assert tenure("audit", url=url).out == ""
    assert shown("audit", url=url).out == "nobody was forced out\n"
    tokens = {}
    for name in ("ledger", "ledger-2", "mail"):
        hold = client.lock(name).acquire()
        tokens[name] = str(hold.token)
        client.operator().force_release(name, token=hold.token, **FORCED)
    done = tenure("audit", "ledger", url=url)
    assert [record[1:] for record in done.records] == [
        [name, tokens[name], "worker-1", "holding", "alice", FORCED["reason"]] for name in ("ledger", "ledger-2")
    ]
    assert [record["name"] for record in tenure("audit", "--json", url=url).json] == ["ledger", "ledger-2", "mail"]
    for columns in (80, 50):
        screen = shown("audit", url=url, columns=columns).out
        assert max(map(len, screen.splitlines())) <= columns
        assert "3 records" in screen
        assert FORCED["reason"] not in screen
        assert "ringing" in screen
