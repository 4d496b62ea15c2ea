"""The program as a whole: its help, its exit codes, its completion, and how it says what went wrong."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import pytest

import holdfast as library
from holdfast import errors
from holdfast.cli.app import COMMANDS
from holdfast.cli.codes import Code, code_of
from tests.cli.program import LOOKING_AND_MENDING, NOT_PLAIN, PROGRAM, environment, eventually, holdfast, shown
from tests.servers import Cluster, FaultProxy

ROOT = Path(__file__).parent.parent.parent
NAMES = [name for names in COMMANDS.values() for name in names]
NOWHERE = "etcd://127.0.0.1:1/x?timeout=0.5"
HEAVY = ("rich", "etcd3gw", "urllib3", "kazoo", "websockets", "hpack", "asyncio", "holdfast.cli.session")


def told(*statements: str) -> subprocess.CompletedProcess[str]:
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
    done = holdfast("--help")
    assert (done.code, done.err) == (0, "")
    assert done.out == holdfast("-h").out
    assert not NOT_PLAIN.search(done.out)
    for name in NAMES:
        assert re.search(rf"^  {name} +[A-Z]", done.out, re.MULTILINE), name
    _, _, codes = done.out.partition("Exit codes:")
    for code in Code:
        assert re.search(rf"\b{code.value}\b", codes), code
    for shell in ("bash", "zsh", "fish"):
        assert f"_HOLDFAST_COMPLETE={shell}_source" in done.out
    assert max(map(len, done.out.splitlines())) <= 100


def test_help_imports_neither_rich_nor_a_store() -> None:
    """Asking what there is costs nothing of what is not asked for."""
    done = told(
        "from holdfast.cli import main",
        "main(['--help'])",
        f"print('imported', [m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)",
    )
    assert done.stderr.strip() == "imported []"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_teaches_with_an_example(name: str) -> None:
    """Each one's help says what it does, and shows it done."""
    done = holdfast(name, "--help", given={"COLUMNS": "80"})
    assert (done.code, done.err) == (0, "")
    assert len(re.findall(rf"^ +(?:.*\| )?holdfast {name}\b", done.out, re.MULTILINE)) >= 1, done.out
    module = importlib.import_module(f"holdfast.cli.commands.{name}")
    assert module.command.help


def test_version() -> None:
    """The package's own."""
    assert holdfast("--version").out == f"holdfast {version('holdfast')}\n"


def test_nothing_asked_for_shows_the_help_on_standard_error() -> None:
    """64: nothing was done."""
    done = holdfast()
    assert (done.code, done.out) == (64, "")
    assert "Usage: holdfast" in done.err


# Written wrong.


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("lss",), "did you mean 'ls'?"),
        (("frobnicate",), "there is no command 'frobnicate'"),
        (("--frobnicate",), "--frobnicate"),
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
    """One line that names what is wrong, and where to read on."""
    done = holdfast(*arguments, url=NOWHERE)
    assert (done.code, done.out) == (64, "")
    assert says in done.complaint
    assert not NOT_PLAIN.search(done.complaint)


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        (None, 78, "HOLDFAST_URL"),
        ("", 78, "HOLDFAST_URL"),
        ("127.0.0.1:2379", 78, "etcd://HOST:PORT"),
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
    done = holdfast("ls", url=url)
    assert (done.code, done.out) == (code, "")
    assert says in done.complaint


@pytest.mark.parametrize("arguments", LOOKING_AND_MENDING, ids=" ".join)
def test_all_that_look_or_mend_end_alike_without_a_store(arguments: tuple[str, ...]) -> None:
    """One line and the same codes."""
    for url, code in ((None, 78), (NOWHERE, 69)):
        done = holdfast(*arguments, url=url)
        assert (done.code, done.out) == (code, "")
        assert "?." not in done.complaint


def test_a_password_is_never_shown() -> None:
    """Not in the complaint about a URL, nor in that about its store."""
    for url in ("etcd://me:s3cr3t@127.0.0.1:1/x?timeout=0.5", "etcd://me:s3cr3t@/x", "nope://me:s3cr3t@h/x"):
        done = holdfast("ls", "--log-json", url=url)
        assert done.code in (69, 78)
        assert "s3cr3t" not in done.err + done.out


# Codes.


def all_errors(kind: type[errors.HoldfastError] = errors.HoldfastError) -> list[type[errors.HoldfastError]]:
    children = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return [kind, *(below for child in children for below in all_errors(child))]


def test_every_error_of_the_tree_has_a_code() -> None:
    """None of them is taken for success, and what is the caller's fault is not called a defect of ours."""
    for kind in all_errors():
        code = code_of(kind("why"))
        assert code is not Code.OK
        ours = (errors.HoldfastError, errors.ClientClosed, errors.ForkedClient)
        assert (code is Code.BUG) is (kind in ours), kind
    assert code_of(errors.InvalidName("x")) == 64
    assert code_of(errors.InvalidURL("x")) == 78
    assert code_of(errors.NoSuchTicket("x")) == 66
    assert code_of(errors.StoreUnavailable("x")) == 69
    assert code_of(errors.AcquireTimeout("x")) == 75
    assert code_of(errors.LeaseLost("x")) == 76
    assert code_of(errors.PermissionDenied("x")) == code_of(errors.AuthenticationFailed("x")) == 77


