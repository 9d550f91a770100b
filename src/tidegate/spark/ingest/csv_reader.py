"""Reads CSV files with Arrow, where the values are certainly those that Spark would read.

`readers.read_chunks` defines the values, by a Spark job. Arrow reads the same files many times
faster but not always alike: it reads `0x1F` as an integer, and does not read `12.0` as an id. So a
file is read in blocks of whole records, and anything unusual raises `SparkRequired`: then Spark
reads the file. `quoted_breaks` defines what a record is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import compute, csv

from tidegate.spark.ingest.quoted_breaks import BadQuotes, BreakScan, check_quotes, records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_MOST_COLUMNS = 20_000
"""The most columns that Spark reads."""
_DIGITS = 38
"""The most digits of a decimal in 128 bits."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_FEED, _SPACE = b"\n "
_X = ord("x")
_BLANK_LINE = re.compile(rb"^[ \t]+\r?$", re.MULTILINE)
_TIMESTAMP_WITH_ZONE = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)$"
_CONVERSION_ERROR = re.compile(r"In CSV column #(\d+)")

_TRUE = ["true", "True", "TRUE", "t", "T", "yes", "Yes", "YES", "y", "Y", "1"]
_FALSE = ["false", "False", "FALSE", "f", "F", "no", "No", "NO", "n", "N", "0"]


class SparkRequired(Exception):
    """Arrow might read the file differently from Spark, so Spark has to read it."""


class ArrowCsvReader:
    """Reads the columns of `schema` from files whose header has `columns`."""

    def __init__(self, columns: Sequence[str], schema: pa.Schema) -> None:
        """`columns` have all names of the schema, in any case."""
        if len(columns) > _MOST_COLUMNS:
            raise SparkRequired("more columns than Spark reads")
        self._columns = [str(place) for place in range(len(columns))]
        self._schema = schema
        known = [name.casefold() for name in columns]
        places = [known.index(name.casefold()) for name in schema.names]
        self._declared = [self._columns[place] for place in places]
        self._types = {
            name: list(_candidate_types(kind))
            for name, kind in zip(self._declared, schema.types, strict=True)
        }

    def read(self, pieces: Iterable[bytes]) -> Iterator[pa.Table]:
        """The rows of a file, given in pieces, a block at a time. Raises `SparkRequired`."""
        try:
            yield from self._read_blocks(records(pieces))
        except BadQuotes as error:
            raise SparkRequired(str(error)) from error

    def _read_blocks(self, blocks: Iterable[bytes]) -> Iterator[pa.Table]:
        header, scan = 1, BreakScan()
        for block in blocks:
            _refuse_unusual(block, is_single=len(self._columns) == 1)
            lines = scan.add(block) + (not block.endswith(b"\n"))
            rows = block[block.find(b"\n") + 1 or len(block) :] if header else block
            if rows.startswith(_BYTE_ORDER_MARK):
                raise SparkRequired("a byte order mark within the file, which Arrow would skip")
            if rows:
                yield self._typed(rows, _counted(lines - header, block))
            header = 0

    def _typed(self, block: bytes, lines: int | None) -> pa.Table:
        read = self._parsed(block)
        if lines is not None and read.num_rows != lines:
            raise SparkRequired("other records than the quotes define")
        self._refuse_hexadecimal(block)
        try:
            arrays = map(_finished, read.columns, self._schema.types)
            return pa.table(list(arrays), schema=self._schema)
        except pa.ArrowInvalid as error:
            raise SparkRequired(str(error)) from error

    def _parsed(self, block: bytes) -> pa.Table:
        while True:
            try:
                return self._read({name: ways[0] for name, ways in self._types.items()}, block)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                self._use_next_type(error)

    def _use_next_type(self, error: pa.ArrowException) -> None:
        """Use the next type for the column that could not be read, in this block and later."""
        found = _CONVERSION_ERROR.search(str(error))
        ways = self._types.get(found[1], []) if found else []
        if len(ways) <= 1:
            raise SparkRequired(str(error)) from error
        del ways[0]

    def _refuse_hexadecimal(self, block: bytes) -> None:
        integers = {
            name: pa.string()
            for name, kind in zip(self._declared, self._schema.types, strict=True)
            if pa.types.is_integer(kind)
        }
        letters = np.frombuffer(block, np.uint8) | np.uint8(0x20)
        if integers and (letters == _X).any():
            for column in self._read(integers, block).columns:
                if _any(compute.match_substring(column, "x", ignore_case=True)):
                    raise SparkRequired("a hexadecimal number")

    def _read(self, kinds: dict[str, pa.DataType], block: bytes) -> pa.Table:
        return csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(
                column_names=self._columns, block_size=len(block) + 1, use_threads=False
            ),
            csv.ParseOptions(newlines_in_values=b'"' in block),
            csv.ConvertOptions(
                include_columns=list(kinds),
                column_types=kinds,
                null_values=[""],
                true_values=_TRUE,
                false_values=_FALSE,
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )


