"""Messages between a server and its chunk checkers: frames of MessagePack of known types.

A checker reads files of clients, so its answers are not trusted: they are decoded into these types,
and no class or function is looked up by a name in them, except for the refusals listed here.
"""

from __future__ import annotations

import struct
from dataclasses import fields
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from tidegate import errors
from tidegate.dataflow import Batch
from tidegate.spark.ingest.layouts import Layout

if TYPE_CHECKING:
    from socket import socket

LONGEST_ANSWER = 16 << 20
_LENGTH = struct.Struct(">I")
_LEAST_SECONDS = 0.001

REFUSALS = {
    it.__name__: it
    for it in (
        errors.BadLine,
        errors.BadValue,
        errors.ChunkDecodesTooLarge,
        errors.ChunkNeedsMemory,
        errors.LineTooLong,
        errors.MissingColumns,
        errors.NoSpace,
        errors.NoSuchChunk,
        errors.RowGroupTooLarge,
        errors.UnknownFormat,
        errors.UnreadableChunk,
        errors.ValueTooLarge,
        errors.WrongColumnType,
    )
}
"""The errors by which a checker may refuse a chunk."""


class DeclaredField(msgspec.Struct, frozen=True):
    """A `SourceField` for checkers, which do not import `tidegate.pipeline`."""

    name: str
    type: str


class Check(msgspec.Struct, frozen=True):
    """A request: check this file, and copy it below `root` to a file called `name`."""

    source: str
    fields: tuple[DeclaredField, ...]
    file: str
    root: str
    name: str


class Copied(msgspec.Struct, frozen=True, tag=True):
    """The chunk is valid, and copied."""

    files: tuple[str, ...]
    rows: int
    bytes: int

    @property
    def batch(self) -> Batch:
        """The copy."""
        return Batch(self.files, self.rows, self.bytes)


class NeedsSpark(msgspec.Struct, frozen=True, tag=True):
    """Only Spark can read the chunk; it is within the limits."""

    layout: Layout
    wrong_type: tuple[str, str] | None = None
    """The column, and its type in the file, that an error names if Spark cannot read the file."""


class ChunkRefused(msgspec.Struct, frozen=True, tag=True):
    """The chunk is refused."""

    condition: str
    fields: dict[str, str | int | float | tuple[str, ...] | None]

    @classmethod
    def by(cls, error: errors.RunError) -> ChunkRefused:
        """Encode an error."""
        values = {it.name: getattr(error, it.name) for it in fields(error)}
        return cls(error.condition, values)

    @property
    def error(self) -> errors.RunError:
        """The decoded error. Raises `msgspec.ValidationError` if it is none of `REFUSALS`."""
        kind = REFUSALS.get(self.condition)
        if kind is None:
            raise msgspec.ValidationError(f"no refusal is called {self.condition[:80]!r}")
        names = {it.name for it in fields(kind)}
        if names != self.fields.keys():
            raise msgspec.ValidationError(f"{self.condition} has other fields")
        error: errors.RunError = msgspec.convert(self.fields, kind)
        return error


class CheckFailed(msgspec.Struct, frozen=True, tag=True):
    """The checker could not copy the chunk; the cause may be outside of it."""

    condition: str
    reason: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The checker has started."""


Answer: TypeAlias = Copied | NeedsSpark | ChunkRefused | CheckFailed
_DECODERS: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def send(connection: socket, message: msgspec.Struct) -> None:
    """Send one message."""
    body = msgspec.msgpack.encode(message)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def receive(connection: socket, kind: Any, deadline: float = inf) -> Any:
    """Receive one message of this type, before a `monotonic` deadline.

    Raises `EOFError`, `TimeoutError`, `msgspec.DecodeError`.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline))
    if length > LONGEST_ANSWER:
        raise msgspec.DecodeError(f"a message of {length:,} bytes")
    decoder = _DECODERS.setdefault(kind, msgspec.msgpack.Decoder(kind))
    return decoder.decode(_exactly(connection, length, deadline))


def _exactly(connection: socket, length: int, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < length:
        if deadline < inf:
            connection.settimeout(max(_LEAST_SECONDS, deadline - monotonic()))
        piece = connection.recv(min(length - len(received), 1 << 16))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)
