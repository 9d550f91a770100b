"""Operators on DataFrames: what each promises beyond what Spark does."""

from typing import get_args

import pytest
from pyspark.sql import DataFrame

from tests.integration.spark.rows import content
from tests.unit.plan.operators import PHYSICAL, pipeline_with
from tidegate.pipeline import nodes
from tidegate.pipeline.nodes import Order, SelectColumn
from tidegate.plan.physical import (
    CompactAggregate,
    MergeAggregate,
    PartialAggregate,
    PhysicalJoin,
    PhysicalOperator,
    WholeAggregate,
)
from tidegate.spark import Session, check
from tidegate.spark.jobs import operators
from tidegate.spark.jobs.aggregates import call_types
from tidegate.spark.jobs.apply_operator import apply_operator

STAR = SelectColumn("*", "*", ())
AGGREGATES = (WholeAggregate, PartialAggregate, MergeAggregate, CompactAggregate)


def table(spark: Session, values: str, names: str) -> DataFrame:
    return spark.sql(f"select * from values {values} as t({names})")


def test_a_star_keeps_all_columns_in_their_place_except_those_replaced(spark: Session) -> None:
    rows = table(spark, "(1, 2, 3)", "a, b, c")
    columns = (STAR, SelectColumn("B", "b * 10", ("b",)), SelectColumn("d", "a + c", ("a", "c")))
    made = operators.project(rows, columns)
    assert made.columns == ["a", "c", "B", "d"]
    assert content(made) == [(1, 3, 20, 4)]


def test_a_filter_drops_rows_for_which_the_condition_is_unknown(spark: Session) -> None:
    assert content(operators.where(table(spark, "(1), (null), (3)", "a"), "a > 1")) == [(3,)]


def test_ties_of_a_top_are_decided_by_all_other_columns(spark: Session) -> None:
    rows = table(spark, "('x', 1, 'b'), ('x', 1, 'a'), ('x', 1, null), ('y', 0, 'c')", "g, n, v")
    by = (Order("n", True, ("n",)),)
    assert content(operators.top(rows, 1, by, ("g",))) == [("x", 1, None), ("y", 0, "c")]
    assert content(operators.top(rows, 2, by, ())) == [("x", 1, "a"), ("x", 1, None)]


def test_nulls_are_the_smallest_values_of_a_top(spark: Session) -> None:
    rows = table(spark, "(1), (null), (2)", "n")
    assert content(operators.top(rows, 1, (Order("n", False, ("n",)),), ())) == [(None,)]
    assert content(operators.top(rows, 2, (Order("n", True, ("n",)),), ())) == [(1,), (2,)]


def test_joins_show_their_keys_once_and_first_in_every_way(spark: Session) -> None:
    left = table(spark, "('a', 1), ('b', 2), ('n', null)", "l, k")
    right = table(spark, "(1, 'A'), (3, 'C'), (null, 'N')", "k, r")
    found = {
        how: content(operators.join(left, right, ["k"], how))
        for how in ("inner", "left", "right", "full", "semi", "anti")
    }
    both: list[tuple[object, ...]] = [(1, "a", "A")]
    only_left = [(2, "b", None), (None, "n", None)]
    only_right = [(3, None, "C"), (None, None, "N")]
    assert found == {
        "inner": both,
        "left": [*both, *only_left],
        "right": [*both, *only_right],
        "full": sorted([*both, *only_left, *only_right], key=repr),
        "semi": [(1, "a")],
        "anti": [(2, "b"), (None, "n")],
    }


def test_a_union_matches_columns_by_name_and_has_only_those_listed(spark: Session) -> None:
    first, second = table(spark, "(1, 'x')", "a, b"), table(spark, "('y', 2L, 0)", "B, A, c")
    made = operators.union([first, second], ["a", "b"])
    assert made.dtypes == [("a", "bigint"), ("b", "string")]
    assert content(made) == [(1, "x"), (2, "y")]


@pytest.mark.parametrize("kind", get_args(nodes.Operator))
def test_every_declared_operator_is_analyzed_and_prepared(
    kind: type[nodes.Operator], spark: Session
) -> None:
    pipeline = pipeline_with(kind)
    checked = check(pipeline, spark)
    assert checked.sinks.keys() == pipeline.sinks.keys()
    assert checked.stages.keys() == {stage.id for stage in checked.plan.stages}


@pytest.mark.parametrize("kind", get_args(PhysicalOperator))
def test_every_physical_operator_is_applied(kind: type[PhysicalOperator], spark: Session) -> None:
    rows = spark.sql("select 1L as id, 2 as n, 2L as total_sum where false")
    operator = PHYSICAL[kind]
    aggregates = operator.columns if isinstance(operator, AGGREGATES) else ()
    inputs = (rows, rows.select("id")) if kind is PhysicalJoin else (rows,)
    if kind is CompactAggregate:  # its input is what partial aggregates give
        inputs = (rows.select("id", "total_sum"),)
    assert apply_operator(operator, inputs, call_types(rows, aggregates)).columns
