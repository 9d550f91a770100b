"""Codecs of flow values: stored as JSON, decoded as the declared types."""

from __future__ import annotations

import re
from functools import cached_property
from math import isfinite
from typing import Any

import msgspec

from tidegate.errors import InvalidFlowValue

_ENCODER = msgspec.json.Encoder()
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""A NUL character in JSON, not an escaped backslash before u0000."""


_FOR_PEOPLE = frozenset({"title", "description", "default", "examples", "discriminator"})
_BY_NAME = frozenset({"properties", "$defs"})
_LITERAL = frozenset({"enum", "required"})
_UNFIT = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
"""Errors for values that JSON cannot represent."""
MAX_CHARS = 200_000_000
"""Characters of a value; close to the limit of PostgreSQL for one document."""


class Codec:
    """Encodes and decodes values of one type; `of` describes them in errors."""

    def __init__(self, of: str, type_: Any) -> None:
        self.of = of
        self.type = type_

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.type)

    def check(self) -> None:
        """Raise `TypeError` for a type that JSON cannot represent."""
        msgspec.json.schema(self.type)
        _ = self._decoder

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The type as JSON Schema, without titles and descriptions."""
        slim: dict[str, Any] = _slim(msgspec.json.schema(self.type))
        return slim

    def encode(self, value: object) -> str:
        """JSON that decodes to the same type; raises `InvalidFlowValue`."""
        try:
            text = _ENCODER.encode(value).decode()
            self._decoder.decode(text)
        except _UNFIT as error:
            raise InvalidFlowValue(self.of, _short(value), str(error)) from error
        if "null" in text and value is not None and not _is_finite(msgspec.to_builtins(value)):
            raise InvalidFlowValue(
                self.of, _short(value), "NaN and infinity are not numbers in JSON"
            )
        check_storable(self.of, value, text)
        return text

    def decode(self, text: str) -> Any:
        """Decode a value; raises `InvalidFlowValue`."""
        try:
            return self._decoder.decode(text)
        except msgspec.MsgspecError as error:
            raise InvalidFlowValue(self.of, _short(text), str(error)) from error


def _is_finite(value: object) -> bool:
    """Whether all numbers are finite; others would be decoded as null."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(_is_finite(it) for it in value.values())
    return not isinstance(value, list | tuple) or all(_is_finite(it) for it in value)


def _slim(schema: Any, *, is_named: bool = False) -> Any:
    """A schema without titles, descriptions and defaults; `is_named`: its keys are user names.

    >>> _slim({"title": "A", "properties": {"title": {"type": "string", "default": "x"}}})
    {'properties': {'title': {'type': 'string'}}}
    """
    if isinstance(schema, list):
        return [_slim(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: it if key in _LITERAL else _slim(it, is_named=not is_named and key in _BY_NAME)
        for key, it in schema.items()
        if is_named or key not in _FOR_PEOPLE
    }


def check_storable(of: str, value: object, text: str) -> None:
    """Raise `InvalidFlowValue` for JSON that PostgreSQL cannot store: NUL, or too large."""
    if len(text) > MAX_CHARS:
        reason = f"it has {len(text):,} characters; store it elsewhere and pass a reference"
        raise InvalidFlowValue(of, _short(text[:200]), reason)
    if "u0000" in text and _NUL.search(text):
        raise InvalidFlowValue(of, _short(value), "it contains a NUL character")


def _short(value: object, longest: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= longest else f"{text[:longest]}…"
