"""`python -m benchmarks [--only PART[,PART…]] [--quick] [--markdown FILE] [--short FILE] [--svg DIR] [--no-fail] …`

From the project's root; the extras `test` and `bench` must be installed. Starts its own servers. Parts: cycles,
contended, takeover, scale, guards, imports, service, and, only when it is asked for, soak. Exit code 1 when a floor is
missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import logging
import os
import platform
import random
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from benchmarks.findings import Findings, Floor, together
from benchmarks.ground import FULL, QUICK, Effort, Ground
from benchmarks.report import as_markdown, has_marks, in_short, put_between_marks
from tests.servers import PROVIDER_NAMES

PARTS: Final = ("imports", "cycles", "contended", "takeover", "scale", "guards", "service", "soak")
_UNASKED: Final = PARTS[:-1]
_PACKAGES: Final = ("etcd3gw", "kazoo", "hpack", "tooz", "redis", "python-redis-lock")


def main() -> int:
    arguments = _arguments()
    effort = dataclasses.replace(QUICK if arguments.quick else FULL, soak_minutes=arguments.soak_minutes)
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    about = _about(arguments.only, seed, effort, arguments)
    _tell("; ".join(about))
    ground = Ground(effort, random.Random(seed), _tell, arguments.servers, not arguments.no_fsync)
    with _quiet():
        found = together(_part(part, ground) for part in PARTS if part in arguments.only)
    about.append(f"load average at the end: {os.getloadavg()[0]:.1f}")
    sys.stdout.write(as_markdown(found, about))
    _write(found, about, arguments)
    return 0 if arguments.no_fail or not any(floor.missed for floor in found.floors) else 1


@contextmanager
def _quiet() -> Iterator[None]:
    """tenure warns of the old etcd that the wheel brings."""
    log = logging.getLogger("tenure")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _part(name: str, ground: Ground) -> Findings:
    """A part is imported when it is run: not every one needs what another one does.

    One that fails is told among the floors, and costs none of the others: they may have taken an hour.
    """
    try:
        findings: Findings = importlib.import_module(f"benchmarks.{name}").run(ground)
    except Exception as error:  # whatever it is
        traceback.print_exc()
        told = f"failed: {type(error).__name__}: {error}"
        return Findings(floors=[Floor(f"the part `{name}`, failures", 0.0, 1.0, told)])
    return findings


def _write(found: Findings, about: Sequence[str], arguments: argparse.Namespace) -> None:
    directory: Path | None = arguments.svg
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        for name, plot in found.plots.items():
            (directory / name).write_text(plot, encoding="utf-8")
    markdown: Path | None = arguments.markdown
    if markdown is not None and has_marks(markdown):
        put_between_marks(markdown, as_markdown(found, about, plots_from=_seen_from(markdown, directory), depth=3))
    elif markdown is not None:
        report = as_markdown(found, about, plots_from=_seen_from(markdown, directory))
        markdown.write_text(report, encoding="utf-8")
    short: Path | None = arguments.short
    if short is not None:
        put_between_marks(short, in_short(found, about, plots_from=_seen_from(short, directory)))


def _seen_from(file: Path, directory: Path | None) -> str | None:
    return None if directory is None else os.path.relpath(directory, file.parent)


def _about(parts: Sequence[str], seed: int, effort: Effort, arguments: argparse.Namespace) -> list[str]:
    cycles = effort.cycles
    return [
        f"{', '.join(parts)}{'; quick' if arguments.quick else ''}; seed {seed}",
        f"{cycles.rounds} rounds of {cycles.block_seconds:g} s per contestant and cycle, order shuffled in each",
        f"Python {platform.python_version()}, {os.cpu_count()} processors; {', '.join(_versions())}",
        f"etcd {'does not wait' if arguments.no_fsync else 'waits'} for its disk; ZooKeeper waits",
        "ratios are medians over rounds of the round's ratio of medians, with quartiles: lower is better",
    ]


def _versions() -> list[str]:
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", type=_parts, default=_UNASKED, metavar="PART[,PART…]", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="small rounds, under three minutes in all")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the report there, too, or to its marks")
    parser.add_argument("--short", type=_marked, metavar="FILE", help="write the headlines to the marks in that file")
    parser.add_argument("--svg", type=Path, metavar="DIR", help="write the plots there")
    parser.add_argument("--no-fail", action="store_true", help="exit with 0 even when a floor is missed")
    parser.add_argument("--seed", type=int, help="of the order of contestants; printed when not given")
    parser.add_argument("--soak-minutes", type=float, default=FULL.soak_minutes, metavar="N", help="of the part soak")
    parser.add_argument(
        "--no-fsync", action="store_true", help="etcd without waiting for its disk: compares the clients alone"
    )
    parser.add_argument("--servers", choices=PROVIDER_NAMES, default="native")
    return parser.parse_args()


def _parts(text: str) -> tuple[str, ...]:
    wanted = tuple(text.split(","))
    if unknown := [part for part in wanted if part not in PARTS]:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return wanted


def _marked(text: str) -> Path:
    path = Path(text)
    if not has_marks(path):
        raise argparse.ArgumentTypeError(f"{text} has no marks between which to write")
    return path


def _tell(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
