"""A command's way to its store: the options that all of them share, and the client that comes of them.

`with_store` puts the options on a command and hands it a `StoreSession`. Nothing is opened before `client()` or
`operator()` is entered. What can't be opened is an error of tenure's tree; app.py makes one line and an exit code of
it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import click

import tenure
from tenure import jsonlog
from tenure._client import Operator
from tenure._core.base.options import ENVIRONMENT_VARIABLE, Options, parse
from tenure.cli.terminal import SecondsType
from tenure.errors import InvalidURL, UsageError

_FORM: Final = "etcd://HOST:PORT[,HOST:PORT…]/NAMESPACE, etcd+grpc://… or zookeeper://…"
_REQUEST_SECONDS_MAX: Final = 3600.0

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoreSession:
    """The store that the command line and the environment name."""

    url: str | None
    namespace: str | None
    request_timeout: float | None

    @contextmanager
    def client(self, **options: Any) -> Iterator[tenure.Client]:
        """A client of the store; `options` are those of `connect`. Raises InvalidURL, UsageError."""
        url = self.checked_url()
        given = {"namespace": self.namespace, "timeout": self.request_timeout, **options}
        with tenure.connect(url, **given) as client:
            yield client

    @contextmanager
    def operator(self, **options: Any) -> Iterator[Operator]:
        """An operator of the store; its client is closed at the end."""
        with self.client(**options) as client:
            yield client.operator()

    @property
    def display(self) -> str:
        """The store and its namespace in one word, for people; no password. Raises InvalidURL, UsageError."""
        return self.parsed().display

    def parsed(self) -> Options:
        """Parse the URL and the options. Raises InvalidURL, UsageError."""
        return parse(self.checked_url(), {"namespace": self.namespace, "timeout": self.request_timeout})

    def checked_url(self) -> str:
        """The URL, which can be read and is not of a store in memory. Raises InvalidURL."""
        if not self.url:
            raise InvalidURL(f"no store is named: give --url URL, or set {ENVIRONMENT_VARIABLE}; a URL is {_FORM}")
        try:
            scheme = parse(self.url, {}).scheme
        except InvalidURL:
            raise
        except UsageError as error:  # an option in the URL, or its namespace
            raise InvalidURL(f"the URL can't be used: {error}") from error
        if scheme == "memory":
            raise InvalidURL(f"a memory:// store lives in one process and ends with it; name a store, {_FORM}")
        return self.url


def with_store(command: Callable[Concatenate[StoreSession, Arguments], Result]) -> Callable[Arguments, Result]:
    """Put the options of the store on a command whose first parameter is the `StoreSession`."""

    @functools.wraps(command)
    def taking_options(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        if options.pop("log_json"):
            jsonlog.switch_on()
        session = StoreSession(*(options.pop(name) for name in ("url", "namespace", "request_timeout")))  # type: ignore[arg-type]  # as declared below
        return command(session, *arguments, **options)

    for option in reversed(_OPTIONS):
        taking_options = option(taking_options)
    return taking_options


_OPTIONS: Final = (
    click.option(
        "--url",
        envvar=ENVIRONMENT_VARIABLE,
        show_envvar=True,
        metavar="URL",
        help="Where the store is. A password is better kept in the environment: others can read a command line.",
    ),
    click.option("--namespace", metavar="NAME", help="Another namespace than the URL's."),
    click.option(
        "--request-timeout",
        type=SecondsType(0.05, _REQUEST_SECONDS_MAX),
        metavar="SECONDS",
        help="How long one exchange with the store may take, retries included (5, or the URL's).",
    ),
    click.option(
        "--log-json",
        is_flag=True,
        envvar="TENURE_LOG_JSON",
        show_envvar=True,
        help="Write what happens to standard error, as one JSON object a line.",
    ),
)
