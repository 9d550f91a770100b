"""What requests ask for: their bodies and parameters, checked."""

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
"""Of a body that is no chunk."""
BODY = 60.0
"""Seconds within which the body of a request has to arrive."""
LARGEST = 2**63 - 2
DIGITS = len(str(LARGEST))
SHOWN = 40
"""Characters of a wrong number that are repeated to who sent it."""

T = TypeVar("T")
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
LATEST = "latest"
LEAST = {"every": 0.1, "pause": 0.1, "retained": 1}
"""Of the numbers that say how a run is cut; otherwise 0. So no client takes the time of all."""
MOST = {"retained": 1000}
"""The same; otherwise 10⁹."""


@dataclass(frozen=True, slots=True)
class CheckpointSelector:
    """One cut of a run."""

    number: int | None
    """None for the latest."""


class BeginRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run to begin. The bounds are seconds from then."""

    run: str
    warn_after: Seconds | None = None
    deadline: Seconds | None = None
    checkpoints: dict[str, object] | None = None
    """The fields of a `Checkpoints` that are not as usual."""

    def checkpoint_options(self) -> Checkpoints | None:
        """How the run is to be cut, if that was said; raises `InvalidRequest`."""
        return None if self.checkpoints is None else _checkpoints(self.checkpoints)


class TakeCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint to begin; an unaligned one waits for nobody, and is not shown."""

    unaligned: bool = False


class RestoreRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cut at which a run is to begin again; without a number, the latest."""

    checkpoint: Annotated[int, msgspec.Meta(ge=1, le=LARGEST)] | None = None


class EndSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many chunks a source has; without a number, those that are there."""

    chunks: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None


def _checkpoints(given: Mapping[str, object]) -> Checkpoints:
    unknown = given.keys() - {field.name for field in fields(Checkpoints)}
    if unknown:
        raise InvalidRequest(f"no run is cut by {_short(min(unknown))}")
    for name, value in given.items():
        least, most = LEAST.get(name, 0), MOST.get(name, 1_000_000_000)
        if isinstance(value, int | float) and not least <= value <= most:
            raise InvalidRequest(f"{name} of cutting has to be a number from {least} to {most}")
    try:
        return msgspec.convert(given, Checkpoints)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"cutting: {error}") from error


async def decode_body(request: Request, kind: type[T], seconds: float = BODY) -> T:
    """The body of a request; an empty one is an empty object.

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
    """A parameter of the address; raises `InvalidRequest`."""
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
        said = _short(path["number"])
        raise InvalidRequest(f"{said} is no number of a chunk; they are 1, 2, 3, …")
    return path["run"], path["source"], number


def parse_checkpoint(text: str) -> CheckpointSelector:
    """A cut by its number, or the latest; raises `InvalidRequest`."""
    number = None if text == LATEST else _number(text)
    if text != LATEST and not number:
        said = _short(text)
        raise InvalidRequest(f"{said} is no cut; there is {LATEST!r}, and there are 1, 2, 3, …")
    return CheckpointSelector(number)


def _number(text: str) -> int | None:
    """None for what is none, and for what has more digits than any number that is taken."""
    is_one = len(text) <= DIGITS and text.isascii() and text.isdigit()
    return int(text) if is_one else None


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")
