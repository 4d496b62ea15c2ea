"""The command `holdfast`: its commands by name, what each is for in a few words, and how all of them end.

A command is a module of `commands/` with a module-level `command`. It is imported when it is called, and not before:
`holdfast --help` needs neither a store's client nor rich. A command's function returns its exit code, or None for 0;
what it raises becomes one line on standard error and a code (see codes.py). No traceback is shown, unless
HOLDFAST_TRACEBACK is set.
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

import holdfast
from holdfast.cli.codes import Code, Stop, code_of
from holdfast.cli.telling import tell
from holdfast.errors import HoldfastError

PROGRAM: Final = "holdfast"
COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "Run under a hold": {
        "run": "Run a program while a name is held, and only then.",
        "elect": "Run a program while it leads, and only then.",
    },
    "Serve": {
        "serve": "Locks and elections over HTTP, for programs in any language.",
    },
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
"""By heading and name."""

_COMPLETION: Final = "_HOLDFAST_COMPLETE"
_SHOW_TRACEBACK: Final = "HOLDFAST_TRACEBACK"
_PACKAGE: Final = Path(holdfast.__file__).parent
_CODES_TOLD: Final = (
    (Code.OK, "done; or the code of the program that was run"),
    (Code.NOT_SO, "looked, and it is not so: a promise not kept, a fault found"),
    (Code.USAGE, "the command is written wrong"),
    (Code.NOT_THERE, "no such name, token or ticket"),
    (Code.UNREACHABLE, "the store can't be reached, or can't do it; something is not installed"),
    (Code.BUG, "a defect of holdfast"),
    (Code.BUSY, "held by others: try again later"),
    (Code.LOST, "the hold was lost, and the program that ran under it was ended"),
    (Code.DENIED, "wrong user or password, or no permission"),
    (Code.BAD_URL, "no URL of a store, or a bad one"),
    (Code.NOT_EXECUTABLE, "the program can't be executed"),
    (Code.NO_PROGRAM, "there is no such program"),
)


class Commands(click.Group):
    """The commands of `COMMANDS`, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order in which they are told."""
        return [name for names in COMMANDS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"holdfast.cli.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; a name that does not exist is told with the nearest that does."""
        names = self.list_commands(ctx)
        if not args[0].startswith("-") and args[0] not in names:
            near = difflib.get_close_matches(args[0], names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}."
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by heading, without importing any."""
        for heading, names in COMMANDS.items():
            if not names:
                continue
            with formatter.section(heading):
                formatter.write_dl(list(names.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What all commands have in common."""
        with formatter.section("Environment"):
            formatter.write_dl(
                [
                    ("HOLDFAST_URL", "the store, where --url does not say"),
                    ("HOLDFAST_LOG_JSON", "1: log as with --log-json"),
                    ("NO_COLOR", "set: no colours at a terminal either"),
                ]
            )
        with formatter.section("Exit codes"):
            codes = [(str(int(code)), text) for code, text in _CODES_TOLD]
            formatter.write_dl(
                [*codes, ("128+n", "ended by signal n (130: Ctrl-C; 141: the output's reader has gone)")]
            )
        with formatter.section("Completion, for your shell's start-up file"):
            formatter.write_dl(
                [
                    ("bash", f'eval "$({_COMPLETION}=bash_source {PROGRAM})"'),
                    ("zsh", f'eval "$({_COMPLETION}=zsh_source {PROGRAM})"'),
                    ("fish", f"{_COMPLETION}=fish_source {PROGRAM} | source"),
                ]
            )


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name=PROGRAM, prog_name=PROGRAM, message="%(prog)s %(version)s")
def program() -> None:
    """Locks, semaphores and leader election on etcd and ZooKeeper: run under them, look at them, mend them.

    \b
    export HOLDFAST_URL=etcd://127.0.0.1:2379/billing     or etcd+grpc://…, zookeeper://…
    holdfast ls
    holdfast COMMAND --help                               tells more, with examples
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    try:
        code = _invoked(given)
        sys.stdout.flush()
    except click.ClickException as error:
        return _refused(error)
    except HoldfastError as error:
        return _told(str(error), code_of(error))
    except Stop as stop:
        return _told(str(stop), stop.code)
    except (KeyboardInterrupt, click.Abort):
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the line with the ^C in it
        return Code.INTERRUPTED
    except BrokenPipeError:
        _let_go_of_stdout()
        return Code.READER_GONE
    except ModuleNotFoundError:
        raise  # an extra that is not installed: the package says which
    except OSError as error:  # a full disk, a terminal that went away
        _let_go_of_stdout()
        return _told(f"this machine did not let it be done: {error.strerror or error}", Code.UNREACHABLE)
    except Exception as error:  # whatever it is: one line, and a code that says that it is not the user's fault
        return _our_fault(error)
    return code


def _prepare_streams() -> None:
    """A stream that was closed (`>&-`) takes what is written to nowhere; a letter that it does not know is escaped."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # for as long as the program runs
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _let_go_of_stdout() -> None:
    """Or the interpreter's last flush complains, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _invoked(arguments: list[str]) -> int:
    """The command's own code. Raises whatever it raises."""
    instruction = os.environ.get(_COMPLETION)
    if instruction is not None:
        return shell_complete(program, {}, PROGRAM, _COMPLETION, instruction)
    try:
        with program.make_context(PROGRAM, arguments) as context:
            return int(program.invoke(context) or Code.OK)
    except click.exceptions.Exit as end:  # --help, --version
        return end.exit_code


def _refused(error: click.ClickException) -> int:
    """A command that is written wrong."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)
        return Code.USAGE
    context = getattr(error, "ctx", None)
    path = PROGRAM if context is None else context.command_path
    message = error.format_message()
    return _told(f"{message}{'' if message.endswith(('.', '?')) else '.'} See '{path} --help'", Code.USAGE)


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
    told = f"{type(error).__name__}{place}: {error}".removesuffix(": ")
    return _told(f"a defect of holdfast: {told}. Please report it; {_SHOW_TRACEBACK}=1 shows more", Code.BUG)


def _told(message: str, code: Code) -> int:
    tell(message, logging.ERROR)
    return code
