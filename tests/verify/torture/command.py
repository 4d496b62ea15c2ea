"""The command line of the torture: one run, a profile of many, or the list of nemeses.

    --nemesis a,b      a and b, one after the other
    --nemesis a+b      both at the same time
    --nemesis none     a calm run
    check FILE…        judge kept histories once more, as `python -m tenure.testing.check` does

Exit codes: 0 passed, 1 failed, 2 unknown, 3 could not run (the sentence says what to do). Histories are kept with
`--keep DIR`; without, they go with a run that passed, and stay for any other.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from tenure.testing import check
from tenure.testing.history.verdicts import Outcome
from tenure.testing.servers import Cluster, ServerFailed, ServersMissing
from tests.processes import ProcessFailed
from tests.verify.torture import nemeses
from tests.verify.torture.parts import Nemesis
from tests.verify.torture.rig import make_rig
from tests.verify.torture.run import CLIENTS, TTL_SECONDS, Trial, torture
from tests.verify.torture.summary import facts, text
from tests.verify.torture.verdict import Judgement
from tests.verify.torture.versions import version_of

CODES: Final = {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.UNKNOWN: 2}
COULD_NOT_RUN: Final = 3
BACKENDS: Final = ("etcd", "zookeeper")
TRANSPORTS: Final = ("gateway", "grpc")
CALM: Final = "none"
_SECONDS_MIN: Final = 1.0
_CLIENTS_MAX: Final = 50
_TTL_MIN: Final = 1.0


class BadArguments(Exception):
    """The command line asks for what can't be; the message says what can."""


