"""Copying a chunk with Spark, which judges what no quicker way can."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import BadLine, ChunkNotCopied, NoSpace, UnreadableChunk
from tidegate.spark.analyze.schemas import empty_source
from tidegate.spark.ingest.locate_bad_value import find_bad_line, find_bad_value, may_be_a_value
from tidegate.spark.ingest.parquet_files import size
from tidegate.spark.ingest.parquet_writer import UNFINISHED, discard, gather, space_on
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
_UNSEEN = ("_", ".")
_SMALL_BYTES, _LARGE_FILES = 8 << 20, 4
"""A small chunk becomes one file; a large one several, which are read by several tasks."""


@dataclass(frozen=True, slots=True)
class VettedChunk:
    """A file that Spark may read: no line or value of it is too large."""

    source: str
    fields: Sequence[SourceField]
    file: str
    layout: Layout


def copy_by_spark(
    session: Session, chunk: VettedChunk, root: str, name: str, misfit: RunError | None = None
) -> Batch:
    """Copy a chunk as one job; `misfit` is what to raise if its types are to blame."""
    source, file = chunk.source, chunk.file
    if posixpath.basename(file).startswith(_UNSEEN):
        reason = f"Spark sees no file whose name begins with {' or '.join(_UNSEEN)}"
        raise UnreadableChunk(source, file, reason)
    schema = empty_source(session, chunk.fields).schema
    folder = name + UNFINISHED
    try:
        rows = read_chunks(session, source, schema, {file: chunk.layout})
        files = 1 if size(file) <= _SMALL_BYTES else _LARGE_FILES
        saving = rows.coalesce(files).write.mode("error").option("compression", CODEC)
        saving.parquet(under(root, folder))
        with space_on(root):
            return gather(root, folder, name)
    except SPARK_ERRORS as error:
        told = _told(session, chunk, schema, root, error)
        raise (misfit if misfit and isinstance(told, UnreadableChunk) else told) from error
    finally:
        discard(root, folder)


def _told(
    session: Session, chunk: VettedChunk, schema: StructType, root: str, error: Exception
) -> RunError:
    """What to say of a job that failed: what is wrong with the chunk, if that is the reason."""
    source, file, layout = chunk.source, chunk.file, chunk.layout
    cause = cause_of(error)
    if any(full in str(error) for full in _FULL):
        return NoSpace(root)
    if may_be_a_value(cause) and (bad := find_bad_value(session, source, schema, {file: layout})):
        return bad
    if cause.condition == _BAD_LINE:
        return BadLine(source, file, len(layout.columns), find_bad_line(file, layout))
    if cause.condition.startswith(_BROKEN):
        return UnreadableChunk(source, file, cause.reason.rstrip("."))
    return ChunkNotCopied(source, file, *cause)
