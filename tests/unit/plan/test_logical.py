"""Mistakes of the whole graph: cycles, loose ends, and sums that depend on order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tidegate as tg
from tidegate.errors import (
    CyclicPipeline,
    InexactAggregate,
    PipelineWithoutSink,
    UnknownStream,
    UnreadSource,
)
from tidegate.pipeline.nodes import Aggregate, Filter, Union
from tidegate.plan import logical_plan

if TYPE_CHECKING:
    from tidegate.pipeline.nodes import AggregateColumn
    from tidegate.plan import LogicalPlan

SCHEMA = """
    k int, price decimal(10,2), weight double, amount float, n bigint, name string, sold_on date,
    box struct<width: double, price: decimal(10,2), inner: struct<depth: float>>
"""


@pytest.fixture
def sales(shop: tg.Pipeline) -> tg.Stream:
    return shop.source("sales", SCHEMA)


def names(plan: LogicalPlan) -> list[str]:
    return [type(node.operator).__name__ for node in plan.nodes]


def test_a_pipeline_without_a_sink_points_at_the_pipeline(shop: tg.Pipeline) -> None:
    with pytest.raises(PipelineWithoutSink) as raised:
        logical_plan(shop)
    assert raised.value.at == shop.at


def test_a_source_that_no_sink_reads_points_at_the_source(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.sink("all")
    unread = shop.source("unread", "a int")
    unread.filter("a > 1")
    with pytest.raises(UnreadSource) as raised:
        logical_plan(shop)
    assert raised.value.at == unread.node.at
    assert raised.value.source == "unread"


def test_a_sink_behind_an_undeclared_name_has_no_input(shop: tg.Pipeline) -> None:
    missing = shop.stream("missing")
    missing.sink("nothing")
    with pytest.raises(UnknownStream) as raised:
        logical_plan(shop)
    assert raised.value.at == missing.node.at
    assert raised.value.name == "missing"


def test_a_reference_leads_to_the_stream_that_is_named_later(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    shop.stream("large").filter("k > 1").sink("large")
    sales.filter("price > 75").named("large")
    plan = logical_plan(shop)
    assert names(plan) == ["Source", "Filter", "Filter", "Sink"]
    assert plan.nodes[2].inputs == (plan.nodes[1].id,)


def test_two_references_to_one_stream_share_it(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.filter("k > 1").named("some")
    shop.stream("some").join(shop.stream("some"), on="k").sink("pairs")
    plan = logical_plan(shop)
    assert names(plan) == ["Source", "Filter", "Join", "Sink"]
    assert plan.nodes[2].inputs == ("n2", "n2")


def test_a_cycle_of_tampered_nodes_is_found_as_well(shop: tg.Pipeline, sales: tg.Stream) -> None:
    looped = sales.filter("k > 1")
    union = looped.union(looped)
    assert isinstance(looped.node, Filter)
    assert isinstance(union.node, Union)
    object.__setattr__(looped.node, "input", union.node)
    union.sink("never")
    with pytest.raises(CyclicPipeline) as raised:
        logical_plan(shop)
    assert raised.value.at.file == __file__
    assert "reads" in raised.value.path


def test_a_plan_may_be_deeper_than_the_stack(shop: tg.Pipeline, sales: tg.Stream) -> None:
    deep = sales
    for _ in range(5_000):
        deep = deep.filter("k > 1")
    deep.sink("deep")
    assert len(logical_plan(shop).nodes) == 5_002


def test_the_number_of_shards_can_be_chosen_for_a_plan(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.sink("all")
    assert logical_plan(shop, shards=7).shards == 7


# --- sums that depend on the order of rows ---------------------------------------------------


def aggregated(shop: tg.Pipeline, stream: tg.Stream, sql: str) -> AggregateColumn:
    stream.aggregate(by="k", x=sql).sink("result")
    (aggregate, *_) = (
        node.operator
        for node in reversed(logical_plan(shop).nodes)
        if isinstance(node.operator, Aggregate)
    )
    return aggregate.columns[0]


def approximate(shop: tg.Pipeline, stream: tg.Stream, sql: str) -> str | None:
    return aggregated(shop, stream, sql).approximate


@pytest.mark.parametrize(
    "sql",
    [
        "sum(weight)",
        "avg(weight)",
        "sum(amount)",
        "sum(WEIGHT)",
        "sum(price * weight)",
        "sum(cast(price as double))",
        "sum(n / 2)",
        "sum(coalesce(weight, 0))",
        "sum(if(k > 1, weight, 0))",
        "sum(-abs(weight))",
        "sum(round(weight, 2))",
        "sum(sqrt(n))",
        "sum(n * 1e0)",
        "sum(weight) / count(*)",
        "sum(weight) filter (where k > 1)",
        "sum(case when k > 1 then weight end)",
        "sum(case k when 1 then 0 else weight end)",
        "sum(greatest(n, weight))",
        "sum(least(amount, price))",
        "sum(nullif(weight, 0))",
        "sum(decode(k, 1, weight, price))",
        "sum(decode(k, 1, price))",
        "sum(nvl(weight, n))",
        "sum(nvl2(n, weight, 0))",
        "sum(zeroifnull(weight))",
        "sum(sin(n))",
        "sum(exp(n))",
        "sum(log10(n))",
        "sum(log1p(n))",
        "sum(pow(n, 2))",
        "sum(degrees(n))",
        "sum(sign(price))",
        "sum(try_divide(n, 2))",
        "avg(try_add(n, weight))",
        "sum(pmod(weight, 2))",
        "sum(double(price))",
        "sum(name)",
        "avg(name)",
        "sum(name * 2.5)",
        "sum(trim(name))",
        "sum(box.width)",
        "sum(box.inner.depth * n)",
    ],
)
def test_a_sum_of_floating_point_is_marked_approximate(
    shop: tg.Pipeline, sales: tg.Stream, sql: str
) -> None:
    assert approximate(shop, sales, sql) == "order of addition"


@pytest.mark.parametrize(
    "sql",
    [
        "sum(price)",
        "avg(price)",
        "sum(n)",
        "avg(n)",
        "sum(price * 2)",
        "sum(cast(weight as decimal(10,2)))",
        "sum(round(price, 1))",
        "max(weight)",
        "count(weight)",
        "sum(case when k > 1 then price else 0 end)",
        "sum(greatest(price, n))",
        "sum(try_divide(price, 2))",
        "sum(floor(weight))",
        "sum(weight div 2)",
        "sum(box.price)",
        "sum(year(sold_on))",
        "sum(length(name))",
        "sum(sold_on - sold_on)",
        "sum(bigint(name))",
    ],
)
def test_what_is_exact_is_not_marked(shop: tg.Pipeline, sales: tg.Stream, sql: str) -> None:
    column = aggregated(shop, sales, sql)
    assert column.approximate is None
    assert not column.undecided


@pytest.mark.parametrize(
    "sql", ["sum(my_function(weight))", "avg(unknown)", "sum(box.missing)", "sum(unknown) + 1"]
)
def test_a_sum_whose_type_only_spark_knows_is_undecided(
    shop: tg.Pipeline, sales: tg.Stream, sql: str
) -> None:
    column = aggregated(shop, sales, sql)
    assert column.approximate is None
    assert column.undecided


def test_only_sums_can_be_undecided(shop: tg.Pipeline, sales: tg.Stream) -> None:
    assert not aggregated(shop, sales, "max(my_function(weight))").undecided


def test_nothing_is_undecided_after_the_analysis_by_spark(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.aggregate(x="sum(my_function(n))", y="sum(my_function(k))").sink("result")
    plan = logical_plan(shop, floating={"n2": frozenset({"y_value"})})
    operator = plan.by_id["n2"].operator
    assert isinstance(operator, Aggregate)
    assert [column.approximate for column in operator.columns] == [None, "order of addition"]
    assert not any(column.undecided for column in operator.columns)


def test_floating_point_is_followed_through_operators(shop: tg.Pipeline, sales: tg.Stream) -> None:
    stores = shop.source("stores", "k int, area double")
    stream = (
        sales.filter("n > 1")
        .select("k", "weight", share="weight * 2")
        .join(stores, on="k")
        .select("*", density="share - area")
        .top(10, by="density desc")
    )
    assert approximate(shop, stream.union(stream), "sum(density)") == "order of addition"


def test_a_renamed_column_has_the_kind_of_what_it_renames(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    assert approximate(shop, sales.select("k", weight="price"), "sum(weight)") is None


def test_an_aggregated_column_has_a_kind_of_its_own(shop: tg.Pipeline, sales: tg.Stream) -> None:
    counted = sales.aggregate(by="k", weight="count(weight)", n="max(weight)", price="avg(n)")
    twice = counted.aggregate(by="k", a="sum(weight)", b="sum(n)", c="sum(price)")
    twice.sink("twice")
    operator = logical_plan(shop).nodes[-2].operator
    assert isinstance(operator, Aggregate)
    marks = {column.name: column.approximate for column in operator.columns}
    assert marks == {"a": None, "b": "order of addition", "c": "order of addition"}


def test_what_is_computed_from_aggregates_has_a_kind_as_well(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    shares = sales.aggregate(by="k", a="sum(n) / count(*)", b="sum(price) / count(*)", c="max(box)")
    shares.aggregate(by="k", a="sum(a)", b="sum(b)", c="sum(c.width)").sink("twice")
    operator = logical_plan(shop).nodes[-2].operator
    assert isinstance(operator, Aggregate)
    marks = {column.name: column.approximate for column in operator.columns}
    assert marks == {"a": "order of addition", "b": None, "c": "order of addition"}
    assert not any(column.undecided for column in operator.columns)


def test_a_sum_of_thousands_of_terms_is_not_judged(shop: tg.Pipeline, sales: tg.Stream) -> None:
    terms = " + ".join(["coalesce(weight, 0)"] * 2_000)
    assert approximate(shop, sales.select("k", x=terms), "sum(x)") is None


def test_what_a_function_does_is_not_guessed(shop: tg.Pipeline, sales: tg.Stream) -> None:
    assert approximate(shop, sales.transform(lambda rows: rows), "sum(weight)") is None


def test_exactness_refuses_a_sum_of_floating_point(shop: tg.Pipeline, sales: tg.Stream) -> None:
    total = sales.aggregate(by="k", total="sum(weight)", exact=True)
    total.sink("total")
    with pytest.raises(InexactAggregate) as raised:
        logical_plan(shop)
    assert raised.value.at == total.node.at
    assert raised.value.column == "total"
    assert raised.value.reason == "order of addition"


def test_marking_leaves_the_declaration_alone(shop: tg.Pipeline, sales: tg.Stream) -> None:
    total = sales.aggregate(by="k", total="sum(weight)")
    total.sink("total")
    logical_plan(shop)
    assert isinstance(total.node, Aggregate)
    assert total.node.columns[0].approximate is None
