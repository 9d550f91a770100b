"""Batches: rows on their way between stages, as Parquet files below a deployment's root folder.

A batch is written once, under a folder that no other attempt writes to: a Spark server may finish
a write long after its client has ended. The commit of a step names the exact files; other files do
not count. Paths contain run and shards:

    batches/<writer>/<attempt>/run=<run>/from=<shard>/to=<shard of the reader>/part-….parquet
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from pyspark.sql import functions as fn

from tidegate.dataflow import Batch
from tidegate.faults import crash_point
from tidegate.spark.analyze.schemas import column, empty
from tidegate.spark.ingest.parquet_files import literal, stored_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from tidegate.spark.ingest.parquet_files import ParquetFileInfo
    from tidegate.spark.session.sessions import Session

CODEC = "lz4_raw"
"""Batches are read once, soon, and nearby: fast writing matters more than small files."""

COMMIT = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Tasks write files to their final paths, without a success marker: commits name the files."""

RUN, FROM, TO = "run", "from", "to"
"""The folders of a path, from which `tags` are read."""

_KEY = re.compile(rf"{RUN}=(\d+)/\w*{FROM}=(\d+)/\w*{TO}=(\d+)/[^/]*$")

Level: TypeAlias = "int | Column"
"""One folder of a path: a constant, or a column of the rows."""


@dataclass(frozen=True, slots=True)
class Route:
    """An exchange: rows go to one of `shards` by a hash of their `keys`."""

    keys: tuple[str, ...]
    shards: int


@dataclass(frozen=True, slots=True)
class BatchKey:
    """The run, writing shard and reading shard of the rows in a file."""

    run: int
    shard: int
    to: int


def shard_of(route: Route) -> Level:
    """The shard of a row; nulls are hashed like other values, rows without keys go to 0."""
    if not route.keys:
        return 0
    return fn.pmod(fn.xxhash64(*map(column, route.keys)), fn.lit(route.shards)).cast("int")


def read(session: Session, root: str, batches: Iterable[Batch], schema: StructType) -> DataFrame:
    """The rows of all batches, with this schema also if there are none."""
    files = [literal(under(root, file)) for batch in batches for file in batch.files]
    return session.read.schema(schema).parquet(*files) if files else empty(session, schema)


def under(root: str, file: str) -> str:
    """The full path of a file of a batch."""
    return f"{root.rstrip('/')}/{file}"


def write(
    rows: DataFrame, columns: Sequence[str], levels: Mapping[str, Level], root: str, writer: str
) -> dict[BatchKey, Batch]:
    """Write these columns of the rows; a batch for every key that has rows.

    `levels` are the folders of a path, outermost first.
    """
    attempt = f"batches/{writer}/{uuid4().hex}"
    fixed = list(takewhile(lambda it: isinstance(it[1], int), levels.items()))
    folder = "/".join((attempt, *(f"{name}={value}" for name, value in fixed)))
    split = {_free(name, columns): it for name, it in list(levels.items())[len(fixed) :]}
    crash_point("files.before_write")
    _save(rows, columns, split, under(root, folder))
    crash_point("files.after_write")
    return _batches(stored_parquet(root, attempt))


def _save(rows: DataFrame, columns: Sequence[str], split: Mapping[str, Level], folder: str) -> None:
    if split:
        levels = [_as_column(level).alias(name) for name, level in split.items()]
        rows = rows.select(*map(column, columns), *levels)
    saving = rows.write.mode("append").options(compression=CODEC, **COMMIT)
    (saving.partitionBy(*split) if split else saving).parquet(folder)


def _as_column(level: Level) -> Column:
    return fn.lit(level) if isinstance(level, int) else level


def _free(folder: str, columns: Sequence[str]) -> str:
    """The name of a folder that no column has: while it is written it is a column as well."""
    taken = {name.casefold() for name in columns}
    while folder in taken:
        folder = f"tidegate_{folder}"
    return folder


def _batches(files: Sequence[ParquetFileInfo]) -> dict[BatchKey, Batch]:
    """Ordered by key, so that the same rows give messages in the same order."""
    by_key: dict[BatchKey, list[ParquetFileInfo]] = defaultdict(list)
    for file in files:
        # Spark writes a file also for no rows, to store the schema, which the plan has.
        if file.rows:
            by_key[_key(file.path)].append(file)
    ordered = sorted(by_key, key=lambda key: (key.run, key.shard, key.to))
    return {key: _batch(by_key[key]) for key in ordered}


def _batch(files: Sequence[ParquetFileInfo]) -> Batch:
    names = tuple(file.path for file in files)
    return Batch(names, sum(file.rows for file in files), sum(file.bytes for file in files))


def _key(path: str) -> BatchKey:
    found = _KEY.search(path)
    assert found, f"{path} has no run and shards"
    return BatchKey(*map(int, found.groups()))
