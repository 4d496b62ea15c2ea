"""Tenants, tokens and scopes: each sees and touches its own names, on both stores, whatever it tries."""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.service.auth.tokens import Scope
from tests.cli.program import eventually
from tests.cli.program import tenure as command
from tests.service.http.conftest import BILLING, HOLDER, LOOKER, ONCALL, SHIPPING
from tests.service.http.program import Service, Token, User, refused, serving, write_tokens

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture
def billing(guarded_service: Service) -> Iterator[User]:
    """The tenant whose things are looked for."""
    with guarded_service.user(BILLING.token) as user:
        yield user


@pytest.fixture
def shipping(guarded_service: Service) -> Iterator[User]:
    """The tenant that looks for them."""
    with guarded_service.user(SHIPPING.token) as user:
        yield user


@pytest.fixture
def oncall(guarded_service: Service) -> Iterator[User]:
    """The person on call, for all tenants."""
    with guarded_service.user(ONCALL.token) as user:
        yield user


def names(user: User, **query: Any) -> list[str]:
    return [line["name"] for line in user.get("/v1/locks", **query).json()["lines"]]


def test_tenants_with_the_same_name_do_not_meet(billing: User, shipping: User, oncall: User, name: str) -> None:
    """Two locks, seen by each as its own, and by the person on call under whole names."""
    mine, theirs = billing.held(name), shipping.held(name)
    assert names(billing, prefix=name) == names(shipping, prefix=name) == [name]
    assert names(oncall, prefix="billing/") == [f"billing/{name}"]
    assert {f"billing/{name}", f"shipping/{name}"} <= set(names(oncall))
    billing.release(mine["leaseId"])
    assert shipping.line(name)["holders"][0]["token"] == theirs["fencingToken"]
    shipping.release(theirs["leaseId"])


@pytest.mark.parametrize(
    "way",
    [
        "../billing/{}",
        "%2e%2e/billing/{}",
        "..%2Fbilling%2F{}",
        "billing/{}",
        "/billing/{}",
        "//{}",
        "./../billing/{}",
        "\\..\\billing\\{}",
        "*/{}",
        "billing%2f{}",
    ],
)
def test_no_name_leads_out_of_a_tenants_own(billing: User, shipping: User, oncall: User, name: str, way: str) -> None:
    """Text in a name is part of that name, whatever it is."""
    reply = billing.held(name)
    odd = way.format(name)
    assert shipping.line(odd)["holders"] == []
    taken = shipping.held(odd)
    assert f"shipping/{odd}" in names(oncall, prefix="shipping/")
    assert shipping.force(odd, reply["fencingToken"]).status_code in (404, 409)
    assert shipping.force(name, reply["fencingToken"]).status_code == 404
    assert billing.renew(reply["leaseId"]).status_code == 200
    assert billing.line(name)["waiterCount"] == 0
    shipping.release(taken["leaseId"])
    billing.release(reply["leaseId"])


@pytest.mark.parametrize("odd", ["", "\x00", "a\nb", "a" * 510])
def test_names_that_can_be_none_are_refused(shipping: User, odd: str) -> None:
    """Empty, with control characters, or too long with the tenant's own before it."""
    answer = shipping.acquire(odd)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-field")


def test_another_tenants_hold_is_answered_for_like_an_unknown_one(billing: User, shipping: User, name: str) -> None:
    """Renewed and released by nobody else, and not even known to be there."""
    reply, gone = billing.held(name), billing.held(f"{name}-gone")
    billing.release(gone["leaseId"])
    for ask in (shipping.renew, shipping.release):
        probed, unknown = ask(reply["leaseId"]), ask("nonsense")
        assert ask(gone["leaseId"]).json() == unknown.json()
        assert (probed.status_code, probed.json()["code"]) == (404, "unknown-hold")
        assert (probed.status_code, probed.json()) == (unknown.status_code, unknown.json())
    assert billing.renew(reply["leaseId"]).status_code == 200
    assert billing.release(reply["leaseId"]).status_code == 200


def test_key_of_another_tenant_is_another_key(billing: User, shipping: User, name: str) -> None:
    """The same Idempotency-Key finds nobody else's hold."""
    mine, theirs = billing.held(name, key=name), shipping.held(name, key=name)
    assert mine["leaseId"] != theirs["leaseId"]
    billing.release(mine["leaseId"])
    shipping.release(theirs["leaseId"])


