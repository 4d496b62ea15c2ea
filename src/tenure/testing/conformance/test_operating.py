"""Tests of what operators look at and do: one test per verb and law, on every backend and both faces."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tenure
from tenure import ClientClosed, Ending, HoldState, Kind, LeaseLost, NoSuchTicket
from tenure._admin.protocol import RecordKind, StoredRecord, batches, record_name
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.limits import JOURNAL_PER_LINE_MAX, RECORDS_AT_ONCE_MAX, RECORDS_READ_MAX, VALUE_BYTES_MAX
from tenure._core.lease import Mode
from tenure._core.runtime import runtime_of
from tenure.testing.conformance.store_world import StoreWorld, eventually, inner, needs

FACTS = {"reason": "stuck since lunch", "actor": "alice"}


def soon() -> float:
    return SYSTEM_CLOCK.now() + 5.0


def lines_of(operator: Any, prefix: str = "") -> dict[str, Any]:
    """All lines below `prefix`, by name; none of them twice."""
    found = list(operator.lines(prefix))
    assert len({line.name for line in found}) == len(found)
    return {line.name: line for line in found}


@contextlib.contextmanager
def waiting(world: StoreWorld, name: str, **options: Any) -> Iterator[Any]:
    """Let a client wait in the line of `name`, and return the future of its acquire."""
    client = world.client(**options)
    before = len(world.tickets(name))
    with ThreadPoolExecutor() as pool:
        future = pool.submit(client.lock(name).acquire, 60.0)
        assert eventually(lambda: len(world.tickets(name)) == before + 1)
        yield future
        future.exception(60.0)


# Looking.


@needs("for_operators")
def test_lines_tell_kinds_holders_and_all_facts_of_their_tickets(world: StoreWorld) -> None:
    """Each line once, its tickets in order, with what their owners said."""
    client, operator = world.client(owner="worker"), world.client().operator()
    holds = [
        client.lock("a").acquire(),
        client.semaphore("seats", limit=5).acquire(weight=2),
        client.semaphore("seats", limit=5).acquire(),
        client.rwlock("config").read().acquire(),
        client.election("boss", value="10.0.0.7").campaign().acquire(),
    ]
    found = lines_of(operator)
    assert {name: line.kind for name, line in found.items()} == {
        "a": Kind.LOCK,
        "seats": Kind.SEMAPHORE,
        "config": Kind.RWLOCK,
        "boss": Kind.ELECTION,
    }
    tickets = [ticket for name in ("a", "seats", "config", "boss") for ticket in found[name].tickets]
    assert [(t.token, t.id, t.lease_id, t.owner, t.value) for t in tickets] == [
        (h.token, h.id, h.lease_id, "worker", h.value) for h in holds
    ]
    assert all(t.holds and not t.orphaned and t.age is not None and 0.0 <= t.age < 60.0 for t in tickets)
    seats = found["seats"]
    assert [(t.mode, t.weight, t.limit) for t in seats.tickets] == [(Mode.SEAT, 2, 5), (Mode.SEAT, 1, 5)]
    assert seats.limit == 5
    for hold in holds:
        hold.release()


@needs("for_operators")
def test_line_tells_who_waits_and_how_long_leases_have_left(world: StoreWorld) -> None:
    """The holder first, then the waiters in order; the times of their leases where the store can tell."""
    operator = world.client().operator()
    hold = world.client(owner="holder").lock("a").acquire()
    with waiting(world, "a", owner="second") as second, waiting(world, "a", owner="third") as third:
        line = operator.line("a")
        assert [ticket.owner for ticket in line.holders] == ["holder"]
        assert [ticket.owner for ticket in line.waiters] == ["second", "third"]
        for ticket in line.tickets:
            if world.tells_time_left:
                assert ticket.ttl is not None
                assert ticket.left is not None
                assert 0.0 < ticket.left <= ticket.ttl
            else:
                assert (ticket.ttl, ticket.left) == (None, None)
        assert repr(line) == f"<tenure.LineInfo 'a' lock held by holder (token {hold.token}), 2 waiting>"
        hold.release()
        second.result().release()
        third.result().release()


@needs("for_operators")
def test_line_that_nobody_stands_in_is_empty(world: StoreWorld) -> None:
    """An empty line is no error, and is not listed."""
    operator = world.client().operator()
    line = operator.line("nobody")
    assert (line.name, line.kind, line.limit, line.tickets) == ("nobody", None, None, ())
    assert list(operator.lines()) == []


@needs("for_operators")
def test_prefix_means_the_name_and_every_name_can_be_listed(world: StoreWorld) -> None:
    """Slashes, percent signs, dots and other scripts: a prefix is of the name as its user writes it."""
    client, operator = world.client(), world.client().operator()
    names = ["a", "a/b", "a/c", "%audit", "%audit/x", "ü", "über", ".", "..", ".a", "~z", " b"]
    holds = [client.lock(name).acquire() for name in names]
    assert set(lines_of(operator)) == set(names)
    for prefix in ("a", "a/", "%", "ü", ".", "..", "~", " ", "nothing"):
        assert set(lines_of(operator, prefix)) == {name for name in names if name.startswith(prefix)}, prefix
    for hold in holds:
        hold.release()


@needs("for_operators")
def test_verb_lines_pages_over_all_of_them_once(world_below: StoreWorld) -> None:
    """Page by page every line comes once, until there is no next page."""
    client = inner(world_below.client(ttl=20))
    holds = [client.lock(f"line-{number:03}").acquire() for number in range(40)]
    verbs, found, pages = runtime_of(client).admin(), list[str](), 0
    after: str | None = ""
    while after is not None:
        page = verbs.lines("line-", after, soon())
        found += [line.resource for line in page.lines]
        after, pages = page.after, pages + 1
        assert pages < 100
    assert sorted(found) == [hold.resource for hold in holds]


@needs("for_operators")
def test_watch_wakes_at_every_change_and_shows_the_lines(world: StoreWorld) -> None:
    """First what is, then what it has become: an arrival, an amendment, a departure."""
    client, watcher = world.client(owner="worker"), world.client()
    snapshots = iter(watcher.operator().watch("job-"))
    assert next(snapshots) == ()
    other = client.lock("elsewhere").acquire()
    hold = client.election("job-1", value="first").campaign().acquire()
    assert [(line.name, line.tickets[0].value) for line in next(snapshots)] == [("job-1", "first")]
    hold.amend("second")
    assert [line.tickets[0].value for line in next(snapshots)] == ["second"]
    hold.release()
    assert next(snapshots) == ()
    other.release()


@needs("for_operators", "reset")
def test_watch_goes_on_after_its_connection_broke(world: StoreWorld) -> None:
    """A watch that ends without an event is a reason to look and to watch again."""
    client, watcher = world.client(), world.client()
    snapshots = iter(watcher.operator().watch())
    assert next(snapshots) == ()
    for number in range(3):
        world.reset(watcher)
        hold = client.lock(f"a{number}").acquire()
        assert [line.name for line in next(snapshots)] == [hold.resource]
        hold.release()
        assert next(snapshots) == ()


@needs("for_operators")
def test_watch_ends_with_its_client(world: StoreWorld) -> None:
    """Closing the client ends the iteration, also while it waits."""
    watcher = world.client()
    snapshots = iter(watcher.operator().watch())
    next(snapshots)
    with ThreadPoolExecutor() as pool:
        rest = pool.submit(lambda: list(snapshots))
        time.sleep(0.1)
        watcher.close()
        assert rest.result(20.0) == []
    with pytest.raises(ClientClosed):
        watcher.operator().line("a")


# Forcing out.


@needs("for_operators")
def test_force_release_frees_the_line_and_leaves_a_record(world: StoreWorld) -> None:
    """The holder is out, the next one in, and who did it why stands in the store."""
    world.keeps_records = True
    operator = world.client().operator()
    hold = world.client(owner="holder").lock("a").acquire()
    with waiting(world, "a") as successor:
        record = operator.force_release("a", token=hold.token, **FACTS)
        next_hold = successor.result(20.0)
        assert next_hold.token > hold.token
        next_hold.release()
    assert (record.resource, record.token, record.holder) == ("a", hold.token, "holder")
    assert (record.reason, record.actor, record.ticket_id) == ("stuck since lunch", "alice", hold.id)
    assert record.was_holding
    assert abs(record.at - time.time()) < 60.0
    assert operator.audit() == (record,)


@needs("for_operators")
@pytest.mark.parametrize("checks", [False, True])
def test_lease_lost_at_the_edge_of_the_block_says_who_forced_it_out_and_why(world: StoreWorld, checks: bool) -> None:
    """Law 15: whoever logs the exception sees the operator's reason, also where the body's own `check` raised it."""
    world.keeps_records = True
    operator = world.client().operator()
    with (
        pytest.raises(LeaseLost, match="forced: stuck since lunch by alice"),
        world.client(ttl=30).lock("a") as hold,
    ):
        operator.force_release("a", token=hold.token, **FACTS)
        assert hold.lost.wait(20.0)
        if checks:
            hold.check()
    assert hold.reason == "forced: stuck since lunch by alice"
    assert hold.state is HoldState.LOST


@needs("for_operators")
def test_waiter_can_be_forced_out_and_the_holder_stays(world: StoreWorld) -> None:
    """A ticket is named by its token, wherever it stands in the line."""
    world.keeps_records = True
    operator = world.client().operator()
    hold = world.client().lock("a").acquire()
    with waiting(world, "a") as waiter:
        (ticket,) = operator.line("a").waiters
        record = operator.force_release("a", token=ticket.token, **FACTS)
        hold.release()
        with pytest.raises(LeaseLost):
            waiter.result(20.0)
    assert not record.was_holding


@needs("for_operators")
def test_force_release_with_another_token_touches_nobody_and_says_who_is_there(world: StoreWorld) -> None:
    """Law 5: not that very ticket, no removal; and no removal, no record."""
    operator = world.client().operator()
    hold = world.client(owner="somebody").lock("a").acquire()
    for token in (hold.token + 1, hold.token + 1000):
        with pytest.raises(NoSuchTicket, match=rf"somebody \(token {hold.token}\)"):
            operator.force_release("a", token=token, **FACTS)
    with pytest.raises(NoSuchTicket, match="The line is empty"):
        operator.force_release("b", token=hold.token, **FACTS)
    hold.renew()
    hold.check()
    assert operator.audit() == ()
    assert hold.release() is True


@needs("for_operators")
def test_force_release_that_is_repeated_finds_its_record_and_never_frees_the_successor(world: StoreWorld) -> None:
    """The same call again is the same record; another operator's is told that somebody was faster."""
    world.keeps_records = True
    operator = world.client().operator()
    hold = world.client().lock("a").acquire()
    with waiting(world, "a") as successor:
        record = operator.force_release("a", token=hold.token, **FACTS)
        next_hold = successor.result(20.0)
        assert operator.force_release("a", token=hold.token, **FACTS) == record
        with pytest.raises(NoSuchTicket, match="forced out before, by alice: stuck since lunch"):
            operator.force_release("a", token=hold.token, reason="me too", actor="bob")
        next_hold.renew()
        next_hold.check()
        assert next_hold.release() is True
    assert operator.audit() == (record,)


