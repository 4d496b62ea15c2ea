"""Single requests and answers that come late or never, by proxies that know where each of them ends.

A lost answer takes its connection with it: what was asked for has happened, and the client can't know. A lost
request likewise, but nothing has happened. Watches, pings and the first
words of a connection are left alone.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tenure.testing.servers import FaultProxy
from tenure.testing.servers.wire import Match
from tests.verify.torture.nemeses.kinds import ANSWERS, BOTH, LINKS, PROXIES, Backends, Touches, last
from tests.verify.torture.parts import FaultLog, Need, Rig, Workers

_STREAMS: Final = frozenset({"/v3/watch", "/etcdserverpb.Watch/Watch"})
_CONNECT, _PING, _AUTH, _SET_WATCHES = 0, 11, 100, 101
_UNASKED: Final = frozenset({_CONNECT, _PING, _AUTH, _SET_WATCHES})
_SHARE = 0.1
_ENDLESSLY = 1_000_000
_HOLD_SECONDS_MAX = 2.0


class Delay:
    """Bytes between a client and the servers come late, by up to a second each way."""

    name = "delay"
    backends: Backends = BOTH
    needs: frozenset[Need] = PROXIES
    touches: Touches = LINKS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        proxies = _proxies_of(rig, random.choice(rig.clients))
        with fault_log.broken(self.name):
            try:
                for proxy in proxies:
                    proxy.delay(to_client=random.uniform(0.0, 1.0), to_server=random.uniform(0.0, 1.0))
                last(seconds)
            finally:
                for proxy in proxies:
                    proxy.delay()


class DropAnswers:
    """Answers to one in ten requests of every client are lost, each with its connection, after it was carried out."""

    name = "drop-answers"
    backends: Backends = BOTH
    needs: frozenset[Need] = PROXIES
    touches: Touches = ANSWERS
    lose = staticmethod(FaultProxy.lose_answer)

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        match = _one_in(random, share=_SHARE, etcd=rig.cluster.kind == "etcd")
        with fault_log.broken(self.name):
            try:
                for proxy in rig.proxies.values():
                    self.lose(proxy, match, _ENDLESSLY)
                last(seconds)
            finally:
                _forget(rig)


class DropRequests(DropAnswers):
    """Requests of every client are lost, one in ten, each with its connection; the server never sees it."""

    name = "drop-requests"
    lose = staticmethod(FaultProxy.lose_request)


class HoldAnswers:
    """An answer to every client is held on its way for up to two seconds, with all that comes behind it."""

    name = "hold-answers"
    backends: Backends = BOTH
    needs: frozenset[Need] = PROXIES
    touches: Touches = ANSWERS

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        match = _one_in(random, share=1.0, etcd=rig.cluster.kind == "etcd")
        with fault_log.broken(self.name):
            held = [proxy.hold_answer(match) for proxy in rig.proxies.values()]
            try:
                last(min(seconds, _HOLD_SECONDS_MAX))
            finally:
                for answer in held:
                    answer.release()
                _forget(rig)


def _forget(rig: Rig) -> None:
    for proxy in rig.proxies.values():
        proxy.forget()


def _one_in(random: Random, *, share: float, etcd: bool) -> Match:
    """A match for requests: none that opens a stream, and this share of the others."""
    chance = Random(random.random())  # of its own: the proxies ask in their threads

    def http(method: str, path: str, body: bytes) -> bool:
        return method == "POST" and path not in _STREAMS and chance.random() < share

    def jute(opcode: int, frame: bytes) -> bool:
        return opcode not in _UNASKED and chance.random() < share

    return http if etcd else jute


def _proxies_of(rig: Rig, client: str) -> list[FaultProxy]:
    return [proxy for (place, _), proxy in rig.proxies.items() if place == client]