def test_key_that_is_known_to_another_token_gives_nothing_away(guarded_service: Service, name: str) -> None:
    """Also of the same tenant: neither the hold, nor its id, which the key alone does not lead to."""
    with guarded_service.user(BILLING.token) as billing, guarded_service.user(HOLDER.token) as holder:
        mine = billing.held(name, key=name)
        answer = holder.acquire(name, key=name)
        assert (answer.status_code, answer.json()["code"]) == (422, "key-reused")
        assert billing.held(name, key=name)["fencingToken"] == mine["fencingToken"]
        billing.release(mine["leaseId"])


def test_nothing_of_another_tenant_is_seen_in_lists_audits_histories_elections_or_events(
    billing: User, shipping: User, oncall: User, name: str
) -> None:
    """Every look is confined."""
    with shipping.events("/v1/events") as events:
        assert name not in str(events.next())
        reply = billing.held(name, "billing-worker", value="secret-value")
        mark = shipping.held(f"{name}-mark")
        _, line = events.until(lambda kind, line: kind == "line")
        assert line["name"] == f"{name}-mark"
        shipping.release(mark["leaseId"])
    billing.force(name, reply["fencingToken"], "reason-of-billing")
    looks = ("/v1/locks", f"/v1/resources/{name}", f"/v1/resources/{name}/why", f"/v1/resources/{name}/history")
    for path in (*looks, "/v1/audit", f"/v1/elections/{name}"):
        seen = shipping.get(path).text
        assert "billing" not in seen.replace("serve-", ""), path
    for query in ({"prefix": "../billing/"}, {"prefix": "billing/"}, {"prefix": ""}, {"prefix": "../"}):
        assert name not in str(names(shipping, **query))
        assert name not in shipping.get("/v1/audit", **query).text
    assert [record["name"] for record in billing.get("/v1/audit", prefix=name).json()["records"]] == [name]
    assert f"billing/{name}" in oncall.get("/v1/audit", prefix=f"billing/{name}").text


def test_cursor_of_another_tenant_leads_nowhere(billing: User, shipping: User, oncall: User, name: str) -> None:
    """A cursor says where to begin, and nothing else depends on it."""
    reply = [billing.held(f"{name}/{number}") for number in range(3)]
    cursor = oncall.get("/v1/locks", prefix=f"billing/{name}", limit=1).json()["after"]
    assert cursor
    assert name not in shipping.get("/v1/locks", after=cursor).text
    for one in reply:
        billing.release(one["leaseId"])


def test_actor_of_a_force_release_is_who_the_token_says(billing: User, name: str) -> None:
    """Another actor may be named beside the token's: no caller can pass for another in the audit."""
    reply = billing.held(name)
    record = billing.force(name, reply["fencingToken"], actor="on-call").json()
    assert record["actor"] == "on-call (billing-app)"


def test_keys_need_a_scope_of_their_own_and_stay_in_the_tenants_place(
    guarded_service: Service, client: tenure.Client, name: str
) -> None:
    """Without `write` a holder only reads; with it no key leads out of its tenant's place, to tickets or records."""
    holder = tenure.connect(guarded_service.url, user="me", password=HOLDER.token, ttl=20)
    with holder, holder.lock(name) as hold:
        assert hold.store.get("x") is None
        with pytest.raises(tenure.PermissionDenied, match="scope 'write'"):
            hold.store.put("x", b"")
    writer = tenure.connect(guarded_service.url, user="me", password=BILLING.token, ttl=20)
    with writer, writer.lock(name) as hold, guarded_service.user(BILLING.token) as user, client.lock(name) as direct:
        path = f"{hold._lease._path}/commit"  # type: ignore[attr-defined]
        body: dict[str, Any] = {"ticketId": hold.id, "token": str(hold.token), "version": None}
        for odd in ("/x", "..", "../x", "a/../../x", "./x", "a//x", "../../%audit/x", "a\x00"):
            for writes in ([{"key": odd, "value": ""}], [{"key": "x", "value": ""}, {"key": odd, "value": None}]):
                answer = user.request("POST", path, json={**body, "writes": writes})
                assert (answer.status_code, answer.json()["code"]) == (400, "invalid-field"), odd
        for key in (name, f"%audit/{name}", f"%journal/{name}/x", f"shipping/{name}", "*"):
            hold.store.put(key, b"mine")
            record = direct.store.get(f"billing/{key}")
            assert record is not None
            assert (record.value, direct.store.get(key)) == (b"mine", None)
            hold.store.delete(key)
        assert not writer.operator().audit(name) + writer.operator().history(name)
        assert len(client.operator().line(f"billing/{name}").tickets) == 1


