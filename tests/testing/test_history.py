"""Recorders lose nothing they were given, and histories refuse what is none."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure._core.lease import Mode
from tenure.testing import Event, History, Kind, MemoryRecorder, Recorder, UnreadableHistory, monotonic
from tenure.testing.check import UNREADABLE, main
from tenure.testing.history.event import from_line, to_line
from tests.testing.stories import Story, seat

PATIENCE_SECONDS = 20.0
WRITER = """
import sys
from tenure.testing import Event, Kind, Recorder
recorder = Recorder(sys.argv[1])
number = 0
while number < int(sys.argv[3]):
    number += 1
    recorder.record(Event(recorder.now(), sys.argv[2], Kind.MEASURED, "number", count=number))
    if number == 100:
        print("going", flush=True)
"""

seconds = st.floats(min_value=0, max_value=1e9, allow_nan=False)
words = st.text(max_size=8)
numbers = st.integers(min_value=0, max_value=2**63)
events = st.builds(
    Event,
    at=seconds,
    client=words,
    kind=st.sampled_from([Kind.INVOKE, Kind.TOLD, Kind.TRUTH, Kind.MEASURED, Kind.FAIL]),
    operation=words,
    resource=words,
    call=st.none() | numbers,
    hold=words,
    token=st.none() | numbers,
    incarnation=numbers,
    mode=st.sampled_from(Mode),
    weight=numbers,
    held=st.none() | st.booleans(),
    deadline=st.none() | seconds,
    accepted=st.none() | st.booleans(),
    value=words,
    revision=st.none() | numbers,
    detail=words,
)


@given(events)
def test_event_is_read_as_it_was_written(event: Event) -> None:
    """Whatever an event says survives its file, on one line."""
    line = to_line(event)
    assert line.count(b"\n") == 1
    assert from_line(line) == event


def test_tokens_are_texts_and_defaults_left_out() -> None:
    """A token may exceed 2^53, where JSON's numbers end."""
    assert to_line(Event(1.5, "a", Kind.MEASURED, token=2**60)) == (
        b'{"at":1.5,"client":"a","kind":"measured","token":"1152921504606846976"}\n'
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "without at and client and kind"),
        ('{"at":1,"client":"a"}', "without kind"),
        ('{"at":"1","client":"a","kind":"ok"}', "not a number of seconds"),
        ('{"at":1e999,"client":"a","kind":"ok"}', "not a number of seconds"),
        ('{"at":1,"client":7,"kind":"ok"}', "not a text"),
        ('{"at":1,"client":"a","kind":"fine"}', "kind='fine'"),
        ('{"at":1,"client":"a","kind":"ok","token":7}', "token=7"),
        ('{"at":1,"client":"a","kind":"ok","weight":-1}', "weight=-1"),
        ('{"at":1,"client":"a","kind":"ok","mode":"odd"}', "mode='odd'"),
        ('{"at":1,"client":"a","kind":"ok","held":1}', "held=1"),
        ('{"at":1,"client":"a","kind":"ok","colour":1}', "no field is called 'colour'"),
        ('{"at":1,"client":"a","kind":"check","hold":"t"}', "whether it is held"),
        ('{"at":1,"client":"a","kind":"ok","operation":"acquire"}', "has a hold and a token"),
        ('{"at":1,"client":"a","kind":"store","operation":"write"}', "accepts or refuses"),
        ('{"at":1,"client":"a","kind":"truth","since":2}', "ended before it began"),
    ],
)
def test_line_that_is_no_event_is_refused_with_file_and_line(tmp_path: Path, line: str, why: str) -> None:
    """Nonsense is not judged: the message says where it stands."""
    path = tmp_path / "history.jsonl"
    path.write_bytes(to_line(Event(1.0, "a", Kind.DIED)) + line.encode() + b"\n")
    with pytest.raises(UnreadableHistory) as raised:
        History.read(path)
    assert f"{path}:2: " in str(raised.value)
    assert why in str(raised.value)


def test_torn_last_line_is_left_out_and_told(tmp_path: Path) -> None:
    """A process killed while it wrote costs its last event only."""
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    line = to_line(Event(1.0, "a", Kind.DIED))
    whole.write_bytes(line)
    torn.write_bytes(line + line[:-9])
    history = History.read(whole, torn)
    assert len(history) == 2
    assert history.torn == (str(torn),)


