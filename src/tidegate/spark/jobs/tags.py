"""Tags: columns that separate the rows of several job inputs, read from the paths of their files.

A tag is a column with the run or the shard of each row. What all inputs have in common needs no
column, so a job with one input has none and no overhead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from tidegate.spark.analyze.schemas import column
from tidegate.spark.jobs.exchange import FROM, RUN, TO, read, shard_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from tidegate.dataflow import Batch
    from tidegate.spark.jobs.exchange import Level, Route
    from tidegate.spark.session.sessions import Session

_RUN, _SHARD = "tidegate run \x1f", "tidegate shard \x1f"
"""Names that no column of a user has."""

_FOLDERS = {_RUN: RUN, _SHARD: TO}
"""The folder of each tag: rows are read on the shard that they were written to."""


@dataclass(frozen=True, slots=True)
class Tags:
    """The run and the shard that all rows have in common; None where they differ."""

    run: int | None
    shard: int | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        tags = {_RUN: self.run, _SHARD: self.shard}
        return tuple(name for name, common in tags.items() if common is None)

    def levels(self, route: Route | None) -> dict[str, Level]:
        """The folders that rows are written to; without a route they stay on their shard."""
        run = column(_RUN) if self.run is None else self.run
        shard = column(_SHARD) if self.shard is None else self.shard
        return {RUN: run, FROM: shard, TO: shard if route is None else shard_of(route)}


def tags_for(runs: Iterable[int], shards: Iterable[int]) -> Tags:
    """The tags that distinguish these runs and these shards."""
    return Tags(_only(set(runs)), _only(set(shards)))


def _only(values: set[int]) -> int | None:
    return values.pop() if len(values) == 1 else None


def read_tagged(
    session: Session, root: str, batches: Sequence[Batch], schema: StructType, tags: Tags
) -> DataFrame:
    """The rows of all batches, with their tags before their columns."""
    rows = read(session, root, batches, schema)
    if not tags.columns:
        return rows
    has_files = any(batch.files for batch in batches)
    values = (_tag_value(rows, name) if has_files else fn.lit(None) for name in tags.columns)
    named = (tag.cast("bigint").alias(name) for tag, name in zip(values, tags.columns, strict=True))
    return rows.select(*named, *map(column, schema.names))


def _tag_value(rows: DataFrame, tag: str) -> Column:
    # A source may have a column `_metadata` of its own; this is Spark's.
    path = rows.metadataColumn("_metadata")["file_path"]
    return fn.substring_index(fn.substring_index(path, f"{_FOLDERS[tag]}=", -1), "/", 1)