# --- Lines -----------------------------------------------------------------------------------


def _refuse_unusual(block: bytes, *, is_single: bool) -> None:
    """Raise `SparkRequired` for what Spark could split differently."""
    letters = np.frombuffer(block, np.uint8)
    feeds = np.count_nonzero(letters == _LINE_FEED)
    others = np.count_nonzero(letters < _SPACE) - feeds
    if others:
        returns = block.count(b"\r")
        if returns != block.count(b"\r\n"):
            raise SparkRequired("a carriage return within a line")
        if others != returns + block.count(b"\t"):
            raise SparkRequired("a control character")
    if is_single and _BLANK_LINE.search(block):
        raise SparkRequired("a blank line, which may be a value")
    check_quotes(letters)


def _counted(lines: int, block: bytes) -> int | None:
    """The expected number of rows; None without quotes, where blank lines are skipped."""
    return lines if b'"' in block else None


# --- Values ----------------------------------------------------------------------------------


def _candidate_types(kind: pa.DataType) -> tuple[pa.DataType, ...]:
    """The types to read a column as, in turn, until Arrow can."""
    if pa.types.is_integer(kind):
        return kind, pa.string()
    if pa.types.is_timestamp(kind) and kind.tz:
        # Timestamps without a zone are in the session's zone, which is UTC.
        return pa.timestamp("us"), pa.string()
    if pa.types.is_decimal(kind) and kind.precision + kind.scale > _DIGITS:
        return (pa.string(),)
    return (kind,)


def _finished(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column as its declared type; raises `SparkRequired` for unusual values."""
    if column.type != kind:
        return _from_text(column, kind) if pa.types.is_string(column.type) else column.cast(kind)
    if pa.types.is_floating(kind) and not _all(compute.is_finite(column)):
        raise SparkRequired("a number that is not finite")
    if pa.types.is_decimal(kind):
        # Arrow counts the digits of the text, not those added by the scale.
        column.validate(full=True)
    return column


def _from_text(text: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column that Arrow does not read correctly as its own type."""
    if pa.types.is_integer(kind):
        return _whole(text).cast(kind)
    if pa.types.is_decimal(kind):
        # In 128 bits the digits added by the scale could overflow silently.
        return text.cast(pa.decimal256(kind.precision, kind.scale)).cast(kind)
    if not _all(compute.match_substring_regex(text, _TIMESTAMP_WITH_ZONE)):
        raise SparkRequired("a timestamp in an unusual form")
    return text.cast(kind)


def _whole(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """`12` of `12.0`; longer fractions stay as they are."""
    is_float = compute.ends_with(text, ".0")
    short = compute.utf8_slice_codeunits(text, 0, -2)
    return short if _all(is_float) else compute.if_else(is_float, short, text)


def _all(values: pa.ChunkedArray) -> bool:
    """Whether all values are true; nulls do not count."""
    return compute.all(values, min_count=0).as_py() is True


def _any(values: pa.ChunkedArray) -> bool:
    return compute.any(values, min_count=0).as_py() is True
