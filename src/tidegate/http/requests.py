"""Bodies and parameters of requests, validated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from tidegate.checkpoint import Checkpoints
from tidegate.errors import InvalidRequest, RequestStalled

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_BYTES = 1 << 16
"""Size limit of a JSON body."""
BODY = 60.0
"""Seconds within which the body of a request has to arrive."""
LARGEST = 2**63 - 2
DIGITS = len(str(LARGEST))
SHOWN = 40
"""Characters of an invalid value that an error message repeats."""

T = TypeVar("T")
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
LATEST = "latest"
LEAST = {"every": 0.1, "pause": 0.1, "retained": 1}
"""Least values of checkpoint options; otherwise 0. They keep one client from using all capacity."""
MOST = {"retained": 1000}
"""Largest values; otherwise 10⁹."""


@dataclass(frozen=True, slots=True)
class CheckpointSelector:
    """One checkpoint of a run."""

    number: int | None
    """None for the latest."""


class BeginRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body that begins a run. The bounds are in seconds from its begin."""

    run: str
    warn_after: Seconds | None = None
    deadline: Seconds | None = None
    checkpoints: dict[str, object] | None = None
    """The fields of a `Checkpoints` that differ from the defaults."""

    def checkpoint_options(self) -> Checkpoints | None:
        """The checkpoint options, if given; raises `InvalidRequest`."""
        return None if self.checkpoints is None else _checkpoints(self.checkpoints)


class TakeCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body that triggers a checkpoint; an unaligned one does not wait, and is not published."""

    unaligned: bool = False


class RestoreRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body that restores a run from a checkpoint; without a number, from the latest."""

    checkpoint: Annotated[int, msgspec.Meta(ge=1, le=LARGEST)] | None = None


class EndSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body that ends a source: its number of chunks; without it, those delivered so far."""

    chunks: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None


def _checkpoints(given: Mapping[str, object]) -> Checkpoints:
    unknown = given.keys() - {field.name for field in fields(Checkpoints)}
    if unknown:
        raise InvalidRequest(f"unknown checkpoint option {_short(min(unknown))}")
    for name, value in given.items():
        least, most = LEAST.get(name, 0), MOST.get(name, 1_000_000_000)
        if isinstance(value, int | float) and not least <= value <= most:
            raise InvalidRequest(f"checkpoints.{name} has to be a number from {least} to {most}")
    try:
        return msgspec.convert(given, Checkpoints)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"checkpoints: {error}") from error


async def decode_body(request: Request, kind: type[T], seconds: float = BODY) -> T:
    """The decoded body of a request; an empty body is an empty object.

    Raises `InvalidRequest`, `RequestStalled`.
    """
    try:
        async with asyncio.timeout(seconds):
            body = await _body(request)
        return msgspec.json.decode(body or b"{}", type=kind)
    except TimeoutError:
        raise RequestStalled(seconds) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(str(error)) from error


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise InvalidRequest(f"its body has more than {MOST_BYTES} bytes")
    return bytes(body)


def query_number(request: Request, name: str, default: int, most: int = LARGEST) -> int:
    """A number among the query parameters; raises `InvalidRequest`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    number = _number(text)
    if number is None or number > most:
        raise InvalidRequest(f"{name} is {_short(text)}, and has to be a number from 0 to {most}")
    return number


def chunk_address(request: Request) -> tuple[str, str, int]:
    """The run, the source and the number in the address of a chunk; raises `InvalidRequest`."""
    path = request.path_params
    number = _number(path["number"])
    if number is None:
        given = _short(path["number"])
        raise InvalidRequest(f"{given} is not a chunk number; chunks are numbered 1, 2, 3, …")
    return path["run"], path["source"], number


def parse_checkpoint(text: str) -> CheckpointSelector:
    """A checkpoint by its number, or the latest; raises `InvalidRequest`."""
    number = None if text == LATEST else _number(text)
    if text != LATEST and not number:
        raise InvalidRequest(f"{_short(text)} is not a checkpoint; use {LATEST!r} or 1, 2, 3, …")
    return CheckpointSelector(number)


def _number(text: str) -> int | None:
    """None if the text is not a number, or has more digits than the largest allowed one."""
    is_number = len(text) <= DIGITS and text.isascii() and text.isdigit()
    return int(text) if is_number else None


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")
