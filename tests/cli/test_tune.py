"""`tenure tune`: what it measures, what it recommends, and what it leaves behind."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import tenure
from tenure._core.belief import provable
from tenure.cli.tuning import GrantedTtls, MeasuredPauses, Renewals, Samples, advise, measuring_pauses
from tests.cli.program import NOT_PLAIN, eventually, shown
from tests.cli.program import tenure as run
from tests.servers import Cluster, FaultProxy


@pytest.fixture(params=["etcd", "zookeeper"])
def store(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> Iterator[str]:
    """The URL of a namespace of the test's own, in which nothing may be left."""
    cluster = singles[request.param]
    extra = {"tick": "0.2"} if cluster.kind == "zookeeper" else {}
    url = cluster.url(f"tune-{secrets.token_hex(4)}", **extra)
    yield url
    with tenure.connect(url) as client:
        assert list(client.operator().lines()) == []


def samples(*seconds: float) -> Samples:
    made = Samples()
    for one in seconds:
        made.add(one)
    return made


def test_recommendation_follows_the_rule_from_what_was_measured(store: str) -> None:
    """ttl > p99 pause + p99 renewal + margin, renewed within a third; all of it as JSON."""
    document = run("tune", "--seconds", "1.5", "--json", url=store).json
    measured, recommended = document["measured"], document["recommended"]
    pause = max(measured["thread"]["p99_seconds"], measured["event_loop"]["p99_seconds"])
    minimum = pause + measured["renewal"]["p99_seconds"] + recommended["margin_seconds"]
    assert recommended["ttl_seconds"] > minimum
    assert recommended["renew_seconds"] <= recommended["ttl_seconds"] / 3
    assert recommended["margin_seconds"] >= 2.0
    assert document["renewals_failed"] == 0
    for of in measured.values():
        assert of["p50_seconds"] <= of["p90_seconds"] <= of["p99_seconds"] <= of["worst_seconds"]
        assert sum(span["count"] for span in of["distribution"]) == of["count"] > 10


def test_recommended_ttl_is_granted_as_it_is(store: str) -> None:
    """The TTL is one that can be asked for."""
    ttl = run("tune", "--seconds", "0.5", "--json", url=store).json["recommended"]["ttl_seconds"]
    with tenure.connect(store, ttl=ttl) as client, client.lock("a") as hold:
        assert hold.ttl == ttl


@pytest.mark.parametrize("columns", [80, 200])
def test_screen_fits_the_terminal_and_shows_the_distribution(store: str, columns: int) -> None:
    """Three histograms, then the advice in sentences."""
    done = shown("tune", "--seconds", "1", url=store, columns=columns)
    plain = done.out
    assert done.code == 0, plain
    assert max(len(line) for line in plain.splitlines()) <= columns
    for title in ("Renewal of a lease", "A thread is woken late by", "An event loop is woken late by"):
        assert title in plain
    assert "█" in plain
    assert re.search(r"^Recommended: ttl=\d+, renewed every [\d.]+ s", plain, re.MULTILINE)
    assert re.search(r"^A crashed holder is succeeded", plain, re.MULTILINE)
    assert "\\n" not in plain


def test_pipe_gets_fields_and_no_escape_code(store: str) -> None:
    """A pipe gets a record a line."""
    done = run("tune", "--seconds", "0.5", url=store)
    assert (done.code, done.err) == (0, "")
    assert not NOT_PLAIN.search(done.out.replace("\t", ""))
    assert [record[0] for record in done.records] == [
        *("renewal", "thread", "event loop", "failed", "granted", "recommended")
    ]


def test_store_that_is_cut_off_meanwhile_is_told_and_nothing_hangs(singles: dict[str, Cluster]) -> None:
    """Answers that never come: one line, and the code of a store that can't be reached."""
    with FaultProxy(singles["etcd"].endpoints[0], "etcd") as proxy:
        proxy.blackhole()
        done = run("tune", "--seconds", "1", "--request-timeout", "1", url=f"etcd://{proxy.endpoint}/tune")
    assert (done.code, done.out, bool(done.complaint)) == (69, "", True)


