"""Mutants of ZooKeeper's session, of its lines, and of its watches."""

from __future__ import annotations

from collections.abc import Sequence

from tests.verify.mutants.mutant import Mutant, mutants_of

_PROOF = mutants_of(
    "_backends/zookeeper/connection.py",
    ("tests/unit/test_zookeeper_proof.py",),
    ("heartbeat that proves itself", "self._heard[0] <= sent - self._tick", "self._heard[0] <= sent"),
    ("proof by heartbeats of another connection", "        self._heard.clear()\n", "        pass\n"),
    (
        "proof that thousands of heartbeats put off",
        "        if not self._heard or sent - self._heard[-1]",
        "        if len(self._heard) < 100 or sent - self._heard[-1]",
    ),
)

MUTANTS: Sequence[Mutant] = _PROOF
