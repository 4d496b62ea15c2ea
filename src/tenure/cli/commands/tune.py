"""`tenure tune`: which TTL suits this machine and this store."""

from __future__ import annotations

import math
from typing import Final

import click
from rich.segment import Segment

from tenure.cli.screens import paper
from tenure.cli.screens.table import QUIET, STRONG
from tenure.cli.screens.words import duration
from tenure.cli.screens.words import seconds as rounded
from tenure.cli.store import StoreSession, with_store
from tenure.cli.terminal import SecondsType, json_option
from tenure.cli.tuning import (
    MARGIN_SECONDS,
    Advice,
    GrantedTtls,
    MeasuredPauses,
    Renewals,
    Samples,
    advise,
    ask_bounds,
    measure_renewals,
    measuring_pauses,
)

_SECONDS_MAX: Final = 3600.0
_FEW: Final = 100
_BAR: Final = "█"
_BAR_NARROW: Final = 10
_BAR_WIDE: Final = 60
_TAKEN: Final = 24  # by what stands around the bars


@click.command
@click.option(
    "--seconds",
    type=SecondsType(0.5, _SECONDS_MAX),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to measure. Longer sees rarer pauses.",
)
@click.option(
    "--margin",
    type=SecondsType(0.0, _SECONDS_MAX),
    default=MARGIN_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="For what no good day shows: a change of the store's leader.",
)
@json_option
@with_store
def tune(session: StoreSession, *, seconds: float, margin: float, as_json: bool) -> None:
    """Measure this machine and the store, and say which TTL to ask for.

    Renews a lease of a scratch lock again and again, and looks how late a thread and an event loop are woken meanwhile.
    Run it where your program runs, while the machine is as busy as it gets. The rule:

    \b
    ttl > p99 pause + p99 renewal + margin,  renewed at a third of it

    A shorter TTL is taken over sooner after a crash; a longer one outlives longer troubles.

    \b
    tenure tune                  ten seconds
    tenure tune --seconds 600    over a garbage collection, a backup, a busy hour
    """
    if not as_json:
        paper.say(f"measuring for {seconds:g} s against {session.display} …")
    with session.client() as client, measuring_pauses() as pauses:
        renewals = measure_renewals(client, seconds)
    bounds = ask_bounds(lambda ttl: session.client(ttl=ttl))
    advice = advise(pauses, renewals, bounds, margin)
    if as_json:
        paper.json_document(_document(session.display, seconds, pauses, renewals, bounds, advice))
    elif paper.at_terminal():
        _show(pauses, renewals, bounds, advice)
    else:
        _print(pauses, renewals, bounds, advice)


def _measures(pauses: MeasuredPauses, renewals: Renewals) -> dict[str, Samples]:
    return {"renewal": renewals.took, "thread": pauses.thread, "event loop": pauses.loop}


def _show(pauses: MeasuredPauses, renewals: Renewals, bounds: GrantedTtls, advice: Advice) -> None:
    titles = ("Renewal of a lease", "A thread is woken late by", "An event loop is woken late by")
    width = paper.console().width
    for title, samples in zip(titles, _measures(pauses, renewals).values(), strict=True):
        paper.show([*_histogram(title, samples, width)])
        print()
    paper.sentences(*_sentences(renewals, bounds, advice))


def _sentences(renewals: Renewals, bounds: GrantedTtls, advice: Advice) -> list[str]:
    """The recommendation, and its reasons."""
    parts = [f"{duration(part)}" for part in (advice.pause, advice.renewal, advice.margin)]
    sentences = [
        f"Recommended: ttl={advice.ttl:g}, renewed every {advice.renew:.2f} s or sooner, as tenure does by itself.",
        f"p99 pause {parts[0]} + p99 renewal {parts[1]} + margin {parts[2]} have to fit into the two thirds of a TTL "
        "that are left when a renewal is due.",
        f"A crashed holder is succeeded within about {advice.ttl:g} s, plus the store's own delay.",
    ]
    if advice.by_server:
        sentences.append(f"The rule would allow less, but the server grants no TTL below {bounds.minimum:g} s.")
    if advice.refused:
        sentences.append(f"The server grants at most {bounds.maximum:g} s: raise that (ZooKeeper: maxSessionTimeout).")
    if len(renewals.took) < _FEW:
        sentences.append(
            f"Only {len(renewals.took)} renewals were measured: their p99 is the slowest. Try --seconds 60."
        )
    if renewals.failed:
        sentences.append(f"{len(renewals.failed)} renewals failed, the last one so: {renewals.failed[-1]}")
    return sentences


def _histogram(title: str, samples: Samples, width: int) -> list[Segment]:
    """A heading with the quantiles, then a bar for each span; each that has any at all shows."""
    summary = ", ".join(f"{name} {duration(value)}" for name, value in _quantiles(samples).items())
    segments = [
        Segment(title, STRONG),
        Segment.line(),
        Segment(f"  {len(samples):,} times: {summary}", QUIET),
        Segment.line(),
    ]
    spans = samples.distribution()
    longest = max((count for _, count in spans), default=0)
    room = min(_BAR_WIDE, max(_BAR_NARROW, width - _TAKEN))
    for bound, count in spans:
        bar = _BAR * (max(1, round(count / longest * room)) if count else 0)
        limit = "more" if math.isinf(bound) else f"to {duration(bound)}"
        segments += [Segment(f"{limit:>11}  "), Segment(f"{bar} " if bar else ""), Segment(f"{count:,}", QUIET)]
        segments.append(Segment.line())
    return segments


def _quantiles(samples: Samples) -> dict[str, float]:
    """Quantiles, by the names they have on the screen."""
    return {
        "p50": samples.quantile(0.5),
        "p90": samples.quantile(0.9),
        "p99": samples.quantile(0.99),
        "worst": samples.worst,
    }


def _print(pauses: MeasuredPauses, renewals: Renewals, bounds: GrantedTtls, advice: Advice) -> None:
    for name, samples in _measures(pauses, renewals).items():
        figures = (f"{quantile}={value * 1000:.3f}ms" for quantile, value in _quantiles(samples).items())
        paper.fields(name, len(samples), *figures)
    paper.fields("failed", len(renewals.failed))
    paper.fields("granted", f"{bounds.minimum:g}s", "" if bounds.maximum is None else f"{bounds.maximum:g}s")
    paper.fields("recommended", f"ttl={advice.ttl:g}", f"renew={advice.renew:.2f}", f"margin={advice.margin:.2f}")


def _document(
    display: str, seconds: float, pauses: MeasuredPauses, renewals: Renewals, bounds: GrantedTtls, advice: Advice
) -> dict[str, object]:
    return {
        "store": display,
        "seconds": seconds,
        "measured": {
            name.replace(" ", "_"): {
                "count": len(samples),
                **{f"{name}_seconds": round(value, 6) for name, value in _quantiles(samples).items()},
                "distribution": [
                    {"up_to_seconds": None if bound == float("inf") else bound, "count": count}
                    for bound, count in samples.distribution()
                ],
            }
            for name, samples in _measures(pauses, renewals).items()
        },
        "renewals_failed": len(renewals.failed),
        "granted": {"least_seconds": rounded(bounds.minimum), "most_seconds": rounded(bounds.maximum)},
        "recommended": {
            "ttl_seconds": advice.ttl,
            "renew_seconds": rounded(advice.renew),
            "margin_seconds": rounded(advice.margin),
            "by_server": advice.by_server,
            "refused": advice.refused,
        },
    }
