"""The program as a whole: its help, its exit codes, its completion, and how it says what went wrong."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import signal
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import click
import pytest

import tenure as library
from tenure import errors
from tenure.cli.app import COMMANDS, command_of
from tenure.cli.codes import ExitCode, code_of
from tests.cli.program import LOOKING_AND_MENDING, NOT_PLAIN, PROGRAM, environment, eventually, shown, tenure
from tests.servers import Cluster, FaultProxy

ROOT = Path(__file__).parent.parent.parent
NAMES = [name for names in COMMANDS.values() for name in names]
NOWHERE = "etcd://127.0.0.1:1/x?timeout=0.5"
HEAVY = ("rich", "etcd3gw", "urllib3", "kazoo", "websockets", "hpack", "asyncio", "tenure.cli.store")


def run_python(*statements: str) -> subprocess.CompletedProcess[str]:
    """Another program that uses this one."""
    program = "; ".join(("import sys", *statements))
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        encoding="utf-8",
        env=environment(),
        check=False,
        timeout=60,
    )


# Help.


def test_help_names_every_command_every_code_and_the_completion() -> None:
    """`--help` and `-h` tell all of it, plain in a pipe."""
    done = tenure("--help")
    assert (done.code, done.err) == (0, "")
    assert done.out == tenure("-h").out
    assert not NOT_PLAIN.search(done.out)
    for name in NAMES:
        assert re.search(rf"^  {name} +[A-Z]", done.out, re.MULTILINE), name
    _, _, codes = done.out.partition("Exit codes:")
    for code in ExitCode:
        assert re.search(rf"\b{code.value}\b", codes), code
    for shell in ("bash", "zsh", "fish"):
        assert f"_TENURE_COMPLETE={shell}_source" in done.out
    assert max(map(len, done.out.splitlines())) <= 100


def test_help_imports_neither_rich_nor_a_store() -> None:
    """Asking what there is costs nothing of what is not asked for."""
    done = run_python(
        "from tenure.cli import main",
        "main(['--help'])",
        f"print('imported', [m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)",
    )
    assert done.stderr.strip() == "imported []"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_teaches_with_an_example(name: str) -> None:
    """Help says what a command does, and shows it done."""
    done = tenure(name, "--help", given={"COLUMNS": "80"})
    assert (done.code, done.err) == (0, "")
    assert len(re.findall(rf"^ +(?:.*\| )?tenure {name}\b", done.out, re.MULTILINE)) >= 1, done.out
    assert command_of(name).help


def test_version() -> None:
    """The package's own."""
    assert tenure("--version").out == f"tenure {version('tenure')}\n"


def test_nothing_asked_for_shows_the_help_on_standard_error() -> None:
    """64: nothing was done."""
    done = tenure()
    assert (done.code, done.out) == (64, "")
    assert "Usage: tenure" in done.err


def test_python_m_tenure_is_the_program() -> None:
    """Known from most packages, and there where the script is not on PATH."""
    done = subprocess.run(
        [sys.executable, "-m", "tenure", "--version"], capture_output=True, text=True, env=environment(), check=False
    )
    assert (done.returncode, done.stdout) == (0, f"tenure {version('tenure')}\n")


def test_url_before_the_command_is_as_good_as_behind_it(client: library.Client, url: str) -> None:
    """It wins over the environment, and one behind the command wins over it."""
    with client.lock("ledger"):
        for arguments in (("--url", url, "ls"), (f"--url={url}", "ls"), ("--url", NOWHERE, "ls", "--url", url)):
            done = tenure(*arguments, url="zookeeper://127.0.0.1:1/x?timeout=0.5")
            assert (done.code, done.records[0][0]) == (0, "ledger"), done.err
        assert tenure("--url", url, "run", "other", "--", "echo", "ran").out == "ran\n"
    assert "--url" in tenure("--url", url, "dev").complaint


