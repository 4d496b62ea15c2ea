"""Counters of the servers themselves: etcd's /metrics and /health, ZooKeeper's four-letter words.

Every call is one fresh connection with a time limit. Plain text only: a cluster with TLS keeps a plain port for
this, `Member.metrics_endpoint`, which on a cluster without TLS may be the client endpoint itself.
"""

from __future__ import annotations

import http.client
import re
import socket

PROBE_SECONDS = 2.0
_ANSWER_BYTES_MAX = 4 * 1024 * 1024
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^}]*\})?) (\S+)")


def etcd_counters(endpoint: str) -> dict[str, float]:
    """Every sample of the member's /metrics by its full text name, e.g. `grpc_server_started_total{...}`.

    Short names are added for what tests count most: `started:<Method>`, `sent:<Method>` and `received:<Method>`.
    The numbers start at zero when the server process starts.

    Raises OSError when the member does not answer.
    """
    samples = _parse_metrics(_get(endpoint, "/metrics"))
    return samples | _by_method(samples)


def etcd_is_healthy(endpoint: str) -> bool:
    """Whether the member says it can serve a linearizable read. Raises OSError when it does not answer."""
    return '"health":"true"' in _get(endpoint, "/health").replace(" ", "")


def zookeeper_counters(endpoint: str) -> dict[str, float]:
    """The numeric lines of `mntr`, e.g. `zk_packets_received`, `zk_ephemerals_count`, `zk_watch_count`.

    Asking is itself counted: each call adds to the packet counters. Raises OSError when the server does not answer;
    returns an empty dict while it is outside a quorum.
    """
    counters: dict[str, float] = {}
    for line in zk_four_letter(endpoint, "mntr").splitlines():
        name, _, value = line.partition("\t")
        if _is_number(value):
            counters[name] = float(value)
    return counters


def zk_four_letter(endpoint: str, word: str) -> str:
    """The server's whole answer to a four-letter word. Raises OSError when it does not answer in time."""
    with connect(endpoint) as connection:
        connection.sendall(word.encode("ascii"))
        return _read_to_end(connection).decode("utf-8", "replace")


def connect(endpoint: str) -> socket.socket:
    """A fresh connection, with a time limit. Raises OSError where nobody listens."""
    return socket.create_connection(_address(endpoint), timeout=PROBE_SECONDS)


def _get(endpoint: str, path: str) -> str:
    host, port = _address(endpoint)
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_SECONDS)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        return connection.getresponse().read(_ANSWER_BYTES_MAX).decode("utf-8", "replace")
    except http.client.HTTPException as error:
        raise OSError(f"{endpoint} did not answer GET {path} with HTTP: {error!r}") from error
    finally:
        connection.close()


def _parse_metrics(text: str) -> dict[str, float]:
    matches = (_SAMPLE.match(line) for line in text.splitlines())
    return {match[1]: float(match[2]) for match in matches if match}


_METHOD_COUNTERS = (
    ("started", "grpc_server_started_total"),
    ("sent", "grpc_server_msg_sent_total"),
    ("received", "grpc_server_msg_received_total"),
)


def _by_method(samples: dict[str, float]) -> dict[str, float]:
    short: dict[str, float] = {}
    for label, metric in _METHOD_COUNTERS:
        for name, value in samples.items():
            method = re.search(r'grpc_method="([^"]+)"', name)
            if method and name.startswith(metric + "{"):
                key = f"{label}:{method[1]}"
                short[key] = short.get(key, 0.0) + value
    return short


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _address(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    return host, int(port)


def _read_to_end(connection: socket.socket) -> bytes:
    answer = b""
    while len(answer) < _ANSWER_BYTES_MAX:
        piece = connection.recv(65536)
        if not piece:
            return answer
        answer += piece
    raise OSError(f"the answer is longer than {_ANSWER_BYTES_MAX} bytes")
