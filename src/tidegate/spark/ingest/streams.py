"""Streams as sources: every micro-batch of a Spark streaming DataFrame is handed over as rows.

Spark numbers the batches of a stream and gives one again, with the same number and the same rows,
when it is not sure that it was taken. So the number tells a repetition. Over Connect the function
that takes a batch would run in the server's process, which has neither the pipeline nor the
database: such a stream is refused.
"""

from __future__ import annotations

import json
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, TypeAlias

from pyarrow.fs import FileSelector
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.errors import MissingColumns, NotAStream, StreamOverConnect, WrongColumnType
from tidegate.spark.analyze.schemas import column, empty_source
from tidegate.spark.ingest.parquet_files import locate
from tidegate.spark.ingest.parquet_writer import UNFINISHED, discard, gather, space_on
from tidegate.spark.jobs.exchange import CODEC, under
from tidegate.spark.session.jvm_liveness import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.dataflow import Batch
    from tidegate.pipeline.nodes import SourceField

Rows: TypeAlias = DataFrame
"""Rows of Spark's, for rooms that do not know it."""
Stream: TypeAlias = StreamingQuery
"""A stream at work."""
STREAM = "the stream"


def check_stream(source: str, fields: Sequence[SourceField], rows: DataFrame) -> None:
    """Refuse what is no stream, cannot be followed, or has other columns than the source."""
    if is_remote(rows.sparkSession):
        raise StreamOverConnect(source)
    if not rows.isStreaming:
        raise NotAStream(source)
    found = {name.casefold(): kind for name, kind in _types(rows)}
    missing = tuple(it.name for it in fields if it.name.casefold() not in found)
    if missing:
        raise MissingColumns(source, STREAM, missing, tuple(rows.columns))
    declared = empty_source(rows.sparkSession, fields)
    for name, kind in _types(declared):
        if found[name.casefold()] != kind:
            raise WrongColumnType(source, STREAM, name, found[name.casefold()], kind)


def follow(
    rows: DataFrame,
    take: Callable[[DataFrame, int], None],
    checkpoint: str,
    every: float | None,
    name: str,
) -> StreamingQuery:
    """Start to hand over the batches of a stream, numbered from 0; with `every`, in this rhythm.

    Without, it takes what there is and ends.
    """
    writer = rows.writeStream.queryName(name).option("checkpointLocation", checkpoint)
    rhythm = {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}
    return writer.trigger(**rhythm).foreachBatch(take).start()


def is_ended(stream: Stream, within: float) -> bool:
    """Whether a stream ends in time, be it by an error."""
    with suppress(StreamingQueryException):
        return bool(stream.awaitTermination(ceil(within)))
    return True


def failure_of(stream: Stream) -> str:
    """Why a stream has ended; empty where that was no error."""
    failure = None if stream.isActive else stream.exception()
    return str(failure).partition("\n")[0] if failure is not None else ""


def stream_id(checkpoint: str) -> str:
    """By which Spark knows a stream again, from where it remembers how far that has come."""
    system, folder = locate(checkpoint)
    with system.open_input_stream(f"{folder.rstrip('/')}/metadata") as file:
        return str(json.loads(file.read())["id"])


def planned_batch(checkpoint: str) -> int | None:
    """The last batch that Spark has planned, be it taken or not; None before the first."""
    system, folder = locate(checkpoint)
    selector = FileSelector(f"{folder.rstrip('/')}/offsets", allow_not_found=True)
    names = (info.base_name for info in system.get_file_info(selector))
    return max((int(name) for name in names if name.isdecimal()), default=None)


def copy_rows(fields: Sequence[SourceField], rows: DataFrame, root: str, name: str) -> Batch:
    """Copy the declared columns of a batch to files below `root` whose names begin with `name`."""
    folder = name + UNFINISHED
    try:
        declared = rows.select(*(column(it.name).alias(it.name) for it in fields))
        saving = declared.write.mode("error").option("compression", CODEC)
        saving.parquet(under(root, folder))
        with space_on(root):
            return gather(root, folder, name)
    finally:
        discard(root, folder)


def _types(rows: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in rows.schema]
