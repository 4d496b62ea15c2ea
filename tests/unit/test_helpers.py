"""Helper threads: what they say of themselves."""

from __future__ import annotations

import threading

import pytest

from holdfast.errors import StoreUnavailable
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


def test_work_that_no_thread_could_be_started_for_is_never_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was told so has given it up: a ticket that is entered after all would be nobody's."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    helpers, ran = Helpers("test-helpers", 1), list[str]()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(StoreUnavailable):
                helpers.submit(lambda: ran.append("refused"))
        helpers.submit(lambda: ran.append("taken")).result(20)
        assert ran == ["taken"]
        assert helpers.crowded is False
    finally:
        helpers.close(20)
