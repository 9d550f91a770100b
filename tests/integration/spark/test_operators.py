"""Operators on DataFrames: what each promises beyond what Spark does."""

from pyspark.sql import DataFrame

from tests.integration.spark.rows import content
from tidegate.pipeline.nodes import Order, SelectColumn
from tidegate.spark import Session
from tidegate.spark.jobs import operators

STAR = SelectColumn("*", "*", ())


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
