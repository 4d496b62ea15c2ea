"""Kinds of fields that are made of others: arrays, objects, what may be null; and a few words of the lease's verbs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from holdfast.limits import TOKEN_MAX
from holdfast.sidecar.fields import Field, InvalidField, Kind, kind_of, read_object


class _InBodies:
    """Has no place in a query or a path."""

    def parse(self, name: str, text: str) -> NoReturn:
        raise InvalidField(f"{name} can't be written as text: {text[:20]!r}")


@dataclass(frozen=True, slots=True)
class Items(_InBodies):
    """An array of at most so many."""

    of: Kind
    most: int

    def read(self, name: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise InvalidField(f"{name} must be an array, not {kind_of(value)}")
        if len(value) > self.most:
            raise InvalidField(f"{name} may have at most {self.most} items, this one has {len(value)}")
        return [self.of.read(f"{name}[{index}]", item) for index, item in enumerate(value)]

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.of.schema(), "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class Shape(_InBodies):
    """An object with these fields."""

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
    """That, or null."""

    of: Kind

    def read(self, name: str, value: Any) -> Any:
        return None if value is None else self.of.read(name, value)

    def schema(self) -> dict[str, Any]:
        schema = self.of.schema()
        if isinstance(schema.get("type"), str):
            return {**schema, "type": [schema["type"], "null"]}
        return {"anyOf": [schema, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class OneOf(_InBodies):
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise InvalidField(f"{name} must be one of {', '.join(self.words)}")
        return value

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class NumberText(_InBodies):
    """A whole number in a string, as it was told: a version, a revision. It exceeds what a JSON number holds."""

    most: int = TOKEN_MAX

    def read(self, name: str, value: Any) -> int:
        if not isinstance(value, str):
            raise InvalidField(f"{name} must be a string of decimal digits, as it was told, not {kind_of(value)}")
        if not (value.isascii() and value.isdecimal()) or len(value) > 19 or int(value) > self.most:
            raise InvalidField(f"{name} must be a string of decimal digits, as it was told")
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
    """The JSON Schema of an object with these fields, and no others."""
    return {
        "type": "object",
        "properties": {field.name: field.schema() for field in fields},
        "required": [field.name for field in fields if field.required],
        "additionalProperties": False,
    }