@needs("for_operators", "lose_answer")
def test_lost_answer_of_a_force_release_is_found(world: StoreWorld) -> None:
    """Law 6: the second try knows what the first one did, and the successor stays."""
    world.keeps_records = True
    client = world.client()
    operator = client.operator()
    operator.audit()  # it is connected
    hold = world.client().lock("a").acquire()
    with waiting(world, "a") as successor:
        world.lose_answer(client, "remove")
        record = operator.force_release("a", token=hold.token, **FACTS)
        next_hold = successor.result(20.0)
        next_hold.renew()
        assert next_hold.release() is True
    assert operator.audit() == (record,)


@needs("for_operators", "lose_request")
def test_lost_request_of_a_force_release_is_sent_again(world: StoreWorld) -> None:
    """A request that never arrived is carried out by the second try, once."""
    world.keeps_records = True
    client = world.client()
    operator = client.operator()
    operator.audit()
    hold = world.client().lock("a").acquire()
    world.lose_request(client, "remove")
    record = operator.force_release("a", token=hold.token, **FACTS)
    assert world.tickets("a") == []
    assert operator.audit() == (record,)


@needs("for_operators")
@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"reason": ""}, "reason can't be empty"),
        ({"reason": "  \n"}, "reason can't be empty"),
        ({"reason": "stuck\x1b[2J"}, "control character"),
        ({"reason": 7}, "is a str"),
        ({"reason": "x" * 1025}, "1024 bytes"),
        ({"actor": " "}, "actor can't be empty"),
        ({"token": 0}, "token must be"),
        ({"token": "7"}, "token must be"),
        ({"token": True}, "token must be"),
        ({"name": ""}, "can't be empty"),
        ({"name": "a\nb"}, "control character"),
    ],
)
def test_force_release_refuses_a_wrong_call(world: StoreWorld, facts: dict[str, Any], error: str) -> None:
    """Nothing is sent for a call that is wrong in itself."""
    call = {"name": "a", "token": 1, **FACTS, **facts}
    with pytest.raises(tenure.UsageError, match=error):
        world.client().operator().force_release(call.pop("name"), **call)