# Written wrong.


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("lss",), "did you mean 'ls'?"),
        (("frobnicate",), "there is no command 'frobnicate'"),
        (("--frobnicate",), "--frobnicate"),
        (("ls", "--nampespace", "x"), "Did you mean '--namespace'?"),
        (("ls", "--frobnicate"), "--frobnicate"),
        (("ls", "a", "b"), "unexpected extra argument"),
        (("show",), "NAME"),
        (("show", ""), "empty"),
        (("show", "a\nb"), "control character"),
        (("show", "x" * 600), "512"),
        (("ls", "x" * 600), "512"),
        (("ls", "--request-timeout", "x"), "--request-timeout"),
        (("ls", "--request-timeout", "0"), "--request-timeout"),
        (("ls", "--namespace", "a//b"), "namespace"),
        (("watch", "\x1b[2J"), "control character"),
    ],
)
def test_what_is_written_wrong_is_64_in_one_line(arguments: tuple[str, ...], says: str) -> None:
    """A single line names what is wrong, and where to read on."""
    done = tenure(*arguments, url=NOWHERE)
    assert (done.code, done.out) == (64, "")
    assert says in done.complaint
    assert not NOT_PLAIN.search(done.complaint)


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        (None, 78, "TENURE_URL"),
        ("", 78, "TENURE_URL"),
        ("127.0.0.1:2379", 78, "no scheme: did you mean etcd://HOST:PORT"),
        ("127.0.0.1:2181/x", 78, "did you mean zookeeper://HOST:PORT"),
        ("zk://x", 78, "did you mean zookeeper://?"),
        ("etcd3://x", 78, "did you mean etcd://?"),
        ("zokeeper://x", 78, "did you mean zookeeper://?"),
        ("etcd://x/?tll=3", 78, "did you mean ttl?"),
        ("postgres://x", 78, "postgres"),
        ("etcd://", 78, "host"),
        ("etcd://127.0.0.1:1/x?ttl=abc", 78, "ttl"),
        ("etcd://127.0.0.1:1/x?nonsense=1", 78, "nonsense"),
        ("etcd://127.0.0.1:1/a//b", 78, "namespace"),
        ("etcd://me:p/q@127.0.0.1:1/x", 78, "percent-encode"),
        ("memory://x", 78, "memory://"),
        (NOWHERE, 69, "127.0.0.1:1"),
        ("zookeeper://127.0.0.1:1/x?timeout=0.5", 69, "127.0.0.1:1"),
        ("etcd+grpc://127.0.0.1:1/x?timeout=0.5", 69, "127.0.0.1:1"),
        ("etcd://no-such-host.invalid:2379/x?timeout=0.5", 69, "no-such-host.invalid"),
    ],
)
def test_a_store_that_is_not_named_not_readable_or_not_there(url: str | None, code: int, says: str) -> None:
    """78 without a URL or with a bad one, 69 where nobody answers; one line that says what to do."""
    done = tenure("ls", url=url)
    assert (done.code, done.out) == (code, "")
    assert says in done.complaint


@pytest.mark.parametrize("arguments", LOOKING_AND_MENDING, ids=" ".join)
def test_all_that_look_or_mend_end_alike_without_a_store(arguments: tuple[str, ...]) -> None:
    """A single line and the same codes."""
    for url, code in ((None, 78), (NOWHERE, 69)):
        done = tenure(*arguments, url=url)
        assert (done.code, done.out) == (code, "")
        assert "?." not in done.complaint


def test_a_password_is_never_shown() -> None:
    """Passwords stand neither in the complaint about a URL, nor in that about its store."""
    for url in ("etcd://me:s3cr3t@127.0.0.1:1/x?timeout=0.5", "etcd://me:s3cr3t@/x", "nope://me:s3cr3t@h/x"):
        done = tenure("ls", "--log-json", url=url)
        assert done.code in (69, 78)
        assert "s3cr3t" not in done.err + done.out


