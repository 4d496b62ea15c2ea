"""Mutants of etcd's lease, of the keys of its tickets, and of the store's history."""

from __future__ import annotations

from collections.abc import Sequence

from tests.verify.mutants.mutant import Mutant, mutants_of

_TESTS = ("tests/unit/test_etcd_lease.py",)

_LEASE = mutants_of(
    "_backends/etcd/lease.py",
    _TESTS,
    (
        "proof from the answer of a keep-alive on",
        "self._belief.prove(sent, provable(ttl - self._lock_delay))",
        "self._belief.prove(self._clock.now(), provable(ttl - self._lock_delay))",
    ),
    (
        "proof from the answer of a grant on",
        "self._belief.prove(sent, provable(self.ttl))",
        "self._belief.prove(self._clock.now(), provable(self.ttl))",
    ),
    ("keep-alive answered with TTL 0 taken for alive", "        if ttl <= 0:\n            return False\n", ""),
    ("found lease taken for proven", "if found and not self._keep_alive(until):", "if False:"),
    ("asked TTL taken for the granted one", "self.ttl = ttl - self._lock_delay", "pass"),
    ("lock delay that holders believe in", "provable(ttl - self._lock_delay)", "provable(ttl)"),
    ("new lease id at each retry of a grant", "number = self._number or secrets", "number = secrets"),
    (
        "loss that cuts a lock delay short",
        "            if self._lock_delay:\n                return  # whoever comes next",
        "            if False:\n                return  # whoever comes next",
    ),
    ("`enter` without its compare", "request = Txn((CreatedAt(key, 0),), (put,", "request = Txn((), (put,"),
    (
        "`leave` without its compare",
        "Txn((guarded_keys.is_still(ticket),), (DeleteKey(key),))",
        "Txn((), (DeleteKey(key),))",
    ),
    (
        "doubt after a lost `enter` forgotten",
        "            self._keys.doubt(entry.id)\n            self._audit",
        "            self._audit",
    ),
    (
        "lost `enter` that no audit follows",
        "            self._keys.doubt(entry.id)\n            self._audit.doubt(self._number, self.ttl)",
        "            self._keys.doubt(entry.id)",
    ),
    (
        "doubt after a lost `leave` forgotten",
        "        if answer.tries > 1:\n            self._keys.doubt(ticket.id)\n        if answer.succeeded",
        "        if answer.succeeded",
    ),
    (
        "ticket put by a lost try and not found again",
        "        if me is not None:\n            return self.look(me, entry.reach, until)\n"
        "        if not line.tickets:",
        "        if not line.tickets:",
    ),
    ("stranger's key that is waited for", "        self._keys.avoid(entry.id)\n", "        return line\n"),
    (
        "end of a lease taken for a release",
        "return answer.succeeded or (answer.tries > 1 and not self.state.over)",
        "return answer.succeeded or answer.tries > 1",
    ),
    ("plain deletion of somebody's key", "gone = ticket.lease_id == self.id and self._wire", "gone = self._wire"),
    (
        "withdrawal by the reaper that does nothing",
        "        gone = self._wire.delete(key, until)\n",
        "        gone = True\n",
    ),
    (
        "given-up key that no audit deletes",
        "        self._keys.give_up(entry.id)\n        self._reaper",
        "        self._reaper",
    ),
)

_KEYS = (
    *mutants_of(
        "_backends/etcd/ticket_keys.py",
        (*_TESTS, "tests/unit/test_etcd_ticket_keys.py"),
        (
            "given-up key taken by who came just before",
            "                if self._round == now:\n",
            "                if True:\n",
        ),
        ("audit that deletes what is taken", "        if key in self._taken:\n            return False\n", ""),
        (
            "audit that deletes other leases' keys",
            'not key.rpartition(b"/")[2].startswith(f"{lease}-".encode()) or ',
            "",
        ),
        ("audit that deletes tickets of ours", " or not self._keys.abolish(key)", ""),
        (
            "audit that looks once",
            "        self._look_later(ttl)\n\n    def _delete_if_unknown",
            "\n    def _delete_if_unknown",
        ),
    ),
    *mutants_of(
        "_backends/etcd/guarded_keys.py",
        _TESTS,
        (
            "amendment of whatever version",
            "return is_still(ticket), ModifiedAt(stored(ticket.key), ticket.version)",
            "return (is_still(ticket),)",
        ),
        (
            "commit that no ticket guards",
            "Txn((*_unamended(ticket), *map(_holds, compares))",
            "Txn((*map(_holds, compares),)",
        ),
    ),
    *mutants_of(
        "_backends/etcd/lines.py",
        _TESTS,
        (
            "look that later tickets lengthen",
            "self.ask(self.range(ticket.resource, reach, ticket.token), ticket.resource, until)",
            "self.ask(self.range(ticket.resource, reach), ticket.resource, until)",
        ),
        (
            "commit that is sent twice",
            "self._wire.txn_once(guarded_keys.committing",
            "self._wire.txn(guarded_keys.committing",
        ),
    ),
)

_HISTORY = mutants_of(
    "_backends/etcd/wire.py",
    _TESTS,
    (
        "another cluster that is taken for the same",
        "            if cluster != self._cluster:\n",
        "            if False:\n",
    ),
    ("store that went back and is believed", "            if revision >= minimum:\n", "            if True:\n"),
    (
        "history that each verb finds broken anew",
        "            self._history.check_unbroken()\n            return attempt()",
        "            return attempt()",
    ),
    ("lost tries that nobody counts", "return answer if tries == 1 else answer._replace(tries=tries)", "return answer"),
)

MUTANTS: Sequence[Mutant] = (*_LEASE, *_KEYS, *_HISTORY)
