"""Aggregates are split into partial, merge and finish, or refused with a reason."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.errors import ForbiddenSql, InexactAggregate, InvalidSql, UnmergeableAggregate
from tidegate.pipeline.nodes import Aggregate, AggregateColumn, AggregateState


@pytest.fixture
def sales() -> tg.Stream:
    return tg.Pipeline("shop").source("sales", "store_id bigint, amount decimal(10,2)")


def split(
    sales: tg.Stream, sql: str, *, by: str = "store_id", exact: bool = False
) -> AggregateColumn:
    node = sales.aggregate(by=by, x=sql, exact=exact).node
    assert isinstance(node, Aggregate)
    return node.columns[0]


@pytest.mark.parametrize(
    ("sql", "states", "finish"),
    [
        ("sum(amount)", [("sum(amount)", "sum(x_sum)")], "x_sum"),
        ("count(*)", [("count(*)", "coalesce(sum(x_count), 0)")], "x_count"),
        ("count(a, b)", [("count(a, b)", "coalesce(sum(x_count), 0)")], "x_count"),
        ("min(a)", [("min(a)", "min(x_min)")], "x_min"),
        ("MAX ( a )", [("max(a)", "max(x_max)")], "x_max"),
        ("count_if(a > 1)", [("count_if(a > 1)", "coalesce(sum(x_count), 0)")], "x_count"),
        ("every(a)", [("bool_and(a)", "bool_and(x_all)")], "x_all"),
        ("bool_or(a)", [("bool_or(a)", "bool_or(x_any)")], "x_any"),
        ("any(a > 1)", [("bool_or(a > 1)", "bool_or(x_any)")], "x_any"),
        ("some(a)", [("bool_or(a)", "bool_or(x_any)")], "x_any"),
        (
            "avg(a)",
            [("sum(a)", "sum(x_sum)"), ("count(a)", "coalesce(sum(x_count), 0)")],
            "x_sum / nullif(x_count, 0)",
        ),
        (
            "approx_count_distinct(a)",
            [("hll_sketch_agg(cast(a as string))", "hll_union_agg(x_sketch)")],
            "coalesce(hll_sketch_estimate(x_sketch), 0)",
        ),
    ],
)
def test_a_call_is_split(
    sales: tg.Stream, sql: str, states: list[tuple[str, str]], finish: str
) -> None:
    column = split(sales, sql)
    (call,) = column.calls
    assert [(state.partial, state.merge) for state in call.states] == states
    assert call.finish == finish
    assert call.sql == sql
    assert column.finish == call.name


def test_a_filter_goes_into_every_state(sales: tg.Stream) -> None:
    column = split(sales, "mean(amount) FILTER (WHERE kind in ('a', 'b'))")
    assert [state.partial for state in column.states] == [
        "sum(amount) filter (where kind in ('a', 'b'))",
        "count(amount) filter (where kind in ('a', 'b'))",
    ]
    assert set(column.reads) == {"amount", "kind"}


def test_an_expression_over_calls_is_finished_from_finished_calls(sales: tg.Stream) -> None:
    column = split(sales, "round(sum(amount) / count(*), 2) + store_id")
    assert [call.sql for call in column.calls] == ["sum(amount)", "count(*)"]
    assert column.finish == "round(x_1_value / x_2_value, 2) + store_id"


def test_the_users_text_is_split_and_not_generated(sales: tg.Stream) -> None:
    column = split(sales, "sum( CASE WHEN `a b` = 'it''s )' THEN amount END )")
    assert column.states[0].partial == "sum(CASE WHEN `a b` = 'it''s )' THEN amount END)"


def test_states_never_take_the_name_of_another_column(sales: tg.Stream) -> None:
    node = sales.aggregate(by="x_sum", x="sum(a)", X_sum_="sum(b)").node
    assert isinstance(node, Aggregate)
    names = [*node.by, *(state.name for column in node.columns for state in column.states)]
    assert len({name.casefold() for name in names}) == len(names)
    assert node.columns[0].states == (AggregateState("x_sum__", "sum(a)", "sum(x_sum__)"),)


def test_a_column_with_an_odd_name_has_states_that_need_no_quotes(sales: tg.Stream) -> None:
    node = sales.aggregate(by="a", columns={"Sum of all": "sum(b)"}).node
    assert isinstance(node, Aggregate)
    assert node.columns[0].states[0].name == "Sum_of_all_sum"


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("count(distinct a)", "counted on every shard"),
        ("sum(distinct a)", "counted on every shard"),
        ("percentile(a, 0.5)", "all rows of a group"),
        ("percentile_approx(a, 0.5)", "all rows of a group"),
        ("median(a)", "all rows of a group"),
        ("mode(a)", "all rows of a group"),
        ("first(a)", "order of rows"),
        ("last(a)", "order of rows"),
        ("any_value(a)", "order of rows"),
        ("max_by(a, b)", "order of rows"),
        ("collect_list(a)", "collects every row"),
        ("collect_set(a)", "collects every row"),
        ("array_agg(a)", "collects every row"),
        ("stddev(a)", "order of rows"),
        ("var_pop(a)", "order of rows"),
        ("std(a)", "order of rows"),
        ("try_sum(a)", "cannot be merged"),
        ("bit_xor(a)", "cannot be merged"),
        ("listagg(a)", "collects every row"),
        ("sum(max(a))", "inside an aggregate"),
        ("sum(any(a))", "inside an aggregate"),
        ("sum(1) + first(a)", "order of rows"),
        ("approx_count_distinct(a, 0.01)", "first argument"),
        ("amount", "aggregates nothing"),
        ("1 + 1", "aggregates nothing"),
        ("my_function(a)", "aggregates nothing"),
        ("sum(a) + b", "'b' has many values"),
    ],
)
def test_what_cannot_be_merged_is_refused_with_a_reason(
    sales: tg.Stream, sql: str, reason: str
) -> None:
    with pytest.raises(UnmergeableAggregate) as raised:
        split(sales, sql)
    assert raised.value.column == "x"
    assert raised.value.sql == sql
    assert reason in raised.value.reason
    assert raised.value.instead
    assert raised.value.at.file == __file__


@pytest.mark.parametrize(
    "sql", ["sum(rand())", "max(now())", "max(current_date)", "sum(a) over ()"]
)
def test_what_cannot_be_replayed_is_refused(sales: tg.Stream, sql: str) -> None:
    with pytest.raises(ForbiddenSql):
        split(sales, sql)


@pytest.mark.parametrize("sql", ["", "sum(a", "sum(a) b", "sum(a, b)"])
def test_what_cannot_be_parsed_is_refused(sales: tg.Stream, sql: str) -> None:
    with pytest.raises(InvalidSql):
        split(sales, sql)


def test_a_sketch_is_marked_approximate(sales: tg.Stream) -> None:
    assert split(sales, "approx_count_distinct(a)").approximate == "HLL sketch, about 2 %"
    assert split(sales, "sum(a)").approximate is None


def test_a_sketch_is_refused_in_an_exact_aggregate(sales: tg.Stream) -> None:
    with pytest.raises(InexactAggregate) as raised:
        split(sales, "approx_count_distinct(a)", exact=True)
    assert raised.value.column == "x"
