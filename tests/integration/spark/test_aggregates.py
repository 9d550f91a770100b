"""Aggregates merged from partial results equal Spark's own, whatever the batches."""

import random
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

import tidegate as tg
from tests.integration.spark.rows import assert_same, frame
from tidegate.pipeline.nodes import Aggregate, AggregateColumn
from tidegate.spark import Session
from tidegate.spark.jobs.aggregates import aggregate, call_types, merge_aggregate, partial_aggregate

SCHEMA = pa.schema({
    "k": pa.string(), "batch": pa.int32(), "i": pa.int32(), "n": pa.int64(), "f": pa.float64(),
    "d": pa.decimal128(12, 3), "wide": pa.decimal128(38, 10), "b": pa.bool_(), "s": pa.string(),
})  # fmt: skip


def columns_of(**sql: str) -> tuple[AggregateColumn, ...]:
    node = tg.Pipeline("p").source("s", "k string").aggregate(by="k", columns=sql).node
    assert isinstance(node, Aggregate)
    return node.columns


def in_batches(
    rows: DataFrame, by: list[str], columns: tuple[AggregateColumn, ...], batch: str = "batch"
) -> DataFrame:
    """Partial results of each batch, merged: all in one job."""
    types = call_types(rows, columns)
    partial = partial_aggregate(rows, [*by, batch], columns, types).drop(batch)
    return merge_aggregate(partial, by, columns, types)


@pytest.fixture(scope="module")
def rows(spark: Session) -> DataFrame:
    chance = random.Random(7)

    def row() -> tuple[object, ...]:
        kept = [
            chance.randint(-(10**9), 10**9), chance.randint(-(2**62), 2**62),
            chance.randint(-1000, 1000) / 8,
            Decimal(chance.randint(-(10**12) + 1, 10**12 - 1)).scaleb(-3),
            Decimal(chance.randint(-(10**33), 10**33)).scaleb(-10),
            chance.random() < 0.5, chance.choice("abc"),
        ]  # fmt: skip
        values = [None if chance.random() < 0.1 else value for value in kept]
        return (chance.choice(["x", "y", "", None]), chance.randrange(4), *values)

    empty_group = ("empty", 1, *[None] * 7)
    return frame(spark, SCHEMA, [empty_group, *(row() for _ in range(300))]).cache()


EXACT = columns_of(
    sum_i="sum(i)", sum_d="sum(d)", sum_wide="sum(wide)",
    avg_i="avg(i)", avg_d="avg(d)", avg_wide="avg(wide)", mean="mean(d) filter (where b)",
    sum_f="sum(f)", avg_f="avg(f)",
    min_s="min(s)", max_n="max(n)", min_b="min(b)", count="count(*)", some="count(i, s)",
    yes="count_if(b)", every="every(b)", some_b="some(b)", any_b="any(b)",
    expression="coalesce(sum(d), 0) / count(*) + length(k)", twice="sum(i) + sum(i)",
)  # fmt: skip


def test_types_and_digits_are_those_of_spark_s_own_aggregates(rows: DataFrame) -> None:
    assert_same(in_batches(rows, ["k"], EXACT), aggregate(rows, ["k"], EXACT))


def test_without_groups_there_is_one_row_also_of_nothing(rows: DataFrame) -> None:
    columns = columns_of(total="sum(d)", n="count(*)", mean="avg(wide)", yes="bool_and(b)")
    assert_same(in_batches(rows, [], columns), aggregate(rows, [], columns))
    nothing = rows.where("false")
    assert_same(in_batches(nothing, [], columns), aggregate(nothing, [], columns))


def test_an_average_of_large_integers_does_not_overflow_where_their_sum_would(
    spark: Session,
) -> None:
    large = spark.sql("select 'x' k, id % 2 batch, 9000000000000000000 n from range(8)")
    columns = columns_of(mean="avg(n)")
    assert in_batches(large, ["k"], columns).collect() == [("x", 9e18)]


def test_distinct_estimates_are_close_and_do_not_depend_on_how_rows_were_batched(
    spark: Session,
) -> None:
    columns = columns_of(about="approx_count_distinct(v)")
    values = spark.sql("select 'x' k, id % 30000 v, id from range(60000)")
    batched = (
        values.withColumn("batch", fn.expr(f"pmod(xxhash64(id, {salt}), {batches})"))
        for salt, batches in [(0, 1), (1, 3), (2, 17)]
    )
    estimates = {in_batches(it, ["k"], columns).collect()[0]["about"] for it in batched}
    assert len(estimates) == 1
    assert estimates.pop() == pytest.approx(30000, rel=0.05)


def test_distinct_estimates_of_few_values_are_exact_and_of_none_zero(rows: DataFrame) -> None:
    columns = columns_of(about="approx_count_distinct(s)")
    found = {row["k"]: row["about"] for row in in_batches(rows, ["k"], columns).collect()}
    assert found == {"x": 3, "y": 3, "": 3, None: 3, "empty": 0}
