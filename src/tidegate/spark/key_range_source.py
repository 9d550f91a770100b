"""Reading a table of PostgreSQL with Spark: a data source whose partitions are ranges of the key.

Every row comes as text with its version, as `tidegate.store.cutover.change_log` reads it. Spark's
workers connect to the database themselves; nothing goes through the driver.
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
from tidegate.store.cutover.tables import KeyRange, Shape, TableName

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.spark.session.sessions import Session

NAME = "tidegate_key_ranges"
ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Reading:
    """What is to be read: a table somewhere, its shape, and the ranges to read in parallel."""

    url: str
    table: TableName
    shape: Shape
    ranges: tuple[KeyRange, ...]


def write_each(session: Session, reading: Reading, write: Callable[[pa.RecordBatch], None]) -> int:
    """Hand all rows to `write`, batch by batch, in Spark's workers; answers how many there were."""
    session.dataSource.register(KeyRanges)
    text = msgspec.json.encode(reading).decode()
    rows = session.read.format(NAME).option("url", text).load()
    written = rows.mapInArrow(_Writing(write), f"{ROWS} long")
    (total,) = written.agg(functions.sum(ROWS)).collect()
    return int(total[0] or 0)


class KeyRanges(DataSource):
    """A table by ranges of its key."""

    @classmethod
    def name(cls) -> str:
        """What it is called in a session."""
        return NAME

    def schema(self) -> str:
        """Text, all of it: it is written as it was read."""
        return ", ".join(f"`{name.replace('`', '``')}` string" for name in self._names())

    def reader(self, schema: Any) -> _Reader:
        """Reads it."""
        return _Reader(self._reading())

    def _names(self) -> Sequence[str]:
        return [*self._reading().shape.key_first, VERSION, DELETED]

    def _reading(self) -> Reading:
        # Under this name Spark shows an option to nobody; it may hold a password.
        return msgspec.json.decode(self.options["url"], type=Reading)


class _Reader(DataSourceReader):
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(at) for at in range(len(self._reading.ranges))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        it = self._reading
        within = it.ranges[partition.value]
        with Database(it.url, pool_size=1).attach() as database:
            rows = database.transact(lambda c: rows_within(c, it.table, it.shape, within))
        yield from rows.combine_chunks().to_batches()


class _Writing:
    """Writes what it is given and says how many rows that were."""

    def __init__(self, write: Callable[[pa.RecordBatch], None]) -> None:
        self._write = write

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            self._write(batch)
            yield pa.RecordBatch.from_pydict({ROWS: [batch.num_rows]})
