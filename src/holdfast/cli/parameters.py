"""What commands take that click alone does not know: spans of time, and a program to run."""

from __future__ import annotations

import math
from typing import NoReturn

import click


class Seconds(click.FloatRange):
    """A span of time within bounds. `nan` is within all of them for click, and `inf` within those that are open."""

    name = "seconds"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """A finite number, within the bounds."""
        seconds = float(super().convert(value, param, ctx))  # type: ignore[arg-type]  # click says float, and takes texts
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a finite number of seconds.", param, ctx)
        return seconds


class RunsProgram(click.Command):
    """A command whose last arguments are a program's, which stand behind `--`.

    Without it options of the program that are options here as well (-v, say) would be taken from it, and nobody told.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, where `--` stands before the program."""
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
