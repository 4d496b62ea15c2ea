"""`tenure run`: CMD under a hold, as whoever starts it from a script, cron or an init container sees it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

import tenure as library
from tenure.cli.codes import CommandStopped
from tenure.cli.supervise.running import refuse_foreign_proc
from tests.cli.people import waiting
from tests.cli.program import PROGRAM, Done, environment, eventually, tenure
from tests.cli.supervised import COUNTING, now, python, shell, signal_from_outside, started
from tests.servers import Cluster

FACTS = "for n in NAME OWNER TOKEN FENCE DEADLINE; do eval echo \\$TENURE_$n; done; cat $TENURE_DEADLINE_FILE"

NOWHERE = ("--url", "etcd://127.0.0.1:1/x?timeout=0.5")


@pytest.fixture(params=["etcd", "zookeeper"])
def url(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> str:
    """A namespace where nobody was before, on each store."""
    options = {"tick": 0.2} if request.param == "zookeeper" else {}
    return singles[request.param].url(f"run-{uuid.uuid4().hex}", **options)


@pytest.mark.parametrize(
    ("cmd", "code"),
    [
        (("true",), 0),
        (shell("exit 7"), 7),
        (shell("kill -TERM $$"), 143),
        (shell("kill -KILL $$"), 137),
        (("no-such-program",), 127),
        (("/no/such/program",), 127),
        (("/etc/passwd",), 126),
    ],
)
def test_cmds_exit_code_is_ours(url: str, cmd: tuple[str, ...], code: int) -> None:
    """The code is CMD's; 128+n for a signal; 126 and 127 as shells have it, with one line that says why."""
    done = tenure("run", "report", "--", *cmd, url=url)
    assert done.code == code
    if code in (126, 127):
        assert cmd[0] in done.complaint
    else:
        assert done.err == ""


def test_program_that_cannot_be_executed_after_all_is_told(url: str, tmp_path: Path) -> None:
    """A script without its first line looks like a program until the kernel sees it."""
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    done = tenure("run", "report", "--", str(script), url=url)
    assert done.code == 126
    assert "Exec format error" in done.complaint


def test_script_without_its_interpreter_is_told(url: str, tmp_path: Path) -> None:
    """The program is there: 126, and what is not."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = tenure("run", "report", "--", str(script), url=url)
    assert done.code == 126
    assert "interpreter" in done.complaint


def test_proc_of_another_namespace_is_refused(tmp_path: Path) -> None:
    """A /proc that names strangers, or that is not there, would let CMD live on: what it starts is found there."""
    refuse_foreign_proc()
    with pytest.raises(CommandStopped, match="PID namespace"):
        refuse_foreign_proc(str(tmp_path))
    (tmp_path / "self").symlink_to("1")
    with pytest.raises(CommandStopped, match="PID namespace"):
        refuse_foreign_proc(str(tmp_path))


def test_cmd_is_told_what_it_holds(url: str, client: library.Client) -> None:
    """Name, owner, token, fence and deadline; the fence is the library's own."""
    done = tenure("run", "a b/ü", "--", *shell(FACTS), url=url)
    name, owner, token, fence, deadline, shown = done.out.splitlines()
    assert name == "a b/ü"
    assert owner.rpartition(":")[2].isdigit()
    assert library.Fence.parse(fence).token == int(token)
    assert float(deadline) == float(shown)
    assert now() - 15 < float(deadline) < now() + 16
    with library.connect(url) as later, later.lock("a b/ü") as hold:
        assert hold.token > int(token)
        assert hold.fence.line == library.Fence.parse(fence).line


def test_deadline_file_follows_the_renewals(url: str) -> None:
    """TENURE_DEADLINE is the first one; the file has that of now."""
    script = 'echo up; while read end < $TENURE_DEADLINE_FILE; [ "$end" = $TENURE_DEADLINE ]; do sleep 0.1; done'
    with started("run", "report", "--ttl", "3", "--", *shell(script), url=url) as run:
        run.up()
        code, _, err = run.end()
    assert (code, err) == (0, "")


def test_cmd_reads_standard_input(url: str) -> None:
    """Standard input is CMD's, as if tenure were not there."""
    done = tenure("run", "report", "--", "cat", url=url, stdin="hello\n")
    assert (done.code, done.out, done.err) == (0, "hello\n", "")


def test_output_ends_when_cmd_closes_it(url: str) -> None:
    """Neither tenure nor its watchdog keeps a pipe open that CMD has closed."""
    with started("run", "report", "--", *shell("echo up; exec >&-; read wait"), url=url) as run:
        run.up()
        assert run.line() == ""
        assert run.process.poll() is None
        run.process.communicate("go\n")


