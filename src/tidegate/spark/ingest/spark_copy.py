"""Copies a chunk with Spark, where Arrow might read it differently."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import BadLine, ChunkNotCopied, NoSpace, UnreadableChunk
from tidegate.spark.analyze.schemas import empty_source
from tidegate.spark.ingest.locate_bad_value import find_bad_line, find_bad_value, is_bad_value
from tidegate.spark.ingest.parquet_files import size
from tidegate.spark.ingest.parquet_writer import UNFINISHED, discard, move_files, space_on
from tidegate.spark.ingest.readers import read_chunks
from tidegate.spark.jobs.exchange import CODEC, under
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS, cause_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from tidegate.dataflow import Batch
    from tidegate.errors import RunError
    from tidegate.pipeline.nodes import SourceField
    from tidegate.spark.ingest.layouts import Layout
    from tidegate.spark.session.sessions import Session

_BAD_LINE = "MALFORMED_CSV_RECORD"
_BROKEN = ("FAILED_READ_FILE", "PARQUET_", "CANNOT_READ_FILE_FOOTER", "CANNOT_MERGE_SCHEMAS")
_FULL = ("No space left on device", "Disk quota exceeded")
_HIDDEN = ("_", ".")
_SMALL_BYTES, _LARGE_FILES = 8 << 20, 4
"""A small chunk becomes one file; a larger one several, for several tasks."""


@dataclass(frozen=True, slots=True)
class ValidatedChunk:
    """A file within the limits: no line or value is too large for Spark."""

    source: str
    fields: Sequence[SourceField]
    file: str
    layout: Layout


def copy_by_spark(
    session: Session,
    chunk: ValidatedChunk,
    root: str,
    name: str,
    wrong_type: RunError | None = None,
) -> Batch:
    """Copy a chunk as one job; `wrong_type` is raised in place of `UnreadableChunk`."""
    source, file = chunk.source, chunk.file
    if posixpath.basename(file).startswith(_HIDDEN):
        reason = f"Spark ignores files whose names start with {' or '.join(_HIDDEN)}"
        raise UnreadableChunk(source, file, reason)
    schema = empty_source(session, chunk.fields).schema
    folder = name + UNFINISHED
    try:
        rows = read_chunks(session, source, schema, {file: chunk.layout})
        files = 1 if size(file) <= _SMALL_BYTES else _LARGE_FILES
        saving = rows.coalesce(files).write.mode("error").option("compression", CODEC)
        saving.parquet(under(root, folder))
        with space_on(root):
            return move_files(root, folder, name)
    except SPARK_ERRORS as error:
        cause = _error_for(session, chunk, schema, root, error)
        raise (
            wrong_type if wrong_type and isinstance(cause, UnreadableChunk) else cause
        ) from error
    finally:
        discard(root, folder)


def _error_for(
    session: Session, chunk: ValidatedChunk, schema: StructType, root: str, error: Exception
) -> RunError:
    """The error of a failed job: that of the chunk, if the chunk is the cause."""
    source, file, layout = chunk.source, chunk.file, chunk.layout
    cause = cause_of(error)
    if any(full in str(error) for full in _FULL):
        return NoSpace(root)
    if is_bad_value(cause) and (bad := find_bad_value(session, source, schema, {file: layout})):
        return bad
    if cause.condition == _BAD_LINE:
        return BadLine(source, file, len(layout.columns), find_bad_line(file, layout))
    if cause.condition.startswith(_BROKEN):
        return UnreadableChunk(source, file, cause.reason.rstrip("."))
    return ChunkNotCopied(source, file, *cause)
