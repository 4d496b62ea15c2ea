"""Mutants of ZooKeeper's session, of its lines, and of its watches."""

from __future__ import annotations

from collections.abc import Sequence

from tests.verify.mutants.mutant import Mutant, mutants_of

_TESTS = ("tests/unit/test_zookeeper_lease.py",)

_PROOF = mutants_of(
    "_backends/zookeeper/connection.py",
    ("tests/unit/test_zookeeper_proof.py",),
    ("heartbeat that proves itself", "self._heard[0] <= sent - self._tick", "self._heard[0] <= sent"),
    ("proof by heartbeats of another connection", "        self._heard.clear()\n", "        pass\n"),
)

_LEASE = mutants_of(
    "_backends/zookeeper/lease.py",
    _TESTS,
    (
        "proof from the answer of a heartbeat on",
        "        if answer.successful():\n            self._prove(sent)",
        "        if answer.successful():\n            self._prove(self._clock.now())",
    ),
    (
        "proof from the answer of a renewal on",
        "        self._prove(sent)\n        if self.state.over:",
        "        self._prove(self._clock.now())\n        if self.state.over:",
    ),
    (
        "proof from when the session was there",
        "self._prove_from(self._linked_since, anew=True)",
        "self._prove_from(self._clock.now(), anew=True)",
    ),
    (
        "proof while unlinked",
        "self._proof.answered(sent) if self._proof is not None and self._linked_since is None else None",
        "self._proof.answered(sent) if self._proof is not None else None",
    ),
    (
        "session granted less that is believed for as long as before",
        "self._prove_from(self._linked_since, anew=True)",
        "self._prove_from(self._linked_since)",
    ),
    ("heartbeat that isn't dropped", "            self._connection.drop()\n", "            pass\n"),
    (
        "lock delay that the session is too short for",
        "if self._lock_delay and negotiated < asked - _MILLISECOND:",
        "if False:",
    ),
    (
        "loss that cuts a lock delay short",
        "            if self._lock_delay and self._belief.proven:\n",
        "            if False:\n",
    ),
    (
        "lost session left to its time-out",
        "            if self._lock_delay and self._belief.proven:\n",
        "            if self._belief.proven:\n",
    ),
    (
        "`look` that accepts any key",
        "if position is None or line.tickets[position].key != ticket.key:",
        "if position is None:",
    ),
    (
        "retry that makes a second node",
        "found = self._lines.find(entry, until) if tries > 1 else None",
        "found = None",
    ),
    ("line out of order that is entered", "if me is not None and codec.is_out_of_order(me):", "if False:"),
    (
        "session that nobody proves taken for one that has ended",
        "if self.state is LeaseState.CLOSED or self._belief.reason == EXPIRED:",
        "if True:",
    ),
    (
        "amendment of what is gone",
        "        except NoNodeError:\n            return False\n        return True",
        "        except NoNodeError:\n            return True\n        return True",
    ),
    (
        "withdrawal by the reaper that does nothing",
        "        return self.leave(found.tickets[-1], until)\n",
        "        return True\n",
    ),
    (
        "amendments of anybody that an observer misses",
        "        amendments = amendments or not tickets  # any change\n",
        "",
    ),
    (
        "amendments that wake who waits for a departure",
        "if amendments else _has_left",
        "if True else _has_left",
    ),
    (
        "amendment before the watch that is missed",
        "return version is None or version > known",
        "return version is None",
    ),
    (
        "arrivals that an observer misses",
        "return not awaited <= now if awaited else now != there",
        "return not there <= now",
    ),
)

_LINES = mutants_of(
    "_backends/zookeeper/lines.py",
    _TESTS,
    (
        "`find` without `sync`",
        "_, (children, line) = connection.ask(until, connection.sync(path), connection.children_and_stat(path))",
        "((children, line),) = connection.ask(until, connection.children_and_stat(path))",
    ),
    (
        "`survey` without the quorum",
        "_, children = connection.ask(until, connection.agreement(), connection.children(path))",
        "(children,) = connection.ask(until, connection.children(path))",
    ),
    (
        "`survey` after a `sync` only",
        "_, children = connection.ask(until, connection.agreement(), connection.children(path))",
        "_, children = connection.ask(until, connection.sync(path), connection.children(path))",
    ),
    ("history unchecked", "            self._history.check(stat.czxid, minimum)\n", ""),
    ("token that repeats", "            if token <= minimum:\n", "            if token < minimum:\n"),
    (
        "another session's node taken for the own one",
        "if stat is None or stat.ephemeralOwner != connection.session_id:",
        "if stat is None:",
    ),
)

_WATCHES = mutants_of(
    "_backends/zookeeper/watches.py",
    _TESTS,
    (
        "departure before the watch that is missed",
        "a reason to look\n                self._fire(node)\n",
        "a reason to look\n                pass\n",
    ),
    ("amendment before the arming that is missed", "        for signal in late:\n            signal.set()\n", ""),
    (
        "change that who comes later misses",
        "            late = node.armed and changed(node.seen)\n",
        "            late = False\n",
    ),
    ("closed wait that is woken", "            watched.waiting.pop(signal, None)\n", "            pass\n"),
    (
        "arrival just before the watch that is missed",
        "if not result.successful() or result.value is not None:",
        "if not result.successful():",
    ),
)

MUTANTS: Sequence[Mutant] = (*_PROOF, *_LEASE, *_LINES, *_WATCHES)
