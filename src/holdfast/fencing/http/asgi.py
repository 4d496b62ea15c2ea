"""What ASGI passes around, and the header both sides agree on."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from holdfast.errors import InvalidOption

# Any: what ASGI passes around are dictionaries of anything.
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADER: Final = "Fencing-Token"
"""The header that carries `str(hold.fence)`, unless both sides are told another."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}\Z")


def header_name(header: str) -> str:
    """`header`, if it can be the name of one. Raises InvalidOption."""
    if not isinstance(header, str) or not _HEADER_NAME.match(header):
        raise InvalidOption(f"not the name of a header: {str(header)[:60]!r}")
    return header
