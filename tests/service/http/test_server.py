"""A service's life: where it listens and where it refuses to, TLS, UNIX sockets, replicas, the end."""

from __future__ import annotations

import os
import signal
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

import tenure
from tenure.testing.servers import certificates
from tenure.testing.servers.certificates import make_tls_files
from tests.cli.program import eventually
from tests.servers import Cluster
from tests.service.http.conftest import KINDS, url_of
from tests.service.http.program import Service, Token, refused, serving, trusting, write_tokens


@pytest.fixture(params=KINDS)
def each_url(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> str:
    """A namespace of the test's own on each store."""
    return url_of(singles, request.param)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--listen", "0.0.0.0:0"), "give --tokens, listen on loopback, or say --insecure"),
        (("--listen", "0.0.0.0:0", "--behind-proxy"), "give --tokens, listen on loopback, or say --insecure"),
        (("--listen", "0.0.0.0:0", "--tokens", "/nowhere"), "would cross the network in clear"),
        (("--listen", "[::]:0"), "can be reached from other machines"),
        (("--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0"), "0.0.0.0:0 can be reached"),
        (("--listen", "nonsense"), "[HOST:]PORT"),
        (("--listen", "unix:relative"), "absolute path"),
        (("--listen", "127.0.0.1:99999"), "[HOST:]PORT"),
        (("--tls-cert", "/nowhere"), "go together"),
        (("--tls-cert", "/nowhere", "--tls-key", "/nowhere"), "can't be used"),
        (("--client-ca", "/nowhere"), "--client-ca needs --tls-cert"),
        (("--client-ca", "/nowhere", "--tls-cert", "/nowhere", "--tls-key", "/nowhere"), "--client-ca needs --tokens"),
        (("--tokens", "/nowhere"), "can't be read"),
        (("--elect", "a", "--elect", "a=1"), "given twice"),
        (("--elect", "=x"), "empty"),
        (("--host", "http://locks.example.com"), "a name alone"),
        (("--host", "locks.example.com:443"), "a name alone"),
    ],
)
def test_what_must_not_be_started_is_told_in_one_line(url: str, arguments: tuple[str, ...], says: str) -> None:
    """Nothing is begun, and nothing listens."""
    done = refused(url, *arguments)
    assert done.returncode == 64, done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_everybody_may_come_where_that_was_said(url: str, tmp_path: Path) -> None:
    """--insecure; under the names that were given, and not under one that a web page has for this machine."""
    names = ("--host", "tenure.svc", "--host", "Locks.example.com", "--advertise", "http://replica-1:8700")
    with serving(url, tmp_path, "--listen", "0.0.0.0:0", "--insecure", *names) as service:
        port = httpx.URL(service.url).port
        with service.user(url=f"http://127.0.0.1:{port}") as user:
            for host in (
                "tenure.svc",
                "tenure.svc:8700",
                "locks.EXAMPLE.com:1",
                "replica-1:8700",
                "localhost",
                "[::1]:9",
            ):
                assert user.request("GET", "/v1/locks", headers={"Host": host}).status_code == 200, host
            for host in ("evil.example", f"evil.example:{port}", "svc", "tenure.svc.evil.example", "10.1.2.3"):
                answer = user.request("GET", "/v1/locks", headers={"Host": host})
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden-host"), host


@pytest.mark.parametrize("said", ["--behind-proxy", "--insecure"])
def test_tokens_in_clear_are_taken_from_other_machines_where_that_was_said(
    url: str, tmp_path: Path, name: str, said: str
) -> None:
    """A proxy in front does TLS, or nobody does; the token is asked for all the same."""
    token = Token("app-secret", "app", "t")
    file = write_tokens(tmp_path / "tokens", token)
    with serving(url, tmp_path, "--listen", "0.0.0.0:0", "--tokens", str(file), said) as service:
        address = f"http://127.0.0.1:{httpx.URL(service.url).port}"
        with service.user(token.token, url=address) as user, service.user(url=address) as nobody:
            user.release(user.held(name)["leaseId"])
            assert nobody.get("/v1/locks").status_code == 401


