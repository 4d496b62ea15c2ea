"""`tenure run` at a terminal, from a shell with job control: as if tenure were not there."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from pathlib import Path

import pytest

import tenure as library
from tests.cli.program import Terminal, eventually
from tests.cli.supervised import COUNTING, bash
from tests.servers import Cluster


@pytest.fixture
def url(singles: dict[str, Cluster]) -> str:
    """A namespace where nobody was before. What a terminal sees does not depend on the store."""
    return singles["etcd"].url(f"terminal-{uuid.uuid4().hex}")


def counting(*numbers: int) -> str:
    """A CMD for the shell, that counts these signals."""
    return f"{sys.executable} -c '{COUNTING}' {' '.join(str(int(number)) for number in numbers)}"


def test_ctrl_c_reaches_cmd_once(url: str) -> None:
    """The terminal sends it to both; it is not passed on a second time, and CMD's answer is ours."""
    with bash(url) as terminal:
        terminal.type(f"tenure run a -- {counting(signal.SIGINT)}; echo code $((1+$?))\n")
        terminal.read_until("\nup\n")
        terminal.type("\x03")
        terminal.read_until("2\ncode 42\n")


def test_ctrl_c_ends_what_does_not_mind(url: str) -> None:
    """130, and the lock is free."""
    with bash(url) as terminal, library.connect(url) as client:
        terminal.type("tenure run a -- sh -c 'echo u\"\"p; exec sleep 60'; echo code $?.\n")
        terminal.read_until("\nup\n")
        terminal.type("\x03")
        terminal.read_until("code 130.\n")
        assert client.lock("a").try_acquire() is not None


def test_ctrl_c_while_waiting_leaves_the_line(url: str) -> None:
    """130, and no ticket is left."""
    with bash(url) as terminal, library.connect(url) as client, client.lock("a"):
        terminal.type("tenure run a -- true; echo code $?.\n")
        eventually(lambda: len(client.operator().line("a").tickets) == 2)
        terminal.type("\x03")
        terminal.read_until("code 130.\n")
        assert len(client.operator().line("a").tickets) == 1


def test_ctrl_backslash_reaches_cmd_once(url: str) -> None:
    """SIGQUIT is the terminal's, too."""
    with bash(url) as terminal:
        terminal.type(f"tenure run a -- {counting(signal.SIGQUIT)}; echo code $((1+$?))\n")
        terminal.read_until("\nup\n")
        terminal.type("\x1c")
        terminal.read_until("3\ncode 42\n")


def suspend(terminal: Terminal, cmd: int) -> None:
    """Type Ctrl-Z, until the shell and CMD have followed it."""
    terminal.type("\x1a")
    terminal.read_until("Stopped")
    eventually(lambda: Path(f"/proc/{cmd}/stat").read_text().rpartition(")")[2].split()[0] == "T")


def test_fg_continues_cmd_once(url: str) -> None:
    """The shell sends it to both. One that is passed on comes late, and continues a CMD that was stopped again."""
    with bash(url) as terminal:
        terminal.type(f"tenure run a --ttl 60 -- {counting(signal.SIGCONT)}\n")
        terminal.read_until("\nup\n")
        terminal.type("\x1a")
        terminal.read_until("Stopped")
        terminal.forget()
        terminal.type("fg; echo code $((1+$?))\n")
        terminal.read_until("18\ncode 42\n")


def test_stop_and_continue_for_tenure_alone_are_passed_on(url: str) -> None:
    """Signals by `kill` to tenure's pid are passed on: CMD would know of neither."""
    with bash(url) as terminal:
        terminal.type(f"tenure run a --ttl 60 -- {counting(signal.SIGCONT)}\n")
        terminal.read_until("\nup\n")
        shell = terminal.process.pid
        job = int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])
        os.kill(job, signal.SIGTSTP)
        terminal.read_until("Stopped")
        terminal.forget()
        os.kill(job, signal.SIGCONT)
        terminal.read_until("18\n")


def test_ctrl_z_fg_and_bg(url: str) -> None:
    """The shell sees a stopped job; it goes on in front and in the background, and reads only in front."""
    with bash(url) as terminal, library.connect(url) as client:
        terminal.type(
            "tenure run a --ttl 60 -- sh -c 'echo u\"\"p $$.; read x; echo got $x; read y; echo and $y; exit 5'\n"
        )
        terminal.read_until(".\n")
        cmd = int(terminal.text.rpartition("\nup ")[2].removesuffix(".\n"))
        suspend(terminal, cmd)
        assert "suspended: 'a' is kept for" in terminal.text
        token = client.operator().line("a").holders[0].token
        terminal.forget()
        terminal.type("fg\n")
        terminal.read_until("tenure.cli")
        terminal.type("one\n")
        terminal.read_until("got one\n")
        suspend(terminal, cmd)
        terminal.forget()
        terminal.type("bg\n")
        terminal.read_until("suspended: 'a'")  # it wanted to read from the terminal
        terminal.type("until jobs | grep Stopped; do sleep 0.1; done\n")
        terminal.read_until("Stopped  ")
        terminal.type("fg\n")
        terminal.type("two\n")
        terminal.read_until("and two\n")
        terminal.type("echo code $?.\n")
        terminal.read_until("code 5.\n")
        assert token > 0


