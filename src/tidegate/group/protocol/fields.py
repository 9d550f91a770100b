"""Field types of wire frames: struct code, encoding, and validation on decoding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Any

from tidegate.errors import InvalidGroupName, MalformedFrame
from tidegate.group.status import NO_MEMBER, Failure, PhaseStatus, Require, State

MAX_NAME = 64
"""Bytes of the name of a barrier, a member or a topic."""
MAX_TEXT = 255
"""Bytes of a display text; a longer one is truncated."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a frame. `take` raises `MalformedFrame` for values that `put` never writes."""

    code: str
    put: Callable[[Any], Any]
    take: Callable[[Any], Any]


def _unchanged(value: Any) -> Any:
    return value


def raw(length: int) -> Field:
    """A fixed number of bytes."""
    return Field(f"{length}s", _unchanged, _unchanged)


def enum_field(kind: type[IntEnum]) -> Field:
    """A value of an enumeration."""
    known = {int(member): member for member in kind}

    def take(number: int) -> IntEnum:
        try:
            return known[number]
        except KeyError:
            raise MalformedFrame(f"{number} is not a {kind.__name__}") from None

    return Field("B", _unchanged, take)


def put_name(text: str) -> bytes:
    """Encode a name; raises `InvalidGroupName`."""
    data = text.encode(errors="surrogatepass")
    if not 0 < len(data) <= MAX_NAME or not text.isprintable():
        raise InvalidGroupName(text, MAX_NAME)
    return data


def _take_name(data: bytes) -> str:
    text = _take_text(data)
    if not text or not text.isprintable():
        raise MalformedFrame("name is empty or not printable")
    return text


def _take_text(data: bytes) -> str:
    text = data.rstrip(b"\0")
    if b"\0" in text:
        raise MalformedFrame("text continues after its terminating zero")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise MalformedFrame("text is not UTF-8") from None


def _put_text(text: str) -> bytes:
    data = text.replace("\0", "").encode(errors="replace")[:MAX_TEXT]
    return data.decode(errors="ignore").encode()


def _take_bool(number: int) -> bool:
    if number > 1:
        raise MalformedFrame(f"{number} is not a boolean")
    return bool(number)


_FLAGS = {number: Require(number) for number in range(8)}


def _take_flags(number: int) -> Require:
    try:
        return _FLAGS[number]
    except KeyError:
        raise MalformedFrame(f"unknown flags in {number:#x}") from None


def _put_seconds(seconds: float) -> float:
    return seconds + 0.0  # -0.0 becomes 0.0, so that a value has one encoding


def _take_seconds(seconds: float) -> float:
    if not math.isfinite(seconds) or math.copysign(1.0, seconds) < 0:
        raise MalformedFrame(f"{seconds} is not a number of seconds")
    return seconds


_DOUBLE = Struct("<d")
_NO_BOUND = _DOUBLE.pack(math.nan)  # one of the many encodings of NaN


def _put_bound(seconds: float | None) -> float:
    return math.nan if seconds is None else _put_seconds(seconds)


def _take_bound(seconds: float) -> float | None:
    return None if _DOUBLE.pack(seconds) == _NO_BOUND else _take_seconds(seconds)


_STATUS = Struct("<BBQQ")
_STATE, _FAILURE = enum_field(State), enum_field(Failure)


def _put_status(status: PhaseStatus) -> bytes:
    return _STATUS.pack(status.state, status.failure, status.offender, status.sequence)


@lru_cache(1024)
def _take_status(data: bytes) -> PhaseStatus:
    state, failure, offender, sequence = _STATUS.unpack(data)
    status = PhaseStatus(_STATE.take(state), _FAILURE.take(failure), offender, sequence)
    if status.is_good and (status.failure or status.offender != NO_MEMBER):
        raise MalformedFrame("a satisfied phase has a failure or an offender")
    if not status.is_good and not status.failure:
        raise MalformedFrame("a failed phase has no failure reason")
    return status


U32 = Field("I", _unchanged, _unchanged)
U64 = Field("Q", _unchanged, _unchanged)
NAME = Field(f"{MAX_NAME}s", put_name, _take_name)
TEXT = Field(f"{MAX_TEXT}s", _put_text, _take_text)
BOOL = Field("B", _unchanged, _take_bool)
FLAGS = Field("I", _unchanged, _take_flags)
SECONDS = Field("d", _put_seconds, _take_seconds)
BOUND = Field("d", _put_bound, _take_bound)
"""Seconds, or none for the group's default."""
STATUS = Field(f"{_STATUS.size}s", _put_status, _take_status)
