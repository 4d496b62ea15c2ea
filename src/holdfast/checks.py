"""Range checks on what users pass in. Each returns the value in the one form used inside."""

from __future__ import annotations

import math

from holdfast.errors import InvalidOption
from holdfast.limits import LOCK_DELAY_MAX, SEATS_MAX, TTL_MAX, TTL_MIN, VALUE_BYTES_MAX


def seconds(value: object, what: str, *, least: float, most: float = math.inf) -> float:
    """A finite number of seconds within [least, most]. Raises InvalidOption."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
        raise InvalidOption(f"{what} must be a finite number of seconds, not {_shown(value)}")
    if not least <= value <= most:
        raise InvalidOption(f"{what} must be between {least:g} and {most:g} seconds, not {_shown(value)}")
    return float(value)


def _shown(value: object) -> str:
    """`value` for a message, whatever it is."""
    try:
        return repr(value)[:40]
    except ValueError:  # an int of more digits than Python writes out
        return f"a very large {type(value).__name__}"


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def ttl(value: object) -> float:
    """A time to live to ask for. What the store grants may be more, and then rules."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0:
        raise InvalidOption(f"ttl must be above 0 seconds, not {_shown(value)}")
    return seconds(value, "ttl", least=TTL_MIN, most=TTL_MAX)


def timeout(value: object) -> float | None:
    """How long a call may wait; None for as long as the lease lives."""
    return None if value is None else seconds(value, "timeout", least=0.0)


def lock_delay(value: object) -> float:
    """How much longer than it is believed in a lease stands at the store. Raises InvalidOption."""
    return seconds(value, "lock_delay", least=0.0, most=LOCK_DELAY_MAX)


def count(value: object, what: str, *, least: int = 1, most: int = SEATS_MAX) -> int:
    """A whole number from `least` to `most`. Raises InvalidOption."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidOption(f"{what} must be a whole number from {least} to {most}, not {_shown(value)}")
    return value


def text(value: object) -> str:
    """A value others may read, such as a leader's address. Raises InvalidOption."""
    if not isinstance(value, str):
        raise InvalidOption(f"a value is a str, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidOption(f"a value must be encodable as UTF-8: {error}") from error
    if size > VALUE_BYTES_MAX:
        raise InvalidOption(
            f"a value may have at most {VALUE_BYTES_MAX} bytes, this one has {size}; store it elsewhere and pass "
            "a reference"
        )
    return value