def test_values_are_bounded_and_so_is_what_a_tenant_writes_in_a_second(url: str, tmp_path: Path, name: str) -> None:
    """A loop of acquire and release with large values fills no store; whoever else there is has a share of its own."""
    file = write_tokens(tmp_path / "tokens", BILLING, SHIPPING)
    with (
        serving(url, tmp_path, "--tokens", str(file), "--write-rate", "300") as service,
        tenure.connect(service.url, user="me", password=BILLING.token, ttl=20, timeout=1) as thin,
        service.user(BILLING.token) as billing,
        service.user(SHIPPING.token) as shipping,
    ):
        answer = billing.acquire(name, value="x" * 4097)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-field")
        with pytest.raises(tenure.InvalidOption, match="at most 4096 bytes"):
            thin.election(name, value="x" * 4097).campaign().acquire()
        plain = thin.lock(name).acquire()
        codes = []
        for number in range(3):
            answer = billing.acquire(f"{name}-{number}", value="x" * 4096)
            codes.append((answer.status_code, answer.json().get("code")))
        assert codes == [(200, None), (429, "rate-limited"), (429, "rate-limited")]
        with pytest.raises(tenure.StoreUnavailable, match="bytes a second"):
            plain.amend("x" * 4096)
        with pytest.raises(tenure.StoreUnavailable):
            plain.store.put("x", b"x" * 8000)
        assert plain.store.get("x") is None
        assert plain.release() is True
        assert shipping.held(name, value="x" * 4096)["acquired"]
        assert billing.acquire(name).json()["acquired"], "a lock without a value is taken all the same"


def test_scopes_bound_what_a_token_is_good_for(guarded_service: Service, name: str) -> None:
    """A token to look with takes nothing, forces nobody out, and sees no metrics."""
    with guarded_service.user(LOOKER.token) as looker:
        assert looker.line(name)["holders"] == []
        for answer in (
            looker.acquire(name),
            looker.renew("x"),
            looker.release("x"),
            looker.force(name, "1"),
            looker.get(f"/v1/elections/{name}"),
            looker.get("/metrics"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    with guarded_service.user(ONCALL.token) as oncall:
        assert "tenure_http_requests_total" in oncall.get("/metrics").text


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer wrong",
        f"Basic {BILLING.token}",
        BILLING.token,
        f"Bearer {BILLING.token}x",
        f"Bearer {BILLING.token[:-1]}",
        "Bearer \u00e9",
        f"Bearer {BILLING.line.split()[-1]}",
    ],
)
def test_without_a_valid_token_nothing_is_told(guarded_service: Service, header: str | None) -> None:
    """401 with a challenge: for no token, a wrong one, and the hash that stands in the file."""
    with guarded_service.user() as user:
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        answer = user.request("GET", "/v1/locks", headers=headers)
        assert answer.status_code in (401, 429)
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert user.get("/healthz").status_code == 200
        assert user.get("/openapi.json").status_code == 200


def test_guessing_is_slowed_down_and_logged_without_what_was_guessed(
    guarded_service: Service, billing: User, name: str
) -> None:
    """After twenty wrong tokens 429; the right one works all the same; no token stands in the log."""
    with guarded_service.user() as user:
        codes = [
            user.request("GET", "/v1/locks", headers={"Authorization": f"Bearer guess-{n}"}).status_code
            for n in range(60)
        ]
    assert set(codes) <= {401, 429}
    assert codes.count(429) >= 20
    reply = billing.held(name)
    billing.release(reply["leaseId"])
    eventually(lambda: sum(line.get("code") == "rate-limited" for line in guarded_service.log) >= 20)
    for secret in ("guess-", BILLING.token, SHIPPING.token, reply["leaseId"]):
        assert secret not in guarded_service.log_text
    mine = [line for line in guarded_service.log if line.get("resource") == name]
    assert (mine[-1]["caller"], mine[-1]["tenant"], mine[-1]["status"]) == ("billing-app", "billing", 200)


