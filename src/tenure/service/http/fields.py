"""Fields of requests: how each kind is read, strictly, and how the OpenAPI document shows it.

One table serves both, so that neither can say what the other does not. A value of the wrong type is an error, and is
never converted; the error is one sentence with the field's name.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

from tenure._core.base.limits import TOKEN_MAX

_REQUIRED: Final = object()
_CONTROLS: Final = r"\x00-\x1f\x7f-\x9f"
_CONTROL: Final = re.compile(f"[{_CONTROLS}]")


class InvalidField(Exception):
    """A field is wrong; the text is the sentence for the client."""


class NotJSON(Exception):
    """The body is no JSON object; the text says why."""


class FieldKind(Protocol):
    """A kind of field: how its values are read and documented."""

    def read(self, name: str, value: Any) -> Any:
        """Read a value from JSON. Raises InvalidField."""

    def parse(self, name: str, text: str) -> Any:
        """Read a value from a query or a path. Raises InvalidField."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of such values."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string of at most `bytes_max` bytes, without control characters unless it is `free`."""

    bytes_max: int
    minimum: int = 0
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
        if size < self.minimum:
            raise InvalidField(f"{name} can't be empty")
        if size > self.bytes_max:
            raise InvalidField(f"{name} may have at most {self.bytes_max} bytes, this one has {size}")
        if not self.free and _CONTROL.search(text):
            raise InvalidField(f"{name} has a control character in it; leave it out")
        return text

    def schema(self) -> dict[str, Any]:
        minimum = {"minLength": self.minimum} if self.minimum else {}
        allowed = {} if self.free else {"pattern": f"^[^{_CONTROLS}]*$"}
        return {"type": "string", **minimum, "maxLength": self.bytes_max, **allowed}


@dataclass(frozen=True, slots=True)
class SecondsField:
    """A number of seconds, finite."""

    minimum: float
    maximum: float

    def read(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidField(f"{name} must be a number of seconds, not {kind_of(value)}")
        if not self.minimum <= value <= self.maximum:  # also NaN, and ints beyond all floats
            raise InvalidField(f"{name} must be from {self.minimum:g} to {self.maximum:g} seconds")
        return float(value)

    def parse(self, name: str, text: str) -> float:
        try:
            number = float(text) if len(text) <= 40 else math.nan
        except ValueError:
            raise InvalidField(f"{name} must be a number of seconds") from None
        return self.read(name, number)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number."""

    minimum: int
    maximum: int

    def read(self, name: str, value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of number
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidField(f"{name} must be a whole number, not {kind_of(value)}")
        if not self.minimum <= value <= self.maximum:
            raise InvalidField(f"{name} must be from {self.minimum} to {self.maximum}")
        return value

    def parse(self, name: str, text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= 20):
            raise InvalidField(f"{name} must be a whole number from {self.minimum} to {self.maximum}")
        return self.read(name, int(text))

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Flag:
    """A boolean."""

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
            raise InvalidField(f"{name} must be a string of decimal digits, as it was sent, not {kind_of(value)}")
        return self.parse(name, value)

    def parse(self, name: str, text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or len(text) > 19 or not 0 < int(text) < 2**63 or text[0] == "0":
            raise InvalidField(f"{name} must be a string of decimal digits, as it was sent")
        return int(text)

    def schema(self) -> dict[str, Any]:
        return TOKEN_SCHEMA


TOKEN_SCHEMA: Final[dict[str, Any]] = {"type": "string", "pattern": "^[1-9][0-9]{0,18}$"}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a body, a query or a path."""

    name: str
    kind: FieldKind
    about: str
    default: Any = _REQUIRED
    example: Any = None

    @property
    def required(self) -> bool:
        """True for a field that must be given."""
        return self.default is _REQUIRED

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the field: its kind's, with description, default and example."""
        schema = {"description": self.about, **self.kind.schema()}
        if not self.required and self.default is not None:
            schema["default"] = self.default
        if self.example is not None:
            schema["examples"] = [self.example]
        return schema


def read_body(fields: Sequence[Field], raw: bytes) -> dict[str, Any]:
    """Read the fields of a body, a JSON object. Raises NotJSON, InvalidField."""
    return read_object(fields, _parsed(raw))


def read_object(fields: Sequence[Field], given: Mapping[str, Any]) -> dict[str, Any]:
    """Read the fields of an object within a body. Raises InvalidField."""
    _refuse_unknown(fields, given)
    return {
        field.name: field.kind.read(field.name, given[field.name]) if field.name in given else _default(field)
        for field in fields
    }


def read_query(fields: Sequence[Field], given: Mapping[str, str]) -> dict[str, Any]:
    """Read the fields of a query or a path. Raises InvalidField."""
    _refuse_unknown(fields, given)
    return {
        field.name: field.kind.parse(field.name, given[field.name]) if field.name in given else _default(field)
        for field in fields
    }


def _default(field: Field) -> Any:
    if field.required:
        raise InvalidField(f"{field.name} is missing: {field.about}")
    return field.default


def _refuse_unknown(fields: Sequence[Field], given: Mapping[str, Any]) -> None:
    known = {field.name for field in fields}
    unknown = [name for name in given if name not in known]
    if unknown:
        there = f"there are {', '.join(field.name for field in fields)}" if fields else "none is taken here"
        raise InvalidField(f"there is no field {unknown[0][:60]!r}; {there}")


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = _STRICT.decode(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise NotJSON("the body is not UTF-8") from None
    except RecursionError:
        raise NotJSON("the body is nested too deeply") from None
    except ValueError as error:  # also a number with more digits than Python reads
        raise NotJSON(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(body, dict):
        raise NotJSON(f"the body must be a JSON object, not {kind_of(body)}")
    return body


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice in an object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)


def kind_of(value: Any) -> str:
    """Return JSON's name for the type of a value."""
    names = {str: "a string", bool: "true or false", int: "a number", float: "a number", list: "an array"}
    return "null" if value is None else names.get(type(value), "an object")


class _InBodies:
    """A kind that is read from bodies only, not from a query or a path."""

    def parse(self, name: str, text: str) -> NoReturn:
        raise InvalidField(f"{name} can't be written as text: {text[:20]!r}")


@dataclass(frozen=True, slots=True)
class Items(_InBodies):
    """An array of at most `maximum` items."""

    of: FieldKind
    maximum: int

    def read(self, name: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise InvalidField(f"{name} must be an array, not {kind_of(value)}")
        if len(value) > self.maximum:
            raise InvalidField(f"{name} may have at most {self.maximum} items, this one has {len(value)}")
        return [self.of.read(f"{name}[{index}]", item) for index, item in enumerate(value)]

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.of.schema(), "maxItems": self.maximum}


@dataclass(frozen=True, slots=True)
class Shape(_InBodies):
    """An object with fields of its own."""

    fields: tuple[Field, ...]

    def read(self, name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InvalidField(f"{name} must be an object, not {kind_of(value)}")
        try:
            return read_object(self.fields, value)
        except InvalidField as error:
            raise InvalidField(f"in {name}: {error}") from None

    def schema(self) -> dict[str, Any]:
        return object_schema(self.fields)


@dataclass(frozen=True, slots=True)
class Maybe(_InBodies):
    """A value of another kind, or null."""

    of: FieldKind

    def read(self, name: str, value: Any) -> Any:
        return None if value is None else self.of.read(name, value)

    def schema(self) -> dict[str, Any]:
        schema = self.of.schema()
        if isinstance(schema.get("type"), str):
            return {**schema, "type": [schema["type"], "null"]}
        return {"anyOf": [schema, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class OneOf(_InBodies):
    """A string out of a few words."""

    words: tuple[str, ...]

    def read(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise InvalidField(f"{name} must be one of {', '.join(self.words)}")
        return value

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class NumberText(_InBodies):
    """A whole number in a string, as the service sent it: a version, a revision. Too large for a JSON number."""

    maximum: int = TOKEN_MAX

    def read(self, name: str, value: Any) -> int:
        if not isinstance(value, str):
            raise InvalidField(f"{name} must be a string of decimal digits, as it was sent, not {kind_of(value)}")
        if not (value.isascii() and value.isdecimal()) or len(value) > 19 or int(value) > self.maximum:
            raise InvalidField(f"{name} must be a string of decimal digits, as it was sent")
        return int(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": "^[0-9]{1,19}$"}


@dataclass(frozen=True, slots=True)
class Blob(_InBodies):
    """Bytes, in base64."""

    bytes_max: int

    def read(self, name: str, value: Any) -> bytes:
        if not isinstance(value, str):
            raise InvalidField(f"{name} must be bytes in base64, not {kind_of(value)}")
        try:
            found = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidField(f"{name} is not base64") from None
        if len(found) > self.bytes_max:
            raise InvalidField(f"{name} may have at most {self.bytes_max} bytes, this one has {len(found)}")
        return found

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "contentEncoding": "base64", "maxLength": (self.bytes_max + 2) // 3 * 4}


def object_schema(fields: Sequence[Field]) -> dict[str, Any]:
    """Return the JSON Schema of an object with these fields, and no others."""
    return {
        "type": "object",
        "properties": {field.name: field.schema() for field in fields},
        "required": [field.name for field in fields if field.required],
        "additionalProperties": False,
    }