@needs("for_operators")
def test_actor_is_the_clients_owner_where_none_is_given(world: StoreWorld) -> None:
    """No record is without an actor."""
    world.keeps_records = True
    operator = world.client(owner="ops-laptop").operator()
    hold = world.client().lock("a").acquire()
    assert operator.force_release("a", token=hold.token, reason="stuck").actor == "ops-laptop"


@needs("for_operators")
def test_audit_is_in_the_order_of_time_and_by_prefix(world: StoreWorld) -> None:
    """The oldest first, over all lines; and records are no lines."""
    world.keeps_records = True
    client, operator = world.client(), world.client().operator()
    done = []
    for name in ("job-2", "job/1", "other", "job-1"):
        hold = client.lock(name).acquire()
        done.append(operator.force_release(name, token=hold.token, **FACTS))
    assert operator.audit() == tuple(done)
    assert operator.audit("job") == (done[0], done[1], done[3])
    assert operator.audit("job/") == (done[1],)
    assert list(operator.lines()) == []


@needs("for_operators")
def test_two_operators_at_once_leave_one_record_per_ticket(world: StoreWorld) -> None:
    """Among several operators who force out one ticket a single one has done it, and the others hear so."""
    world.keeps_records = True
    operators = [world.client(owner=f"op-{number}").operator() for number in range(4)]
    hold = world.client().lock("a").acquire()

    def force(operator: Any) -> Any:
        try:
            return operator.force_release("a", token=hold.token, reason="stuck")
        except NoSuchTicket as error:
            return str(error)

    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(force, operators))
    (record,) = operators[0].audit()
    assert answers.count(record) == 1
    assert all(t == record or f"forced out before, by {record.actor}" in t for t in answers)


