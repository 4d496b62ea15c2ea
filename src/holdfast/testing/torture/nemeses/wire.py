"""Single requests and answers that come late or never, by proxies that know where each of them ends.

A lost answer takes its connection with it: what was asked for has happened, and the client can't know. A lost
request likewise, but nothing has happened. Watches, pings and the first
words of a connection are left alone.
"""

from __future__ import annotations

from random import Random
from typing import Final

from holdfast.testing.servers import FaultProxy
from holdfast.testing.servers.faults import Match
from holdfast.testing.torture.nemeses.kinds import ANSWERS, BOTH, LINKS, PROXIES, Backends, Touches, last
from holdfast.testing.torture.parts import Crew, Diary, Ground, Need

_STREAMS: Final = frozenset({"/v3/watch", "/etcdserverpb.Watch/Watch"})
_CONNECT, _PING, _AUTH, _SET_WATCHES = 0, 11, 100, 101
_UNASKED: Final = frozenset({_CONNECT, _PING, _AUTH, _SET_WATCHES})
_SHARE = 0.1
_ENDLESSLY = 1_000_000
_HOLD_SECONDS_MAX = 2.0


class Delay:
    """Everything between a client and the servers comes late, by up to a second each way."""

    name = "delay"
    backends: Backends = BOTH
    needs: frozenset[Need] = PROXIES
    touches: Touches = LINKS

    def strike(self, ground: Ground, crew: Crew, diary: Diary, random: Random, seconds: float) -> None:
        proxies = _proxies_of(ground, random.choice(ground.clients))
        with diary.broken(self.name):
            try:
                for proxy in proxies:
                    proxy.delay(to_client=random.uniform(0.0, 1.0), to_server=random.uniform(0.0, 1.0))
                last(seconds)
            finally:
                for proxy in proxies:
                    proxy.delay()


class DropAnswers:
    """One in ten requests of every client is carried out, and its answer lost with its connection."""

    name = "drop-answers"
    backends: Backends = BOTH
    needs: frozenset[Need] = PROXIES
    touches: Touches = ANSWERS
    lose = staticmethod(FaultProxy.lose_answer)

    def strike(self, ground: Ground, crew: Crew, diary: Diary, random: Random, seconds: float) -> None:
        match = _one_in(random, share=_SHARE, etcd=ground.cluster.kind == "etcd")
        with diary.broken(self.name):
            try:
                for proxy in ground.proxies.values():
                    self.lose(proxy, match, _ENDLESSLY)
                last(seconds)
            finally:
                _forget(ground)


class DropRequests(DropAnswers):
    """One in ten requests of every client is lost with its connection; the server never sees it."""

    name = "drop-requests"
    lose = staticmethod(FaultProxy.lose_request)


class HoldAnswers:
    """An answer to every client is held on its way for up to two seconds, with all that comes behind it."""

    name = "hold-answers"
    backends: Backends = BOTH
    needs: frozenset[Need] = PROXIES
    touches: Touches = ANSWERS

    def strike(self, ground: Ground, crew: Crew, diary: Diary, random: Random, seconds: float) -> None:
        match = _one_in(random, share=1.0, etcd=ground.cluster.kind == "etcd")
        with diary.broken(self.name):
            held = [proxy.hold_answer(match) for proxy in ground.proxies.values()]
            try:
                last(min(seconds, _HOLD_SECONDS_MAX))
            finally:
                for answer in held:
                    answer.release()
                _forget(ground)


def _forget(ground: Ground) -> None:
    for proxy in ground.proxies.values():
        proxy.forget()


def _one_in(random: Random, *, share: float, etcd: bool) -> Match:
    """Whether a request is taken: none that opens a stream, and of the others this share."""
    chance = Random(random.random())  # of its own: the proxies ask in their threads

    def http(method: str, path: str, body: bytes) -> bool:
        return method == "POST" and path not in _STREAMS and chance.random() < share

    def jute(opcode: int, frame: bytes) -> bool:
        return opcode not in _UNASKED and chance.random() < share

    return http if etcd else jute


def _proxies_of(ground: Ground, client: str) -> list[FaultProxy]:
    return [proxy for (place, _), proxy in ground.proxies.items() if place == client]