def test_store_that_is_silent_for_a_moment_is_measured_as_failed_renewals(singles: dict[str, Cluster]) -> None:
    """The measuring goes on, and what failed stands beside what is recommended."""
    with FaultProxy(singles["etcd"].endpoints[0], "etcd") as proxy, ThreadPoolExecutor() as pool:
        where = f"etcd://{proxy.endpoint}/tune-{secrets.token_hex(4)}"
        tuning = pool.submit(run, "tune", "--seconds", "5", "--request-timeout", "0.5", "--json", url=where)
        eventually(lambda: proxy.requests["/v3/lease/keepalive"] > 20)
        proxy.blackhole()
        time.sleep(1.2)
        proxy.heal()
        done = tuning.result()
    assert done.code == 0, done.err
    assert done.json["renewals_failed"] >= 1
    assert done.json["recommended"]["ttl_seconds"] >= 4


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--url", "etcd://127.0.0.1:1/x"), 69),
        (("--url", "memory://x"), 78),
        ((), 78),
        (("--seconds", "0"), 64),
        (("--seconds", "soon"), 64),
        (("--seconds", "nan"), 64),
        (("--margin", "nan"), 64),
        (("--margin", "-1"), 64),
        (("surplus",), 64),
    ],
)
def test_bad_input_is_one_line_and_its_code(arguments: tuple[str, ...], code: int) -> None:
    """No traceback."""
    done = run("tune", *arguments)
    assert (done.code, done.out, bool(done.complaint)) == (code, "", True)


# The rule by itself.


@pytest.mark.parametrize(
    ("pause", "renewal", "margin", "minimum", "ttl"),
    [
        (0.001, 0.002, 2.0, 1.0, 4),
        (0.0, 0.0, 0.0, 1.0, 1),
        (1.0, 1.0, 2.0, 1.0, 7),
        (0.0, 30.0, 2.0, 1.0, 49),
        (0.001, 0.002, 2.0, 10.0, 10),
    ],
)
def test_advice_is_the_shortest_whole_second_that_the_rule_and_the_server_allow(
    pause: float, renewal: float, margin: float, minimum: float, ttl: float
) -> None:
    """Two thirds of what can be proven are left when a renewal is due, and all of it has to fit in there."""
    pauses, renewals = MeasuredPauses(samples(pause), samples(0.0)), Renewals(samples(renewal))
    advice = advise(pauses, renewals, GrantedTtls(minimum, None), margin)
    assert (advice.ttl, advice.by_server) == (ttl, minimum > 1.0)
    assert provable(advice.ttl) * 2 / 3 >= pause + renewal + margin
    assert advice.renew * 3 <= advice.ttl


def test_margin_is_never_less_than_the_worst_that_was_seen() -> None:
    """A pause of five seconds among a thousand short ones is no exception that may be left out."""
    pauses = MeasuredPauses(samples(5.0, *[0.001] * 1000), samples(0.0))
    advice = advise(pauses, Renewals(samples(0.001)), GrantedTtls(1.0, None))
    assert advice.pause == 0.001
    assert provable(advice.ttl) * 2 / 3 >= 5.0


def test_ttl_beyond_what_the_server_grants_is_said_to_be() -> None:
    """ZooKeeper's maxSessionTimeout."""
    slow = Renewals(samples(30.0))
    assert advise(MeasuredPauses(samples(0.0), samples(0.0)), slow, GrantedTtls(4.0, 40.0)).refused


def test_quantiles_and_distribution_of_nothing_and_of_one() -> None:
    """No division by nothing."""
    assert (len(samples()), samples().quantile(0.99), samples().worst, list(samples().distribution())) == (0, 0, 0, [])
    assert next(iter(samples(0.0004, 0.02, 0.003).distribution())) == (0.0005, 1)
    assert list(samples(10.0).distribution()) == [(float("inf"), 1)]
    assert [samples(1.0, 2.0, 3.0, 4.0).quantile(share) for share in (0.0, 0.5, 0.99)] == [1.0, 2.0, 4.0]
    assert samples(-1.0).worst == 0.0


def test_pause_of_the_interpreter_is_seen() -> None:
    """A regular expression that keeps the interpreter's lock for long is a pause like any other."""
    with measuring_pauses() as pauses:
        re.match(r"(a+)+b", "a" * 25)
    assert pauses.thread.worst > 0.05
    assert pauses.loop.worst > 0.05