@needs("for_operators", "writes_records")
def test_verb_remove_is_conditional_and_writes_both_or_neither(world_below: StoreWorld) -> None:
    """A remove takes that very ticket and writes its record; for a ticket that is gone it does neither."""
    world_below.keeps_records = True
    client = inner(world_below.client())
    verbs, hold = runtime_of(client).admin(), client.lock("a").acquire()
    (ticket,) = verbs.line("a", soon()).tickets
    wrong = ticket._replace(token=hold.token + 1)
    note = StoredRecord(RecordKind.AUDIT, "a", record_name(hold.token, hold.id), "one")
    if world_below.leave_checks_token:
        assert verbs.remove(wrong, note, soon()) is False
        assert verbs.record(note.kind, "a", note.name, soon()) is None
        hold.renew()
    assert verbs.remove(ticket, note, soon()) is True
    assert verbs.line("a", soon()).tickets == ()
    found = verbs.record(note.kind, "a", note.name, soon())
    assert found is not None
    assert found.text == "one"
    assert verbs.remove(ticket, dataclasses.replace(note, text="two"), soon()) is False
    assert verbs.record(note.kind, "a", note.name, soon()) == found
    second = client.lock("a").acquire()
    (ticket,) = verbs.line("a", soon()).tickets
    assert verbs.remove(ticket, None, soon()) is True
    assert verbs.remove(ticket, None, soon()) is False
    assert second.lost.wait(20.0)


