"""What requests ask for: their bodies and parameters, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from tidegate.errors import InvalidRequest

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_BYTES = 1 << 16
"""Of a body that is no chunk."""
LARGEST = 2**63 - 2
DIGITS = len(str(LARGEST))
SHOWN = 40
"""Characters of a wrong number that are repeated to who sent it."""

T = TypeVar("T")
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Beginning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run to begin. The bounds are seconds from then."""

    run: str
    warn_after: Seconds | None = None
    deadline: Seconds | None = None


class Ending(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many chunks a source has; without a number, those that are there."""

    chunks: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None


async def body_as(request: Request, kind: type[T]) -> T:
    """The body of a request; an empty one is an empty object. Raises `InvalidRequest`."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise InvalidRequest(f"its body has more than {MOST_BYTES} bytes")
    try:
        return msgspec.json.decode(bytes(body) or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(str(error)) from error


def asked_number(request: Request, name: str, default: int, most: int = LARGEST) -> int:
    """A parameter of the address; raises `InvalidRequest`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    number = _number(text)
    if number is None or number > most:
        raise InvalidRequest(f"{name} is {_short(text)}, and has to be a number from 0 to {most}")
    return number


def asked_chunk(request: Request) -> tuple[str, str, int]:
    """The run, the source and the number in the address of a chunk; raises `InvalidRequest`."""
    path = request.path_params
    number = _number(path["number"])
    if number is None:
        said = _short(path["number"])
        raise InvalidRequest(f"{said} is no number of a chunk; they are 1, 2, 3, …")
    return path["run"], path["source"], number


def _number(text: str) -> int | None:
    """None for what is none, and for what has more digits than any number that is taken."""
    is_one = len(text) <= DIGITS and text.isascii() and text.isdigit()
    return int(text) if is_one else None


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")
