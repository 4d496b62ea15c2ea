"""The fields that requests may have: each says how it is read, strictly, and how the OpenAPI document shows it.

One table for both, so that neither can say what the other does not. A value of the wrong type is an error, never made
to fit; what a field may not be is told in one sentence with its name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

_REQUIRED: Final = object()
_CONTROLS: Final = r"\x00-\x1f\x7f-\x9f"
_CONTROL: Final = re.compile(f"[{_CONTROLS}]")


class InvalidField(Exception):
    """A field is wrong; the text is the sentence for whoever sent it."""


class NotJSON(Exception):
    """A body that is no JSON object; the text says why."""


class Kind(Protocol):
    """What a field may be."""

    def read(self, name: str, value: Any) -> Any:
        """The value, from JSON. Raises InvalidField."""

    def parse(self, name: str, text: str) -> Any:
        """The value, from a query or a path. Raises InvalidField."""

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string of so many bytes, without control characters unless it is `free`."""

    bytes_max: int
    least: int = 0
    free: bool = False

    def read(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise InvalidField(f"{name} must be a string, not {kind_of(value)}")
        return self.parse(name, value)

    def parse(self, name: str, text: str) -> str:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise InvalidField(f"{name} has half of a surrogate pair in it") from None
        if size < self.least:
            raise InvalidField(f"{name} can't be empty")
        if size > self.bytes_max:
            raise InvalidField(f"{name} may have at most {self.bytes_max} bytes, this one has {size}")
        if not self.free and _CONTROL.search(text):
            raise InvalidField(f"{name} has a control character in it; leave it out")
        return text

    def schema(self) -> dict[str, Any]:
        least = {"minLength": self.least} if self.least else {}
        allowed = {} if self.free else {"pattern": f"^[^{_CONTROLS}]*$"}
        return {"type": "string", **least, "maxLength": self.bytes_max, **allowed}


@dataclass(frozen=True, slots=True)
class Seconds:
    """A finite number."""

    least: float
    most: float

    def read(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidField(f"{name} must be a number of seconds, not {kind_of(value)}")
        if not self.least <= value <= self.most:  # also NaN, and ints beyond all floats
            raise InvalidField(f"{name} must be from {self.least:g} to {self.most:g} seconds")
        return float(value)

    def parse(self, name: str, text: str) -> float:
        try:
            number = float(text) if len(text) <= 40 else math.nan
        except ValueError:
            raise InvalidField(f"{name} must be a number of seconds") from None
        return self.read(name, number)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number."""

    least: int
    most: int

    def read(self, name: str, value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of number
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidField(f"{name} must be a whole number, not {kind_of(value)}")
        if not self.least <= value <= self.most:
            raise InvalidField(f"{name} must be from {self.least} to {self.most}")
        return value

    def parse(self, name: str, text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= 20):
            raise InvalidField(f"{name} must be a whole number from {self.least} to {self.most}")
        return self.read(name, int(text))

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    def read(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise InvalidField(f"{name} must be true or false, not {kind_of(value)}")
        return value

    def parse(self, name: str, text: str) -> bool:
        if text not in ("true", "false"):
            raise InvalidField(f"{name} must be true or false")
        return text == "true"

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class TokenText:
    """A fencing token: decimal digits in a string, as it exceeds what a JSON number holds in most languages."""

    def read(self, name: str, value: Any) -> int:
        if not isinstance(value, str):
            raise InvalidField(f"{name} must be a string of decimal digits, as it was told, not {kind_of(value)}")
        return self.parse(name, value)

    def parse(self, name: str, text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or len(text) > 19 or not 0 < int(text) < 2**63 or text[0] == "0":
            raise InvalidField(f"{name} must be a string of decimal digits, as it was told")
        return int(text)

    def schema(self) -> dict[str, Any]:
        return TOKEN_SCHEMA


TOKEN_SCHEMA: Final[dict[str, Any]] = {"type": "string", "pattern": "^[1-9][0-9]{0,18}$"}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a body, a query or a path."""

    name: str
    kind: Kind
    about: str
    default: Any = _REQUIRED
    example: Any = None

    @property
    def required(self) -> bool:
        """Must it be given?"""
        return self.default is _REQUIRED

    def schema(self) -> dict[str, Any]:
        """With what people want to know of it."""
        told = {"description": self.about, **self.kind.schema()}
        if not self.required and self.default is not None:
            told["default"] = self.default
        if self.example is not None:
            told["examples"] = [self.example]
        return told


def read_body(fields: Sequence[Field], raw: bytes) -> dict[str, Any]:
    """The fields of a JSON object, by name, each as its table says. Raises NotJSON, InvalidField."""
    return read_object(fields, _parsed(raw))


def read_object(fields: Sequence[Field], told: Mapping[str, Any]) -> dict[str, Any]:
    """The same for an object that was read before. Raises InvalidField."""
    _refuse_unknown(fields, told)
    return {
        field.name: field.kind.read(field.name, told[field.name]) if field.name in told else _default(field)
        for field in fields
    }


def read_query(fields: Sequence[Field], told: Mapping[str, str]) -> dict[str, Any]:
    """The same for a query. Raises InvalidField."""
    _refuse_unknown(fields, told)
    return {
        field.name: field.kind.parse(field.name, told[field.name]) if field.name in told else _default(field)
        for field in fields
    }


def _default(field: Field) -> Any:
    if field.required:
        raise InvalidField(f"{field.name} is missing: {field.about}")
    return field.default


def _refuse_unknown(fields: Sequence[Field], told: Mapping[str, Any]) -> None:
    known = {field.name for field in fields}
    unknown = [name for name in told if name not in known]
    if unknown:
        there = f"there are {', '.join(field.name for field in fields)}" if fields else "none is taken here"
        raise InvalidField(f"there is no field {unknown[0][:60]!r}; {there}")


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        told = _STRICT.decode(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise NotJSON("the body is not UTF-8") from None
    except RecursionError:
        raise NotJSON("the body is nested too deeply") from None
    except ValueError as error:  # also a number with more digits than Python reads
        raise NotJSON(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(told, dict):
        raise NotJSON(f"the body must be a JSON object, not {kind_of(told)}")
    return told


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice in an object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)


def kind_of(value: Any) -> str:
    """What JSON calls it."""
    names = {str: "a string", bool: "true or false", int: "a number", float: "a number", list: "an array"}
    return "null" if value is None else names.get(type(value), "an object")