def test_port_that_is_taken_is_told_in_one_line(url: str, tmp_path: Path) -> None:
    """Before anything is asked of the store."""
    with serving(url, tmp_path) as service:
        done = refused(url, "--listen", service.url.removeprefix("http://"))
        assert done.returncode == 64
        assert "Address already in use" in done.stderr


def test_unix_socket_is_for_its_user_and_group_and_goes_with_the_service(url: str, tmp_path: Path, name: str) -> None:
    """Beside TCP or instead; a stale one of a service that was killed is replaced, a living one is not."""
    path = tmp_path / "tenure.sock"
    with serving(url, tmp_path, "--listen", f"unix:{path}", "--listen", "0") as service:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        with service.user(url="http://localhost", transport=httpx.HTTPTransport(uds=str(path))) as user:
            reply = user.held(name)
            with service.user(url=service.urls[1]) as other:
                assert other.release(reply["leaseId"]).status_code == 200
        assert "somebody listens" in refused(url, "--listen", f"unix:{path}").stderr
        service.process.kill()
        service.ended()
    assert path.exists()
    with serving(url, tmp_path, "--listen", f"unix:{path}") as service:
        with service.user(url="http://localhost", transport=httpx.HTTPTransport(uds=str(path))) as user:
            assert user.get("/readyz").status_code == 200
    assert not path.exists()
    path.write_text("no socket")
    assert "is no socket" in refused(url, "--listen", f"unix:{path}").stderr
    assert path.read_text() == "no socket"


def reached(service: Service, ca: Path) -> bool:
    """Say whether a client that trusts this CA trusts the service."""
    try:
        with service.user(verify=trusting(ca)) as user:
            return user.get("/healthz").is_success
    except httpx.ConnectError:
        return False


def test_tls_serves_https_and_nothing_else(url: str, tmp_path: Path, name: str) -> None:
    """TLS 1.2 and later, with the certificate that was given; another one when the files have changed."""
    files = make_tls_files(tmp_path / "tls", mutual=False)
    given = ("--tls-cert", str(files.server_cert), "--tls-key", str(files.server_key))
    with serving(url, tmp_path, *given) as service:
        assert service.url.startswith("https://")
        with service.user(verify=trusting(files.ca)) as user:
            user.release(user.held(name)["leaseId"])
        with pytest.raises(httpx.ConnectError), service.user(verify=trusting(files.other_ca)) as user:
            user.get("/healthz")
        with pytest.raises(httpx.TransportError):
            httpx.get(service.url.replace("https", "http") + "/healthz", timeout=30)
        for signals in ([signal.SIGHUP], []):  # by a signal, and by itself, as where Kubernetes changes a Secret
            renewed = make_tls_files(tmp_path / f"renewed-{len(signals)}", mutual=False)
            for new, old in ((renewed.server_cert, files.server_cert), (renewed.server_key, files.server_key)):
                os.replace(new, old)
            for number in signals:
                service.process.send_signal(number)
            eventually(lambda ca=renewed.ca: reached(service, ca))