@needs("for_operators", "writes_records")
def test_verbs_of_notes_keep_the_newest(world_below: StoreWorld) -> None:
    """Written twice is one note with the second text; trimming takes the oldest, of a line and of all."""
    world_below.keeps_records = True
    verbs = runtime_of(inner(world_below.client())).admin()

    def note(about: str, token: int, text: str = "") -> StoredRecord:
        return StoredRecord(RecordKind.JOURNAL, about, record_name(token, f"{token:020x}"), text)

    def standing(about: str) -> list[str]:
        return [found.name for found in verbs.read(RecordKind.JOURNAL, about, soon())]

    first = [note("a", token) for token in range(1, 8)]
    assert verbs.write(first, soon()) == {"a": 7}
    assert verbs.write([note("a", 7, "again ü"), note("b/c", 8)], soon()) == {"a": 7, "b/c": 1}
    assert verbs.read(RecordKind.JOURNAL, "a", soon())[-1].text == "again ü"
    assert standing("a") == [n.name for n in first]
    verbs.trim(RecordKind.JOURNAL, "a", 4, soon())
    assert standing("a") == [n.name for n in first[3:]]
    verbs.trim_all(RecordKind.JOURNAL, "b/", 1, soon())
    assert (len(standing("a")), len(standing("b/c"))) == (4, 1), "one prefix pushes out nothing of another"
    verbs.trim_all(RecordKind.JOURNAL, "", 3, soon())
    assert standing("a") == [n.name for n in first[5:]]
    assert len(standing("b/c")) == 1
    assert [n.resource for n in verbs.browse(RecordKind.JOURNAL, "b", soon())] == ["b/c"]
    assert verbs.browse(RecordKind.AUDIT, "", soon()) == ()


@needs("for_operators", "writes_records")
def test_verb_read_answers_with_the_newest_and_no_more(world_below: StoreWorld) -> None:
    """However many records somebody wrote about a line, one read of them is bounded."""
    world_below.keeps_records = True
    verbs = runtime_of(inner(world_below.client())).admin()
    names = [record_name(token, f"{token:020x}") for token in range(1, RECORDS_READ_MAX + RECORDS_AT_ONCE_MAX + 1)]
    for some in batches(names, RECORDS_AT_ONCE_MAX):
        verbs.write([StoredRecord(RecordKind.JOURNAL, "a", name, "") for name in some], soon())
    assert [found.name for found in verbs.read(RecordKind.JOURNAL, "a", soon())] == names[-RECORDS_READ_MAX:]


# The journal.


def entries(operator: Any, name: str, count: int, *, ended: bool = True) -> Any:
    """The history of `name` once it has `count` entries, all of them ended; writing them takes a moment."""

    def there() -> bool:
        found = operator.history(name)
        return len(found) == count and all((e.ended is not None and not e.derived) or not ended for e in found)

    assert eventually(there), operator.history(name)
    return operator.history(name)


def dropped(client: Any) -> int:
    """How many entries the client dropped; a service's client has no journal of its own."""
    journal = client.statistics().get("journal", {"dropped": 0})
    return int(journal["dropped"])


@needs("for_operators")
def test_journal_tells_who_held_how_long_after_which_wait_and_how_it_ended(world: StoreWorld) -> None:
    """An entry when the turn has come, and its end when it has: released, forced, removed by hand, closed."""
    world.keeps_records = True
    operator = world.client().operator()
    client = world.client(owner="worker", journal=True, ttl=30)
    hold = client.election("a", value="v").campaign().acquire()
    (entry,) = entries(operator, "a", 1, ended=False)
    assert (entry.owner, entry.token, entry.value, entry.kind) == ("worker", hold.token, "v", Kind.ELECTION)
    assert (entry.held, entry.ended, entry.derived) == (None, None, False)
    assert abs(entry.acquired_at - time.time()) < 60.0
    hold.release()
    forced = client.lock("a").acquire()
    operator.force_release("a", token=forced.token, **FACTS)
    assert forced.lost.wait(20.0)
    removed = client.lock("a").acquire()
    world.remove(removed)
    assert removed.lost.wait(20.0)
    entries(operator, "a", 3)
    last = client.lock("a").acquire()
    client.close()
    found = entries(operator, "a", 4)
    assert [e.ended for e in found] == [Ending.RELEASED, Ending.FORCED, Ending.REMOVED, Ending.CLOSED]
    assert [e.token for e in found] == [hold.token, forced.token, removed.token, last.token]
    assert all(e.held is not None and 0.0 <= e.held < 60.0 and 0.0 <= e.waited < 60.0 for e in found)
    assert "forced: stuck since lunch by alice" in found[1].reason