def test_stopped_for_longer_than_the_hold_is_ended(url: str) -> None:
    """Another gets the hold, CMD is dead, and `fg` says why."""
    with bash(url) as terminal, library.connect(url) as client:
        terminal.type("tenure run a --ttl 3 -- sh -c 'echo u\"\"p; exec sleep 600'\n")
        terminal.read_until("\nup\n")
        terminal.type("\x1a")
        terminal.read_until("Stopped")
        client.lock("a").acquire(timeout=60)
        terminal.forget()
        terminal.type("fg; echo code $?.\n")
        terminal.read_until("the hold of 'a' was lost")
        terminal.read_until("code 76.\n")


def test_pipeline_with_a_pager_like_reader_works(url: str) -> None:
    """CMD is in the job's own process group: Ctrl-C ends the whole pipeline, and the reader keeps the terminal."""
    with bash(url) as terminal:
        reader = "sh -c 'cat; read line < /dev/tty; echo typed $line'"
        terminal.type(f"tenure run a -- sh -c 'echo from c\"\"md' | {reader}\n")
        terminal.read_until("\nfrom cmd\n")
        terminal.type("hello\n")
        terminal.read_until("typed hello\n")
        terminal.type(f"tenure run a -- sh -c 'echo u\"\"p; exec sleep 60' | {reader}; echo code ${{PIPESTATUS[*]}}.\n")
        terminal.read_until("\nup\n")
        terminal.forget()
        terminal.type("\x03")
        terminal.read_until("$ ")
        terminal.type("echo code $?.\n")
        terminal.read_until("code 130.\n")


def test_interactive_shell_has_the_terminal(url: str) -> None:
    """A shell has job control of its own; its exit code is ours, and the outer shell goes on."""
    with bash(url) as terminal:
        terminal.type("tenure run a -- bash --norc --noprofile -i\n")
        eventually(lambda: len(terminal.text) > 0)
        terminal.type("sh -c 'echo in$((1+1)) $TENURE_NAME; exec sleep 60'\n")
        terminal.read_until("in2 a\n")
        terminal.type("\x1a")
        terminal.read_until("Stopped")
        terminal.type("exit 6\n")
        terminal.read_until("There are stopped jobs.")
        terminal.type("exit 6\n")  # which ends them
        terminal.type("echo code $?.\n")
        terminal.read_until("code 6.\n")


def test_window_size_reaches_cmd(url: str) -> None:
    """SIGWINCH, once for one change."""
    with bash(url) as terminal:
        terminal.type(f"tenure run a -- {counting(signal.SIGWINCH)}; echo code $((1+$?))\n")
        terminal.read_until("\nup\n")
        terminal.resize(100, 30)
        terminal.read_until("28\ncode 42\n")


def test_terminal_that_goes_away_ends_cmd_and_frees_the_lock(url: str) -> None:
    """SIGHUP, as when a window is closed: nothing is left behind."""
    with library.connect(url) as client:
        with bash(url) as terminal:
            terminal.type("tenure run a --ttl 60 -- sh -c 'echo u\"\"p; exec sleep 600'\n")
            terminal.read_until("\nup\n")
            os.kill(terminal.process.pid, signal.SIGHUP)  # as the kernel does to the session's leader
            client.lock("a").acquire(timeout=60)


def test_terminal_is_put_back_when_cmd_was_killed(url: str) -> None:
    """A program in raw mode that is killed can't do it."""
    with bash(url) as terminal, library.connect(url) as client:
        terminal.type(
            "stty -a | grep -o -- '.icanon'; tenure run a -- sh -c 'stty raw -echo; echo u\"\"p; exec sleep 600'\n"
        )
        terminal.read_until("up")
        operator = client.operator()
        operator.force_release("a", token=operator.line("a").holders[0].token, reason="a test", actor="test")
        terminal.read_until("was lost")
        terminal.forget()
        terminal.type("stty -a | grep -o -- '.icanon'\n")
        terminal.read_until("\n icanon\n")