class Authority:
    """A CA of clients, and a service's own certificate that it made."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = certificates._Authority(directory.name)
        directory.mkdir()
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(self._authority.pem())
        cert, key = self.pair("localhost")
        self.certificate = ("--tls-cert", str(cert), "--tls-key", str(key))

    def pair(self, common_name: str, uri: str = "spiffe://nowhere/x") -> tuple[Path, Path]:
        """A certificate of that name, and its key."""
        plain, key = self._authority.issue(common_name)
        ours = x509.UniformResourceIdentifier(uri)
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), ours])
        fresh = certificates._builder(subject=plain.subject, issuer=plain.issuer, public=key.public_key())
        pair = fresh.add_extension(names, critical=False).sign(self._authority._key, hashes.SHA256()), key
        paths = self._directory / f"{common_name}.pem", self._directory / f"{common_name}.key"
        certificates._write_pair(pair, *paths)
        return paths


def test_certificates_may_do_what_the_file_of_tokens_says(url: str, tmp_path: Path, name: str) -> None:
    """By common name or URI; the audit has the caller's name; a stranger of the same CA gets nothing."""
    ours = Authority(tmp_path / "ours")
    worker = Token("worker-secret", "worker", "billing", "read")
    lines = "billing billing acquire,read cert:billing%20app\non-call * read,operate uri:spiffe://example.org/on-call\n"
    file = tmp_path / "tokens"
    file.write_text(lines + worker.line)
    given = ("--listen", "0.0.0.0:0", *ours.certificate, "--client-ca", str(ours.ca), "--tokens", str(file))
    with serving(url, tmp_path, *given, "--health-port", "127.0.0.1:0") as service:
        address = f"https://localhost:{httpx.URL(service.url).port}"
        shows = trusting(ours.ca, *ours.pair("billing app"))
        with service.user(url=address, verify=shows) as billing:
            reply = billing.held(name)
            assert billing.force(name, reply["fencingToken"]).json()["code"] == "forbidden"
            on_call = trusting(ours.ca, *ours.pair("anything", "spiffe://example.org/on-call"))
            with service.user(url=address, verify=on_call) as operator:
                assert operator.acquire(f"billing/{name}").status_code == 403
                assert operator.force(f"billing/{name}", reply["fencingToken"]).json()["actor"] == "on-call"
            with service.user(worker.token, url=address, verify=shows) as both:
                assert both.line(name)["holders"] == []
                assert both.acquire(name).status_code == 403
            with billing.events("/v1/events") as events:
                events.next()
                file.write_text(lines.partition("\n")[2])
                assert events.ends()
            assert billing.get("/v1/locks").status_code == 401
        for common_name, uri in (("stranger", "spiffe://example.org/on-call/x"), ("cert:billing app", "uri:x")):
            with service.user(url=address, verify=trusting(ours.ca, *ours.pair(common_name, uri))) as stranger:
                assert stranger.get("/v1/locks").json()["code"] == "unauthorized"
        with service.user("cert:billing app", url=address, verify=on_call) as pretender:
            assert pretender.get("/v1/locks").status_code == 401
        with pytest.raises(httpx.TransportError), service.user(url=address, verify=trusting(ours.ca)) as nobody:
            nobody.get("/healthz")
        with service.user(url=service.urls[1]) as probe:
            assert probe.get("/healthz").status_code == 200
            assert "tenure_" in probe.get("/metrics").text
            assert probe.http.get("/v1/locks").status_code == 404


def test_ca_of_clients_is_read_again_on_sighup(url: str, tmp_path: Path) -> None:
    """A CA that was taken out lets nobody in any more, the new one does; one that can't be read changes nothing."""
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    file, trusted = tmp_path / "tokens", tmp_path / "clients.pem"
    file.write_text("app t read cert:app\n")
    trusted.write_text(old.ca.read_text())
    with serving(url, tmp_path, *old.certificate, "--client-ca", str(trusted), "--tokens", str(file)) as service:
        address = f"https://localhost:{httpx.URL(service.url).port}"

        def let_in(authority: Authority) -> bool:
            try:
                with service.user(url=address, verify=trusting(old.ca, *authority.pair("app"))) as user:
                    return user.get("/v1/locks").status_code == 200
            except httpx.TransportError:
                return False

        assert (let_in(old), let_in(new)) == (True, False)
        trusted.write_text("nonsense")
        service.process.send_signal(signal.SIGHUP)
        eventually(lambda: "stay as they were" in service.log_text)
        assert (let_in(old), let_in(new)) == (True, False)
        trusted.write_text(new.ca.read_text())
        service.process.send_signal(signal.SIGHUP)
        eventually(lambda: let_in(new))
        assert not let_in(old)