@needs("for_operators")
def test_why_tells_who_holds_and_how_the_last_hold_ended(world: StoreWorld) -> None:
    """The answer tells it in values, and in sentences."""
    world.keeps_records = True
    operator = world.client().operator()
    client = world.client(owner="worker", journal=True)
    first = client.lock("a").acquire()
    operator.force_release("a", token=first.token, **FACTS)
    assert first.lost.wait(20.0)
    entries(operator, "a", 1)
    hold = client.lock("a").acquire()
    explained = operator.why("a")
    assert [ticket.token for ticket in explained.line.holders] == [hold.token]
    assert (explained.last.token, explained.last.ended) == (first.token, Ending.FORCED)
    assert explained.forced.actor == "alice"
    assert f"'a' is held by worker (token {hold.token})" in str(explained)
    assert "was forced out by alice" in str(explained)
    hold.release()
    assert str(operator.why("nobody")) == "Nobody holds 'nobody'."


@needs("for_operators", "cut")
def test_end_of_a_crashed_holder_is_derived(world: StoreWorld) -> None:
    """A crashed holder wrote no end down: its ticket stands no more, so the hold has expired."""
    world.keeps_records = True
    operator = world.client().operator()
    client = world.client(journal=True, ttl=20)
    hold = client.lock("a").acquire()
    entries(operator, "a", 1, ended=False)
    world.cut(client)
    world.expire(hold)
    assert eventually(lambda: world.tickets("a") == [], 30.0)
    (entry,) = operator.history("a")
    assert (entry.ended, entry.derived, entry.held) == (Ending.EXPIRED, True, None)
    assert operator.why("a").last == entry


@needs("for_operators")
def test_journal_keeps_the_newest_entries_of_a_line(world: StoreWorld) -> None:
    """However often it is held: bounded, and it is the old ones that go."""
    world.keeps_records = True
    operator, client = world.client().operator(), world.client(journal=True)
    many = JOURNAL_PER_LINE_MAX * 2
    tokens = []
    for _ in range(many):
        with client.lock("a") as hold:
            tokens.append(hold.token)

    def newest() -> list[int]:
        return [entry.token for entry in operator.history("a") if not entry.derived]

    assert eventually(lambda: newest()[-1:] == tokens[-1:] and len(newest()) <= JOURNAL_PER_LINE_MAX * 5 // 4)
    found = operator.history("a")
    assert len(found) >= JOURNAL_PER_LINE_MAX
    assert [entry.token for entry in found] == tokens[-len(found) :]
    assert not dropped(client)


@needs("for_operators")
def test_journal_takes_large_values(world: StoreWorld) -> None:
    """However many of them wait to be written together."""
    world.keeps_records = True
    client = world.client(journal=True)
    value = "v" * VALUE_BYTES_MAX
    holds = [client.election(f"e{number}", value=value).campaign().acquire() for number in range(30)]
    operator = world.client().operator()
    assert [entry.value for number in range(30) for entry in entries(operator, f"e{number}", 1, ended=False)] == [
        value
    ] * 30
    assert not dropped(client)
    for hold in holds:
        hold.release()


@needs("for_operators")
def test_nothing_is_written_down_unless_asked_for(world: StoreWorld) -> None:
    """Law 12 holds as ever for those who use neither journal nor audit."""
    client = world.client()
    with client.lock("a"):
        pass
    assert "journal" not in client.statistics()
    assert client.operator().history("a") == ()
    client.close()
    assert eventually(lambda: world.left() == [])


@needs("for_operators", "cut")
def test_journal_keeps_no_caller_waiting_while_the_store_is_away(world: StoreWorld) -> None:
    """Releasing costs what it costs without a journal; what could not be written is, once the store is back."""
    world.keeps_records = True
    operator = world.client().operator()
    client = world.client(journal=True, ttl=60, timeout=1.0)
    hold = client.lock("a").acquire()
    entries(operator, "a", 1, ended=False)
    world.cut(client)
    done = threading.Event()

    def release() -> None:
        with contextlib.suppress(tenure.StoreUnavailable):
            hold.release()
        done.set()

    threading.Thread(target=release).start()
    assert done.wait(10.0)
    world.heal(client)
    (entry,) = entries(operator, "a", 1)
    assert entry.ended is Ending.RELEASED
