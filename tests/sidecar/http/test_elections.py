"""Elections over HTTP: never a stale yes, on both stores."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.cli.program import eventually
from tests.servers import Cluster, EtcdSpec, FaultProxy, Provider
from tests.sidecar.http.conftest import KINDS, url_of
from tests.sidecar.http.program import Service, User, serving

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
    told: dict[str, Any] = answer.json()
    return told


def leads(user: User) -> bool:
    return bool(view(user)["isLeader"])


def ready(user: User) -> int:
    return user.get("/readyz", leader="scheduler").status_code


def test_candidate_says_that_it_leads_and_under_which_fence(candidate: Service) -> None:
    """Its value, its token, how long it is proven, and that the store's quorum agrees."""
    with candidate.user() as user:
        eventually(lambda: leads(user))
        told = view(user)
        assert (told["certain"], told["isCandidate"], told["leader"]["value"]) == (True, True, "one:1")
        assert 0 < told["remainingSeconds"] <= TTL
        assert str(holdfast.Fence.parse(told["fence"]).token) == told["leader"]["token"]
        assert 0 <= told["ageSeconds"] < 5
        assert ready(user) == 200


def test_election_that_nobody_stands_in_has_no_leader_for_certain(candidate: Service) -> None:
    """And this service, which was not told to stand there, does not say that it is ready for it."""
    with candidate.user() as user:
        told = view(user, "nobody")
        assert (told["leader"], told["certain"], told["isLeader"], told["isCandidate"]) == (None, True, False, False)
        answer = user.get("/readyz", leader="nobody")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-election")


def test_second_candidate_takes_over_when_the_first_is_shut_down(
    candidate: Service, election_url: str, tmp_path: Path
) -> None:
    """SIGTERM resigns, and the next one leads: not before the last yes is over that was told. Its stream says so."""
    with candidate.user() as first:
        eventually(lambda: leads(first))
    with serving(election_url, tmp_path, "--elect", "scheduler=two:2") as other, other.user() as user:
        assert ready(user) == 503
        with user.events("/v1/elections/scheduler/events") as events:
            _, told = events.next()
            assert (told["leader"]["value"], told["isLeader"]) == ("one:1", False)
            with candidate.user() as first:
                asked = time.monotonic()
                yes = view(first)
            assert yes["isLeader"] is True
            candidate.process.send_signal(signal.SIGTERM)
            _, told = events.until(lambda _, told: told["isLeader"])
            assert (told["leader"]["value"], told["certain"]) == ("two:2", True)
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
        told = view(user)
        assert told["isLeader"] is False or int(told["leader"]["token"]) > int(token)
        eventually(lambda: leads(user))  # it stands again
        assert int(view(user)["leader"]["token"]) > int(token)


def test_stream_tells_leaders_of_other_programs(candidate: Service, election_url: str) -> None:
    """Somebody with the library leads; the value that it changes is told, too."""
    with candidate.user() as user, holdfast.connect(election_url, owner="library") as client:
        with user.events("/v1/elections/other/events") as events:
            assert events.next()[1]["leader"] is None
            with client.election("other", value="a").campaign() as hold:
                _, told = events.until(lambda _, told: told["leader"] is not None)
                assert told["leader"] == {"value": "a", "ownerId": "library", "token": str(hold.token)}
                hold.amend("b")
                assert events.until(lambda _, told: told["leader"]["value"] == "b")[1]["isLeader"] is False
            assert events.until(lambda _, told: told["leader"] is None)[1]["certain"] is True


def test_store_that_is_away_makes_everything_uncertain_and_no_leader_for_longer_than_its_ttl(
    provider: Provider, tmp_path: Path
) -> None:
    """`certain` is false at once; the yes ends with the proof; the last known leader is told with its age."""
    etcd = provider.etcd(EtcdSpec())
    with FaultProxy(etcd.endpoints[0], "etcd") as proxy:
        url = f"etcd://{proxy.endpoint}/away?ttl={TTL}&timeout=1"
        with serving(url, tmp_path, "--elect", "scheduler=one:1") as service, service.user() as user:
            eventually(lambda: leads(user))
            eventually(lambda: view(user, "other")["certain"])
            proxy.blackhole()
            cut = time.monotonic()
            told = view(user)
            assert told["certain"] is False
            eventually(lambda: not leads(user))
            assert time.monotonic() - cut < 3 * TTL + 5
            assert ready(user) == 503
            told = view(user)
            assert (told["isLeader"], told["certain"], told["leader"]["value"]) == (False, False, "one:1")
            assert told["ageSeconds"] > 0
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
