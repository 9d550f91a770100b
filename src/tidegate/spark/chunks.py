"""Reading what clients deliver: CSV with a header line, or Parquet.

Columns are found by name. A value that cannot be read as its declared type raises; nothing
becomes null but an empty field. Whole numbers may be written as floats (`12.0`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyspark.sql import functions as fn
from pyspark.sql.types import DoubleType, IntegralType, StringType, StructField, StructType

from tidegate.errors import MissingColumns, UnknownFormat
from tidegate.spark import operators
from tidegate.spark.files import PARQUET, csv_header, parquet_schema
from tidegate.spark.schemas import column, empty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from tidegate.spark.sessions import Session

CSV = (".csv", ".csv.gz", ".csv.bz2")


@dataclass(frozen=True, slots=True)
class Layout:
    """What files must have in common to be read together."""

    format: Literal["csv", "parquet"]
    columns: tuple[str, ...]
    floats: frozenset[str] = frozenset()
    """Parquet: the columns that are stored as floating point, in lower case."""


def read_chunks(
    session: Session, source: str, schema: StructType, files: Sequence[str]
) -> DataFrame:
    """The rows of all files, with the columns of `schema` and no others.

    Raises `MissingColumns` or `UnknownFormat` before anything runs; bad values raise when it does.
    """
    alike: dict[Layout, list[str]] = defaultdict(list)
    for file in files:
        layout = layout_of(file)
        _refuse_missing(source, schema, file, layout.columns)
        alike[layout].append(file)
    parts = [_read(session, schema, layout, same) for layout, same in alike.items()]
    return operators.union(parts) if parts else empty(session, schema)


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


def _refuse_missing(source: str, schema: StructType, file: str, found: tuple[str, ...]) -> None:
    known = {name.casefold() for name in found}
    missing = tuple(name for name in schema.names if name.casefold() not in known)
    if missing:
        raise MissingColumns(source, file, missing, found)


def _read(session: Session, schema: StructType, layout: Layout, files: list[str]) -> DataFrame:
    if layout.format == "parquet":
        return _read_parquet(session, schema, layout, files)
    return _read_csv(session, schema, layout, files)


# --- Parquet ---------------------------------------------------------------------------------


def _read_parquet(
    session: Session, schema: StructType, layout: Layout, files: list[str]
) -> DataFrame:
    """Spark widens what it safely can and refuses the rest; ids stored as floats it refuses."""

    def is_float_id(field: StructField) -> bool:
        return isinstance(field.dataType, IntegralType) and field.name.casefold() in layout.floats

    stored = [StructField(it.name, DoubleType()) if is_float_id(it) else it for it in schema]
    rows = session.read.schema(StructType(stored)).parquet(*files)
    return rows.select(
        *(_whole(field) if is_float_id(field) else column(field.name) for field in schema)
    )


def _whole(field: StructField) -> Column:
    """A float that is a whole number; a cast alone would cut the fraction off."""
    value = column(field.name)
    complaint = fn.concat(fn.lit(f"{field.name}: not a whole number: "), value.cast("string"))
    whole = fn.when(value == fn.rint(value), value).otherwise(fn.raise_error(complaint))
    return fn.when(value.isNotNull(), whole).cast(field.dataType).alias(field.name)


# --- CSV -------------------------------------------------------------------------------------


def _read_csv(session: Session, schema: StructType, layout: Layout, files: list[str]) -> DataFrame:
    """All columns as text in the order of the header, of which the declared ones are then cast."""
    # Numbered, because a header may repeat a name, and Spark looks at positions alone.
    places = {name.casefold(): f"_{at}" for at, name in reversed([*enumerate(layout.columns)])}
    text = StructType([StructField(f"_{at}", StringType()) for at in range(len(layout.columns))])
    rows = (
        session.read.schema(text)
        .option("header", True)
        .option("mode", "FAILFAST")
        .option("escape", '"')
        # A line with too few fields would otherwise go unnoticed and give nulls.
        .option("columnPruning", False)
        .csv(files)
    )
    return rows.select(*(_parsed(field, column(places[field.name.casefold()])) for field in schema))


def _parsed(field: StructField, text: Column) -> Column:
    if isinstance(field.dataType, StringType):
        return text.alias(field.name)
    trimmed = fn.nullif(fn.trim(text), fn.lit(""))
    if isinstance(field.dataType, IntegralType):
        trimmed = _without_zero_fraction(trimmed)
    return trimmed.cast(field.dataType).alias(field.name)


def _without_zero_fraction(text: Column) -> Column:
    """`12` of `12.0`; ordered so that plain integers cost one look."""
    return (
        fn.when(~fn.contains(text, fn.lit(".")), text)
        .when(text.endswith(".0"), text.substr(fn.lit(1), fn.length(text) - 2))
        .otherwise(fn.regexp_replace(text, r"\.0*$", ""))
    )
