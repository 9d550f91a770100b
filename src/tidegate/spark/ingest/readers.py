"""Reads chunks with Spark: CSV with a header line, or Parquet.

Columns are matched by name. A value that cannot be read as its declared type raises; only an empty
field becomes null. Integers may be written as floats (`12.0`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as fn
from pyspark.sql.types import DoubleType, IntegralType, StringType, StructField, StructType

from tidegate.errors import MissingColumns
from tidegate.spark.analyze.schemas import column, empty
from tidegate.spark.ingest.layouts import Layout, whole_layout_of
from tidegate.spark.ingest.parquet_files import literal
from tidegate.spark.jobs import operators

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidegate.spark.session.sessions import Session

Files: TypeAlias = Sequence[str] | Mapping[str, Layout]
"""Files to read, with their layouts if those are known."""


def read_chunks(session: Session, source: str, schema: StructType, files: Files) -> DataFrame:
    """The rows of all files, with the columns of `schema` and no others.

    Raises `MissingColumns` or `UnknownFormat` at once; bad values raise when the job runs.
    """
    grouped = by_layout(files)
    for layout, same in grouped.items():
        _refuse_missing(source, schema, same[0], layout.columns)
    parts = [_read(session, schema, layout, same) for layout, same in grouped.items()]
    return operators.union(parts) if parts else empty(session, schema)


def by_layout(files: Files) -> dict[Layout, list[str]]:
    """The files that can be read together. Raises `UnknownFormat`."""
    known = files if isinstance(files, Mapping) else {it: whole_layout_of(it) for it in files}
    grouped: dict[Layout, list[str]] = defaultdict(list)
    for file in files:
        grouped[known[file]].append(file)
    return grouped


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
    rows = parquet_rows(session, schema, layout, files)
    return rows.select(
        *(_whole(it) if is_float_id(layout, it) else column(it.name) for it in schema)
    )


def parquet_rows(
    session: Session, schema: StructType, layout: Layout, files: list[str]
) -> DataFrame:
    """The columns as stored: Spark widens types where that is safe; float ids stay floats."""
    stored = (
        StructField(it.name, DoubleType()) if is_float_id(layout, it) else it for it in schema
    )
    return session.read.schema(StructType([*stored])).parquet(*map(literal, files))


def is_float_id(layout: Layout, field: StructField) -> bool:
    """Whether a column of whole numbers is stored as floating point."""
    return isinstance(field.dataType, IntegralType) and field.name.casefold() in layout.floats


def _whole(field: StructField) -> Column:
    """A float as an integer; raises for a fraction, which a cast would drop."""
    value = column(field.name)
    message = fn.concat(fn.lit(f"{field.name}: not a whole number: "), value.cast("string"))
    whole = fn.when(value == fn.rint(value), value).otherwise(fn.raise_error(message))
    return fn.when(value.isNotNull(), whole).cast(field.dataType).alias(field.name)


# --- CSV -------------------------------------------------------------------------------------


def _read_csv(session: Session, schema: StructType, layout: Layout, files: list[str]) -> DataFrame:
    rows = csv_rows(session, layout, files)
    return rows.select(*(_parsed(field, csv_text(layout, field)) for field in schema))


def csv_rows(session: Session, layout: Layout, files: list[str]) -> DataFrame:
    """All columns as text, in the order of the header; see `csv_text`."""
    # Numbered, because a header may repeat a name, and Spark matches columns by position.
    text = StructType([StructField(f"_{at}", StringType()) for at in range(len(layout.columns))])
    reader = (
        session.read.schema(text)
        .option("header", True)
        .option("mode", "FAILFAST")
        .option("escape", '"')
        # With pruning, a line with too few fields would give nulls without an error.
        .option("columnPruning", False)
    )
    if layout.long_end:
        # Without it Spark detects the line end, and converts line breaks within fields to it.
        reader = reader.option("multiLine", True).option("lineSep", layout.long_end)
    return reader.csv([literal(file) for file in files])


def csv_text(layout: Layout, field: StructField) -> Column:
    """The text of a declared column, as the file has it."""
    return column(f"_{position_of(layout, field)}")


def position_of(layout: Layout, field: StructField) -> int:
    """The position of a declared column in the file; the first of that name."""
    return [name.casefold() for name in layout.columns].index(field.name.casefold())


def _parsed(field: StructField, text: Column) -> Column:
    if isinstance(field.dataType, StringType):
        return text.alias(field.name)
    return castable(field, text).cast(field.dataType).alias(field.name)


def castable(field: StructField, text: Column) -> Column:
    """The text as a cast accepts it; null if it is blank."""
    trimmed = fn.nullif(fn.trim(text), fn.lit(""))
    return _without_zero_fraction(trimmed) if isinstance(field.dataType, IntegralType) else trimmed


def _without_zero_fraction(text: Column) -> Column:
    """`12` of `12.0`; plain integers are tested first."""
    return (
        fn.when(~fn.contains(text, fn.lit(".")), text)
        .when(text.endswith(".0"), text.substr(fn.lit(1), fn.length(text) - 2))
        .otherwise(fn.regexp_replace(text, r"\.0*$", ""))
    )