def test_serve_that_does_not_listen_says_why_in_prose() -> None:
    """Whoever has just typed it reads it; as JSON only with --log-json."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for listen, says in (("0.0.0.0:0", "--insecure"), (f"127.0.0.1:{port}", "Address already in use")):
            done = tenure("serve", "--listen", listen, url=NOWHERE)
            assert (done.code, done.out) == (64, "")
            assert says in done.complaint
            logged = tenure("serve", "--log-json", "--listen", listen, url=NOWHERE)
            assert says in json.loads(logged.err.splitlines()[-1])["message"]


# Codes.


def all_errors(kind: type[errors.TenureError] = errors.TenureError) -> list[type[errors.TenureError]]:
    children = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return [kind, *(below for child in children for below in all_errors(child))]


def test_every_error_of_the_tree_has_a_code() -> None:
    """Errors are not taken for success, and what is the caller's fault is not called a defect of ours."""
    for kind in all_errors():
        code = code_of(kind("why"))
        assert code is not ExitCode.OK
        ours = (errors.TenureError, errors.ClientClosed, errors.ForkedClient)
        assert (code is ExitCode.BUG) is (kind in ours), kind
    assert code_of(errors.InvalidName("x")) == 64
    assert code_of(errors.InvalidURL("x")) == 78
    assert code_of(errors.NoSuchTicket("x")) == 66
    assert code_of(errors.StoreUnavailable("x")) == 69
    assert code_of(errors.AcquireTimeout("x")) == 75
    assert code_of(errors.LeaseLost("x")) == 76
    assert code_of(errors.PermissionDenied("x")) == code_of(errors.AuthenticationFailed("x")) == 77


def test_the_page_of_the_command_line_has_every_code() -> None:
    """Codes and names of commands stand in docs/cli.md, each in its own words there."""
    section = (ROOT / "docs" / "cli.md").read_text()
    for code in ExitCode:
        assert re.search(rf"(?<!\d){code.value}(?!\d)", section), code
    for name in NAMES:
        assert f"`{name}" in section, name


def test_a_defect_of_ours_is_one_line_too() -> None:
    """70, with the place; the traceback only where it is asked for."""
    broken = "tenure.cli.commands.look.ls.callback = lambda **_: 1 / 0"
    done = run_python(
        "import tenure.cli.commands.look", broken, "from tenure.cli import main", "sys.exit(main(['ls']))"
    )
    assert done.returncode == 70
    assert done.stderr.startswith("tenure: a defect of tenure: ZeroDivisionError")
    assert done.stderr.count("\n") == 1


def shell(command: str, url: str) -> subprocess.CompletedProcess[str]:
    """The program as $TENURE in a shell's command."""
    given = {"TENURE": " ".join(PROGRAM), "TENURE_URL": url}
    return subprocess.run(
        ["/bin/bash", "-c", command],
        capture_output=True,
        encoding="utf-8",
        env=environment(given),
        check=False,
        timeout=60,
    )


