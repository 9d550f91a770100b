"""Streams as sources: every micro-batch of a Spark streaming DataFrame is ingested as rows.

Spark numbers the batches of a stream and repeats one, with the same number and the same rows, if it
has not recorded its completion. So a repetition is recognised by its number. Over Connect the
function that receives a batch would run in the server's process, which has neither the pipeline nor
the database: such a stream is refused.
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
from tidegate.spark.ingest.parquet_writer import UNFINISHED, discard, move_files, space_on
from tidegate.spark.jobs.exchange import CODEC, under
from tidegate.spark.session.jvm_liveness import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.dataflow import Batch
    from tidegate.pipeline.nodes import SourceField

Rows: TypeAlias = DataFrame
"""Rows of Spark, for packages that do not import it."""
StreamQuery: TypeAlias = StreamingQuery
"""A running stream."""
STREAM = "the stream"


def check_stream(source: str, fields: Sequence[SourceField], rows: DataFrame) -> None:
    """Refuse rows that are no stream, come over Connect, or lack columns of the source."""
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
    """Start to pass the batches of a stream to `take`, numbered from 0, one per `every` seconds.

    With `every` None, it processes the available rows and ends.
    """
    writer = rows.writeStream.queryName(name).option("checkpointLocation", checkpoint)
    trigger = {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}
    return writer.trigger(**trigger).foreachBatch(take).start()


def is_ended(stream: StreamQuery, within: float) -> bool:
    """Whether a stream ends within the time, also by an error."""
    with suppress(StreamingQueryException):
        return bool(stream.awaitTermination(ceil(within)))
    return True


def failure_of(stream: StreamQuery) -> str:
    """The error that ended a stream; empty if there was none."""
    failure = None if stream.isActive else stream.exception()
    return str(failure).partition("\n")[0] if failure is not None else ""


def stream_id(checkpoint: str) -> str:
    """The id of a stream, from its Spark checkpoint folder."""
    system, folder = locate(checkpoint)
    with system.open_input_stream(f"{folder.rstrip('/')}/metadata") as file:
        return str(json.loads(file.read())["id"])


def planned_batch(checkpoint: str) -> int | None:
    """The last batch that Spark has planned, processed or not; None before the first."""
    system, folder = locate(checkpoint)
    selector = FileSelector(f"{folder.rstrip('/')}/offsets", allow_not_found=True)
    names = (info.base_name for info in system.get_file_info(selector))
    return max((int(name) for name in names if name.isdecimal()), default=None)


def copy_rows(fields: Sequence[SourceField], rows: DataFrame, root: str, name: str) -> Batch:
    """Copy the declared columns of a batch to files below `root` whose names start with `name`."""
    folder = name + UNFINISHED
    try:
        declared = rows.select(*(column(it.name).alias(it.name) for it in fields))
        saving = declared.write.mode("error").option("compression", CODEC)
        saving.parquet(under(root, folder))
        with space_on(root):
            return move_files(root, folder, name)
    finally:
        discard(root, folder)


def _types(rows: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in rows.schema]
