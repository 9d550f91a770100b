"""A Spark data source that reads a PostgreSQL table in partitions by ranges of its key.

Every row is read as text with its version, as `tidegate.store.cutover.change_log` reads it. Spark's
workers connect to the database themselves; no rows pass through the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidegate.store.core.database import Database
from tidegate.store.cutover.change_log import DELETED, VERSION, rows_within
from tidegate.store.cutover.tables import KeyRange, TableName, TableShape

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.spark.session.sessions import Session

NAME = "tidegate_key_ranges"
ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read: a table, its shape, and the ranges to read in parallel."""

    url: str
    table: TableName
    shape: TableShape
    ranges: tuple[KeyRange, ...]


def write_each(session: Session, reading: Reading, write: Callable[[pa.RecordBatch], None]) -> int:
    """Pass all rows to `write`, batch by batch, in Spark's workers; returns their number."""
    session.dataSource.register(KeyRanges)
    text = msgspec.json.encode(reading).decode()
    rows = session.read.format(NAME).option("url", text).load()
    written = rows.mapInArrow(_BatchWriter(write), f"{ROWS} long")
    (total,) = written.agg(functions.sum(ROWS)).collect()
    return int(total[0] or 0)


class KeyRanges(DataSource):
    """A table by ranges of its key."""

    @classmethod
    def name(cls) -> str:
        """The name of the format in a session."""
        return NAME

    def schema(self) -> str:
        """All columns are text, and written as they were read."""
        return ", ".join(f"`{name.replace('`', '``')}` string" for name in self._names())

    def reader(self, schema: Any) -> _KeyRangeReader:
        """The reader of one table."""
        return _KeyRangeReader(self._reading())

    def _names(self) -> Sequence[str]:
        return [*self._reading().shape.key_first, VERSION, DELETED]

    def _reading(self) -> Reading:
        # Spark redacts options of this name; the URL may contain a password.
        return msgspec.json.decode(self.options["url"], type=Reading)


class _KeyRangeReader(DataSourceReader):
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(at) for at in range(len(self._reading.ranges))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        reading = self._reading
        within = reading.ranges[partition.value]
        with Database(reading.url, pool_size=1).attach() as database:
            rows = database.transact(lambda c: rows_within(c, reading.table, reading.shape, within))
        yield from rows.combine_chunks().to_batches()


class _BatchWriter:
    """Writes batches and returns the number of rows of each."""

    def __init__(self, write: Callable[[pa.RecordBatch], None]) -> None:
        self._write = write

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            self._write(batch)
            yield pa.RecordBatch.from_pydict({ROWS: [batch.num_rows]})