_NO_RUN: Final = (BadArguments, nemeses.UnknownNemesis, ServersMissing, ServerFailed, ProcessFailed, OSError)
"""What a sentence is enough for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A run, as the command line asks for it."""

    backend: Any  # Any: a literal type that argparse does not know of
    nemesis: str
    seconds: float
    seed: int
    ttl: float = TTL_SECONDS
    clients: int = CLIENTS
    fenced: bool = True
    careless: float = 0.1
    transport: Any = "gateway"  # Any: as above
    keep: Path | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry the command line out and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["check"]:
        return check.main(words[1:])
    asked = _parser().parse_args(words)
    try:
        if asked.list:
            print(listed())
            return 0
        if asked.profile:
            from tests.verify.torture.profiles import run_profile  # it starts this module's runs as processes

            on = BACKENDS if asked.backend is None else (asked.backend,)
            return run_profile(asked.profile, on, parallel=asked.parallel, keep=asked.keep, into=asked.json)
        return _one(_checked(asked), asked.json)
    except _NO_RUN as error:
        print(f"could not run: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    except Exception:  # ours, or a nemesis': Python's own exit code would say "failed"
        traceback.print_exc()
        return COULD_NOT_RUN


def listed() -> str:
    """Every nemesis, for which store, what it needs and does."""
    lines = []
    for name, kind in sorted(nemeses.NEMESES.items()):
        stores = "/".join(backend for backend in BACKENDS if backend in kind.backends)
        needs = ", ".join(sorted(kind.needs)) or "nothing"
        effect = (kind.__doc__ or "").strip().splitlines()[0]
        lines.append(f"{name:20} {stores:15} needs {needs:22} {effect}")
    return "\n".join(lines)


def groups(names: str, backend: Any) -> list[list[Nemesis]]:
    """The groups of nemeses that strike together, in their order. Raises UnknownNemesis."""
    if names == CALM:
        return []
    return [nemeses.make(group.split("+"), backend) for group in names.split(",")]


def _one(asked: Asked, into: Path | None) -> int:
    trial = _trial(asked)
    try:
        servers, judgement = _carried_out(trial, asked.nemesis)
    except BaseException:
        _tell_what_is_left(trial.directory)
        raise
    found = facts(judgement, servers=servers, names=asked.nemesis)
    print(text(found, judgement))
    if asked.keep is None and judgement.outcome is Outcome.PASSED:
        shutil.rmtree(trial.directory)
    else:
        print(f"histories: {trial.directory}")
        found["histories"] = str(trial.directory)
    if into is not None:
        into.write_text(json.dumps(found, indent=2) + "\n")
    return CODES[judgement.outcome]


def _trial(asked: Asked) -> Trial:
    if asked.keep is not None and asked.keep.exists() and any(asked.keep.iterdir()):
        raise BadArguments(f"--keep {asked.keep}: there is something in it; name a directory that is empty or new")
    return Trial(
        backend=asked.backend,
        seconds=asked.seconds,
        seed=asked.seed,
        nemeses=groups(asked.nemesis, asked.backend),
        directory=asked.keep or Path(tempfile.mkdtemp(prefix="tenure-torture-")),
        clients=asked.clients,
        ttl=asked.ttl,
        fenced=asked.fenced,
        careless=asked.careless,
        transport=asked.transport,
    )


def _carried_out(trial: Trial, names: str) -> tuple[str, Judgement]:
    """The servers that it ran on, and what came of it."""
    plain = [] if names == CALM else names.replace("+", ",").split(",")
    needs = nemeses.needs_of(plain, trial.backend)
    rig = make_rig(trial.backend, clients=trial.clients, needs=needs, seed=trial.seed)
    try:
        return _servers(rig.cluster), torture(trial, rig)
    finally:
        rig.close()


def _tell_what_is_left(directory: Path) -> None:
    if directory.exists() and any(directory.iterdir()):
        print(f"what there is of histories: {directory}", file=sys.stderr)
    elif directory.exists():
        directory.rmdir()


def _servers(cluster: Cluster) -> str:
    return f"{len(cluster.members)} × {cluster.kind} {version_of(cluster)}"


def _checked(asked: argparse.Namespace) -> Asked:
    if asked.backend is None or asked.nemesis is None:
        raise BadArguments("say --backend and --nemesis, or --profile, or --list")
    if not asked.seconds >= _SECONDS_MIN:
        raise BadArguments(f"--seconds {asked.seconds:g}: at least {_SECONDS_MIN:g}")
    if not 2 <= asked.clients <= _CLIENTS_MAX:
        raise BadArguments(f"--clients {asked.clients}: from 2 to {_CLIENTS_MAX}")
    if not asked.ttl >= _TTL_MIN:
        raise BadArguments(f"--ttl {asked.ttl:g}: at least {_TTL_MIN:g}")
    if not 0.0 <= asked.careless <= 1.0:
        raise BadArguments(f"--careless {asked.careless:g}: from 0 to 1")
    if asked.transport == "grpc" and asked.backend != "etcd":
        raise BadArguments(f"--transport grpc is etcd's; --backend is {asked.backend}")
    return Asked(
        backend=asked.backend,
        nemesis=asked.nemesis,
        seconds=asked.seconds,
        seed=asked.seed,
        ttl=asked.ttl,
        clients=asked.clients,
        fenced=not asked.unfenced,
        careless=asked.careless,
        transport=asked.transport,
        keep=asked.keep,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m tests.verify.torture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--backend", choices=BACKENDS)
    parser.add_argument("--transport", choices=TRANSPORTS, default="gateway", help="how the workers speak to etcd")
    parser.add_argument("--nemesis", metavar="NAME[,NAME…]", help="what breaks things; see --list")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="N", help="for how long; default 30")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of every lot that is drawn; default 1")
    parser.add_argument("--ttl", type=float, default=TTL_SECONDS, metavar="N", help=f"default {TTL_SECONDS:g}")
    parser.add_argument("--clients", type=int, default=CLIENTS, metavar="N", help=f"workers; default {CLIENTS}")
    parser.add_argument("--unfenced", action="store_true", help="the store accepts everything: must lose updates")
    parser.add_argument("--careless", type=float, default=0.1, metavar="SHARE", help="of long thoughts; default 0.1")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the histories go, and stay")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the report once more, for machines")
    parser.add_argument("--list", action="store_true", help="every nemesis, and what it needs")
    parser.add_argument(
        "--profile",
        choices=("ci", "night"),
        help="many runs, and a table of what they covered; on both stores, or the --backend",
    )
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="runs of a profile at a time; default 1")
    return parser


class _Parser(argparse.ArgumentParser):
    """A wrong call exits with COULD_NOT_RUN: argparse's own 2 would say "unknown"."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        super().exit(COULD_NOT_RUN if status else 0, message)
