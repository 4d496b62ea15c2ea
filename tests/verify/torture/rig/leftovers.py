"""Leftovers of a run that was killed: namespaces, mounts and directories that carry its process id.

A process id that lives is left alone, even where the kernel gave it to somebody else meanwhile: the next run but one
will find it dead. Its servers need no care, they ended with it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from tests.verify.torture.rig.addresses import PREFIX
from tests.verify.torture.rig.shell import RigMissing, run

DIRECTORY_PREFIX = f"{PREFIX}-torture-"
_NAMESPACE = re.compile(rf"{PREFIX}-(\d+)-\d+-")
_DIRECTORY = re.compile(rf"{DIRECTORY_PREFIX}(\d+)-")
_NAMESPACES = Path("/run/netns")


def own_prefix() -> str:
    """The beginning of the names of this process's server directories."""
    return f"{DIRECTORY_PREFIX}{os.getpid()}-"


def sweep_namespaces() -> None:
    """Remove the namespaces of dead runs; their interfaces go with them."""
    for name in _of_the_dead(namespaces(), _NAMESPACE):
        _unless_gone(name, namespaces, "ip", "netns", "delete", name)


def sweep_directories() -> None:
    """Remove the directories of dead runs, and unmount what is mounted below them first."""
    here = Path(tempfile.gettempdir())
    for name in _of_the_dead([path.name for path in here.glob(f"{DIRECTORY_PREFIX}*")], _DIRECTORY):
        for mounted in mounts_below(here / name):
            _unless_gone(mounted, partial(mounts_below, here / name), "umount", "--lazy", mounted)
        shutil.rmtree(here / name, ignore_errors=True)  # another run may sweep at the same time


def _unless_gone(name: str, listed: Callable[[], list[str]], *command: str) -> None:
    """Ignore a failure where what was to be removed is gone: another run may sweep at the same time."""
    try:
        run(*command)
    except RigMissing:
        if name in listed():
            raise


def namespaces() -> list[str]:
    """The named network namespaces of this machine."""
    return sorted(path.name for path in _NAMESPACES.iterdir()) if _NAMESPACES.is_dir() else []


def mounts_below(directory: Path) -> list[str]:
    """The places at or below a directory where something is mounted."""
    points = [line.split(" ")[1] for line in Path("/proc/self/mounts").read_text("utf-8").splitlines()]
    return [point for point in points if Path(point).is_relative_to(directory)]


def _of_the_dead(names: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    matches = ((name, pattern.match(name)) for name in names)
    return [name for name, match in matches if match and not _lives(int(match[1]))]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
