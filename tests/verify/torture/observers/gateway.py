"""etcd's JSON gateway, for an observer: one connection to one endpoint, calls with a bound, and one stream.

With a user, it logs in on every new connection: tokens run out.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

_CALL_SECONDS: Final = 1.5


class Gateway:
    """A client of etcd's gateway. For one thread, but for `break_off`, which any thread may call."""

    def __init__(self, host: str, port: int, login: tuple[str, str] | None) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=_CALL_SECONDS)
        self._login = login
        self._token = ""
        self._broken_off = False

    def call(self, path: str, request: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
        """Send one request and return its answer. Raises OSError, ValueError."""
        self._log_in()
        return self._answered(path, request)

    def stream(self, path: str, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Send one request and yield its answers, without an end. Raises OSError, ValueError."""
        self._log_in()
        with self._request(path, request) as response:
            if self._connection.sock is not None:
                self._connection.sock.settimeout(None)  # who breaks it off ends it
            if self._broken_off:  # before there was a socket to shut down
                raise ConnectionError("broken off")
            while line := _read(response.readline, path):
                answer = json.loads(line)
                if "error" in answer:
                    raise ConnectionError(str(answer["error"])[:200])
                yield answer

    def break_off(self) -> None:
        """Break the exchange off: its reader finds the end."""
        self._broken_off = True
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give back the connection."""
        self._connection.close()

    def _log_in(self) -> None:
        if self._login is not None and not self._token:
            name, password = self._login
            self._token = self._answered("/v3/auth/authenticate", {"name": name, "password": password})["token"]

    def _answered(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        with self._request(path, request) as response:
            answer = json.loads(_read(response.read, path))
        if response.status != http.client.OK or not isinstance(answer, dict):
            raise ConnectionError(f"{path}: {response.status} {str(answer)[:200]}")
        return answer

    def _request(self, path: str, request: dict[str, Any]) -> http.client.HTTPResponse:
        headers = {"Authorization": self._token} if self._token else {}
        try:
            self._connection.request("POST", path, json.dumps(request), headers)
            return self._connection.getresponse()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{path}: {type(error).__name__} {error}") from error


def _read(read: Callable[[], bytes], path: str) -> bytes:
    try:
        return read()
    except http.client.HTTPException as error:  # a server that was killed as it wrote
        raise ConnectionError(f"{path}: {type(error).__name__} {error}") from error
