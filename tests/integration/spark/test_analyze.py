"""Spark analyzes a declaration before any data is read; errors have the user's line."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from typer.testing import CliRunner

import tidegate as tg
from tidegate.cli import app
from tidegate.errors import (
    CollatedKey,
    DeclarationError,
    DuplicateColumn,
    InexactAggregate,
    JoinKeysDiffer,
    RefusedBySpark,
)
from tidegate.pipeline import Pipeline, Stream
from tidegate.plan import explain_physical, physical_plan, plan_hash
from tidegate.plan.physical import PhysicalOperator
from tidegate.spark import Session, analyze, check
from tidegate.spark.jobs.aggregates import CallTypes
from tidegate.spark.jobs.apply_operator import apply_operator
from tidegate_examples.coffee import pipeline as coffee

SCHEMA = "store_id bigint, item string, amount decimal(10,2), weight double, tags map<string,int>"


def declared(lead: Callable[[Stream], Stream]) -> Pipeline:
    shop = tg.Pipeline("shop")
    lead(shop.source("sales", SCHEMA)).sink("out")
    return shop


def refusal(spark: Session, lead: Callable[[Stream], Stream]) -> DeclarationError:
    with pytest.raises(DeclarationError) as refused:
        analyze(declared(lead), spark)
    return refused.value


def test_a_pipeline_that_works_gives_the_columns_of_every_sink(spark: Session) -> None:
    found = analyze(coffee, spark)
    assert found["q1"] == (("transaction_id", "string"), ("final_amount", "decimal(12,2)"))
    assert found["q2_most_profit"] == (
        ("year_month_created_at", "string"),
        ("item_name", "string"),
        ("profit_sum", "decimal(22,2)"),
    )
    assert list(found) == ["q1", "q2_best_selling", "q2_most_profit", "q3", "q4"]


def test_an_unknown_column_is_reported_with_its_line_and_the_columns_there_are(
    spark: Session,
) -> None:
    error = refusal(spark, lambda sales: sales.filter("store_id > 0").filter("stor_id > 1"))
    assert isinstance(error, RefusedBySpark)
    assert error.spark_condition == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert (error.operator, error.sql) == ("filter", "stor_id > 1")
    assert error.at.file == __file__
    assert "stor_id > 1" in error.at.text
    assert "store_id bigint" in error.todo
    assert "\n" not in error.what


def test_of_many_expressions_the_rejected_one_is_named(spark: Session) -> None:
    error = refusal(spark, lambda sales: sales.select("item", ok="amount + 1", bad="item + tags"))
    assert isinstance(error, RefusedBySpark)
    assert error.sql == "item + tags"
    error = refusal(spark, lambda sales: sales.aggregate(by="item", n="count(*)", s="sum(tags)"))
    assert isinstance(error, RefusedBySpark)
    assert error.sql == "sum(tags)"


def test_a_filter_that_is_no_condition_is_refused(spark: Session) -> None:
    error = refusal(spark, lambda sales: sales.filter("amount * 2"))
    assert isinstance(error, RefusedBySpark)
    assert error.spark_condition.startswith("DATATYPE_MISMATCH")


def test_a_type_that_does_not_exist_in_spark_is_refused_at_its_source(spark: Session) -> None:
    shop = tg.Pipeline("shop")
    shop.source("sales", "amount decimal(50,2)").sink("out")
    with pytest.raises(RefusedBySpark) as refused:
        analyze(shop, spark)
    assert refused.value.operator == "source"


def fails(rows: DataFrame) -> DataFrame:
    raise ValueError("no such luck")


def test_a_transform_that_fails_is_reported_with_its_own_words(spark: Session) -> None:
    error = refusal(spark, lambda sales: sales.transform(fails))
    assert isinstance(error, RefusedBySpark)
    assert (error.spark_condition, error.reason) == ("ValueError", "no such luck")
    assert error.sql == "fails"
    assert isinstance(error.__cause__, ValueError)


def test_a_transform_that_returns_something_else_is_refused(spark: Session) -> None:
    error = refusal(spark, lambda sales: sales.transform(lambda rows: None))
    assert isinstance(error, RefusedBySpark)
    assert "NoneType" in error.reason


def test_exact_sums_of_what_turns_out_to_be_floating_point_are_refused(spark: Session) -> None:
    def doubled(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("item", "weight * 2 as twice")

    error = refusal(
        spark,
        lambda sales: sales.transform(doubled).aggregate(
            by="item", ok="count(*)", bad="sum(twice)", exact=True
        ),
    )
    assert isinstance(error, InexactAggregate)
    assert error.column == "bad"


def test_undecided_sums_are_decided_by_the_analysis(spark: Session) -> None:
    def doubled(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("item", "weight * 2 as twice", "amount")

    shop = declared(
        lambda sales: sales.transform(doubled).aggregate(by="item", x="sum(twice)", y="sum(amount)")
    )
    assert explain_physical(physical_plan(shop)).count("exactness unknown") == 2
    checked = check(shop, spark)
    shown = explain_physical(checked.plan)
    assert "x = sum(x_sum) (approximate: order of addition)" in shown
    assert "exactness unknown" not in shown
    assert plan_hash(checked.plan) == plan_hash(physical_plan(shop))


def test_a_plan_is_explained_with_the_analysis_by_spark(
    spark: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "spread.py").write_text(
        "import tidegate as tg\n"
        "pipeline = tg.Pipeline('spread')\n"
        "rows = pipeline.source('rows', 'prices array<double>')\n"
        "rows.aggregate(total='sum(prices[0])').sink('out')\n"
    )
    plain = CliRunner().invoke(app, ["explain", "spread:pipeline"])
    assert "(exactness unknown until --analyze-schema)" in plain.output
    for form in ("--logical", "--physical"):
        request = CliRunner().invoke(app, ["explain", "spread:pipeline", form, "--analyze-schema"])
        assert "(approximate: order of addition)" in request.output
        assert "exactness unknown" not in request.output


def test_the_stages_of_a_plan_are_analyzed_once(
    spark: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = []

    def counting(
        operator: PhysicalOperator, inputs: Sequence[DataFrame], types: CallTypes
    ) -> DataFrame:
        applied.append(operator)
        return apply_operator(operator, inputs, types)

    # The package exports a function under the name of this module.
    monkeypatch.setattr(sys.modules["tidegate.spark.analyze.prepare"], "apply_operator", counting)
    shop = declared(lambda sales: sales.aggregate(by="item", n="count(*)"))
    plan = check(shop, spark, shards=2).plan
    assert len(applied) == sum(len(stage.operators) for stage in plan.stages)
    assert plan.shards == 2


def test_join_keys_of_different_types_are_refused_because_rows_meet_by_hash(
    spark: Session,
) -> None:
    error = refusal(
        spark,
        lambda sales: sales.join(sales.select(store_id="cast(store_id as int)"), on="store_id"),
    )
    assert isinstance(error, JoinKeysDiffer)
    assert (error.left, error.right) == ("bigint", "int")


NO_CASE = {"item": "item collate UTF8_LCASE"}


@pytest.mark.parametrize(
    ("lead", "operator"),
    [
        (lambda sales: sales.select(**NO_CASE).aggregate(by="item", n="count(*)"), "aggregate"),
        (lambda sales: sales.select(**NO_CASE).distinct(), "distinct"),
        (
            lambda sales: sales.select("store_id", **NO_CASE).top(1, by="store_id asc", per="item"),
            "top",
        ),
        (
            lambda sales: sales.select(**NO_CASE).join(
                sales.select("store_id", **NO_CASE), on="item"
            ),
            "join",
        ),
        (
            lambda sales: sales.select(item="array(item collate UTF8_LCASE)").distinct(),
            "distinct",
        ),
    ],
)
def test_keys_that_are_equal_with_different_bytes_are_refused_because_rows_meet_by_hash(
    spark: Session, lead: Callable[[Stream], Stream], operator: str
) -> None:
    error = refusal(spark, lead)
    assert isinstance(error, CollatedKey)
    assert (error.operator, error.column) == (operator, "item")
    assert "UTF8_LCASE" in error.type


def test_a_collated_column_that_is_no_key_is_accepted(spark: Session) -> None:
    shop = declared(
        lambda sales: sales.select("store_id", item=NO_CASE["item"]).filter("item = 'TEA'")
    )
    assert analyze(shop, spark)["out"][1] == ("item", "string collate UTF8_LCASE")


def test_two_columns_of_one_name_after_a_join_are_refused(spark: Session) -> None:
    error = refusal(
        spark, lambda sales: sales.join(sales.select("store_id", "item"), on="store_id")
    )
    assert isinstance(error, DuplicateColumn)
    assert error.column == "item"


def test_a_column_without_a_type_is_refused_because_no_file_can_hold_it(spark: Session) -> None:
    error = refusal(spark, lambda sales: sales.select(nothing="null"))
    assert isinstance(error, RefusedBySpark)
    assert error.sql == "nothing"


def test_ranking_what_has_no_order_is_refused(spark: Session) -> None:
    error = refusal(spark, lambda sales: sales.top(1, by="amount desc"))
    assert isinstance(error, RefusedBySpark)
    assert "ORDERING" in error.spark_condition


def test_a_session_that_is_there_already_is_used_and_left_running(spark: Session) -> None:
    analyze(declared(lambda sales: sales.filter("amount > 0")))
    assert spark.range(1).count() == 1