def test_two_replicas_share_the_store(each_url: str, tmp_path: Path, name: str) -> None:
    """Replicas exclude each other; a hold is renewed at the other one, or that one says where it is."""
    with (
        serving(each_url, tmp_path) as one,
        serving(each_url, tmp_path) as two,
        one.user() as here,
        two.user() as there,
    ):
        reply = here.held(name)
        assert there.acquire(name).json()["acquired"] is False
        answer = there.renew(reply["leaseId"])
        if answer.status_code == 421:
            assert answer.json()["code"] == "held-elsewhere"
            location = answer.headers["location"]
            assert location == f"{one.url}/v1/locks/{reply['leaseId']}/renew"
            assert here.http.post(location).status_code == 200
            answer = there.release(reply["leaseId"])
            assert answer.status_code == 421
            assert here.http.delete(answer.headers["location"]).status_code == 200
        else:
            assert answer.status_code == 200
            assert there.release(reply["leaseId"]).status_code == 200
            assert here.renew(reply["leaseId"]).status_code == 410
        there.release(there.held(name)["leaseId"])


def test_shutdown_ends_what_waits_and_leaves_nothing_behind(each_url: str, tmp_path: Path, name: str) -> None:
    """503 to who waits, an end to streams, exit code 0, in bounded time; no ticket of a waiter stays."""
    with serving(each_url, tmp_path, "--elect", f"{name}-lead") as service:
        with service.user() as user, service.user() as other, ThreadPoolExecutor(2) as pool:
            reply = user.held(name, ttlSeconds=5)
            waits = pool.submit(other.acquire, name, "waiter", waitSeconds=600)
            with user.events("/v1/events", prefix=name) as events:
                events.until(lambda _, reply: any(line["waiterCount"] for line in reply.get("lines", [reply])))
                service.process.send_signal(signal.SIGTERM)
                assert events.ends()
            answer = waits.result(60)
            assert (answer.status_code, answer.json()["code"], answer.json()["happened"]) == (503, "draining", "no")
            began = time.monotonic()
            assert service.ended() == 0
            assert time.monotonic() - began < 40
    with tenure.connect(each_url) as client:
        operator = client.operator()
        tickets: list[Any] = [ticket for line in operator.lines() for ticket in line.tickets]
        # what lives by a store lease of its own may live on until its TTL; nothing else does
        assert [t.token for t in tickets] in ([], [int(reply["fencingToken"])])


def test_nobody_is_admitted_while_an_owner_believes_though_its_service_ends(
    each_url: str, tmp_path: Path, name: str
) -> None:
    """Law 1 over the end of a service: an owner's grant is true until it is over."""
    with tenure.connect(each_url) as client, ThreadPoolExecutor(1) as pool:
        with serving(each_url, tmp_path, "--drain", "1") as service, service.user() as user:
            asked = time.monotonic()
            reply = user.held(name, ttlSeconds=4)
            taken = pool.submit(client.lock(name).acquire, 60.0)
            eventually(lambda: user.line(name)["waiterCount"] == 1)
            assert service.stop() == 0
        taken.result(60).release()
        assert time.monotonic() - asked >= reply["remainingSeconds"]


def test_owners_may_release_while_their_service_ends(singles: dict[str, Cluster], tmp_path: Path, name: str) -> None:
    """On ZooKeeper no other replica can: until then it is reached, begins nothing new, and says so."""
    url = url_of(singles, "zookeeper")
    with serving(url, tmp_path, "--drain", "40") as service, service.user() as user:
        reply = user.held(name)
        service.process.send_signal(signal.SIGTERM)
        eventually(lambda: user.get("/readyz").status_code == 503)
        for answer in (user.acquire(f"{name}-new"), user.renew(reply["leaseId"])):
            assert (answer.status_code, answer.json()["code"]) == (503, "draining")
        assert user.release(reply["leaseId"]).json() == {"released": True}
        assert service.ended() == 0


def test_end_is_the_same_by_ctrl_c(url: str, tmp_path: Path) -> None:
    """SIGINT: exit code 0, and no traceback."""
    with serving(url, tmp_path) as service:
        service.process.send_signal(signal.SIGINT)
        assert service.ended() == 0


