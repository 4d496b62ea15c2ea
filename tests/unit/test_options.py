"""How to reach a store: the URL's grammar, what wins, what is refused, and what is never shown."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenure
from tenure import aio
from tenure._core.base.limits import REQUEST_TIMEOUT_DEFAULT, TTL_DEFAULT, TTL_MAX, TTL_MIN
from tenure._core.base.options import _KNOWN, ENVIRONMENT_VARIABLE, ConnectOptions, Options, parse
from tenure.errors import (
    InvalidName,
    InvalidOption,
    InvalidURL,
    TenureError,
)

SECRET = "s3cr3t-w0rd"


def test_connect_options_name_each_option_that_parse_knows() -> None:
    """A type checker that reads `connect` knows as many options as the call itself, and each may be left out."""
    assert ConnectOptions.__optional_keys__ == _KNOWN
    assert ConnectOptions.__required_keys__ == frozenset()
    nothing: ConnectOptions = {
        "namespace": None,
        "owner": None,
        "ttl": None,
        "timeout": None,
        "tls": None,
        "ca": None,
        "cert": None,
        "key": None,
        "user": None,
        "password": None,
        "tick": None,
        "incarnation": None,
        "journal": None,
        "after_fork": None,
    }
    assert parse("memory://x", nothing) == parse("memory://x", {})
    with tenure.connect("memory://x", **nothing), pytest.raises(InvalidOption, match="unknown option nope"):
        parse("memory://x", {"nope": 1})


@pytest.mark.parametrize("connect", [tenure.connect, aio.connect])
def test_both_faces_take_the_same_typed_options(connect: Callable[..., object]) -> None:
    """The signature says which options there are, and refers to the one list of them."""
    (options,) = [p for p in signature(connect).parameters.values() if p.kind is Parameter.VAR_KEYWORD]
    assert options.annotation == "Unpack[ConnectOptions]"


@pytest.mark.parametrize(
    ("url", "endpoints"),
    [
        ("etcd://10.0.0.1:2379/x", (("10.0.0.1", 2379),)),
        ("etcd://a,b:99,c", (("a", 2379), ("b", 99), ("c", 2379))),
        ("etcd+grpc://a,b:99/ns", (("a", 2379), ("b", 99))),
        ("zookeeper://a,b:99/ns", (("a", 2181), ("b", 99))),
        ("etcd://[::1]:2379", (("::1", 2379),)),
        ("etcd://[::1],[fe80::2]:99/ns", (("::1", 2379), ("fe80::2", 99))),
        ("etcd://user:pw@a:1,b:2", (("a", 1), ("b", 2))),
        ("http://a,b:8700/x", (("a", 80), ("b", 8700))),
        ("https://a", (("a", 443),)),
        ("http://%2Frun%2Fhold%20fast%2Fapi.sock/x", (("/run/hold fast/api.sock", 0),)),
        (
            "http://me:t@%2frun%2fa%3Ab%2Cc%40.sock,h:8700,%2Frun%2Fb",
            (("/run/a:b,c@.sock", 0), ("h", 8700), ("/run/b", 0)),
        ),
        ("memory://", (("default", 0),)),
        ("memory://name/ns", (("name", 0),)),
    ],
)
def test_url_names_its_endpoints_with_the_stores_default_port(url: str, endpoints: tuple[tuple[str, int], ...]) -> None:
    """Several hosts, ports left out, IPv6 in brackets: each is read as it is written everywhere else."""
    assert parse(url, {}).endpoints == endpoints


def test_url_with_everything_is_read_in_full() -> None:
    """Path, credentials and every option of the query arrive where they belong."""
    found = parse("zookeeper://me:pw@h:1/a/b?ttl=7.5&timeout=2&owner=o%20o&tls=true&tick=0.5", {})
    assert (found.scheme, found.namespace, found.user, found.password) == ("zookeeper", "a/b", "me", "pw")
    assert (found.ttl, found.timeout, found.owner, found.tls, found.tick) == (7.5, 2.0, "o o", True, 0.5)


def test_url_with_nothing_but_a_host_has_the_defaults() -> None:
    """Every option has a default worth having."""
    found = parse("etcd://h", {})
    assert (found.namespace, found.ttl, found.timeout) == ("tenure", TTL_DEFAULT, REQUEST_TIMEOUT_DEFAULT)
    assert (found.tls, found.ca, found.cert, found.key, found.user, found.password, found.tick) == (False, *[None] * 6)


@pytest.mark.parametrize(
    ("url", "prefix", "tls"),
    [
        ("http://h", "", False),
        ("http://h/", "", False),
        ("https://h/jobs/nightly/", "jobs/nightly", True),
        ("https://h/a%20b?tls=false", "a b", True),
        ("http://h/x?tls=true", "x", True),
    ],
)
def test_path_of_a_service_is_what_names_begin_with(url: str, prefix: str, tls: bool) -> None:
    """As it stands, and nothing where there is none; https says TLS by itself."""
    found = parse(url, {})
    assert (found.namespace, found.tls) == (prefix, tls)


def test_path_of_a_service_is_as_well_made_as_a_namespace() -> None:
    """No empty segments and no dots."""
    for url in ("http://h/a//b", "http://h/../x"):
        with pytest.raises(InvalidName):
            parse(url, {})


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("etcd://%2Frun%2Fa.sock/x", "etcd:// knows no UNIX sockets"),
        ("etcd+grpc://h,%2frun%2fa.sock", "etcd+grpc:// knows no UNIX sockets"),
        ("zookeeper://%2Frun%2Fa.sock", "zookeeper:// knows no UNIX sockets"),
        ("https://%2Frun%2Fa.sock", "TLS is not spoken over a UNIX socket"),
        ("http://h,%2Frun%2Fa.sock?tls=true", "TLS is not spoken over a UNIX socket"),
        ("http://%2Frun%2Fa.sock:80", "has no port"),
        ("http://run%2Fa.sock", "absolute path"),
        ("http://%2Frun%2Fa%00.sock", "control characters"),
        ("http://%2Frun%2Fa%0A.sock", "control characters"),
        ("http://%2Frun%2Fa%FF.sock", "not UTF-8"),
        (f"http://%2F{'a' * 100}", "at most 100 bytes"),
        (f"http://%2F{'%C3%A4' * 50}", "at most 100 bytes"),
    ],
)
def test_unix_socket_that_can_not_be_one_is_told_as_such(url: str, says: str) -> None:
    """At connect, and with what to write instead."""
    with pytest.raises(InvalidURL) as raised:
        parse(url, {})
    assert says in str(raised.value)


def test_certificates_at_a_unix_socket_are_refused(tmp_path: Path) -> None:
    """They would protect nothing, in silence."""
    (tmp_path / "ca").write_text("x")
    with pytest.raises(InvalidURL, match="TLS is not spoken"):
        parse("http://%2Frun%2Fa.sock", {"ca": str(tmp_path / "ca")})


def test_longest_path_of_a_unix_socket_is_taken() -> None:
    """A hundred bytes: what `tenure serve` takes, too."""
    assert parse(f"http://%2F{'a' * 99}", {}).endpoints == ((f"/{'a' * 99}", 0),)


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=30))
def test_credentials_percent_encoded_arrive_as_they_were(text: str) -> None:
    """Any character may stand in a user or password, percent-encoded."""
    found = parse(f"etcd://{quote(text, safe='')}:{quote(text, safe='')}@h", {})
    assert (found.user, found.password) == (text, text)
    assert found.endpoints == (("h", 2379),)


def test_environment_variable_is_used_when_no_url_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """TENURE_URL stands in for the URL, and an explicit URL wins."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "memory://from-environment")
    assert parse(None, {}).endpoints == (("from-environment", 0),)
    assert parse("memory://given", {}).endpoints == (("given", 0),)
    with tenure.connect() as client:
        assert "from-environment" in repr(client)


