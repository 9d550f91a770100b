"""Batches: rows on their way between stages, as Parquet files.

A batch is written once, under a folder that no other attempt ever writes to: a Spark server may
finish a write long after its client died. Whoever commits a step names the exact files; files
that nobody names do not exist.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import functions as fn

from tidegate.spark.files import parquet_files, parquet_rows
from tidegate.spark.schemas import column, empty

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from tidegate.spark.sessions import Session

CODEC = "lz4_raw"
"""Batches are read once, soon, and nearby: cheap to write matters more than small."""

_SHARD = "tidegate_shard"
_SHARD_FOLDER = re.compile(rf"/{_SHARD}=(\d+)/[^/]*$")


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one run in named files."""

    files: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Route:
    """An exchange: rows go to one of `shards` by a hash of their `keys`."""

    keys: tuple[str, ...]
    shards: int


def write(rows: DataFrame, folder: str, route: Route | None = None) -> dict[int | None, Batch]:
    """Write rows below `folder`; a batch for every shard that has rows, for None without route."""
    attempt = f"{folder.rstrip('/')}/{uuid4().hex}"
    writer = rows if route is None else rows.withColumn(_SHARD, shard_of(route))
    saving = writer.write.mode("error").option("compression", CODEC)
    (saving if route is None else saving.partitionBy(_SHARD)).parquet(attempt)
    return _batches(parquet_files(attempt))


def shard_of(route: Route) -> Column:
    """The shard a row belongs to; nulls are values like any other, rows without keys go to 0."""
    if not route.keys:
        return fn.lit(0)
    return fn.pmod(fn.xxhash64(*map(column, route.keys)), fn.lit(route.shards)).cast("int")


def read(session: Session, batches: Iterable[Batch], schema: StructType) -> DataFrame:
    """The rows of all batches, with this schema also when there is none."""
    files = [file for batch in batches for file in batch.files]
    return session.read.schema(schema).parquet(*files) if files else empty(session, schema)


def _batches(files: Sequence[str]) -> dict[int | None, Batch]:
    """By shard in its order, so that the same rows give messages in the same order."""
    rows: dict[int | None, dict[str, int]] = defaultdict(dict)
    for file in files:
        # Spark writes a file also for no rows, so that the schema is kept; we have it already.
        if count := parquet_rows(file):
            rows[_shard(file)][file] = count
    shards = sorted(rows, key=lambda shard: -1 if shard is None else shard)
    return {shard: Batch((*rows[shard],), sum(rows[shard].values())) for shard in shards}


def _shard(file: str) -> int | None:
    found = _SHARD_FOLDER.search(file)
    return int(found[1]) if found else None
