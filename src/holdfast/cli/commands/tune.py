"""`holdfast tune`: which TTL suits this machine and this store."""

from __future__ import annotations

from typing import Final

import click

from holdfast.cli.parameters import Seconds
from holdfast.cli.screens import histogram, paper
from holdfast.cli.screens.words import seconds as rounded
from holdfast.cli.session import Session, with_store
from holdfast.cli.tuning.advice import MARGIN_SECONDS, Advice, advise
from holdfast.cli.tuning.pauses import Pauses, measuring_pauses
from holdfast.cli.tuning.renewals import Bounds, Renewals, ask_bounds, measure_renewals
from holdfast.cli.tuning.samples import Samples

_SECONDS_MAX: Final = 3600.0
_FEW: Final = 100


@click.command
@click.option(
    "--seconds",
    type=Seconds(0.5, _SECONDS_MAX),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to measure. Longer sees rarer pauses.",
)
@click.option(
    "--margin",
    type=Seconds(0.0, _SECONDS_MAX),
    default=MARGIN_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="For what no good day shows: a change of the store's leader.",
)
@paper.json_option
@with_store
def command(session: Session, *, seconds: float, margin: float, as_json: bool) -> None:
    """Measure this machine and the store, and say which TTL to ask for.

    Renews a lease of a scratch lock again and again, and looks how late a thread and an event loop are woken meanwhile.
    Run it where your program runs, while the machine is as busy as it gets. The rule:

    \b
    ttl > p99 pause + p99 renewal + margin,  renewed at a third of it

    A shorter TTL is taken over sooner after a crash; a longer one outlives longer troubles.

    \b
    holdfast tune                  ten seconds
    holdfast tune --seconds 600    over a garbage collection, a backup, a busy hour
    """
    if not as_json:
        paper.say(f"measuring for {seconds:g} s against {session.place} …")
    with session.client() as client, measuring_pauses() as pauses:
        renewals = measure_renewals(client, seconds)
    bounds = ask_bounds(lambda ttl: session.client(ttl=ttl))
    advice = advise(pauses, renewals, bounds, margin)
    if as_json:
        paper.json_document(_document(session.place, seconds, pauses, renewals, bounds, advice))
    elif paper.at_terminal():
        _show(pauses, renewals, bounds, advice)
    else:
        _print(pauses, renewals, bounds, advice)


def _measures(pauses: Pauses, renewals: Renewals) -> dict[str, Samples]:
    return {"renewal": renewals.took, "thread": pauses.thread, "event loop": pauses.loop}


def _show(pauses: Pauses, renewals: Renewals, bounds: Bounds, advice: Advice) -> None:
    titles = ("Renewal of a lease", "A thread is woken late by", "An event loop is woken late by")
    width = paper.console().width
    for title, samples in zip(titles, _measures(pauses, renewals).values(), strict=True):
        paper.show([*histogram.histogram(title, samples, width)])
        print()
    paper.sentences("\n".join(_told(renewals, bounds, advice)))


def _told(renewals: Renewals, bounds: Bounds, advice: Advice) -> list[str]:
    """What is recommended, and why, in sentences."""
    parts = [f"{histogram.duration(part)}" for part in (advice.pause, advice.renewal, advice.margin)]
    told = [
        f"Recommended: ttl={advice.ttl:g}, renewed every {advice.renew:.2f} s or sooner, as holdfast does by itself.",
        f"p99 pause {parts[0]} + p99 renewal {parts[1]} + margin {parts[2]} have to fit into the two thirds of a TTL "
        "that are left when a renewal is due.",
        f"A crashed holder is succeeded within about {advice.ttl:g} s, plus the store's own delay.",
    ]
    if advice.by_server:
        told.append(f"The rule would allow less, but the server grants no TTL below {bounds.least:g} s.")
    if advice.refused:
        told.append(f"The server grants at most {bounds.most:g} s: raise that (ZooKeeper: maxSessionTimeout).")
    if len(renewals.took) < _FEW:
        told.append(f"Only {len(renewals.took)} renewals were measured: their p99 is the slowest. Try --seconds 60.")
    if renewals.failed:
        told.append(f"{len(renewals.failed)} renewals failed, the last one so: {renewals.failed[-1]}")
    return told


def _print(pauses: Pauses, renewals: Renewals, bounds: Bounds, advice: Advice) -> None:
    for name, samples in _measures(pauses, renewals).items():
        told = (f"{quantile}={value * 1000:.3f}ms" for quantile, value in histogram.quantiles(samples).items())
        paper.fields(name, len(samples), *told)
    paper.fields("failed", len(renewals.failed))
    paper.fields("granted", f"{bounds.least:g}s", "" if bounds.most is None else f"{bounds.most:g}s")
    paper.fields("recommended", f"ttl={advice.ttl:g}", f"renew={advice.renew:.2f}", f"margin={advice.margin:.2f}")


def _document(
    place: str, seconds: float, pauses: Pauses, renewals: Renewals, bounds: Bounds, advice: Advice
) -> dict[str, object]:
    return {
        "store": place,
        "seconds": seconds,
        "measured": {
            name.replace(" ", "_"): {
                "count": len(samples),
                **{f"{name}_seconds": round(value, 6) for name, value in histogram.quantiles(samples).items()},
                "distribution": [
                    {"up_to_seconds": None if bound == float("inf") else bound, "count": count}
                    for bound, count in samples.distribution()
                ],
            }
            for name, samples in _measures(pauses, renewals).items()
        },
        "renewals_failed": len(renewals.failed),
        "granted": {"least_seconds": rounded(bounds.least), "most_seconds": rounded(bounds.most)},
        "recommended": {
            "ttl_seconds": advice.ttl,
            "renew_seconds": rounded(advice.renew),
            "margin_seconds": rounded(advice.margin),
            "by_server": advice.by_server,
            "refused": advice.refused,
        },
    }
