"""The layout of a client's file: its format and its columns, from its name and header or footer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from tidegate.errors import UnknownFormat
from tidegate.spark.ingest.parquet_files import PARQUET, csv_header, csv_long_end, parquet_schema

CSV = (".csv", ".csv.gz", ".csv.bz2")


@dataclass(frozen=True, slots=True)
class Layout:
    """The properties that files must share to be read together."""

    format: Literal["csv", "parquet", "arrow"]
    columns: tuple[str, ...]
    floats: frozenset[str] = frozenset()
    """Parquet: the columns that are stored as floating point, in lower case."""
    long_end: str = ""
    """CSV: the line end if quoted fields continue in the next line; empty if a line is a record."""


def layout_of(file: str) -> Layout:
    """The layout of a file, by its name and its header or footer."""
    name = file.lower()
    if name.endswith(PARQUET):
        stored = parquet_schema(file)
        floats = (field.name.casefold() for field in stored if pa.types.is_floating(field.type))
        return Layout("parquet", tuple(stored.names), frozenset(floats))
    if name.endswith(CSV):
        return Layout("csv", csv_header(file))
    raise UnknownFormat(file)


def whole_layout_of(file: str) -> Layout:
    """The layout of a file; a CSV file is read wholly."""
    return with_breaks(layout_of(file), file)


def with_breaks(layout: Layout, file: str) -> Layout:
    """The layout of a CSV file, after reading all of it to find quoted line breaks."""
    return replace(layout, long_end=csv_long_end(file)) if layout.format == "csv" else layout
