"""Helper threads: what they say of themselves."""

from __future__ import annotations

import threading

from holdfast.helpers import Helpers


def test_helpers_are_crowded_while_there_is_more_to_do_than_threads() -> None:
    """Whoever finds them so has to see to its own deadline: nobody may begin its work in time."""
    helpers, go_on = Helpers("test-helpers", 2), threading.Event()
    try:
        assert helpers.crowded is False
        told = []
        for crowded in (False, False, True, True):
            told.append(helpers.submit(lambda: go_on.wait(20)))
            assert helpers.crowded is crowded
        go_on.set()
        assert [future.result(20) for future in told] == [True] * 4
        assert helpers.crowded is False
    finally:
        go_on.set()
        helpers.close(20)
