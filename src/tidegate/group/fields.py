"""How a value stands in a struct of the wire: its code, and the checks on the way back in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Any

from tidegate.errors import InvalidGroupName, MalformedFrame
from tidegate.group.status import NOBODY, Failure, PhaseStatus, Require, State

MAX_NAME = 64
"""Bytes of the name of a barrier, a member or a topic."""
MAX_TEXT = 255
"""Bytes of a text that only people read; a longer one is cut."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a frame. `take` raises `MalformedFrame` for what `put` never writes."""

    code: str
    put: Callable[[Any], Any]
    take: Callable[[Any], Any]


def _as_it_is(value: Any) -> Any:
    return value


def raw(length: int) -> Field:
    """So many bytes."""
    return Field(f"{length}s", _as_it_is, _as_it_is)


def one_of(kind: type[IntEnum]) -> Field:
    """A member of an enumeration."""

    known = {int(member): member for member in kind}

    def take(number: int) -> IntEnum:
        try:
            return known[number]
        except KeyError:
            raise MalformedFrame(f"{number} is no {kind.__name__}") from None

    return Field("B", _as_it_is, take)


def put_name(text: str) -> bytes:
    """A name as bytes, if it can be one."""
    data = text.encode(errors="surrogatepass")
    if not 0 < len(data) <= MAX_NAME or not text.isprintable():
        raise InvalidGroupName(text, MAX_NAME)
    return data


def _take_name(data: bytes) -> str:
    text = _take_text(data)
    if not text or not text.isprintable():
        raise MalformedFrame("a name that is empty or cannot be printed")
    return text


def _take_text(data: bytes) -> str:
    text = data.rstrip(b"\0")
    if b"\0" in text:
        raise MalformedFrame("a text goes on after its end")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise MalformedFrame("a text that is not UTF-8") from None


def _put_text(text: str) -> bytes:
    data = text.replace("\0", "").encode(errors="replace")[:MAX_TEXT]
    return data.decode(errors="ignore").encode()


def _take_truth(number: int) -> bool:
    if number > 1:
        raise MalformedFrame(f"{number} is neither true nor false")
    return bool(number)


_FLAGS = {number: Require(number) for number in range(8)}


def _take_flags(number: int) -> Require:
    try:
        return _FLAGS[number]
    except KeyError:
        raise MalformedFrame(f"unknown flags in {number:#x}") from None


def _put_seconds(seconds: float) -> float:
    return seconds + 0.0  # there is one zero on the wire


def _take_seconds(seconds: float) -> float:
    if not math.isfinite(seconds) or math.copysign(1.0, seconds) < 0:
        raise MalformedFrame(f"{seconds} is no number of seconds")
    return seconds


_DOUBLE = Struct("<d")
_NO_BOUND = _DOUBLE.pack(math.nan)  # one of the many that are not a number


def _put_bound(seconds: float | None) -> float:
    return math.nan if seconds is None else _put_seconds(seconds)


def _take_bound(seconds: float) -> float | None:
    return None if _DOUBLE.pack(seconds) == _NO_BOUND else _take_seconds(seconds)


_STATUS = Struct("<BBQQ")
_STATE, _FAILURE = one_of(State), one_of(Failure)


def _put_status(status: PhaseStatus) -> bytes:
    return _STATUS.pack(status.state, status.failure, status.offender, status.sequence)


@lru_cache(1024)
def _take_status(data: bytes) -> PhaseStatus:
    state, failure, offender, sequence = _STATUS.unpack(data)
    status = PhaseStatus(_STATE.take(state), _FAILURE.take(failure), offender, sequence)
    if status.is_good and (status.failure or status.offender != NOBODY):
        raise MalformedFrame("a phase that is well and fails")
    if not status.is_good and not status.failure:
        raise MalformedFrame("a phase that fails without a reason")
    return status


U32 = Field("I", _as_it_is, _as_it_is)
U64 = Field("Q", _as_it_is, _as_it_is)
NAME = Field(f"{MAX_NAME}s", put_name, _take_name)
TEXT = Field(f"{MAX_TEXT}s", _put_text, _take_text)
TRUTH = Field("B", _as_it_is, _take_truth)
FLAGS = Field("I", _as_it_is, _take_flags)
SECONDS = Field("d", _put_seconds, _take_seconds)
BOUND = Field("d", _put_bound, _take_bound)
"""Seconds, or none for what the group has agreed on."""
STATUS = Field(f"{_STATUS.size}s", _put_status, _take_status)