def test_tokens_are_read_again_when_the_file_changes_and_on_sighup(url: str, tmp_path: Path, name: str) -> None:
    """Without a restart: a new one is good, one that was taken out ends its streams; a bad file changes nothing."""
    first, second = Token("first", "app", "t"), Token("second", "app", "t")
    file = write_tokens(tmp_path / "tokens", first)
    with serving(url, tmp_path, "--tokens", str(file)) as service:
        with service.user(first.token) as old, service.user(second.token) as new:
            assert new.get("/v1/locks").status_code == 401
            reply = old.held(name)
            with old.events("/v1/events") as events:
                events.next()
                write_tokens(file, second)
                eventually(lambda: new.get("/v1/locks").status_code == 200)
                assert old.get("/v1/locks").status_code in (401, 429)
                assert events.ends()
            assert new.renew(reply["leaseId"]).status_code == 200
            file.write_text("nonsense\n")
            service.process.send_signal(signal.SIGHUP)
            eventually(lambda: "the tokens stay as they were" in service.log_text)
            assert new.release(reply["leaseId"]).status_code == 200
            assert "nonsense" not in service.log_text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("app t acquire", "line 1"),
        ("app t acquire 123", "64 hexadecimal digits"),
        ("app t fly " + "a" * 64, "unknown scope"),
        ("app ../t read " + "a" * 64, "can't be a tenant"),
        ("app t/u read " + "a" * 64, "can't be a tenant"),
        (f"app t read {'a' * 64}\napp t read {'a' * 64}", "line 2"),
        (f"app t read {'a' * 64}\napp u read {'b' * 64}", "another tenant"),
        ("\xff\xfe", "not UTF-8"),
        (Token("test", "app", "t").line, "anybody could guess"),
        (Token("", "app", "t").line, "anybody could guess"),
        (Token("app", "app", "t").line, "anybody could guess"),
        (f"app t read {'a' * 64} tomorrow", "2030-01-31"),
        (f"app t read {'a' * 64} 2030-01-31 more", "parted by spaces"),
    ],
)
def test_file_of_tokens_that_can_not_be_read_stops_the_start(url: str, tmp_path: Path, text: str, says: str) -> None:
    """The message names the line of the file, and shows none of its text."""
    file = tmp_path / "tokens"
    file.write_bytes(text.encode("latin-1"))
    done = refused(url, "--listen", "0", "--tokens", str(file))
    assert done.returncode == 64
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert "aaaa" not in done.stderr


def test_token_is_good_until_its_date(url: str, tmp_path: Path) -> None:
    """Then it is refused, which says why, and streams that it opened end; without a date it is good for ever."""
    lasting, ending = Token("lasting", "app", "t"), Token("ending", "guest", "t", until="2999-01-31")
    past = Token("past", "old", "t", until="2020-01-31T12:00:00Z")
    file = write_tokens(tmp_path / "tokens", lasting, ending, past)
    with serving(url, tmp_path, "--tokens", str(file)) as service, service.user(ending.token) as user:
        with user.events("/v1/events") as events:
            ends = datetime.now(UTC) + timedelta(seconds=3)
            write_tokens(file, lasting, dataclasses.replace(ending, until=ends.isoformat()), past)
            assert events.ends()
        assert datetime.now(UTC) >= ends
        for over in (user, service.user(past.token)):
            with over:
                answer = over.get("/v1/locks")
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
                assert "is over" in answer.json()["detail"]
        with service.user(lasting.token) as user:
            assert user.get("/v1/locks").status_code == 200


def test_file_of_tokens_that_others_may_write_is_warned_of(url: str, tmp_path: Path) -> None:
    """Whoever may write it may make itself an operator of everything."""
    file = write_tokens(tmp_path / "tokens", Token("x-secret", "app", "t"))
    with serving(url, tmp_path, "--tokens", str(file)) as service:
        assert "may be written by others" not in service.log_text
        file.chmod(0o666)
        service.process.send_signal(signal.SIGHUP)
        eventually(lambda: f"{file} may be written by others" in service.log_text)


def test_token_that_the_command_makes_is_shown_once_and_good(url: str, tmp_path: Path, name: str) -> None:
    """The token goes to standard error and the line for the file to standard output; no two are alike."""
    file = tmp_path / "tokens"
    made = [command("serve", "token", "worker", "billing", "acquire,read") for _ in range(2)]
    assert [done.code for done in made] == [0, 0]
    file.write_text("".join(done.out for done in made))
    tokens = [done.err.split()[-1] for done in made]
    assert len(set(tokens)) == 2
    assert min(map(len, tokens)) >= 43
    assert not any(token in file.read_text() for token in tokens)
    with serving(url, tmp_path, "--tokens", str(file)) as service:
        for token in tokens:
            with service.user(token) as user:
                user.release(user.held(name)["leaseId"])
    dated = command("serve", "token", "guest", "*", "read", "--until", "2030-01-31")
    assert dated.out.split()[-1] == "2030-01-31"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a b", "t", "read"), "printable ASCII"),
        (("a", "t/u", "read"), "can't be a tenant"),
        (("a", "t", "fly"), "unknown scope"),
        (("a", "t", "read", "--until", "tomorrow"), "2030-01-31"),
    ],
)
def test_token_is_not_made_for_a_line_that_could_not_be_read(arguments: tuple[str, ...], says: str) -> None:
    """The same checks as of the file, and the code of a command that is written wrong."""
    done = command("serve", "token", *arguments)
    assert (done.code, done.out) == (64, "")
    assert says in done.complaint


