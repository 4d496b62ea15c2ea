"""etcdctl as an administrator uses it: what it printed, or an error, or another try within a bound."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from tenure.testing.servers import Cluster, ServerFailed, etcdctl

_MEND_SECONDS = 30.0
_AGAIN_SECONDS = 0.2


def control(cluster: Cluster, *args: str, stdin: str = "") -> str:
    """Run etcdctl and return what it printed. Raises ServerFailed with its complaint."""
    try:
        done = etcdctl(cluster, *args, stdin=stdin)
    except subprocess.TimeoutExpired as error:
        raise ServerFailed(f"etcdctl {args[0]} did not end: {error}") from error
    if done.returncode != 0:
        raise ServerFailed(f"etcdctl {' '.join(args[:2])} failed: {done.stderr.strip()}")
    return done.stdout


def try_control(cluster: Cluster, *args: str, stdin: str = "") -> bool:
    """Run etcdctl and say whether that worked.

    For what is done to the store as a fault: others may have broken the servers meanwhile.
    """
    try:
        control(cluster, *args, stdin=stdin)
    except ServerFailed:
        return False
    return True


def insist(cluster: Cluster, *args: str) -> str:
    """The same again until it works, for what mends. Raises ServerFailed when it does not within half a minute."""
    deadline = time.monotonic() + _MEND_SECONDS
    while True:
        try:
            return control(cluster, *args)
        except ServerFailed:
            if time.monotonic() > deadline:
                raise
        time.sleep(_AGAIN_SECONDS)


def revision(cluster: Cluster) -> int:
    """The store's revision now."""
    return int(etcdctl_json(cluster, "get", "any")["header"]["revision"])


def etcdctl_json(cluster: Cluster, *args: str) -> dict[str, Any]:  # Any: JSON as etcdctl writes it
    """An answer that is one JSON object."""
    answer = json.loads(insist(cluster, *args, "--write-out=json"))
    if not isinstance(answer, dict):
        raise ServerFailed(f"etcdctl {args[0]} answered {answer!r}")
    return answer


def statuses(cluster: Cluster) -> list[dict[str, Any]]:
    """The statuses of all members:

    `Endpoint`, and `Status` with `leader` and `header.member_id`. Raises ServerFailed.
    """
    answer = json.loads(control(cluster, "endpoint", "status", "--write-out=json"))
    if not isinstance(answer, list):
        raise ServerFailed(f"etcdctl endpoint status answered {answer!r}")
    return answer


def await_applied(cluster: Cluster) -> None:
    """Wait until all members that answer have applied what is committed now. Raises ServerFailed after a while."""
    deadline, committed = time.monotonic() + _MEND_SECONDS, 0
    while time.monotonic() < deadline:
        answer = etcdctl(cluster, "endpoint", "status", "--write-out=json").stdout  # fails where one does not answer
        found = [member["Status"] for member in json.loads(answer or "[]")]
        committed = committed or max((int(status["raftIndex"]) for status in found), default=0)
        if committed and all(int(status["raftAppliedIndex"]) >= committed for status in found):
            return
        time.sleep(_AGAIN_SECONDS)
    raise ServerFailed("the members of etcd did not apply within half a minute what was committed")


def defragment(cluster: Cluster) -> None:
    """Give back what compaction freed, one member after the other."""
    insist(cluster, "defrag", "--command-timeout=20s")