def test_descriptors_are_cmds_and_no_others(url: str, tmp_path: Path) -> None:
    """Descriptors opened for CMD reach it, and none of tenure's does."""
    other = (tmp_path / "opened").open("w")
    number = other.fileno()
    try:
        ended = subprocess.run(
            [*PROGRAM, "run", "report", "--", "bash", "-c", f"echo hi >&{number}; ls /proc/$$/fd"],
            env=environment({"TENURE_URL": url}), pass_fds=[number], capture_output=True, text=True,
            timeout=60, check=True,
        )  # fmt: skip
    finally:
        other.close()
    assert (tmp_path / "opened").read_text() == "hi\n"
    assert set(map(int, ended.stdout.split())) <= {0, 1, 2, 3, number}  # 3: where ls reads


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
        signal.SIGALRM,
        signal.SIGPWR,
        signal.SIGIO,
        signal.SIGRTMIN,
        signal.SIGRTMIN + 3,
    ],
)
def test_signals_pass_through_once(singles: dict[str, Cluster], number: int) -> None:
    """A signal reaches CMD exactly once, and CMD's answer to it is ours."""
    url = singles["etcd"].url(f"run-{uuid.uuid4().hex}")
    with started("run", "report", "--", *python(COUNTING, number), url=url) as run:
        run.up()
        run.signal(number)
        code, out, _ = run.end()
    assert (code, out) == (41, f"{int(number)}\n")


def test_signal_of_a_containers_runtime_passes_through(singles: dict[str, Cluster]) -> None:
    """A signal from outside of the PID namespace has no sender, like the kernel's own: `docker stop`, say."""
    url = singles["etcd"].url(f"run-{uuid.uuid4().hex}")
    with started("run", "report", "--", *python(COUNTING, signal.SIGTERM), url=url) as run:
        run.up()
        signal_from_outside(run.pid, signal.SIGTERM)
        code, out, _ = run.end()
    assert (code, out) == (41, f"{int(signal.SIGTERM)}\n")


def test_default_of_sigint_is_restored(singles: dict[str, Cluster]) -> None:
    """Started by a shell's `&`, which ignores SIGINT: CMD does not, and what nohup ignored stays ignored."""

    def as_in_background() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    url = singles["etcd"].url(f"run-{uuid.uuid4().hex}")
    cmd = shell("kill -HUP $$; echo up; exec sleep 60")
    with started("run", "report", "--", *cmd, url=url, prepare=as_in_background) as run:
        run.up()
        run.signal(signal.SIGINT)
        assert run.end()[0] == 130


def test_no_wait_is_quiet_when_others_hold_it(url: str, client: library.Client) -> None:
    """Nothing is run, nothing is said, the code tells, for cron; with -v one line says so."""
    with client.lock("report"):
        done = tenure("run", "report", "--no-wait", "--", "echo", "ran", url=url)
        assert (done.code, done.out, done.err) == (75, "", "")
        verbose = tenure("run", "report", "--no-wait", "-v", "--", "echo", "ran", url=url)
        assert (verbose.code, verbose.out) == (75, "")
        assert "'report' is held by others" in verbose.complaint
    free = tenure("run", "report", "--no-wait", "--", "echo", "ran", url=url)
    assert (free.code, free.out, free.err) == (0, "ran\n", "")


def test_at_least_keeps_the_hold_though_cmd_ended_sooner(url: str, client: library.Client) -> None:
    """A second machine that comes after the first one's CMD has ended does nothing; SIGTERM gives the hold up."""
    cron = ("run", "report", "-v", "--no-wait", "--at-least", "600s", "--", *shell("echo ran; exit 3"))
    with started(*cron, url=url) as first:
        assert first.line() == "ran"
        assert first.process.stderr is not None
        while "'report' is kept for" not in (said := first.process.stderr.readline()):
            assert said
        second = tenure(*cron, url=url)
        assert (second.code, second.out) == (75, "")
        first.signal(signal.SIGTERM)
        assert first.end()[0] == 3
    assert client.lock("report").try_acquire() is not None


