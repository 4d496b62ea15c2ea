"""The suite of `tenure.testing.conformance`, as a backend's author runs it: a toy passes it, and broken ones fail."""

from __future__ import annotations

import re
import sys

import pytest

from tenure.testing.conformance import StoreWorld
from tests.conformance.store_worlds import EtcdWorld, MemoryWorld, ZooKeeperWorld

TOY = """
from tenure import backends
from tenure._backends.memory import MemoryBackend, MemoryStore
from tenure._core.base.clock import SYSTEM_CLOCK

class Store(MemoryStore):
    pass

{bug}

stores = {{}}

def open_toy(options, around):
    backend = MemoryBackend(options, around)
    backend.store = stores.setdefault(options.endpoints[0][0], Store(SYSTEM_CLOCK))
    return backend

backends.register("toy", open_toy)
"""
CONFTEST = """
import pytest
from tenure.testing.conformance import *
import toy

class ToyWorld(StoreWorld):
    def __init__(self, face):
        super().__init__(face)
        self.url = f"toy://{self.namespace}"
        self.store = toy.stores.setdefault(self.namespace, toy.Store(toy.SYSTEM_CLOCK))
    def expire(self, hold):
        self.store.expire(hold.lease_id)
    def delete(self, name, ticket):
        self.store.leave(f"{self.namespace}/{name}", ticket, None)
    def tickets(self, name):
        return [t.id for t in self.store.lines.get(f"{self.namespace}/{name}", ())]
    def left(self):
        return list(self.store.lines)

@pytest.fixture
def make_world():
    return ToyWorld
"""
BUGS = {
    "tokens repeat": (
        """
def enter(self, line, entry, lease_id):
    self._revision %= 4
    return MemoryStore.enter(self, line, entry, lease_id)
Store.enter = enter""",
        "test_law4_tokens_grow_strictly_in_order_of_admission",
    ),
    "leave removes whoever is first": (
        """
def leave(self, line, ticket_id, token):
    first = next(iter(self.lines.get(line, ())), None)
    return first is not None and MemoryStore.leave(self, line, first.id, None)
Store.leave = leave""",
        "test_law7_timed_out_acquire_leaves_no_ticket",
    ),
    "leave does not look at tokens": (
        "Store.leave = lambda self, line, ticket_id, token: MemoryStore.leave(self, line, ticket_id, None)",
        "test_leave_removes_only_that_very_ticket_and_says_so",
    ),
    "a retried enter is another ticket": (
        """
import dataclasses, itertools
numbers = itertools.count()
def enter(self, line, entry, lease_id):
    return MemoryStore.enter(self, line, dataclasses.replace(entry, id=f"{entry.id}{next(numbers)}"), lease_id)
Store.enter = enter""",
        "test_enter_twice_is_one_ticket",
    ),
    "what happened before the watch is missed": (
        "Store._changed = lambda self, line, since, watch: False",
        "test_wait_change_does_not_miss_what_happened_since_the_line_was_read",
    ),
    "a closed lease leaves its tickets": (
        "Store.expire = lambda self, lease_id: None",
        "test_closed_lease_refuses_and_leaves_nothing",
    ),
    "the last come is first": (
        """
def look(self, line, resource):
    seen = MemoryStore.look(self, line, resource)
    return dataclasses.replace(seen, tickets=seen.tickets[::-1])
import dataclasses
Store.look = look""",
        "test_look_shows_the_line_up_to_me",
    ),
    "a commit asks nobody": (
        """
def commit(self, line, ticket, compares, writes):
    standing = self._standing(line, ticket)
    if standing is not None:
        return MemoryStore.commit(self, line, ticket, compares, writes)
    keep, self._standing = self._standing, lambda line, ticket: ticket
    try:
        return MemoryStore.commit(self, line, ticket, compares, writes)
    finally:
        self._standing = keep
Store.commit = commit""",
        "test_commit_of_a_ticket_that_is_gone_is_refused_and_names_both_tokens",
    ),
}


def write(pytester: pytest.Pytester, bug: str = "") -> None:
    pytester.makepyfile(toy=TOY.format(bug=bug))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_conformance="from tenure.testing.conformance.suite import *")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run such a suite in a process of its own, as strict as this one."""
    return pytester.run(
        sys.executable, "-m", "pytest", "-W", "error", "--strict-markers", "-p", "no:cacheprovider", "-q", *arguments
    )


@pytest.mark.timeout(300)
def test_toy_backend_passes_and_is_told_what_its_world_does_not_know(pytester: pytest.Pytester) -> None:
    """A dozen lines of world: every test that needs no fault passes, and every other one says what to define."""
    write(pytester)
    done = run(pytester, "-rs", "-k", "not law2_renewals")
    counts = done.parseoutcomes()
    assert counts.keys() <= {"passed", "skipped", "deselected"}, done.stdout.str()
    assert counts["passed"] > 150
    told = re.findall(r"SKIPPED \[(\d+)\] .*: ToyWorld does not define (.*)", done.stdout.str())
    assert sum(int(times) for times, _ in told) == counts["skipped"]
    faults = {fault for _, faults in told for fault in faults.split(", ")}
    assert faults == {"lose_answer", "lose_request", "cut", "reset", "leases", "work", "has_delegation"}


@pytest.mark.parametrize("bug", BUGS)
def test_broken_backend_fails_the_test_of_what_it_breaks(pytester: pytest.Pytester, bug: str) -> None:
    """Backends with one bug each fail the test that is about it. Without the bug it passes: see above."""
    source, test = BUGS[bug]
    write(pytester, source)
    assert "failed" in run(pytester, "-k", test, "--timeout=60").parseoutcomes()


def test_failed_test_of_the_suite_shows_the_values(pytester: pytest.Pytester) -> None:
    """Assertions are rewritten in the package too: its modules are no test modules of the author's own."""
    write(pytester, BUGS["leave does not look at tokens"][0])
    done = run(pytester, "-k", "test_leave_removes_only_that_very_ticket_and_says_so")
    done.stdout.fnmatch_lines(["E *assert True is False", "E * where True = leave(*"])


def test_world_that_is_left_dirty_fails_its_test(pytester: pytest.Pytester) -> None:
    """A ticket in the store after the clients were closed is an error, whatever the test said."""
    write(pytester)
    impatient = "from tenure.testing.conformance import store_world\nstore_world.eventually = lambda what: what()\n"
    pytester.makeconftest(CONFTEST.replace("return list(self.store.lines)", 'return ["toy/forgotten"]') + impatient)
    done = run(pytester, "-k", "test_enter_returns_the_line_with_my_ticket_and_its_token")
    done.assert_outcomes(passed=1, errors=1, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines(["E *left in the store: *toy/forgotten*"])


@pytest.mark.parametrize("kind", [MemoryWorld, EtcdWorld, ZooKeeperWorld])
def test_our_own_worlds_know_every_fault(kind: type[StoreWorld]) -> None:
    """Our own backends skip nothing of the suite."""
    for fault in ("lose_answer", "lose_request", "forget", "cut", "heal", "reset", "leases", "work"):
        assert getattr(kind, fault) is not getattr(StoreWorld, fault)
