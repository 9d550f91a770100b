"""Limits on what a chunk decodes to, and a meter that enforces them.

A file may decode to far more than its own bytes, by compression and dictionaries. So bytes are
counted as they are decoded, and reading ends at the limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import compute, types

from tidegate.errors import ChunkDecodesTooLarge, LineTooLong, ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidegate.settings import Settings

FLOOR_BYTES = 256 << 20
"""Bytes that any chunk may decode to, however small its file is."""
ALWAYS_TIMES = 4
"""The factor that any file may grow by, however large it is."""
_MIB = 1 << 20


class ChunkLimits(msgspec.Struct, frozen=True):
    """The limits of one chunk; the settings of the same names, without `chunk_`."""

    value_bytes: int
    line_bytes: int
    decoded_bytes: int
    decoded_ratio: int
    memory_bytes: int
    spark_bytes: int
    seconds: float

    @classmethod
    def from_settings(cls, settings: Settings) -> ChunkLimits:
        """The limits that a deployment has set."""
        return cls(**{name: getattr(settings, f"chunk_{name}") for name in cls.__struct_fields__})

    def decoded(self, sent: int) -> int:
        """How many bytes a file of `sent` bytes may decode to."""
        by_ratio = max(FLOOR_BYTES, self.decoded_ratio * sent)
        return min(by_ratio, max(self.decoded_bytes, ALWAYS_TIMES * sent))

    def duration(self, sent: int) -> float:
        """How many seconds checking a file of `sent` bytes may take."""
        return self.seconds + sent / _MIB


@dataclass(slots=True)
class Meter:
    """Counts what one reading of a file decodes. Each method raises if a limit is exceeded."""

    limits: ChunkLimits
    source: str
    file: str
    sent: int
    decoded: int = 0

    def count(self, size: int) -> None:
        """Count decoded bytes."""
        self.decoded += size
        limit = self.limits.decoded(self.sent)
        if self.decoded > limit:
            raise ChunkDecodesTooLarge(self.source, self.file, self.sent, limit)

    def pieces(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces of text, counted, their lines measured."""
        lines = _Lines(self.limits.line_bytes)
        for piece in pieces:
            self.count(len(piece))
            if lines.is_too_long(piece):
                raise LineTooLong(self.source, self.file, lines.number, self.limits.line_bytes)
            yield piece

    def tables(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The same tables, counted, their values measured."""
        for table in tables:
            size = table.nbytes
            if size > self.limits.value_bytes:
                self.measure(table)  # first, because its error names a column
            self.count(size)
            yield table

    def measured(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The same tables, their values measured; their text was counted before."""
        for table in tables:
            self.measure(table)
            yield table

    def measure(self, table: pa.Table | pa.RecordBatch) -> None:
        """Raise `ValueTooLarge` for a value beyond the limit."""
        if table.nbytes <= self.limits.value_bytes:
            return
        for name, column in zip(table.schema.names, table.columns, strict=True):
            size = widest(column)
            if size > self.limits.value_bytes:
                raise ValueTooLarge(self.source, self.file, name, size, self.limits.value_bytes)


def widest(column: pa.Array | pa.ChunkedArray) -> int:
    """The bytes of the largest value of a column; of nested values, of their largest part."""
    if isinstance(column, pa.ChunkedArray):
        return max(map(widest, column.chunks), default=0)
    kind = column.type
    if types.is_dictionary(kind):
        return widest(column.dictionary)
    if types.is_nested(kind):
        return _widest_nested(column)
    if types.is_binary(kind) or types.is_string(kind) or _is_large(kind):
        return int(compute.max(compute.binary_length(column)).as_py() or 0)
    return 0


def _widest_nested(column: pa.Array) -> int:
    """A list or map is one value, whose size is that of all its elements."""
    if types.is_struct(column.type):
        return max(map(widest, column.flatten()), default=0)
    elements = column.flatten()
    longest = int(compute.max(compute.list_value_length(column)).as_py() or 0)
    per_element = elements.nbytes / max(1, len(elements))
    return max(widest(elements), int(longest * per_element))


def _is_large(kind: pa.DataType) -> bool:
    return bool(types.is_large_binary(kind) or types.is_large_string(kind))


class _Lines:
    """Measures lines of text in pieces. Any of \\n, \\r and \\r\\n ends one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun = 0
        """Bytes of the last line so far."""
        self._is_after_return = False
        self.number = 1
        """Of the last line that was begun, or of the one that is too long."""

    def is_too_long(self, piece: bytes) -> bool:
        """Whether a line is too long, including its part in earlier pieces."""
        first, last = _first_end(piece), last_line_end(piece)
        if self._begun + (len(piece) if first < 0 else first) > self._most:
            return True
        if first < 0:
            self._begun += len(piece)
            self._is_after_return &= not piece
            return False
        if len(piece) > self._most and self._has_long(piece):
            return True
        self._begun = len(piece) - last - 1
        self.number += self._ends(piece)
        self._is_after_return = piece.endswith(b"\r")
        return self._begun > self._most

    def _has_long(self, piece: bytes) -> bool:
        letters = np.frombuffer(piece, np.uint8)
        places = np.flatnonzero((letters == ord("\n")) | (letters == ord("\r")))
        long = np.flatnonzero(np.diff(places) - 1 > self._most)
        if len(long):
            self.number += self._ends(piece[: int(places[long[0]]) + 1])
        return bool(len(long))

    def _ends(self, piece: bytes) -> int:
        # numpy counts bytes ten times as fast as `bytes.count`.
        feeds = int(np.count_nonzero(np.frombuffer(piece, np.uint8) == ord("\n")))
        others = piece.count(b"\r") - piece.count(b"\r\n") if b"\r" in piece else 0
        goes_on = self._is_after_return and piece.startswith(b"\n")
        return feeds + others - goes_on


def _first_end(piece: bytes) -> int:
    feed = piece.find(b"\n")
    back = piece.find(b"\r", 0, feed if feed >= 0 else len(piece))
    return back if back >= 0 else feed


def last_line_end(piece: bytes) -> int:
    """The position of the last line end of a piece; -1 if there is none."""
    feed = piece.rfind(b"\n")
    return max(feed, piece.rfind(b"\r", feed + 1))