def test_at_least_is_counted_from_the_start_and_frees_the_name(
    url: str, client: library.Client, tmp_path: Path
) -> None:
    """The hold is kept until then, and given up before the exit; at once where CMD could not be started."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert tenure("run", "report", "--at-least", "600", "--", str(script), url=url).code == 126
    done = tenure("run", "report", "--ttl", "60", "--at-least", "1.5", "--", "cat", "/proc/uptime", url=url)
    assert (done.code, done.err) == (0, "")
    assert now() - float(done.out.split()[0]) > 1.4
    assert client.lock("report").try_acquire() is not None


def test_hold_that_is_lost_while_it_is_kept_is_told(url: str, client: library.Client) -> None:
    """CMD has ended, so its code stays; that others may run sooner is said."""
    with started("run", "report", "-v", "--at-least", "600", "--", *shell("exit 3"), url=url) as run:
        assert run.process.stderr is not None
        while "'report' is kept for" not in (said := run.process.stderr.readline()):
            assert said
        operator = client.operator()
        operator.force_release("report", token=operator.line("report").holders[0].token, reason="a test", actor="test")
        code, _, err = run.end()
    assert code == 3
    assert "'report' was lost" in err


def test_timeout_passed_is_told_in_one_line(url: str, client: library.Client) -> None:
    """Code 75, and nothing is run."""
    with client.lock("report"):
        done = tenure("run", "report", "--timeout", "2", "--", "echo", "ran", url=url)
    assert (done.code, done.out) == (75, "")
    assert re.fullmatch(r"tenure: waiting for 'report': .*\ntenure: .*'report' did not come in time.*\n", done.err), (
        done.err
    )


def test_wait_says_after_a_second_behind_whom_and_how_many(url: str, client: library.Client) -> None:
    """A program that hangs is asked why: who holds it, with which token, and how many are before it."""
    hold = client.lock("report").acquire()
    with waiting(url, "report"), started("run", "report", "--", *shell("echo up"), url=url) as run:
        assert run.process.stderr is not None
        said = run.process.stderr.readline()
        held = f"held by worker-1 (token {hold.token}); 1 more in line before this one"
        assert said == f"tenure: waiting for 'report': {held}\n"
        run.signal(signal.SIGTERM)
        assert run.end()[0] == 143
    with started("run", "report", "--", *shell("echo up"), url=url) as run:
        assert run.process.stderr is not None
        assert "this one is next in line" in run.process.stderr.readline()
        hold.release()
        assert run.line() == "up"
        assert run.end()[0] == 0


def test_timeout_zero_asks_once(url: str, client: library.Client) -> None:
    """A free name is run at once, and one that is held is not waited for: 75."""
    done = tenure("run", "report", "--timeout", "0", "--", "echo", "ran", url=url)
    assert (done.code, done.out, done.err) == (0, "ran\n", "")
    with client.lock("report"):
        done = tenure("run", "report", "--timeout", "0", "--", "echo", "ran", url=url)
    assert (done.code, done.out) == (75, "")
    assert "'report'" in done.complaint


def test_cmd_runs_when_its_turn_comes(url: str, client: library.Client) -> None:
    """CMD runs when its turn has come, and not before."""
    hold = client.lock("report").acquire()
    with started("run", "report", "-v", "--", *shell("echo up"), url=url) as run:
        eventually(lambda: len(client.operator().line("report").tickets) == 2)
        assert run.process.poll() is None
        hold.release()
        assert run.line() == "up"
        code, _, err = run.end()
    assert code == 0
    assert "holding 'report' with token" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signal_while_waiting_leaves_the_line(url: str, client: library.Client, number: int) -> None:
    """128+n, no complaint, and no ticket is left."""
    with client.lock("report"), started("run", "report", "--", "true", url=url) as run:
        eventually(lambda: len(client.operator().line("report").tickets) == 2)
        run.signal(number)
        code, out, err = run.end()
        assert (code, out) == (128 + number, "")
        assert not err or "waiting for 'report'" in err  # where a second has passed
        assert len(client.operator().line("report").tickets) == 1


def test_hold_is_given_up_before_the_exit(url: str, client: library.Client) -> None:
    """A program that starts after tenure has ended finds the name free at once."""
    assert tenure("run", "report", "--ttl", "60", "--", "true", url=url).code == 0
    hold = client.lock("report").try_acquire()
    assert hold is not None


def test_slots_are_shared_by_so_many(url: str) -> None:
    """Two of two run together, a third does not, and another number is refused."""
    slots = ("run", "api", "--slots", "2", "--no-wait", "--")
    with started(*slots, *shell("echo up; read wait"), url=url) as one:
        one.up()
        with started(*slots, *shell("echo up; read wait"), url=url) as two:
            two.up()
            assert tenure(*slots, "true", url=url).code == 75
            other = tenure("run", "api", "--slots", "3", "--no-wait", "--", "true", url=url)
            assert other.code == 64
            assert "limit of 2" in other.complaint


def test_shared_runs_with_shared_and_not_with_others(url: str) -> None:
    """Readers together, a writer alone."""
    shared = ("run", "config", "--shared", "--no-wait", "--")
    with started(*shared, *shell("echo up; read wait"), url=url) as one:
        one.up()
        assert tenure(*shared, "true", url=url).code == 0
        assert tenure("run", "config", "--no-wait", "--", "true", url=url).code == 75
    assert tenure("run", "config", "--timeout", "60", "--", "true", url=url).code == 0


def test_what_cmd_leaves_running_keeps_the_hold(url: str, client: library.Client, tmp_path: Path) -> None:
    """CMD has ended, what it forked away has not: the hold is kept until that ends, and the code is CMD's."""
    script = f"setsid sh -c 'while [ ! -e {tmp_path}/go ]; do sleep 0.1; done' & echo up; exit 4"
    with started("run", "report", "--", *shell(script), url=url) as run:
        run.up()
        assert run.process.stderr is not None
        line = run.process.stderr.readline()
        assert "'report' is kept until that ends" in line
        assert client.lock("report").try_acquire() is None
        (tmp_path / "go").touch()
        code, _, _ = run.end()
    assert code == 4
    assert client.lock("report").try_acquire() is not None