@pytest.mark.parametrize("url", [None, ""])
def test_no_url_at_all_raises_invalid_url_that_names_the_variable(
    url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who forgot to configure is told what to set."""
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    with pytest.raises(InvalidURL, match=ENVIRONMENT_VARIABLE):
        parse(url, {})


def test_keyword_wins_over_the_same_option_in_the_url() -> None:
    """A keyword argument wins; one that is None was not given."""
    found = parse("etcd://u:p@h/ns?ttl=7&owner=url", {"ttl": 9, "owner": None, "namespace": "kw", "password": "kwp"})
    assert (found.ttl, found.owner, found.namespace, found.user, found.password) == (9.0, "url", "kw", "u", "kwp")


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "ftp://h",
        "h:2379",
        "etcd:h",
        "ETCD://h",
        "redis://h",
        "://h",
        "etcd://",
        "etcd:///ns",
        "etcd://h:port",
        "etcd://h:99999",
        "etcd://h:0",
        "etcd://h,,i",
        "etcd://h,",
        "etcd://h#x",
        "etcd://h h",
        "etcd://h/\nx",
        "etcd://h?colour=red",
        "etcd://h?password=x",
        "etcd://h?user=x",
        "etcd://::1:2379",
    ],
)
def test_url_that_cannot_be_read_raises_invalid_url(url: str) -> None:
    """Every malformed URL is told as InvalidURL, at connect, before anything is sent."""
    with pytest.raises(InvalidURL):
        parse(url, {})
    for connect in (tenure.connect, aio.connect):
        with pytest.raises(InvalidURL):
            connect(url)


@pytest.mark.parametrize("url", [7, b"etcd://h", ["etcd://h"]])
def test_url_that_is_no_text_raises_invalid_url(url: str) -> None:
    """A URL is a str."""
    with pytest.raises(InvalidURL, match="is a str"):
        parse(url, {})


@pytest.mark.parametrize("url", ["etcd://h/a//b", "etcd://h/../x", "etcd://h/a%00b", "memory://h/a/./b"])
def test_url_with_an_unusable_namespace_raises_invalid_name(url: str) -> None:
    """The path is a namespace, and checked as one."""
    with pytest.raises(InvalidName):
        parse(url, {})


def test_unknown_keyword_raises_invalid_option_with_the_known_ones() -> None:
    """A typing error is told with what could have been meant."""
    with pytest.raises(InvalidOption, match=r"unknown option tll; known are .*ttl.*; did you mean ttl\?"):
        parse("memory://", {"tll": 3})
    for name in ("scheme", "endpoints"):
        with pytest.raises(InvalidOption, match=name):
            parse("memory://", {name: "x"})


NONSENSE: list[Any] = [
    float("nan"),
    float("inf"),
    -float("inf"),
    -1,
    0,
    True,
    False,
    "soon",
    "",
    "nan",
    "inf",
    "1e999",
    "-3",
    [],
    {},
    b"1",
    1j,
]


@pytest.mark.parametrize("option", ["ttl", "timeout", "tick"])
@pytest.mark.parametrize("value", NONSENSE)
def test_nonsense_number_of_seconds_raises_invalid_option(option: str, value: object) -> None:
    """NaN, infinities, booleans, words and what is not above zero are no durations."""
    with pytest.raises(InvalidOption, match=option):
        parse("memory://", {option: value})
    if isinstance(value, str):
        with pytest.raises(InvalidOption, match=option):
            parse(f"memory://?{option}={value}", {})


@pytest.mark.parametrize("value", [v for v in NONSENSE if v not in (0, False) or isinstance(v, bool)] + ["5"])
def test_nonsense_time_out_of_a_call_raises_invalid_option(value: float) -> None:
    """The same checks stand at acquire; 0 alone has a meaning there."""
    with tenure.connect("memory://options-time-out") as client, pytest.raises(InvalidOption, match="timeout"):
        client.lock("a").acquire(timeout=value)


@pytest.mark.parametrize("value", [*NONSENSE, TTL_MIN / 2, TTL_MAX * 2, "5"])
def test_nonsense_ttl_of_a_recipe_raises_invalid_option(value: float) -> None:
    """A recipe's own TTL is checked like the client's."""
    with tenure.connect("memory://options-ttl") as client:
        for make in (client.lock, client.rwlock, client.election):
            with pytest.raises(InvalidOption, match="ttl"):
                make("a", ttl=value)
        with pytest.raises(InvalidOption, match="ttl"):
            client.semaphore("a", limit=1, ttl=value)


@pytest.mark.parametrize("ttl", [TTL_MIN, 1, 15.5, TTL_MAX])
def test_ttl_within_its_bounds_is_taken(ttl: float) -> None:
    """Both ends belong to the range."""
    assert parse("memory://", {"ttl": ttl}).ttl == ttl


@pytest.mark.parametrize("ttl", [TTL_MIN * 0.99, TTL_MAX * 1.01])
def test_ttl_out_of_its_bounds_raises_invalid_option(ttl: float) -> None:
    """Neither a TTL that no renewal could keep up with nor one of weeks."""
    with pytest.raises(InvalidOption, match="ttl must be between"):
        parse("memory://", {"ttl": ttl})


@pytest.mark.parametrize("option", ["owner", "namespace", "user", "password", "ca", "cert", "key"])
@pytest.mark.parametrize("value", [7, b"x", ["x"], 1.5])
def test_option_that_must_be_text_raises_invalid_option(option: str, value: object) -> None:
    """A text option says which one it is, not what was in it."""
    with pytest.raises(InvalidOption, match=f"{option} must be a str"):
        parse("memory://", {option: value})


@pytest.mark.parametrize("value", ["maybe", "TRUE", 2, 1, [], "on"])
def test_tls_flag_that_is_no_flag_raises_invalid_option(value: object) -> None:
    """A switch about security is never guessed."""
    with pytest.raises(InvalidOption, match="tls"):
        parse("memory://", {"tls": value})


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("true", True), ("yes", True), ("0", False), ("false", False), (True, True)]
)
def test_tls_flag_is_read(value: object, expected: bool) -> None:
    """The words people use in URLs, and a bool in code."""
    assert parse("memory://", {"tls": value}).tls is expected


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text("x")
    return {name: str(tmp_path / name) for name in ("ca", "cert", "key")}


def test_tls_files_turn_tls_on(files: dict[str, str]) -> None:
    """Who names a certificate wants TLS."""
    assert parse("etcd://h", {"ca": files["ca"]}).tls
    found = parse(f"etcd://h?cert={files['cert']}&key={files['key']}", {})
    assert found.tls
    assert (found.cert, found.key) == (files["cert"], files["key"])


@pytest.mark.parametrize("option", ["ca", "cert", "key"])
def test_tls_file_that_is_missing_raises_invalid_option(option: str, files: dict[str, str], tmp_path: Path) -> None:
    """A missing file is told at connect, by its path, not at the first handshake."""
    for bad in (str(tmp_path / "nowhere"), str(tmp_path), "", "a\0b"):
        with pytest.raises(InvalidOption, match="no such file"):
            parse("etcd://h", files | {option: bad})


@pytest.mark.parametrize("alone", ["cert", "key"])
def test_half_of_a_key_pair_raises_invalid_option(alone: str, files: dict[str, str]) -> None:
    """A certificate without its key, or the other way round, can't work."""
    with pytest.raises(InvalidOption, match="go together"):
        parse("etcd://h", {alone: files[alone]})


def test_password_without_a_user_raises_invalid_option() -> None:
    """A password alone would be dropped in silence otherwise."""
    with pytest.raises(InvalidOption, match="without a user"):
        parse("etcd://h", {"password": SECRET})
    with pytest.raises(InvalidOption, match="without a user"):
        parse(f"etcd://:{SECRET}@h", {})


def everything_said(error: BaseException) -> str:
    """The message and those of all errors behind it, as a log of the whole chain would show them."""
    said = ""
    link: BaseException | None = error
    while link is not None:
        said += str(link) + repr(link)
        link = link.__cause__ or link.__context__
    return said


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://u:{SECRET}@h",
        f"etcd://u:{SECRET}@",
        f"etcd://u:{SECRET}@h:port",
        f"etcd://u:{SECRET}@h:0",
        f"etcd://u:{SECRET}@h,,",
        f"etcd://u:{SECRET}@h?x=1",
        f"etcd://u:{SECRET}@h#x",
        f"etcd://u:{SECRET}@h /x",
        f"etcd://u:{SECRET} @h",
        f"etcd://u:#{SECRET}@h",
        f"etcd://u:{SECRET}@h?ttl=no",
        f"etcd://u:{SECRET}@h/a//b",
        f"etcd://u:{SECRET}@h?ca=/nowhere",
        f"etcd://:{SECRET}@h",
        f"u:{SECRET}@h:2379",
    ],
)
def test_no_error_about_a_url_shows_its_password(url: str) -> None:
    """The message never shows the password, nor does what stands behind it."""
    with pytest.raises(TenureError) as raised:
        parse(url, {})
    assert SECRET not in everything_said(raised.value)


