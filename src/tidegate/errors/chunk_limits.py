"""Chunks that exceed a limit, or that end the process that checks them.

Each limit is a setting; its name is in the sentence. A file that exceeds one is refused before
anything is recorded, and leaves no file behind.
"""

from __future__ import annotations

from tidegate.errors.runs import RunError


class ChunkDecodesTooLarge(RunError):
    """A delivered file stands for more bytes than a chunk may have."""

    http_status = 413

    source: str
    file: str
    sent: int
    limit: int
    message = (
        "{file}, {sent:,} bytes for source {source!r}, decodes to more than {limit:,} bytes;"
        " deliver it as several chunks, or raise the settings chunk_decoded_bytes and"
        " chunk_decoded_ratio"
    )


class ValueTooLarge(RunError):
    """A delivered file has a single value that is too large."""

    http_status = 413

    source: str
    file: str
    column: str
    bytes: int
    limit: int
    message = (
        "{file} has a value of {bytes:,} bytes in column {column} of source {source!r}; the"
        " setting chunk_value_bytes allows {limit:,}"
    )


class LineTooLong(RunError):
    """A line of a delivered CSV file is too long."""

    http_status = 413

    source: str
    file: str
    line: int
    limit: int
    message = (
        "{file}, line {line}: longer than {limit:,} bytes, which the setting chunk_line_bytes"
        " allows; correct the line, which was to be a row of source {source!r}"
    )


class ChunkNeedsMemory(RunError):
    """A delivered file could not be read in the memory that checking a chunk may take."""

    http_status = 413

    source: str
    file: str
    limit: int
    message = (
        "{file} cannot be read as a chunk of source {source!r} in {limit:,} bytes of memory;"
        " write it with smaller row groups or record batches, or raise the setting"
        " chunk_memory_bytes"
    )


class RowGroupTooLarge(RunError):
    """A row group of a delivered Parquet file takes more memory than Spark is given for it."""

    http_status = 413

    source: str
    file: str
    limit: int
    message = (
        "{file}, a chunk of source {source!r}, has stored types that only Spark can judge, and"
        " reading one of its row groups takes more than {limit:,} bytes; write it with smaller row"
        " groups, declare its columns as they are stored, or raise the setting chunk_spark_bytes"
    )


class ChunkTooSlow(RunError):
    """Reading a delivered file took longer than checking a chunk may take."""

    http_status = 413

    source: str
    file: str
    seconds: float
    message = (
        "{file} was not read as a chunk of source {source!r} within {seconds:g} s; deliver it as"
        " several chunks, or raise the setting chunk_seconds"
    )


class ChunkCrashedChecker(RunError):
    """A delivered file ended the process that read it, and another one after that."""

    http_status = 422

    source: str
    file: str
    how: str
    message = (
        "{file} is no readable chunk of source {source!r}: it ended two processes that read it,"
        " the last one by {how}; write the file again"
    )


class CheckerUnavailable(RunError):
    """No process is available to check a chunk. The chunk is not the reason."""

    http_status = 503

    retryable = True
    source: str
    file: str
    reason: str
    message = "{file}, a chunk of source {source!r}, was not checked: {reason}; try again"
