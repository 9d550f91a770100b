"""Chunks that exceed a limit, or that end the process that checks them.

Each limit is a setting; its name is in the sentence. A file that exceeds one is refused before
anything is recorded, and leaves no file behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.errors.runs import RunError


@dataclass(eq=False)
class ChunkDecodesTooLarge(RunError):
    """A delivered file stands for more bytes than a chunk may have."""

    source: str
    file: str
    sent: int
    limit: int
    says: ClassVar[str] = (
        "{file}, {sent:,} bytes for source {source!r}, decodes to more than {limit:,} bytes;"
        " deliver it as several chunks, or raise the settings chunk_decoded_bytes and"
        " chunk_decoded_ratio"
    )


@dataclass(eq=False)
class ValueTooLarge(RunError):
    """A delivered file has a single value that is too large."""

    source: str
    file: str
    column: str
    bytes: int
    limit: int
    says: ClassVar[str] = (
        "{file} has a value of {bytes:,} bytes in column {column} of source {source!r}; the"
        " setting chunk_value_bytes allows {limit:,}"
    )


@dataclass(eq=False)
class LineTooLong(RunError):
    """A line of a delivered CSV file is too long."""

    source: str
    file: str
    line: int
    limit: int
    says: ClassVar[str] = (
        "{file}, line {line}: longer than {limit:,} bytes, which the setting chunk_line_bytes"
        " allows; correct the line, which was to be a row of source {source!r}"
    )


@dataclass(eq=False)
class ChunkNeedsMemory(RunError):
    """A delivered file could not be read in the memory that checking a chunk may take."""

    source: str
    file: str
    limit: int
    says: ClassVar[str] = (
        "{file} cannot be read as a chunk of source {source!r} in {limit:,} bytes of memory;"
        " write it with smaller row groups or record batches, or raise the setting"
        " chunk_memory_bytes"
    )


@dataclass(eq=False)
class RowGroupTooLarge(RunError):
    """A row group of a delivered Parquet file takes more memory than Spark is given for it."""

    source: str
    file: str
    limit: int
    says: ClassVar[str] = (
        "{file}, a chunk of source {source!r}, has stored types that only Spark can judge, and"
        " reading one of its row groups takes more than {limit:,} bytes; write it with smaller row"
        " groups, declare its columns as they are stored, or raise the setting chunk_spark_bytes"
    )


@dataclass(eq=False)
class ChunkTooSlow(RunError):
    """Reading a delivered file took longer than checking a chunk may take."""

    source: str
    file: str
    seconds: float
    says: ClassVar[str] = (
        "{file} was not read as a chunk of source {source!r} within {seconds:g} s; deliver it as"
        " several chunks, or raise the setting chunk_seconds"
    )


@dataclass(eq=False)
class ChunkCrashedChecker(RunError):
    """A delivered file ended the process that read it, and another one after that."""

    source: str
    file: str
    how: str
    says: ClassVar[str] = (
        "{file} is no readable chunk of source {source!r}: it ended two processes that read it,"
        " the last one by {how}; write the file again"
    )


@dataclass(eq=False)
class CheckerUnavailable(RunError):
    """No process is available to check a chunk. The chunk is not the reason."""

    retryable: ClassVar[bool] = True
    source: str
    file: str
    reason: str
    says: ClassVar[str] = (
        "{file}, a chunk of source {source!r}, was not checked: {reason}; try again"
    )