def test_probes_tell_what_they_are_asked(url: str, tmp_path: Path) -> None:
    """Alive; ready once the store has answered; and without a token, where others need one."""
    file = write_tokens(tmp_path / "tokens", Token("x-secret", "app", "t"))
    with serving(url, tmp_path, "--tokens", str(file)) as service, service.user() as user:
        assert user.get("/healthz").json() == {"healthy": True}
        assert user.get("/readyz").json() == {"ready": True, "why": None}
        assert user.get("/metrics").status_code == 401
        assert user.get("/readyz", leader="x").status_code == 404


def test_probes_come_under_any_name_to_their_own_port(url: str, tmp_path: Path) -> None:
    """A kubelet and a Prometheus ask by the pod's address, also where no token is asked for; the API stays local."""
    with serving(url, tmp_path, "--health-port", "0", "--elect", "lead") as service:
        for host in ("10.1.2.3:8701", "tenure.svc", "[fd00::7]:8701"):
            named = {"Host": host}
            with service.user(url=service.urls[1]) as probe:
                for path in ("/healthz", "/readyz", "/metrics"):
                    assert probe.request("GET", path, headers=named).status_code == 200, (path, host)
                assert probe.request("GET", "/readyz?leader=lead", headers=named).status_code in (200, 503)
            with service.user() as user:
                for path in ("/healthz", "/metrics", "/v1/locks"):
                    answer = user.request("GET", path, headers=named)
                    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden-host"), (path, host)


def test_probes_are_for_this_machine_and_show_no_names_where_metrics_have_their_own_port(
    url: str, tmp_path: Path, name: str
) -> None:
    """Loopback where no other address is given; without --metrics-port Prometheus asks where the probes do."""
    with serving(url, tmp_path, "--health-port", "0", "--metrics-port", "0") as service, service.user() as user:
        user.release(user.held(name)["leaseId"])
        assert [httpx.URL(one).host for one in service.urls] == ["127.0.0.1"] * 3
        with service.user(url=service.urls[1]) as probes, service.user(url=service.urls[2]) as metrics:
            assert probes.get("/readyz").status_code == 200
            assert probes.http.get("/metrics").status_code == 404
            assert name in metrics.get("/metrics").text
            assert metrics.http.get("/readyz").status_code == 404
    with serving(url, tmp_path, "--health-port", "0.0.0.0:0") as service:
        port = httpx.URL(service.urls[1]).port
        with service.user(url=f"http://127.0.0.2:{port}") as probes:
            assert probes.get("/readyz").status_code == 200
            assert "tenure_" in probes.get("/metrics").text


def test_service_on_a_store_that_is_not_there_is_alive_and_not_ready(tmp_path: Path) -> None:
    """The service starts all the same, logs what is wrong, and ends in order."""
    with serving("etcd://127.0.0.1:1/nowhere?timeout=0.5", tmp_path) as service, service.user() as user:
        assert user.get("/healthz").status_code == 200
        assert user.get("/readyz").json() == {"ready": False, "why": "the store has not answered yet"}
        answer = user.acquire("x")
        assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable")
        assert "127.0.0.1:1" not in answer.text
        assert user.get("/v1/elections/x").json()["certain"] is False


def test_access_log_is_json_with_what_matters_and_no_more(url: str, tmp_path: Path, name: str) -> None:
    """The log has one object a line; ids of holds are secrets, and are not in it."""
    with serving(url, tmp_path) as service, service.user() as user:
        reply = user.held(name, value="private")
        user.renew(reply["leaseId"])
        user.release(reply["leaseId"])
        user.http.get(f"/v1/lock/{reply['leaseId']}/renew")
        eventually(lambda: len([line for line in service.log if line["logger"] == "tenure.access"]) >= 4)
        lines = [line for line in service.log if line["logger"] == "tenure.access"]
        assert [(line["route"], line["status"]) for line in lines] == [
            ("acquire", 200),
            ("renew", 200),
            ("release", 200),
            ("none", 404),
        ]
        assert lines[0]["resource"] == name
        assert lines[3]["code"] == "not-found"
        assert reply["leaseId"] not in service.log_text
        assert "private" not in service.log_text