def test_options_show_everything_but_the_password() -> None:
    """repr, str and display are for logs."""
    found = parse(f"etcd://me:{SECRET}@h:1,[::1]:2/ns", {})
    assert found.password == SECRET
    for shown in (repr(found), str(found), f"{found}", found.display):
        assert SECRET not in shown
    assert "user='me'" in repr(found)
    assert found.display == "etcd://h:1,[::1]:2/ns"


def test_client_shows_neither_user_nor_password_anywhere() -> None:
    """repr of clients, locks and holds, statistics and messages name the store without credentials."""
    with tenure.connect(f"memory://me:{SECRET}@store-of-secrets/ns") as client:
        with client.lock("a") as hold:
            said = [repr(client), str(client), repr(client.lock("a")), repr(hold), str(client.statistics())]
        said.append(repr(client.election("e")) + repr(client.semaphore("s", limit=1)) + repr(client.rwlock("r")))
    said.append(repr(client))
    with pytest.raises(tenure.ClientClosed) as raised:
        client.lock("a").acquire()
    said.append(str(raised.value))
    assert SECRET not in "".join(said)
    assert "memory://store-of-secrets/ns" in said[0]


def test_display_of_each_store_is_one_word() -> None:
    """The store in one word, for messages."""
    assert parse("memory://", {}).display == "memory://default/tenure"
    assert parse("zookeeper://a,b/x/y", {}).display == "zookeeper://a:2181,b:2181/x/y"
    sockets = parse(f"http://me:{SECRET}@%2Frun%2Fapi.sock,h:1/x", {})
    assert sockets.display == "http://unix:/run/api.sock,h:1/x"
    assert SECRET not in repr(sockets)


