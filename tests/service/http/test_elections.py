"""Elections over HTTP: never a stale yes, on both stores."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tenure
from tests.cli.program import eventually
from tests.servers import Cluster, EtcdSpec, FaultProxy, Provider
from tests.service.http.conftest import KINDS, url_of
from tests.service.http.program import Service, User, serving

TTL = 4


@pytest.fixture(params=KINDS)
def election_url(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> str:
    """A store of the test's own, where a leadership lives for four seconds."""
    url = url_of(singles, request.param)
    return f"{url}{'&' if '?' in url else '?'}ttl={TTL}"


@pytest.fixture
def candidate(election_url: str, tmp_path: Path) -> Iterator[Service]:
    """A service that stands."""
    with serving(election_url, tmp_path, "--elect", "scheduler=one:1") as service:
        yield service


def view(user: User, name: str = "scheduler") -> dict[str, Any]:
    answer = user.get(f"/v1/elections/{name}")
    assert answer.status_code == 200, answer.text
    reply: dict[str, Any] = answer.json()
    return reply


def leads(user: User) -> bool:
    return bool(view(user)["isLeader"])


def ready(user: User) -> int:
    return user.get("/readyz", leader="scheduler").status_code


def test_candidate_says_that_it_leads_and_under_which_fence(candidate: Service) -> None:
    """The answer has value, token and the time for which it is proven, and the store's quorum agrees."""
    with candidate.user() as user:
        eventually(lambda: leads(user))
        reply = view(user)
        assert (reply["certain"], reply["isCandidate"], reply["leader"]["value"]) == (True, True, "one:1")
        assert 0 < reply["remainingSeconds"] <= TTL
        assert str(tenure.Fence.parse(reply["fence"]).token) == reply["leader"]["token"]
        assert 0 <= reply["ageSeconds"] < 5
        assert ready(user) == 200


def test_election_that_nobody_stands_in_has_no_leader_for_certain(candidate: Service) -> None:
    """A service without `--elect` there does not say that it is ready for it."""
    with candidate.user() as user:
        reply = view(user, "nobody")
        assert (reply["leader"], reply["certain"], reply["isLeader"], reply["isCandidate"]) == (
            None,
            True,
            False,
            False,
        )
        answer = user.get("/readyz", leader="nobody")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-election")


def test_second_candidate_takes_over_when_the_first_is_shut_down(
    candidate: Service, election_url: str, tmp_path: Path
) -> None:
    """SIGTERM resigns, and the next one leads: not before the last yes that it sent is over. Its stream says so."""
    with candidate.user() as first:
        eventually(lambda: leads(first))
    with serving(election_url, tmp_path, "--elect", "scheduler=two:2") as other, other.user() as user:
        assert ready(user) == 503
        with user.events("/v1/elections/scheduler/events") as events:
            _, reply = events.next()
            assert (reply["leader"]["value"], reply["isLeader"]) == ("one:1", False)
            with candidate.user() as first:
                asked = time.monotonic()
                yes = view(first)
            assert yes["isLeader"] is True
            candidate.process.send_signal(signal.SIGTERM)
            _, reply = events.until(lambda _, reply: reply["isLeader"])
            assert (reply["leader"]["value"], reply["certain"]) == ("two:2", True)
            assert time.monotonic() - asked >= yes["remainingSeconds"]
            assert candidate.ended() == 0
        assert ready(user) == 200


def test_leader_that_was_stopped_never_says_yes_afterwards(
    candidate: Service, election_url: str, tmp_path: Path
) -> None:
    """SIGSTOP for longer than the TTL, while another takes over: the first answer after it is no."""
    with serving(election_url, tmp_path, "--elect", "scheduler=two:2") as other:
        with candidate.user() as first, other.user() as second:
            eventually(lambda: leads(first) or leads(second))
            paused, running = (candidate, second) if leads(first) else (other, first)
            paused.process.send_signal(signal.SIGSTOP)
            try:
                eventually(lambda: leads(running))
            finally:
                paused.process.send_signal(signal.SIGCONT)
            with paused.user() as user:
                for _ in range(20):
                    assert ready(user) == 503
                    assert not leads(user)
                    assert leads(running)


def test_forced_out_leader_says_no_at_once(candidate: Service) -> None:
    """The quorum's word counts, also before the service has heard that its ticket was removed."""
    with candidate.user() as user:
        eventually(lambda: leads(user))
        token = view(user)["leader"]["token"]
        assert user.force("scheduler", token).status_code == 200
        reply = view(user)
        assert reply["isLeader"] is False or int(reply["leader"]["token"]) > int(token)
        eventually(lambda: leads(user))  # it stands again
        assert int(view(user)["leader"]["token"]) > int(token)


def test_stream_tells_leaders_of_other_programs(candidate: Service, election_url: str) -> None:
    """The leader is a program with the library; a change of its value is shown, too."""
    with candidate.user() as user, tenure.connect(election_url, owner="library") as client:
        with user.events("/v1/elections/other/events") as events:
            assert events.next()[1]["leader"] is None
            with client.election("other", value="a").campaign() as hold:
                _, reply = events.until(lambda _, reply: reply["leader"] is not None)
                assert reply["leader"] == {"value": "a", "ownerId": "library", "token": str(hold.token)}
                hold.amend("b")
                assert events.until(lambda _, reply: reply["leader"]["value"] == "b")[1]["isLeader"] is False
            assert events.until(lambda _, reply: reply["leader"] is None)[1]["certain"] is True


def test_store_that_is_away_makes_everything_uncertain_and_no_leader_for_longer_than_its_ttl(
    provider: Provider, tmp_path: Path
) -> None:
    """`certain` is false at once; the yes ends with the proof; the last known leader is shown with its age."""
    etcd = provider.etcd(EtcdSpec())
    with FaultProxy(etcd.endpoints[0], "etcd") as proxy:
        url = f"etcd://{proxy.endpoint}/away?ttl={TTL}&timeout=1"
        with serving(url, tmp_path, "--elect", "scheduler=one:1") as service, service.user() as user:
            eventually(lambda: leads(user))
            eventually(lambda: view(user, "other")["certain"])
            proxy.blackhole()
            cut = time.monotonic()
            reply = view(user)
            assert reply["certain"] is False
            eventually(lambda: not leads(user))
            assert time.monotonic() - cut < 3 * TTL + 5
            assert ready(user) == 503
            reply = view(user)
            assert (reply["isLeader"], reply["certain"], reply["leader"]["value"]) == (False, False, "one:1")
            assert reply["ageSeconds"] > 0
            answer = user.acquire("x")
            assert (answer.status_code, answer.json()["code"], answer.json()["happened"]) == (
                503,
                "store-unavailable",
                "unknown",
            )
            assert user.get("/healthz").status_code == 200
            assert user.get("/readyz").status_code == 503  # it had never been asked before
            proxy.heal()
            eventually(lambda: leads(user) and view(user)["certain"])
            eventually(lambda: user.get("/readyz").status_code == 200)
    etcd.close()
