"""Operators on whole DataFrames: filter, select, transform, distinct, top, join, union.

Logical and physical operators use the same functions: a stage applies them to one batch, the
reference to all rows at once. Where several job inputs run in one job, `tags` are the columns that
separate their rows: no operator combines rows with different tags.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from tidegate.pipeline.nodes import STAR
from tidegate.spark.analyze.schemas import column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column as SparkColumn

    from tidegate.pipeline.nodes import How, Order, SelectColumn, Transformation

_RANK = "tidegate rank"
_SPARK_HOW = {"semi": "left_semi", "anti": "left_anti"}


def where(rows: DataFrame, sql: str) -> DataFrame:
    """The rows for which `sql` is true."""
    return rows.where(fn.expr(sql))


def project(
    rows: DataFrame, columns: Sequence[SelectColumn], tags: Sequence[str] = ()
) -> DataFrame:
    """These columns; `*` stands for every input column that none of them replaces by name."""
    return rows.select(*map(column, tags), *_projected(rows, columns, tags))


def _projected(
    rows: DataFrame, columns: Sequence[SelectColumn], tags: Sequence[str]
) -> Iterator[SparkColumn]:
    replaced = {it.name.casefold() for it in columns} | {*tags}
    for it in columns:
        if it.name == STAR:
            yield from (column(name) for name in rows.columns if name.casefold() not in replaced)
        else:
            yield fn.expr(it.sql).alias(it.name)


def apply(rows: DataFrame, function: Transformation) -> DataFrame:
    """The result of the user's function; raises `TypeError` unless it is a DataFrame."""
    result = function(rows)
    if not isinstance(result, DataFrame):
        raise TypeError(f"it returned {type(result).__name__}, not a DataFrame")
    return result


def distinct(rows: DataFrame) -> DataFrame:
    """Each row once. Tags are columns like others here, so they keep the same rows apart."""
    return rows.distinct()


def top(
    rows: DataFrame, n: int, by: Sequence[Order], per: Sequence[str], tags: Sequence[str] = ()
) -> DataFrame:
    """The first `n` rows per distinct `per`; ties in `by` are decided by all other columns."""
    per = (*tags, *per)
    grouping = {name.casefold() for name in per}
    others = [column(name) for name in rows.columns if name.casefold() not in grouping]
    order = [*map(_ordered, by), *(it.asc_nulls_first() for it in others)]
    if not per:
        return rows.orderBy(*order).limit(n)
    window = Window.partitionBy(*map(column, per)).orderBy(*order)
    ranked = rows.withColumn(_RANK, fn.row_number().over(window))
    return ranked.where(column(_RANK) <= n).drop(_RANK)


def _ordered(order: Order) -> SparkColumn:
    """With nulls as the smallest values, which is Spark's default."""
    value = fn.expr(order.sql)
    return value.desc_nulls_last() if order.descending else value.asc_nulls_first()


def join(
    left: DataFrame, right: DataFrame, on: Sequence[str], how: How, tags: Sequence[str] = ()
) -> DataFrame:
    """Pairs of rows equal in `on`, which appears once and first, as with SQL's USING."""
    return left.join(right, on=[*tags, *on], how=_SPARK_HOW.get(how, how))


def union(
    inputs: Sequence[DataFrame], columns: Sequence[str] = (), tags: Sequence[str] = ()
) -> DataFrame:
    """All rows, columns matched by name: the columns named, or all of them."""
    names = (*tags, *columns) if columns else ()
    return reduce(DataFrame.unionByName, (_picked(rows, names) for rows in inputs))


def _picked(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    if not columns:
        return rows
    folded = {name.casefold() for name in columns}
    return rows.select(*(column(name) for name in rows.columns if name.casefold() in folded))
