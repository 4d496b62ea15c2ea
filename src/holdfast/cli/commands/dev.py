"""`holdfast dev`: a throw-away store, for trying things out."""

from __future__ import annotations

import threading
import time
from typing import Final

import click

from holdfast.cli.demo.etcd import Etcd, find_etcd, running_etcd
from holdfast.cli.demo.inbox import Inbox, Interrupted, signals_into
from holdfast.cli.screens import paper
from holdfast.errors import StoreUnavailable

_SIGNALLED: Final = 128
_LONG_SECONDS: Final = 3600.0
_NAMESPACE: Final = "dev"


@click.command
@paper.json_option
def command(*, as_json: bool) -> int:
    """Start an etcd on this machine, print its URL, and end it on Ctrl-C.

    It listens on loopback only, on a free port, and keeps its data in a temporary directory that goes with it. The
    first line of standard output is the URL and nothing else; it is printed once the store can be used. The exit
    code is 130 after Ctrl-C, 143 after SIGTERM, as for any program.

    \b
    holdfast dev
    export HOLDFAST_URL=etcd://127.0.0.1:…/dev      in another terminal

    \b
    coproc holdfast dev; read -r HOLDFAST_URL <&"${COPROC[0]}"      in a script, with bash
    export HOLDFAST_URL; …; kill "$COPROC_PID"
    """
    program, inbox = find_etcd("holdfast dev", ""), Inbox()
    with signals_into(inbox):
        try:
            with running_etcd(program, inbox) as etcd:
                _tell(etcd, as_json)
                threading.Thread(target=_await_end, args=(etcd, inbox), name="dev-etcd", daemon=True).start()
                while True:  # ends by what is put into the inbox: a signal, or that etcd has ended
                    inbox.take(time.monotonic() + _LONG_SECONDS)
        except Interrupted as stop:
            return _SIGNALLED + stop.number


def _tell(etcd: Etcd, as_json: bool) -> None:
    url = f"{etcd.url}/{_NAMESPACE}"
    if as_json:
        paper.json_line({"url": url, "version": etcd.version, "pid": etcd.pid})
        return
    print(url, flush=True)
    paper.say(f"etcd {etcd.version} (pid {etcd.pid}); Ctrl-C ends it, and nothing stays behind", apart=True)
    paper.say(f"export HOLDFAST_URL={url}   in another terminal, then: holdfast ls")


def _await_end(etcd: Etcd, inbox: Inbox) -> None:
    status = etcd.wait()
    inbox.put(StoreUnavailable(f"etcd (pid {etcd.pid}) has ended by itself, with status {status}; start it again"))