def test_last_line_that_only_lacks_its_end_is_an_event(tmp_path: Path) -> None:
    """An event without its line's end is whole."""
    path = tmp_path / "history"
    path.write_bytes(to_line(Event(1.0, "a", Kind.DIED))[:-1])
    history = History.read(path)
    assert (len(history), history.torn) == (1, ())


def test_empty_line_within_a_file_is_refused(tmp_path: Path) -> None:
    """A file may lack its end, never a middle."""
    path = tmp_path / "history"
    path.write_bytes(b"\n" + to_line(Event(1.0, "a", Kind.DIED)))
    with pytest.raises(UnreadableHistory, match=":1: "):
        History.read(path)


def test_files_are_merged_by_their_stamps(tmp_path: Path) -> None:
    """Events of all processes are in one order, whatever file they stand in; of one moment, as they were given."""
    for name, stamps in (("a", (1.0, 3.0, 5.0)), ("b", (2.0, 3.0, 4.0))):
        with Recorder(tmp_path / name) as recorder:
            for at in stamps:
                recorder.record(Event(at, name, Kind.DIED))
    history = History.read(tmp_path / "a", tmp_path / "b")
    assert [(e.at, e.client) for e in history] == [(1, "a"), (2, "b"), (3, "a"), (3, "b"), (4, "b"), (5, "a")]


def test_recorder_writes_over_no_history(tmp_path: Path) -> None:
    """A second recorder of the same file would make one history of two."""
    Recorder(tmp_path / "history").close()
    with pytest.raises(FileExistsError):
        Recorder(tmp_path / "history")


def test_closed_recorder_refuses(tmp_path: Path) -> None:
    """An event that can't be kept is not lost in silence."""
    recorder = Recorder(tmp_path / "history")
    recorder.close()
    recorder.close()
    with pytest.raises(OSError):
        recorder.record(Event(1.0, "a", Kind.DIED))


def test_event_that_could_not_be_written_whole_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk takes part of a line: the recorder says so."""
    with Recorder(tmp_path / "history") as recorder:
        monkeypatch.setattr(os, "write", lambda file, line: len(line) - 1)
        with pytest.raises(OSError, match="bytes of an event"):
            recorder.record(Event(1.0, "a", Kind.DIED))


def test_killed_process_leaves_every_event_it_had_recorded(tmp_path: Path) -> None:
    """SIGKILL in the middle: what was recorded is there, without a gap."""
    path = tmp_path / "history"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path, "a", str(10**9)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer.stdout as told:
        assert told.readline() == "going\n"
        writer.send_signal(signal.SIGKILL)
        assert writer.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    history = History.read(path)
    assert len(history) >= 100
    assert [event.count for event in history] == list(range(1, len(history) + 1))


def test_two_processes_are_in_one_order(tmp_path: Path) -> None:
    """CLOCK_MONOTONIC is one clock: what was stamped around a process's life encloses its events."""
    before = monotonic()
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / name, name, "200"], stdout=subprocess.DEVNULL)
        for name in ("a", "b")
    ]
    assert [writer.wait(PATIENCE_SECONDS) for writer in writers] == [0, 0]
    after = monotonic()
    history = History.read(tmp_path / "a", tmp_path / "b")
    assert len(history) == 400
    assert all(before < event.at < after for event in history)
    for name in ("a", "b"):
        assert [event.count for event in history if event.client == name] == list(range(1, 201))


