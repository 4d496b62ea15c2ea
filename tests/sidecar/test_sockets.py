"""The sockets of a service: one service at one place, and what was made is what is taken away."""

from __future__ import annotations

from contextlib import closing

import pytest

from holdfast.errors import InvalidOption
from holdfast.sidecar.settings import Address
from holdfast.sidecar.sockets import bound


def test_port_is_taken_before_its_service_has_begun() -> None:
    """Of two that are started in one moment the second is refused at once, and not when it has begun to lead."""
    with closing(bound(Address("127.0.0.1", 0))) as first:
        port = first.getsockname()[1]
        with pytest.raises(InvalidOption, match="Address already in use"):
            bound(Address("127.0.0.1", port)).close()
