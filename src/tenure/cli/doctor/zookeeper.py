"""Checks of a ZooKeeper server, asked by itself with four-letter words, as far as it allows them.

`srvr` is always allowed, `conf` and `dump` where they are listed in zoo.cfg. What is not allowed is said to be, and
what it would have shown is left out.
"""

from __future__ import annotations

import re
from typing import Final

from tenure._core.base.options import Endpoint, Options, shown
from tenure.cli.doctor.endpoint import ask_word, look_at_tls, reach, reason
from tenure.cli.doctor.findings import Finding, Severity, fail, look_at_zookeeper_version, ok, warn
from tenure.errors import TenureError

_NOT_ALLOWED: Final = "is not executed because it is not in the whitelist"
_NOT_SERVING: Final = "not currently serving"
_ALLOW: Final = "allow more with 4lw.commands.whitelist=srvr,conf,dump in zoo.cfg"
_TICK_USUAL: Final = 2.0
_PLACES: Final = 3


def look(endpoint: Endpoint, options: Options, seconds: float) -> tuple[list[Finding], str | None]:
    """Findings at a server, and its version where it says."""
    silent = reach(endpoint, options, seconds, "ZooKeeper")
    if silent is not None:
        return [silent], None
    tls = look_at_tls(endpoint, options, seconds)
    found = [] if tls is None else [tls]
    if tls is not None and tls.state is Severity.FAIL:
        return found, None
    where = shown(endpoint)
    try:
        answer = ask_word(endpoint, options, "srvr", seconds)
    except (OSError, TenureError) as error:
        return [*found, fail("reach", where, f"does not answer: {reason(error)}", "is it overloaded?")], None
    if _NOT_SERVING in answer:
        do = "start the other servers; it needs a majority of them"
        return [*found, fail("reach", where, "answers, and does not serve: it has no quorum", do)], None
    version = re.search(r"^Zookeeper version: ([0-9.]+)", answer, re.MULTILINE)
    mode = re.search(r"^Mode: (\w+)", answer, re.MULTILINE)
    if version is None or mode is None:
        return [*found, fail("reach", where, "answers, but not as ZooKeeper", "is this its client port?")], None
    found.insert(0, ok("reach", where, f"serves as {mode[1]}"))
    found.append(look_at_zookeeper_version(version[1], where))
    found += _with_more_words(endpoint, options, seconds)
    return found, version[1]


def _with_more_words(endpoint: Endpoint, options: Options, seconds: float) -> list[Finding]:
    """Check the server's own times, and for sessions that are gone while their nodes stand."""
    where, found, refused = shown(endpoint), [], []
    for word, look_at in (("conf", _times), ("dump", _sessions)):
        try:
            answer = ask_word(endpoint, options, word, seconds)
        except (OSError, TenureError) as error:
            found.append(warn("words", where, f"{word} was not answered: {reason(error)}", "is it overloaded?"))
            continue
        if _NOT_ALLOWED in answer:
            refused.append(word)
        else:
            found += look_at(answer, where, options)
    if refused:
        found.append(ok("words", where, f"{' and '.join(refused)} not allowed, so not looked at; {_ALLOW}"))
    return found


def _times(answer: str, where: str, options: Options) -> list[Finding]:
    """Check the tick: one that is longer than the client believes lets it believe in its holds for too long."""
    match = re.search(r"^tickTime=(\d+)$", answer, re.MULTILINE)
    if match is None:
        return []
    tick, believed = int(match[1]) / 1000, options.tick or _TICK_USUAL
    if tick > believed:
        return [fail("tick", where, f"tickTime is {tick:g} s, and the client takes it for {believed:g} s", _tick(tick))]
    return [ok("tick", where, f"tickTime is {tick:g} s, the client reckons with {believed:g} s at most")]


def _tick(tick: float) -> str:
    return f"add ?tick={tick:g} to the URL: until then a cut-off holder believes for too long"


def _sessions(answer: str, where: str, options: Options) -> list[Finding]:
    """Check that each ephemeral node has a session. A leader knows of all sessions; a follower's dump lists none."""
    sessions, _, nodes = answer.partition("ephemeral nodes dump:")
    nodes = nodes.partition("Connections dump:")[0]
    if "Session Sets" not in sessions and "Global Sessions" not in sessions:
        return []
    alive = set(re.findall(r"0x[0-9a-f]+", sessions))
    gone = [
        path
        for owner, block in re.findall(r"^(0x[0-9a-f]+):\n((?:\t.*\n?)*)", nodes, re.MULTILINE)
        if owner not in alive
        for path in block.split()
        if path.startswith(f"/{options.namespace}/")
    ]
    if not gone:
        return [ok("sessions", where, "every ephemeral node has a living session")]
    named = ", ".join(gone[:_PLACES]) + (f" and {len(gone) - _PLACES} more" if len(gone) > _PLACES else "")
    return [
        fail("sessions", where, f"nodes stand whose session is gone: {named}", "delete them by hand, they block lines")
    ]
