"""Results as frames: a Spark DataFrame over the files, or an Arrow table in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate.spark.jobs.exchange import read, under
from tidegate.spark.results.result_streams import columns_of, tables
from tidegate.spark.session.sessions import open_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidegate.dataflow import Batch
    from tidegate.spark.session.sessions import Session


def result_rows(
    session: Session | None, root: str, batches: Sequence[Batch], schema: StructType
) -> DataFrame:
    """The rows as a DataFrame of the session given, or of the active session of this process."""
    used = session or SparkSession.getActiveSession() or open_session()
    return read(used, root, batches, schema)


def result_table(root: str, batches: Sequence[Batch], schema: StructType) -> pa.Table:
    """The rows as an Arrow table, with its columns also when there are none."""
    columns = columns_of(schema)
    return pa.concat_tables([columns.empty_table(), *tables(root, batches, columns)])


def result_files(root: str, batches: Sequence[Batch]) -> tuple[str, ...]:
    """The paths or URIs of the Parquet files."""
    return tuple(under(root, file) for batch in batches for file in batch.files)
