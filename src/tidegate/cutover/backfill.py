"""Backfill of an index: one Spark job per portion of the table, with its key ranges in parallel.

Each Spark task reads a range with the versions of its rows and writes it. Writes are idempotent, so
a failed job is simply run again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.store import Database

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.cutover.source import TableSource
    from tidegate.cutover.targets import Target
    from tidegate.cutover.values import Portion


@dataclass(frozen=True, slots=True)
class Write:
    """Writes batches of rows to an index, in a Spark task."""

    url: str
    target: Target
    index: str
    identity: str
    """Of the index that rows are read for; a job may outlive it, and its name be reused."""

    def __call__(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        with (
            Database(self.url, pool_size=1).attach() as own,
            self.target.open(own) as indexes,
        ):
            indexes.write(self.index, batch, self.identity)


def backfill(
    source: TableSource, target: Target, own: Database, portion: Portion, piece: int, master: str
) -> int:
    """Write the rows of a portion to its index, in pieces of so many rows; returns their number."""
    from tidegate.spark import open_session
    from tidegate.spark.key_range_source import Reading, write_each

    with target.open(own) as indexes:
        identity = indexes.identity(portion.index)
        source.registered(identity)
        shape = source.shape(indexes.columns(portion.index))
    ranges = tuple(source.pieces(portion.within, piece))
    reading = Reading(source.url, source.table, shape, ranges)
    write = Write(own.url, target, portion.index, identity)
    return write_each(open_session(master), reading, write)
