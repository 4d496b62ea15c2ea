"""The command `tenure`: its commands by name, what each is for in a few words, and how all of them end.

A command is a function of its name in a module of `commands/`, imported when it is called, and not before:
`tenure --help` needs neither a store's client nor rich. A command's function returns its exit code, or None for 0;
what it raises becomes one line on standard error and a code (see codes.py). No traceback is shown, unless
TENURE_TRACEBACK is set.
"""

from __future__ import annotations

import difflib
import importlib
import io
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click
from click.shell_completion import shell_complete

import tenure
from tenure.cli.codes import SUMMARIES, CommandStopped, ExitCode, code_of
from tenure.cli.terminal import tell
from tenure.errors import TenureError

PROGRAM: Final = "tenure"
COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "Run under a hold": {
        "run": "Run a program while a name is held, and only then.",
        "elect": "Run a program while it leads, and only then.",
    },
    "Serve": {"serve": "Locks and elections over HTTP, for programs in any language."},
    "Look": {
        "ls": "List what is in use, by whom, and how many wait.",
        "show": "One name: who holds it, who waits, in order.",
        "watch": "The same as ls, live.",
        "why": "Who holds it, and how the last hold ended, in sentences.",
        "history": "The last holds of a name, how long they took, why they ended.",
    },
    "Mend": {
        "release": "Force somebody out of a line, by token, with a reason.",
        "audit": "List who was forced out, by whom, and why.",
    },
    "Measure and check": {
        "doctor": "Check a store and each of its endpoints, and say what to do.",
        "tune": "Measure this machine and the store, and say which TTL to ask for.",
    },
    "Try it out": {
        "dev": "Start a throw-away etcd here, and print its URL.",
        "demo": "Watch three processes elect a leader, lose it, and be protected from its return.",
    },
}
"""Commands, each with its help in a line, by heading and name."""

_MODULES: Final[Mapping[str, str]] = {
    "elect": "run",
    "ls": "look",
    "show": "look",
    "why": "records",
    "history": "records",
    "audit": "records",
    "dev": "tryout",
    "demo": "tryout",
}
"""The modules of `commands/` with several commands; any other command has the module of its own name."""

_COMPLETION: Final = "_TENURE_COMPLETE"
_SHOW_TRACEBACK: Final = "TENURE_TRACEBACK"
_PACKAGE: Final = Path(tenure.__file__).parent


class Commands(click.Group):
    """The commands of `COMMANDS`, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the order of the help."""
        return [name for names in COMMANDS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one."""
        return command_of(cmd_name) if cmd_name in self.list_commands(ctx) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does; refuse a name that does not exist with the nearest that does."""
        names = self.list_commands(ctx)
        if not args[0].startswith("-") and args[0] not in names:
            near = difflib.get_close_matches(args[0], names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}."
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        url = ctx.params.get("url")
        # In front: one behind the command comes later, and wins.
        return name, command, rest if url is None else ["--url", url, *rest]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by heading, without importing any."""
        for heading, names in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl(list(names.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Environment, exit codes and completion: common to all commands."""
        environment = [
            ("TENURE_URL", "the store, where --url does not say"),
            ("TENURE_LOG_JSON", "1: log as with --log-json"),
            ("NO_COLOR", "set: no colours at a terminal either"),
        ]
        codes = [(str(int(code)), text) for code, text in SUMMARIES.items()]
        codes.append(("128+n", "ended by signal n (130: Ctrl-C; 141: the output's reader has gone)"))
        completion = [
            ("bash", f'eval "$({_COMPLETION}=bash_source {PROGRAM})"'),
            ("zsh", f'eval "$({_COMPLETION}=zsh_source {PROGRAM})"'),
            ("fish", f"{_COMPLETION}=fish_source {PROGRAM} | source"),
        ]
        headings = ("Environment", "Exit codes", "Completion, for your shell's start-up file")
        for heading, rows in zip(headings, (environment, codes, completion), strict=True):
            with formatter.section(heading):
                formatter.write_dl(rows)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name=PROGRAM, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.option("--url", metavar="URL", help="Where the store is; the same as --url behind the command.")
def program(url: str | None) -> None:
    """Locks, semaphores and leader election on etcd and ZooKeeper: run under them, look at them, mend them.

    \b
    export TENURE_URL=etcd://127.0.0.1:2379/billing     or etcd+grpc://…, zookeeper://…
    tenure ls
    tenure COMMAND --help                               tells more, with examples
    """


def command_of(name: str) -> click.Command:
    """Import the command of that name, which has to be one of `COMMANDS`."""
    command: click.Command = getattr(importlib.import_module(f"tenure.cli.commands.{_MODULES.get(name, name)}"), name)
    return command


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    try:
        code = _invoked(given)
        sys.stdout.flush()
    except click.ClickException as error:
        return _refused(error)
    except TenureError as error:
        return _complain(str(error), code_of(error))
    except CommandStopped as stop:
        return _complain(str(stop), stop.code)
    except (KeyboardInterrupt, click.Abort):
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the line with the ^C in it
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _let_go_of_stdout()
        return ExitCode.READER_GONE
    except ModuleNotFoundError:
        raise  # an extra that is not installed: the package says which
    except OSError as error:  # a full disk, a terminal that went away
        _let_go_of_stdout()
        return _complain(f"this machine did not let it be done: {error.strerror or error}", ExitCode.UNREACHABLE)
    except Exception as error:  # whatever it is: one line, and a code that says that it is not the user's fault
        return _our_fault(error)
    return code


def _prepare_streams() -> None:
    """Put /dev/null where a stream was closed (`>&-`), and escape letters that standard output can't encode."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # for as long as the program runs
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _let_go_of_stdout() -> None:
    """Point standard output to /dev/null, or the interpreter's last flush complains, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _invoked(arguments: list[str]) -> int:
    """Invoke the command and return its own code. Raises whatever it raises."""
    instruction = os.environ.get(_COMPLETION)
    if instruction is not None:
        return shell_complete(program, {}, PROGRAM, _COMPLETION, instruction)
    try:
        with program.make_context(PROGRAM, arguments) as context:
            return int(program.invoke(context) or ExitCode.OK)
    except click.exceptions.Exit as end:  # --help, --version
        return end.exit_code


def _refused(error: click.ClickException) -> int:
    """Complain of a command that is written wrong."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)
        return ExitCode.USAGE
    context = getattr(error, "ctx", None)
    path = PROGRAM if context is None else context.command_path
    message = error.format_message()
    return _complain(f"{message}{'' if message.endswith(('.', '?')) else '.'} See '{path} --help'", ExitCode.USAGE)


def _our_fault(error: Exception) -> int:
    if os.environ.get(_SHOW_TRACEBACK):
        traceback.print_exception(error)
    place = next(
        (
            f" at {Path(frame.filename).name}:{frame.lineno}"
            for frame in reversed(traceback.extract_tb(error.__traceback__))
            if Path(frame.filename).is_relative_to(_PACKAGE)
        ),
        "",
    )
    what = f"{type(error).__name__}{place}: {error}".removesuffix(": ")
    return _complain(f"a defect of tenure: {what}. Please report it; {_SHOW_TRACEBACK}=1 shows more", ExitCode.BUG)


def _complain(message: str, code: ExitCode) -> int:
    tell(message, logging.ERROR)
    return code
