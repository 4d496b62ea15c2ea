"""The terminal, both ways: lines on standard error, signals, and parameters that click alone does not know."""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Final, Generic, NoReturn, TypeVar

import click

from tenure.jsonlog import JSONFormatter

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a polite request, a terminal that was closed."""
_LIBRARY: Final = logging.getLogger("tenure")

Item = TypeVar("Item")


def tell(line: str, level: int = logging.INFO) -> None:
    """Write one line on standard error, without what could move a terminal's cursor; with --log-json, log it."""
    plain = " ".join("".join(character if character.isprintable() else " " for character in line).split())
    if any(isinstance(handler.formatter, JSONFormatter) for handler in _LIBRARY.handlers):
        _LIBRARY.getChild("cli").log(level, "%s", plain)  # among the library's own, which are read by machines
        return
    with contextlib.suppress(OSError, ValueError):
        print(f"tenure: {plain}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def hearing(
    callback: Callable[[int], object], numbers: tuple[signal.Signals, ...] = ENDING
) -> Iterator[tuple[signal.Signals, ...]]:
    """Call `callback` with the number of each signal that arrives, and do no more about it. Only from the main thread.

    A signal that whoever started us had set to be ignored (nohup, a shell's background job) stays ignored. Gives the
    signals that are heard.
    """
    heeded = tuple(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)
    before = [signal.signal(number, lambda got, _: callback(got)) for number in heeded]
    try:
        yield heeded
    finally:
        for number, handler in zip(heeded, before, strict=True):
            signal.signal(number, handler)


class SignalReceived(Exception):
    """A signal asks the command to end; `code` is the exit code that says so."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code: int = 128 + number


class Inbox(Generic[Item]):
    """The one place where a command waits: a queue that threads and signal handlers fill and the main thread empties.

    A signal handler only puts an error here, so a command ends between two steps and never in the middle of one.
    """

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Item | Exception] = queue.SimpleQueue()  # its put() is re-entrant

    def put(self, item: Item | Exception) -> None:
        """Add an item, or an error that ends the command."""
        self._items.put(item)

    def take(self, seconds: float) -> Item | None:
        """The next item, or None when none came within that time. Raises the error that was put."""
        try:
            item = self._items.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            raise item
        return item

    @contextlib.contextmanager
    def with_signals(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and a closed terminal arrive here as `SignalReceived`. Only from the main thread."""
        with hearing(lambda number: self.put(SignalReceived(number))):
            yield


class SecondsType(click.FloatRange):
    """A span of time within bounds. `nan` is within all of them for click, and `inf` within those that are open."""

    name = "seconds"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """A finite number, within the bounds; `60s` is 60."""
        value = value.removesuffix("s") if isinstance(value, str) else value
        seconds = float(super().convert(value, param, ctx))  # type: ignore[arg-type]  # click says float, and takes texts
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a finite number of seconds.", param, ctx)
        return seconds


class RunsProgram(click.Command):
    """A command whose last arguments are a program's, which stand behind `--`.

    Without it options of the program that are options here as well (-v, say) would be taken from it without a word.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, where `--` stands before the program; refuse the arguments where it does not."""
        asked = ctx.resilient_parsing or set(ctx.help_option_names) & set(args)
        program = tuple(args[args.index("--") + 1 :]) if "--" in args else None
        if program is None and not asked:
            self._refuse(ctx)
        rest = super().parse_args(ctx, list(args))
        if not asked and ctx.params["program"] != program:
            self._refuse(ctx)
        return rest

    def _refuse(self, ctx: click.Context) -> NoReturn:
        form = f"{ctx.command_path} NAME [OPTION]… -- CMD [ARGUMENT]…"
        raise click.UsageError(f"write -- before the program: {form}", ctx)


json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: tokens as strings, times in UTC, spans in seconds."
)
wide_option: Final = click.option("-w", "--wide", is_flag=True, help="Cut nothing, however narrow the terminal is.")