def test_examples_have_no_hash_of_any_token() -> None:
    """Examples are copied as they stand: a hash in one of them must be of nothing that anybody can send."""
    pages = [path for top in ("docs", "deploy", "src") for path in (ROOT / top).rglob("*.*") if path.is_file()]
    found = [
        digits
        for path in (ROOT / "README.md", *pages)
        for digits in re.findall(r"\b[0-9a-f]{64}\b", path.read_text(errors="replace"))
    ]
    assert found
    assert [digits for digits in found if len(set(digits)) > 1] == []


def test_whoami_says_what_a_token_may_and_what_of_it_is_used(url: str, tmp_path: Path, name: str) -> None:
    """Any scope will do; limits are the tenant's, whoever of it asks, and what is used is counted down again."""
    scraper = Token("scraper-secret", "scraper", "*", "metrics", until="2999-01-31")
    file = write_tokens(tmp_path / "tokens", BILLING, LOOKER, scraper)
    with serving(url, tmp_path, "--tokens", str(file), "--holds", "7", "--waiting", "5", "--rate", "50") as service:
        with service.user(BILLING.token) as billing, service.user(LOOKER.token) as looker:
            reply = billing.held(name)
            with billing.events("/v1/events"):
                mine, theirs = billing.get("/v1/whoami").json(), looker.get("/v1/whoami").json()
            scopes = ["acquire", "elect", "operate", "read", "write"]
            assert (mine["name"], mine["tenant"], mine["scopes"], mine["until"]) == (
                "billing-app",
                "billing",
                scopes,
                None,
            )
            assert (theirs["name"], theirs["tenant"], theirs["scopes"]) == ("looker", "billing", ["read"])
            assert mine["limits"] == {
                "requestsAtOnce": 100,
                "bytesAtOnce": 8 << 20,
                "valueBytes": 4096,
                "holds": 7,
                "waiting": 5,
                "streams": 1000,
            }
            assert mine["used"]["bytesAtOnce"] >= 0
            assert (mine["used"]["holds"], mine["used"]["waiting"], mine["used"]["streams"]) == (1, 0, 1)
            assert 1 <= mine["used"]["requestsAtOnce"] <= 3
            assert theirs["limits"] == mine["limits"]
            billing.release(reply["leaseId"])
            assert looker.get("/v1/whoami").json()["used"]["holds"] == 0
        with service.user(scraper.token) as user, service.user() as nobody:
            assert user.get("/v1/whoami").json()["until"] == "2999-01-31T00:00:00.000Z"
            assert nobody.get("/v1/whoami").status_code == 401


def test_whoami_of_a_service_that_asks_nobody_is_anybody(url: str, tmp_path: Path) -> None:
    """Everything is allowed there."""
    with serving(url, tmp_path) as service, service.user() as user:
        reply = user.get("/v1/whoami").json()
        assert (reply["name"], reply["tenant"], len(reply["scopes"])) == ("anybody", "*", len(Scope))


def test_elections_of_a_tenant_are_its_own(url: str, tmp_path: Path) -> None:
    """A candidacy is given to the service by its whole name; its tenant sees it under its own, nobody else does."""
    file = write_tokens(tmp_path / "tokens", BILLING, SHIPPING)
    with serving(url, tmp_path, "--tokens", str(file), "--elect", "billing/scheduler=b:1") as service:
        with service.user(BILLING.token) as billing, service.user(SHIPPING.token) as shipping:
            eventually(lambda: billing.get("/v1/elections/scheduler").json()["isLeader"])
            reply = shipping.get("/v1/elections/scheduler").json()
            assert (reply["leader"], reply["isLeader"], reply["isCandidate"]) == (None, False, False)
            reply = shipping.get("/v1/elections/billing%2Fscheduler").json()
            assert (reply["leader"], reply["isCandidate"]) == (None, False)
            assert billing.get("/readyz", leader="billing/scheduler").status_code == 200
    with tenure.connect(url) as client:
        assert client.election("billing/scheduler").leader() is None
