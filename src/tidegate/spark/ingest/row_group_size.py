"""How many rows of a chunk are read at a time, to bound memory.

A dictionary stores a value once, however often it is repeated: a file of a few hundred bytes may
decode to gigabytes, and its metadata does not show it. So the widest value of every dictionary is
read before the rows. Values outside of dictionaries have the size given in the metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import compute, parquet, types

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP_ROWS = 2048
"""Narrow rows read at a time; more would hardly be faster."""
STEP_BYTES = 32 << 20
"""The most bytes that rows read at a time may decode to."""
NESTED_ROWS = 32
"""Rows with lists, maps or structs: their dictionaries do not bound the size of a row."""
_NO_DICTIONARY, _REPEATS_BEGINNINGS = "DictAccumulator", "DeltaByteArray"
"""Parts of Arrow's errors for DELTA encodings, which it does not read as dictionaries."""


def rows_of(batch: pa.RecordBatch) -> int:
    """How many rows of a batch may be decoded at a time."""
    return _rows(sum(map(_widest, batch.columns)))


class GroupRows:
    """How many rows of each row group of a Parquet file may be read at a time."""

    def __init__(self, file: parquet.ParquetFile, encoded: parquet.ParquetFile) -> None:
        """`encoded` is the same file, opened to keep its dictionaries."""
        self._file = file
        self._encoded = encoded

    def at(self, group: int, names: Sequence[str]) -> int:
        """For the columns of these names in this row group."""
        # Of the whole group: metadata of a single column of a damaged file may abort the process.
        about = self._file.metadata.row_group(group)
        stored = max(0, about.total_byte_size)
        if stored * min(about.num_rows, STEP_ROWS) <= STEP_BYTES:
            return STEP_ROWS  # even if every value was as large as the stored group
        if any(types.is_nested(self._file.schema_arrow.field(name).type) for name in names):
            return NESTED_ROWS
        return _rows(self._widest(group, names, stored) + stored // max(1, about.num_rows))

    def _widest(self, group: int, names: Sequence[str], stored: int) -> int:
        try:
            return self._widest_entry(group, names)
        except OSError as error:
            if _NO_DICTIONARY not in str(error):
                raise
        return sum(self._widest_of(group, name, stored) for name in names)

    def _widest_of(self, group: int, name: str, stored: int) -> int:
        """The widest entry of a column, also where Arrow does not read it as a dictionary."""
        try:
            return self._widest_entry(group, [name])
        except OSError as error:
            if _NO_DICTIONARY not in str(error):
                raise
            # A value may repeat parts of the one before it, but is not longer than the group.
            return stored if _REPEATS_BEGINNINGS in str(error) else 0

    def _widest_entry(self, group: int, names: Sequence[str]) -> int:
        # One row is enough: it comes with the whole dictionary of the row group.
        batches = self._encoded.iter_batches(1, [group], columns=[*names], use_threads=False)
        first = next(batches, None)
        return 0 if first is None else sum(map(_widest, first.columns))


def _rows(width: int) -> int:
    return max(1, min(STEP_ROWS, STEP_BYTES // max(1, width)))


def _widest(column: pa.Array) -> int:
    if not types.is_dictionary(column.type) or not _is_long(column.type.value_type):
        return 0
    return int(compute.max(compute.binary_length(column.dictionary)).as_py() or 0)


def _is_long(kind: pa.DataType) -> bool:
    return kind in {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}
