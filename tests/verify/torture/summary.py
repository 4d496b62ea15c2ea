"""Summary of what a run did and found: facts for machines, and the same as text for people."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from tenure.testing.history.event import ACQUIRES, Kind
from tenure.testing.history.history import History
from tenure.testing.history.intervals import beliefs
from tests.verify.torture.verdict import Judgement, hand_overs, stale_writes_refused
from tests.verify.torture.versions import own_version

_SHOWN_MAX: Final = 8


def facts(judgement: Judgement, *, servers: str, names: str) -> dict[str, Any]:  # Any: JSON
    """The facts of a run, ready for JSON."""
    trial, history, phases = judgement.trial, judgement.history, judgement.phases
    start, end = phases.spans()["before"]
    held = beliefs(history)
    before = sum(start <= belief.ok.at < end for belief in held)
    return {
        "outcome": judgement.outcome.value,
        "backend": trial.backend,
        "servers": servers,
        "tenure": own_version(),
        "nemesis": names,
        "seconds": trial.seconds,
        "seed": trial.seed,
        "ttl": trial.ttl,
        "clients": trial.clients,
        "fenced": trial.fenced,
        "acquires": sum(call.invoke.operation in ACQUIRES for call in history.calls),
        "grants": len(held),
        "grants_per_second_before": round(before / max(end - start, 1e-9), 1),
        "hand_overs": len(list(hand_overs(history, phases.begun, phases.settled))),
        "hand_overs_during": len(list(hand_overs(history, *phases.spans()["during"]))),
        "faults": dict(judgement.faults),
        "without_progress_seconds": {
            name: round(_longest_gap(history, *span), 2) for name, span in phases.spans().items()
        },
        "stale_writes_refused": stale_writes_refused(history),
        "updates": updates(history),
        "verdicts": {verdict.name: _verdict(verdict) for verdict in judgement.report.verdicts},
        "left_out": list(judgement.report.left_out),
        "broke": list(judgement.broke),
        "doubts": list(judgement.doubts),
        "command": command(judgement, names),
    }


def _verdict(verdict: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"outcome": verdict.outcome.value, "violations": verdict.counts.get("violations", 0)}
    return found | ({"reason": verdict.reason} if verdict.reason else {})


def updates(history: History) -> dict[str, Any]:
    """Writes that were told to have succeeded, and how many of them are not there at the end."""
    kept = {event.value for event in history.of(Kind.STORE) if event.operation == "kept"}
    written = [call.invoke.value for call in history.calls if call.invoke.operation == "write" and call.ok]
    lost = sum(value not in kept for value in written)
    return {"written": len(written), "lost": lost, "lost_percent": round(100.0 * lost / max(1, len(written)), 1)}


def _longest_gap(history: History, start: float, end: float) -> float:
    """The longest time in which nobody was granted anything."""
    moments = [start, *(belief.ok.at for belief in beliefs(history) if start <= belief.ok.at < end), end]
    return max((later - earlier for earlier, later in pairwise(moments)), default=0.0)


def command(judgement: Judgement, names: str) -> str:
    """The command that repeats the run, as far as a seed can."""
    trial = judgement.trial
    words = ["python", "-m", "tests.verify.torture", "--backend", trial.backend, "--nemesis", names]
    words += ["--seconds", f"{trial.seconds:g}", "--seed", str(trial.seed), "--ttl", f"{trial.ttl:g}"]
    words += ["--clients", str(trial.clients)]
    words += ["--careless", f"{trial.careless:g}"]
    words += ["--transport", trial.transport] if trial.transport != "gateway" else []
    return shlex.join(words + ([] if trial.fenced else ["--unfenced"]))


def text(found: Mapping[str, Any], judgement: Judgement) -> str:
    """The report."""
    faults = ", ".join(f"{name} {count}" for name, count in found["faults"].items()) or "none"
    gaps = ", ".join(f"{name} {seconds:g} s" for name, seconds in found["without_progress_seconds"].items())
    written = found["updates"]
    lines = [
        f"{found['nemesis']} on {found['servers']}, tenure {found['tenure']}, {found['clients']} workers, "
        f"TTL {found['ttl']:g} s, {found['seconds']:g} s, seed {found['seed']}",
        "",
        f"acquires             {found['acquires']}",
        f"grants               {found['grants']} ({found['grants_per_second_before']:g} per second before the faults)",
        f"hand-overs           {found['hand_overs']} ({found['hand_overs_during']} during the faults)",
        f"faults               {faults}",
        f"longest standstill   {gaps}",
        f"stale writes refused {found['stale_writes_refused']}",
        f"lost updates         {written['lost']} of {written['written']} ({written['lost_percent']:g} %)"
        + ("" if found["fenced"] else ", without the fence"),
        "",
        str(judgement.report).removesuffix(judgement.report.outcome.value).rstrip(),
    ]
    lines += [f"\nfailed: {what}" for what in judgement.broke[:_SHOWN_MAX]]
    lines += [f"\nunknown: {what}" for what in judgement.doubts[:_SHOWN_MAX]]
    return "\n".join((*lines, "", f"again: {found['command']}", found["outcome"]))
