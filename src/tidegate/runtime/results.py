"""What the sinks of a run gave, as frames and files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.errors import UnknownSink
from tidegate.spark import columns_of, result_files, result_rows, result_table

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.dataflow import Batch
    from tidegate.spark import Rows, Schema, Session


class Result(ABC):
    """The rows of one sink. An empty result has its columns, too."""

    rows: int
    """How many rows there are."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""

    @property
    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """Absolute paths or URIs of the Parquet files; `FilesOnServer` for a remote result."""

    @abstractmethod
    def to_df(self, session: Session | None = None) -> Rows:
        """A Spark DataFrame, by default of the session of this process."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """An Arrow table. All rows are in memory."""

    def to_pandas(self) -> Any:
        """A pandas DataFrame. All rows are in memory."""
        return self.to_arrow().to_pandas()


class StoredResult(Result):
    """A result whose files this process can read."""

    def __init__(self, root: str, batches: Sequence[Batch], schema: Schema) -> None:
        self._root = root
        self._batches = batches
        self._schema = schema
        self.rows = sum(batch.rows for batch in batches)

    def __repr__(self) -> str:
        return f"<result of {self.rows:,} rows: {', '.join(self.schema.names)}>"

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return columns_of(self._schema)

    @property
    def files(self) -> tuple[str, ...]:
        """Absolute paths or URIs of the Parquet files."""
        return result_files(self._root, self._batches)

    def to_df(self, session: Session | None = None) -> Rows:
        """A Spark DataFrame that reads the Parquet files."""
        return result_rows(session, self._root, self._batches, self._schema)

    def to_arrow(self) -> pa.Table:
        """An Arrow table. All rows are in memory."""
        return result_table(self._root, self._batches, self._schema)


class Results(Mapping[str, Result]):
    """The results of all sinks of a run, at one point: its end or a checkpoint."""

    def __init__(self, results: Mapping[str, Result]) -> None:
        self._results = dict(results)

    def __getitem__(self, sink: str) -> Result:
        if sink not in self._results:
            raise UnknownSink(sink, ", ".join(self._results))
        return self._results[sink]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        counts = (f"{sink}: {it.rows:,} rows" for sink, it in self._results.items())
        return f"<results: {', '.join(counts)}>"
