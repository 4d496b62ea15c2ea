"""Checks of an etcd endpoint, asked by itself over HTTP: version, health, alarms, space, gateway.

`/version`, `/health` and `/metrics` are answered with the gateway off too, and without a user.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tenure._core.base.options import Endpoint, Options, shown
from tenure.cli.doctor.endpoint import ask_http, look_at_tls, reach, reason
from tenure.cli.doctor.findings import Finding, Severity, fail, look_at_etcd_version, ok, warn
from tenure.errors import TenureError, how_to_install

_NOSPACE: Final = "NOSPACE"
_FULL: Final = 0.8
_NO_GATEWAY: Final = 404
_REVISIONS_MAX: Final = 1_000_000
"""Some hundreds of megabytes of the default quota of two gigabytes."""
_SPACE: Final = "compact and defragment it (etcdctl compact, etcdctl defrag)"


def look(endpoint: Endpoint, options: Options, seconds: float) -> tuple[list[Finding], str | None]:
    """Findings at an endpoint, and its version where it says."""
    silent = reach(endpoint, options, seconds, "etcd")
    if silent is not None:
        return [silent], None
    tls = look_at_tls(endpoint, options, seconds)
    found = [] if tls is None else [tls]
    where = shown(endpoint)
    try:
        answer = ask_http(endpoint, options, "/version", seconds)
        version = str(_read(answer.text).get("etcdserver") or "")
    except (OSError, TenureError) as error:
        if tls is None or tls.state is not Severity.FAIL:  # else that is why
            found.append(
                fail("reach", where, f"answers, but not as etcd: {reason(error)}", "is this etcd's client port?")
            )
        return found, None
    if not version:
        return [*found, fail("reach", where, "answers, but not as etcd", "is this etcd's client port?")], None
    found.insert(0, ok("reach", where, f"answers in {answer.took * 1000:.1f} ms"))
    found.append(look_at_etcd_version(version, where))
    for check in (_gateway, _health, _space, _history):
        try:
            finding = check(endpoint, options, seconds)
        except (OSError, TenureError) as error:
            do = "does its cluster have a quorum, or is it overloaded?"
            finding = fail(check.__name__.strip("_"), where, f"did not answer: {reason(error)}", do)
        if finding is not None:
            found.append(finding)
    return found, version


def _gateway(endpoint: Endpoint, options: Options, seconds: float) -> Finding | None:
    if options.scheme == "etcd+grpc":
        return None
    answer = ask_http(endpoint, options, "/v3/kv/range", seconds, body='{"key":"AA==","count_only":true}')
    if answer.status == _NO_GATEWAY:
        return fail(
            "gateway",
            shown(endpoint),
            "the JSON gateway is off",
            f"start etcd with --enable-grpc-gateway=true, or use etcd+grpc:// ({how_to_install('grpc')})",
        )
    return ok("gateway", shown(endpoint), "the JSON gateway is on")


def _health(endpoint: Endpoint, options: Options, seconds: float) -> Finding:
    body = _read(ask_http(endpoint, options, "/health", seconds).text)
    where = shown(endpoint)
    if str(body.get("health")).lower() == "true":
        return ok("health", where, "serves, and has no alarm")
    why = str(body.get("reason") or "")
    alarms = sorted({*re.findall(r"NOSPACE|CORRUPT", why), *_alarms(endpoint, options, seconds)})
    if _NOSPACE in alarms:
        return fail(
            "quota",
            where,
            "alarm NOSPACE: leases are renewed, and nothing can be written",
            f"{_SPACE}, raise --quota-backend-bytes if need be, then etcdctl alarm disarm",
        )
    if alarms:
        return fail("health", where, f"alarm {', '.join(alarms)}", "replace the member whose data is corrupt")
    return fail(
        "health",
        where,
        f"says that it is not healthy{f': {why}' if why else ''}",
        "does its cluster have a quorum? Look at its log",
    )


def _alarms(endpoint: Endpoint, options: Options, seconds: float) -> list[str]:
    """Alarms that the gateway lists, where it does: etcd 3.4 does not say which in its health."""
    answer = ask_http(endpoint, options, "/v3/maintenance/alarm", seconds, body="{}")
    alarms = _read(answer.text).get("alarms") if answer.status == 200 else None
    return [str(alarm.get("alarm")) for alarm in alarms if isinstance(alarm, dict)] if isinstance(alarms, list) else []


def _space(endpoint: Endpoint, options: Options, seconds: float) -> Finding | None:
    """Check how full the store is, where it says (metrics may be kept on another port)."""
    text = ask_http(endpoint, options, "/metrics", seconds).text
    size, quota = (
        _sample(text, name) for name in ("etcd_mvcc_db_total_size_in_bytes", "etcd_server_quota_backend_bytes")
    )
    if not size or not quota:
        return None
    used = f"{size / 2**20:,.1f} of {quota / 2**20:,.0f} MiB used"
    if size > _FULL * quota:
        return warn("space", shown(endpoint), used, f"{_SPACE} before it is full")
    return ok("space", shown(endpoint), used)


def _history(endpoint: Endpoint, options: Options, seconds: float) -> Finding | None:
    """Check that the history is compacted, where etcd says: every write stays in the store until it is."""
    text = ask_http(endpoint, options, "/metrics", seconds).text
    newest, compacted = (_sample(text, f"etcd_debugging_mvcc_{name}_revision") for name in ("current", "compact"))
    if newest is None or compacted is None:
        return None
    kept = newest - max(0, compacted)  # -1: never
    found = f"{kept:,.0f} revisions since the last compaction"
    if kept > _REVISIONS_MAX:
        do = "start etcd with --auto-compaction-mode=periodic --auto-compaction-retention=5m, or it fills up"
        return warn("history", shown(endpoint), found, do)
    return ok("history", shown(endpoint), found)


def _sample(text: str, name: str) -> float | None:
    match = re.search(rf"^{name} (-?[0-9.e+]+)$", text, re.MULTILINE)
    return float(match[1]) if match else None


def _read(text: str) -> dict[str, Any]:  # Any: JSON
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}