def test_options_are_frozen() -> None:
    """A checked connection stays what was checked."""
    found = parse("memory://", {})
    assert isinstance(found, Options)
    with pytest.raises(AttributeError):
        found.ttl = 3.0  # type: ignore[misc]  # that it can't be set is the test


@pytest.mark.parametrize("option", ["ttl", "timeout", "tick"])
@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_number_beyond_all_floats_raises_invalid_option_that_stays_short(option: str, value: int) -> None:
    """An absurd integer is nonsense like infinity, and its four hundred digits are not put into a log."""
    with pytest.raises(InvalidOption, match=option) as raised:
        parse("memory://", {option: value})
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    "password", ["p\u2100ss", "s3[cr]et", "s3[cret", "s3]cret", "s3:cret", "s3@cret", "s3,cret", "\uff0fs3cret"]
)
def test_unusual_character_in_a_password_is_part_of_it_and_not_shown(password: str) -> None:
    """What urllib would stumble over, and then show, is a character like any other."""
    found = parse(f"etcd://u:{password}@h/ns", {})
    assert (found.user, found.password, found.namespace) == ("u", password, "ns")
    assert found.endpoints == (("h", 2379),)
    for shown in (repr(found), str(found), found.display):
        assert password not in shown


@pytest.mark.parametrize(
    "url",
    [
        f"etcd://u:{SECRET}/x@h",
        f"etcd://u:12/{SECRET}@h",
        f"etcd://u:{SECRET}?x@h",
        f"etcd://u:12?{SECRET}@h",
        f"etcd://u:12?ttl={SECRET}@h",
        f"etcd://u:x/@{SECRET}@h",
        f"etcd://u@h/{SECRET}@i",
        f"memory://u:12/{SECRET}@h",
        f"etcd://u:{SECRET}@[::1/x",
        f"etcd://u:{SECRET}@[h]/x",
        f"etcd://u:{SECRET}@h]/x",
    ],
)
def test_url_with_a_raw_delimiter_in_its_password_or_hosts_is_refused_without_showing_it(url: str) -> None:
    """A password cut in two by '/' or '?' becomes neither a namespace nor an option nor part of a message."""
    with pytest.raises(InvalidURL) as raised:
        parse(url, {})
    assert SECRET not in everything_said(raised.value)