def test_healthy_renewals_never_end_cmd(url: str) -> None:
    """A renewal that has yet to come is no reason: CMD runs for more than its time to live, and beyond the fourth."""
    ttl, seconds = 9.0, 16.0  # what is kept for SIGTERM is known after four renewals
    watches_the_time = (
        "import signal, sys, time\n"
        "last = time.monotonic()\n"
        "def look():\n"
        "    global last\n"
        "    now = time.monotonic()\n"
        f"    if now - last > {ttl / 3}: print('standstill', now - last, flush=True)\n"
        "    last = now\n"
        "def asked_to_end(*_):\n"
        "    look()\n"
        "    sys.exit(9)\n"
        "signal.signal(signal.SIGTERM, asked_to_end)\n"
        f"until = last + {seconds}\n"
        "while last < until:\n"
        "    time.sleep(0.02)\n"
        "    look()\n"
    )

    def ran() -> Done:
        return tenure("run", "report", "--ttl", f"{ttl:g}", "--grace", "60", "--", *python(watches_the_time), url=url)

    done = ran()
    if "standstill" in done.out:  # by CMD's own word the machine stood still: no renewal could come at its pace
        done = ran()
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("run",), 64, "NAME"),
        (("run", "report"), 64, "CMD"),
        (("run", "report", "--no-wait", "--timeout", "1", "--", "true"), 64, "--no-wait and --timeout"),
        (("run", "report", "--shared", "--slots", "2", "--", "true"), 64, "--shared and --slots"),
        (("run", "report", "--timeout", "nan", "--", "true"), 64, "--timeout"),
        (("run", "report", "--timeout", "inf", "--", "true"), 64, "--timeout"),
        (("run", "report", "--grace", "nan", "--", "true"), 64, "--grace"),
        (("run", "report", "ls", "-l"), 64, "-- before the program"),
        (("run", "report", "true", "--no-wait"), 64, "-- before the program"),
        (("run", "report", *NOWHERE, "--", ""), 127, "''"),
        (("run", "report", "--slots", "0", "--", "true"), 64, "--slots"),
        (("run", "report", *NOWHERE, "--ttl", "0", "--", "true"), 64, "ttl"),
        (("run", "report", *NOWHERE, "--ttl", "nan", "--", "true"), 64, "ttl"),
        (("run", "report", "--grace", "-1", "--", "true"), 64, "--grace"),
        (("run", "", *NOWHERE, "--", "true"), 64, "name"),
        (("run", "report", *NOWHERE, "--", "true"), 69, "127.0.0.1:1"),
        (("run", "report", "--url", "nonsense", "--", "true"), 78, "URL"),
        (("run", "report", "--", "true"), 78, "--url"),
    ],
)
def test_what_cannot_be_run_is_told_in_one_line(arguments: tuple[str, ...], code: int, says: str) -> None:
    """A documented code, and what to do."""
    done = tenure(*arguments)
    assert done.code == code
    assert says in done.complaint


def test_cmd_may_use_the_same_store(url: str) -> None:
    """TENURE_URL is handed on where it is no secret."""
    assert tenure("run", "report", "--", *shell("printf %s $TENURE_URL"), url=url).out == url


def test_locale_and_environment_reach_cmd(url: str) -> None:
    """Bytes that are no text as well."""
    ended = subprocess.run(
        [*PROGRAM, "run", "report", "--", "sh", "-c", 'printf %s "$ODD$1"', "sh", b"\xfe"],
        env={**os.environb, b"TENURE_URL": url.encode(), b"ODD": b"\xff"},
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert ended.stdout == b"\xff\xfe"