def test_output_that_nobody_takes(client: library.Client, url: str) -> None:
    """Closed, a full disk, no reader, a terminal that knows few letters: a code and at most a line, no defect."""
    client.lock("größe").acquire()
    assert (shell("$TENURE ls >&-", url).returncode, shell("$TENURE ls 2>&-", url).returncode) == (0, 0)
    full = shell("$TENURE ls >/dev/full", url)
    assert (full.returncode, full.stderr.count("\n")) == (69, 1)
    assert "No space left" in full.stderr
    gone = shell("$TENURE ls | true; echo ${PIPESTATUS[0]}", url)
    assert (gone.stdout, gone.stderr) == ("141\n", "")
    few = shell("PYTHONUTF8=0 PYTHONIOENCODING=ascii $TENURE ls", url)
    assert (few.returncode, few.stdout.partition("\t")[0]) == (0, "gr\\xf6\\xdfe")
    few = shell("PYTHONUTF8=0 PYTHONIOENCODING=ascii $TENURE ls --json", url)
    assert json.loads(few.stdout)[0]["name"] == "größe"


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_ctrl_c_while_the_store_is_silent(singles: dict[str, Cluster], kind: Literal["etcd", "zookeeper"]) -> None:
    """130 at once, and no complaint."""
    with FaultProxy(singles[kind].endpoints[0], kind) as proxy:
        proxy.blackhole()
        process = subprocess.Popen(
            [*PROGRAM, "ls", "--url", f"{kind}://{proxy.endpoint}/x?timeout=50"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        eventually(lambda: proxy.connections > 0)
        process.send_signal(signal.SIGINT)
        out, complaints = process.communicate(timeout=40)
        assert (process.returncode, out, complaints) == (130, "", "")


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_the_extra_it_says_what_to_install(package: str) -> None:
    """69, one line; the library itself needs neither."""
    done = run_python(
        f"sys.modules['{package}'] = None",
        "from tenure.cli import main",
        f"sys.exit(main(['ls', '--url', '{NOWHERE}']))",
    )
    assert done.returncode == 69
    assert done.stderr == f"tenure: the command line needs the package {package}: pip install 'tenure[cli]'\n"


def test_serve_without_its_extra_says_what_to_install() -> None:
    """The same for what only `serve` needs."""
    done = run_python("sys.modules['greenlet'] = None", "from tenure.cli import main", "sys.exit(main(['serve']))")
    assert done.returncode == 69
    assert "greenlet" in done.stderr
    assert done.stderr.endswith("pip install 'tenure[serve]'\n")


def test_serve_says_what_of_a_package_that_is_installed_is_missing(tmp_path: Path) -> None:
    """A wheel that finds no C++ library on a lean system: what pip has installed, it would not install again."""
    (tmp_path / "greenlet.py").write_text("raise ImportError('libstdc++.so.6: cannot open shared object file')")
    done = tenure("serve", given={"PYTHONPATH": str(tmp_path)})
    assert done.code == 69
    assert "libstdc++.so.6: cannot open shared object file" in done.complaint
    assert "pip install" not in done.complaint


# Completion.


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_there(shell: str) -> None:
    """A script for each shell."""
    if shell == "bash":
        assert "complete" in told_completion("bash_source")
        return
    assert "_TENURE_COMPLETE" in told_completion(f"{shell}_source")


def told_completion(instruction: str, words: str = "", at: str = "0") -> str:
    given = {"_TENURE_COMPLETE": instruction, "COMP_WORDS": words, "COMP_CWORD": at}
    done = subprocess.run(
        PROGRAM,
        capture_output=True,
        text=True,
        env=environment(given),
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr
    return done.stdout


def test_commands_and_options_are_completed() -> None:
    """Completions are what can come next."""
    assert told_completion("bash_complete", "tenure w", "1").split() == ["plain,watch", "plain,why"]
    assert "plain,--reason" in told_completion("bash_complete", "tenure release x --", "3").split()


# Logs.


def test_log_json_is_one_object_a_line_on_standard_error(client: library.Client, url: str) -> None:
    """Logging has one switch, an option or a variable; what is shown stays as it was."""
    for arguments, given in ((["--log-json"], {}), ([], {"TENURE_LOG_JSON": "1"})):
        hold = client.lock("ledger").acquire()
        done = tenure("ls", *arguments, url=url, given=given)
        assert done.code == 0
        assert done.records[0][0] == "ledger"
        lines = [json.loads(line) for line in done.err.splitlines()]
        assert all(line["logger"] == "tenure" and line["time"].endswith("Z") for line in lines)
        hold.release()


@pytest.mark.parametrize(
    ("cmd", "code", "says"),
    [(("ls",), 69, "127.0.0.1:1"), (("run", "report", "--", "no-such-program"), 127, "no-such-program")],
)
def test_log_json_has_what_the_program_itself_says(cmd: tuple[str, ...], code: int, says: str) -> None:
    """Readers of that stream read objects, and nothing besides."""
    done = tenure(cmd[0], "--log-json", *cmd[1:], url=NOWHERE)
    logged = [json.loads(line) for line in done.err.splitlines()]
    assert (done.code, logged[-1]["logger"]) == (code, "tenure.cli")
    assert says in logged[-1]["message"]


def test_every_command_is_kept_as_app_says() -> None:
    """Names are commands in their modules, and there are no others."""
    modules = [
        importlib.import_module(f"tenure.cli.commands.{path.stem}")
        for path in (ROOT / "src/tenure/cli/commands").glob("[a-z]*.py")
    ]
    assert all(inspect.getdoc(module) for module in modules)
    there = [command for module in modules for command in vars(module).values() if isinstance(command, click.Command)]
    below = [one for command in there if isinstance(command, click.Group) for one in command.commands.values()]
    there = [command for command in there if command not in below]
    assert sorted(map(id, there)) == sorted(id(command_of(name)) for name in NAMES)
    assert shown("--help", url=NOWHERE).code == 0