def test_many_threads_share_a_recorder(tmp_path: Path) -> None:
    """A shared recorder tears and loses no line, and each thread's events are in its order."""
    with Recorder(tmp_path / "history") as recorder:

        def work(name: str) -> None:
            for number in range(300):
                recorder.record(Event(recorder.now(), name, Kind.MEASURED, "number", count=number))

        threads = [threading.Thread(target=work, args=(f"t{index}",)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    history = History.read(tmp_path / "history")
    for index in range(8):
        assert [event.count for event in history if event.client == f"t{index}"] == list(range(300))


def test_memory_recorder_stamps_by_the_clock_it_was_given() -> None:
    """The simulation's own clock."""
    moments = iter((7.0, 8.0))
    recorder = MemoryRecorder(lambda: next(moments))
    recorder.record(Event(recorder.now(), "a", Kind.DIED))
    recorder.record(Event(recorder.now(), "b", Kind.DIED))
    assert [(event.at, event.client) for event in recorder.history()] == [(7.0, "a"), (8.0, "b")]


def test_history_is_a_sequence_with_look_ups() -> None:
    """A history has the look-ups that every checker starts from."""
    story = Story().had("b", 2, 3, 4).had("a", 1, 1, 2, resource="y")
    history = story.history
    assert [event.at for event in history] == [1, 2, 3, 4]
    assert len(history) == 4
    assert (history[0].client, [event.client for event in history[2:]]) == ("a", ["b", "b"])
    assert (history.start, history.end) == (1, 4)
    assert (history.clients, history.resources) == (("a", "b"), ("x", "y"))
    assert [event.at for event in history.of(Kind.OK)] == [2, 4]
    assert [event.at for event in history.of(Kind.OK, Kind.INVOKE)] == [1, 2, 3, 4]
    assert len(history.where(lambda event: event.client == "a")) == 2
    assert "4 events" in repr(history)
    assert (History().start, History().end) == (0.0, 0.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        history[0].at = 9.0  # type: ignore[misc]  # that is the point


def test_calls_are_paired_by_client_and_number() -> None:
    """Calls of several threads of one client may overlap; one that never came back has no outcome."""
    story = Story().had("a", 1, 1, 5).had("a", 2, 2, 4).waited("a", 3)
    assert [(call.invoke.at, call.ended, call.ok) for call in story.history.calls] == [
        (1, 5, True),
        (2, 4, True),
        (3, float("inf"), False),
    ]


def test_outcome_of_no_call_is_refused() -> None:
    """A history with a hole is not judged."""
    with pytest.raises(UnreadableHistory, match="no such call"):
        _ = History([Event(1.0, "a", Kind.OK, "release", call=7)]).calls
    twice = Story().released("a", 1, 1, 2).add(3, "a", Kind.FAIL, "release", call=1)
    with pytest.raises(UnreadableHistory, match="no such call"):
        _ = twice.history.calls


def test_number_used_again_leaves_the_first_call_open() -> None:
    """A worker killed in a call, and started anew under the same name."""
    first, again = (Event(at, "a", Kind.INVOKE, "acquire", call=1) for at in (1.0, 2.0))
    calls = History([first, again, Event(3.0, "a", Kind.FAIL, "acquire", call=1)]).calls
    assert [(call.invoke.at, call.ended) for call in calls] == [(1.0, float("inf")), (2.0, 3.0)]


def written(tmp_path: Path, story: Story) -> str:
    path = tmp_path / "history.jsonl"
    with Recorder(path) as recorder:
        for event in story.events:
            recorder.record(event)
    return str(path)


@pytest.mark.parametrize(
    ("story", "arguments", "code"),
    [
        (Story().had("a", 1, 1, 2), [], 0),
        (Story().had("a", 7, 1, 2).had("b", 6, 3, 4), [], 1),
        (Story(), [], 2),
        (Story().had("a", 1, 1, 2, **seat()), ["--properties", "S2,S4"], 2),
        (Story().had("a", 1, 1, 2), ["--properties", "S2,S3"], 0),
        (Story().had("a", 1, 1, 2), ["--properties", "all"], 2),
        (Story().had("a", 1, 1, 2), ["--properties", "S99"], UNREADABLE),
    ],
)
def test_command_line_says_by_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], story: Story, arguments: list[str], code: int
) -> None:
    """0 passed, 1 failed, 2 unknown, 3 unreadable."""
    looked = story.looked("a", 1, 2.5, True) if code == 0 else story
    assert main([written(tmp_path, looked), *arguments]) == code
    told = capsys.readouterr()
    assert told.out.endswith(("passed\n", "failed\n", "unknown\n")) or "no property is called" in told.err


def test_command_line_refuses_what_is_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is missing, one that is none, and a call that is wrong: 3, never "unknown"."""
    (tmp_path / "none").write_text("nonsense\n")
    assert main([str(tmp_path / "none")]) == UNREADABLE
    assert f"{tmp_path / 'none'}:1: not JSON" in capsys.readouterr().err
    assert main([str(tmp_path / "missing")]) == UNREADABLE
    with pytest.raises(SystemExit) as raised:
        main([])
    assert raised.value.code == UNREADABLE


def test_module_runs_from_the_command_line(tmp_path: Path) -> None:
    """`python -m tenure.testing.check FILE`, without a warning."""
    path = written(tmp_path, Story().had("a", 7, 1, 2).had("b", 6, 3, 4))
    command = [sys.executable, "-W", "error", "-m", "tenure.testing.check", path, "--properties", "S3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "asked for 'x' after token 7 was out, and got the older token 6" in done.stdout
