"""Values of flows travel as JSON and come back as the types that were declared for them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from tidegate.errors import InvalidFlowValue

_ENCODER = msgspec.json.Encoder()
NUL = "\\u0000"
"""What PostgreSQL has no text for."""


class Codec:
    """Writes and reads values of one type; `of` says in errors whose values they are."""

    def __init__(self, of: str, type_: Any) -> None:
        self.of = of
        self.type = type_

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.type)

    def check(self) -> None:
        """Raise `TypeError` for a type that JSON cannot carry."""
        msgspec.json.schema(self.type)
        _ = self._decoder

    def encode(self, value: object) -> str:
        """As JSON from which the same value can be read again, or `InvalidFlowValue`."""
        try:
            text = _ENCODER.encode(value).decode()
            self._decoder.decode(text)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise InvalidFlowValue(self.of, _short(value), str(error)) from error
        if NUL in text:
            raise InvalidFlowValue(self.of, _short(value), "it holds a NUL character")
        return text

    def decode(self, text: str) -> Any:
        """What was encoded."""
        try:
            return self._decoder.decode(text)
        except msgspec.MsgspecError as error:
            raise InvalidFlowValue(self.of, _short(text), str(error)) from error


def _short(value: object, longest: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= longest else f"{text[:longest]}…"
