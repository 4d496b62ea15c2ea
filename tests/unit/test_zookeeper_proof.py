"""Proof of a session by answered heartbeats, however many there are."""

from __future__ import annotations

import pytest

from tenure._backends.zookeeper.connection import SessionProof

TICK = 2.0


@pytest.mark.parametrize("per_second", [1, 10, 100, 1000, 10_000])
def test_proof_is_hardly_older_than_a_tick_however_often_it_is_asked_for(per_second: int) -> None:
    """Each is proven by one a tick later; ten thousand renewals a second on one session are no reason to lose it."""
    proof, proven = SessionProof(TICK), None
    for number in range(5 * per_second + 1):
        sent = 1000.0 + number / per_second
        proven = proof.answered(sent) or proven
        if sent >= 1000.0 + 2 * TICK:
            assert proven is not None
            assert TICK <= sent - proven <= TICK * 1.1 + 1 / per_second


def test_answers_out_of_order_prove_nothing_that_no_later_sending_has_confirmed() -> None:
    """Threads that renew are not in step with each other."""
    proof = SessionProof(TICK)
    told = [proof.answered(sent) for sent in (1001.0, 1000.0, 1002.5, 1003.5, 1001.5, 1004.5)]
    assert told == [None, None, None, 1001.0, None, 1002.5]


def test_new_connection_begins_anew() -> None:
    """What was sent on the one before may not have arrived."""
    proof = SessionProof(TICK)
    proof.answered(1000.0)
    proof.restart()
    assert [proof.answered(sent) for sent in (1001.5, 1003.0, 1004.0)] == [None, None, 1001.5]