def test_the_readme_tells_every_code() -> None:
    """And means the same by it."""
    section = (ROOT / "README.md").read_text().partition("## On the command line")[2].partition("\n## ")[0]
    for code in Code:
        assert re.search(rf"(?<!\d){code.value}(?!\d)", section), code
    for name in NAMES:
        assert f"`{name}" in section, name


def test_a_defect_of_ours_is_one_line_too() -> None:
    """70, with the place; the traceback only where it is asked for."""
    broken = "holdfast.cli.commands.ls.command.callback = lambda **_: 1 / 0"
    done = told("import holdfast.cli.commands.ls", broken, "from holdfast.cli import main", "sys.exit(main(['ls']))")
    assert done.returncode == 70
    assert done.stderr.startswith("holdfast: a defect of holdfast: ZeroDivisionError")
    assert done.stderr.count("\n") == 1


def shell(command: str, url: str) -> subprocess.CompletedProcess[str]:
    """The program as $HOLDFAST in a shell's command."""
    given = {"HOLDFAST": " ".join(PROGRAM), "HOLDFAST_URL": url}
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
    assert (shell("$HOLDFAST ls >&-", url).returncode, shell("$HOLDFAST ls 2>&-", url).returncode) == (0, 0)
    full = shell("$HOLDFAST ls >/dev/full", url)
    assert (full.returncode, full.stderr.count("\n")) == (69, 1)
    assert "No space left" in full.stderr
    gone = shell("$HOLDFAST ls | true; echo ${PIPESTATUS[0]}", url)
    assert (gone.stdout, gone.stderr) == ("141\n", "")
    few = shell("PYTHONUTF8=0 PYTHONIOENCODING=ascii $HOLDFAST ls", url)
    assert (few.returncode, few.stdout.partition("\t")[0]) == (0, "gr\\xf6\\xdfe")
    few = shell("PYTHONUTF8=0 PYTHONIOENCODING=ascii $HOLDFAST ls --json", url)
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
    done = told(
        f"sys.modules['{package}'] = None",
        "from holdfast.cli import main",
        f"sys.exit(main(['ls', '--url', '{NOWHERE}']))",
    )
    assert done.returncode == 69
    assert done.stderr == f"holdfast: the command line needs the package {package}: pip install 'holdfast[cli]'\n"


def test_serve_without_its_extra_says_what_to_install() -> None:
    """The same for what only `serve` needs."""
    done = told("sys.modules['greenlet'] = None", "from holdfast.cli import main", "sys.exit(main(['serve']))")
    assert done.returncode == 69
    assert "greenlet" in done.stderr
    assert done.stderr.endswith("pip install 'holdfast[serve]'\n")


def test_serve_says_what_of_a_package_that_is_installed_is_missing(tmp_path: Path) -> None:
    """A wheel that finds no C++ library on a lean system: what pip has installed, it would not install again."""
    (tmp_path / "greenlet.py").write_text("raise ImportError('libstdc++.so.6: cannot open shared object file')")
    done = holdfast("serve", given={"PYTHONPATH": str(tmp_path)})
    assert done.code == 69
    assert "libstdc++.so.6: cannot open shared object file" in done.complaint
    assert "pip install" not in done.complaint


# Completion.


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_there(shell: str) -> None:
    """Each shell gets its own."""
    if shell == "bash":
        assert "complete" in told_completion("bash_source")
        return
    assert "_HOLDFAST_COMPLETE" in told_completion(f"{shell}_source")


def told_completion(instruction: str, words: str = "", at: str = "0") -> str:
    given = {"_HOLDFAST_COMPLETE": instruction, "COMP_WORDS": words, "COMP_CWORD": at}
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
    """What can come next."""
    assert told_completion("bash_complete", "holdfast w", "1").split() == ["plain,watch", "plain,why"]
    assert "plain,--reason" in told_completion("bash_complete", "holdfast release x --", "3").split()


# Logs.


def test_log_json_is_one_object_a_line_on_standard_error(client: library.Client, url: str) -> None:
    """One switch, as an option or in the environment; what is shown stays as it was."""
    for arguments, given in ((["--log-json"], {}), ([], {"HOLDFAST_LOG_JSON": "1"})):
        hold = client.lock("ledger").acquire()
        done = holdfast("ls", *arguments, url=url, given=given)
        assert done.code == 0
        assert done.records[0][0] == "ledger"
        lines = [json.loads(line) for line in done.err.splitlines()]
        assert all(line["logger"] == "holdfast" and line["time"].endswith("Z") for line in lines)
        hold.release()


@pytest.mark.parametrize(
    ("cmd", "code", "says"),
    [(("ls",), 69, "127.0.0.1:1"), (("run", "report", "--", "no-such-program"), 127, "no-such-program")],
)
def test_log_json_has_what_the_program_itself_says(cmd: tuple[str, ...], code: int, says: str) -> None:
    """Whoever reads that stream reads objects, and nothing besides."""
    done = holdfast(cmd[0], "--log-json", *cmd[1:], url=NOWHERE)
    told = [json.loads(line) for line in done.err.splitlines()]
    assert (done.code, told[-1]["logger"]) == (code, "holdfast.cli")
    assert says in told[-1]["message"]


def test_every_command_is_kept_as_app_says() -> None:
    """One module each, nothing besides, and what is exported is a command."""
    there = {path.stem for path in (ROOT / "src/holdfast/cli/commands").glob("[a-z]*.py")}
    assert there == set(NAMES)
    for name in NAMES:
        assert inspect.getdoc(importlib.import_module(f"holdfast.cli.commands.{name}"))
    assert shown("--help", url=NOWHERE).code == 0
