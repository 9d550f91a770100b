"""Probes the features that Tidegate relies on, on a Spark Connect server that is not Spark.

Every feature has expressions with a known result: the value that Spark computes, or the error that
it raises. An engine with another result would silently compute wrong results.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from tidegate.spark.ingest.parquet_files import literal
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS
from tidegate.spark.session.engines import Feature

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.spark.session.sessions import Session

RAISES: dict[Feature, tuple[str, ...]] = {
    Feature.OVERFLOW: (
        "cast(id + 2000000000 as int) * 1000",
        "id + 9223372036854775807",
        "9223372036854775807 * (id + 2)",
    ),
    Feature.SUMS: (
        "sum(id + 9223372036854775800)",
        "sum(cast(id as decimal(38,0)) + 99999999999999999999999999999999999990)",
    ),
    Feature.CASTS: (
        "cast(concat('x', id) as int)",
        "cast(id + 3000000000 as int)",
        "cast(id + 1000 as decimal(3,0))",
    ),
    Feature.DIVISION: ("1 / (id - 7)", "1 % (id - 7)", "1 div (id - 7)"),
}
"""Expressions that raise in Spark, over two rows whose `id` is 7."""

EXPECTED: dict[Feature, dict[str, object]] = {
    Feature.HASHES: {
        "xxhash64(id)": -2864211556195259663,
        "xxhash64(concat('tea', id))": -8793881958504633533,
        "xxhash64(cast(id as decimal(12,2)))": -5524586353528089111,
        "xxhash64(cast(id as decimal(30,2)))": -8245545712854074329,
        "xxhash64(cast(null as int), id = 7)": -6698625589789238999,
    },
    Feature.DECIMALS: {
        "typeof(sum(cast(id as decimal(12,2))))": "decimal(22,2)",
        "typeof(avg(cast(id as decimal(12,2))))": "decimal(16,6)",
        "cast(id as decimal(20,2)) / 3": Decimal("2.333333"),
        "cast(id as decimal(38,10)) * cast(1.23456789 as decimal(38,10))": Decimal("8.641975"),
        "cast(cast(id as decimal(12,3)) / 8 as decimal(12,1))": Decimal("0.9"),
    },
}
"""Expressions and their values in Spark, over the same rows."""


def missing_features(session: Session, file: str) -> frozenset[Feature]:
    """The missing features; `file` is a Parquet file that the engine can read."""
    return frozenset(
        (*_not_raising(session), *_differing(session), *_without_file_names(session, file))
    )


def _not_raising(session: Session) -> Iterator[Feature]:
    for feature, expressions in RAISES.items():
        if not all(_fails(session, sql) for sql in expressions):
            yield feature


def _differing(session: Session) -> Iterator[Feature]:
    for feature, values in EXPECTED.items():
        if any(not _is(session, sql, right) for sql, right in values.items()):
            yield feature


def _without_file_names(session: Session, file: str) -> Iterator[Feature]:
    rows = session.read.schema("id bigint").parquet(literal(file))
    try:
        named = rows.select(rows.metadataColumn("_metadata")["file_path"]).first()
    except SPARK_ERRORS:
        named = None
    if named is None or not str(named[0]).endswith(file.rpartition("/")[2]):
        yield Feature.FILE_NAMES


def _fails(session: Session, sql: str) -> bool:
    try:
        _value(session, sql)
    except SPARK_ERRORS:
        return True
    return False


def _is(session: Session, sql: str, right: object) -> bool:
    """Compared as text, too: decimals of different scales are equal."""
    try:
        found = _value(session, sql)
    except SPARK_ERRORS:
        return False
    return found == right and str(found) == str(right)


def _value(session: Session, sql: str) -> object:
    """The value of an expression over rows; an engine may fold constants by other rules."""
    rows = session.sql("select 7L as id union all select 7L")
    row = rows.select(fn.expr(sql)).first()
    return row[0] if row else None
