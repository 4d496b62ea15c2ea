"""Servers as processes of this machine: their data, which only then can be reached."""

from __future__ import annotations

import shutil
from pathlib import Path

from tenure.testing.servers import Member, ServerFailed
from tenure.testing.servers.processes import ServerProcess


def process_of(member: Member) -> ServerProcess:
    """The process behind a member. Raises ServerFailed where it is none of this machine."""
    machine = member._machine
    if not isinstance(machine, ServerProcess):
        raise ServerFailed(f"{member} does not run as a process here")
    return machine


def data_of(member: Member) -> Path:
    """The directory of the member's data."""
    return process_of(member).directory / "data"


def wipe(member: Member, *, keep: frozenset[str] = frozenset()) -> None:
    """Empty the data directory of a killed member, but for files of these names. The directory may be a mount."""
    for path in data_of(member).iterdir():
        if path.name in keep:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def mend_epochs(member: Member) -> None:
    """Let a killed ZooKeeper start again that would complain of an accepted epoch less than the current one.

    A disk that failed between the two files leaves them so. The server had accepted what it took part in: an operator
    writes that down.
    """
    accepted, current = (data_of(member) / "version-2" / name for name in ("acceptedEpoch", "currentEpoch"))
    if accepted.exists() and current.exists() and int(accepted.read_text("ascii")) < int(current.read_text("ascii")):
        accepted.write_text(current.read_text("ascii"), "ascii")
