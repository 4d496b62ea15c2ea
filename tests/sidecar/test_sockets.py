"""The sockets of a service: one service at one place, and what was made is what is taken away."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from holdfast.errors import InvalidOption
from holdfast.sidecar.settings import Address
from holdfast.sidecar.sockets import bound


def test_port_is_taken_before_its_service_has_begun() -> None:
    """Of two that are started in one moment the second is refused at once, and not when it has begun to lead."""
    with bound(Address("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(InvalidOption, match="Address already in use"), bound(Address("127.0.0.1", port)):
            pass


def test_socket_of_a_successor_stays(tmp_path: Path) -> None:
    """A service that listens no longer, and ends later, takes away its own file and no other."""
    path = tmp_path / "holdfast.sock"
    address = Address(path=str(path))
    with contextlib.ExitStack() as ending:
        ending.enter_context(bound(address)).close()
        with bound(address):
            ending.close()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
        assert not path.exists()


def test_file_that_was_taken_away_already_is_not_missed(tmp_path: Path) -> None:
    """Somebody cleaned up: the service ends all the same."""
    path = tmp_path / "holdfast.sock"
    with bound(Address(path=str(path))):
        path.unlink()
