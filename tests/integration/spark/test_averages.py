"""The average of decimals equals Spark's own, digit by digit, however the sum was put together."""

import random
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import functions as fn
from pyspark.sql.types import DecimalType

from tidegate.spark import Session
from tidegate.spark.analyze.schemas import column
from tidegate.spark.jobs.averages import average_type, decimal_average

TYPES = [
    (4, 2), (10, 2), (11, 11), (12, 2), (18, 2), (20, 10), (28, 0), (30, 20), (33, 0),
    (38, 0), (38, 5), (38, 18), (38, 30), (38, 34), (38, 36), (38, 38),
]  # fmt: skip
SIZES = [1, 2, 3, 6, 7, 8, 16, 64, 96, 125]
GROUPS = 400


def values(chance: random.Random, precision: int, scale: int, groups: list[int]) -> pa.Array:
    """Random numbers of random size, of both signs, some null, whose sum and average fit."""
    fitting = average_type(DecimalType(precision, scale))
    widest = min(precision, scale + fitting.precision - fitting.scale, 35)
    digits = {group: chance.randint(1, widest) for group in groups}

    def value(group: int) -> Decimal | None:
        bound = 10 ** digits[group] - 1
        number = Decimal(chance.randint(-bound, bound)).scaleb(-scale)
        return None if group % 40 == 0 or chance.random() < 0.02 else number

    return pa.array(map(value, groups), pa.decimal128(precision, scale))


def test_an_average_from_partial_sums_has_the_digits_of_spark_s_own(spark: Session) -> None:
    chance = random.Random(20240229)
    groups = [group for group in range(GROUPS) for _ in range(chance.choice(SIZES))]
    numbers = {f"x{p}_{s}": values(chance, p, s, groups) for p, s in TYPES}
    batches = pa.array([chance.randrange(5) for _ in groups])
    table = pa.table({"g": groups, "batch": batches, **numbers})
    rows = spark.createDataFrame(table)
    sums = [fn.sum(column(name)).alias(f"sum_{name}") for name in numbers]
    counts = [fn.count(column(name)).alias(f"count_{name}") for name in numbers]
    partial = rows.groupBy("g", "batch").agg(*sums, *counts)
    states = [name for name in partial.columns if name not in {"g", "batch"}]
    merged = partial.groupBy("g").agg(*(fn.sum(column(name)).alias(name) for name in states))
    ours = [
        decimal_average(
            column(f"sum_x{p}_{s}"), column(f"count_x{p}_{s}"), DecimalType(p, s)
        ).alias(f"x{p}_{s}")
        for p, s in TYPES
    ]
    own = rows.groupBy("g").agg(*(fn.avg(column(name)).alias(name) for name in numbers))
    found = merged.select("g", *ours)
    assert found.dtypes == own.dtypes
    assert sorted(found.collect()) == sorted(own.collect())


def test_ties_are_rounded_away_from_zero_also_where_a_plain_division_has_no_digits_left(
    spark: Session,
) -> None:
    sums = spark.sql(
        "select cast(total as decimal(38,38)) total, n from values"
        " ('0.00000000000000000000000000000000000003', 2L),"
        " ('-0.00000000000000000000000000000000000003', 2L),"
        " ('-0.00000000000000000000000000000000000001', 3L), (null, 0L) as t(total, n)"
    )
    averages = sums.select(decimal_average(column("total"), column("n"), DecimalType(38, 38)))
    ulp = Decimal(1).scaleb(-38)
    assert [row[0] for row in averages.collect()] == [2 * ulp, -2 * ulp, 0, None]


def test_more_values_than_a_plain_division_is_exact_for_are_divided_by_hand(
    spark: Session,
) -> None:
    # 2 000 001 values of decimal(18,2) whose average lies just below a tie.
    sums = spark.sql("select cast('20000009.99' as decimal(28,2)) total, 2000001L n")
    average = sums.select(decimal_average(column("total"), column("n"), DecimalType(18, 2)))
    exact = Decimal("20000009.99") / 2000001
    assert average.collect()[0][0] == exact.quantize(Decimal("0.000001"))
