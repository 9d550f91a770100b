"""Mistakes that need no Spark are errors at the line that makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tidegate as tg
from tidegate.errors import (
    CyclicPipeline,
    DeclarationError,
    DuplicateColumn,
    DuplicateName,
    ForbiddenSql,
    ForeignStream,
    InvalidArgument,
    InvalidName,
    InvalidSchema,
    InvalidSql,
    JoinWithoutKeys,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def sales(shop: tg.Pipeline) -> tg.Stream:
    return shop.source("sales", "store_id bigint, amount decimal(10,2)")


def mistake(
    condition: type[DeclarationError], declare: Callable[[], object], /, **fields: object
) -> DeclarationError:
    """The error of `declare`, which must have these fields and point into this file."""
    with pytest.raises(condition) as raised:
        declare()
    assert raised.value.at.file == __file__
    assert raised.value.at.line == declare.__code__.co_firstlineno
    assert {name: getattr(raised.value, name) for name in fields} == fields
    return raised.value


def test_two_sources_of_one_name_name_both_lines(shop: tg.Pipeline) -> None:
    first = shop.source("sales", "a int").node.at
    mistake(DuplicateName, lambda: shop.source("sales", "a int"), kind="source", first=first)


def test_two_sinks_of_one_name_name_both_lines(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.sink("totals")
    first = shop.sinks["totals"].at
    mistake(DuplicateName, lambda: sales.sink("totals"), kind="sink", name="totals", first=first)


def test_names_that_differ_in_case_alone_are_the_same_file(sales: tg.Stream) -> None:
    sales.sink("Totals")
    mistake(DuplicateName, lambda: sales.sink("totals"), name="totals")


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden", "with space", "x" * 101, "ü"])
def test_a_name_must_be_safe_as_a_file_name(sales: tg.Stream, name: str) -> None:
    mistake(InvalidName, lambda: sales.sink(name), kind="sink", name=name)
    mistake(InvalidName, lambda: tg.Pipeline(name), kind="pipeline", name=name)


@pytest.mark.parametrize(
    "schema", ["", "a", "a bananas", "a int,", "a int,, b int", {}, {"a": "bananas"}]
)
def test_a_schema_must_be_spark_ddl(shop: tg.Pipeline, schema: str | dict[str, str]) -> None:
    mistake(InvalidSchema, lambda: shop.source("sales", schema), source="sales")


def test_a_schema_names_each_column_once(shop: tg.Pipeline) -> None:
    mistake(DuplicateColumn, lambda: shop.source("sales", "a int, A string"), column="A")


@pytest.mark.parametrize(
    "sql", ["", "amount >", "a b", "a, b", "select 1", "amount;", "(amount", "drop table sales"]
)
def test_sql_must_be_one_expression(sales: tg.Stream, sql: str) -> None:
    mistake(InvalidSql, lambda: sales.filter(sql), sql=sql)


def test_sql_deeper_than_the_parser_can_go_is_refused_and_does_not_crash(sales: tg.Stream) -> None:
    mistake(InvalidSql, lambda: sales.filter("abs(" * 500 + "a" + ")" * 500))


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("rand() < 0.5", "rand()"),
        ("sold_at < current_timestamp", "current_timestamp()"),
        ("sold_at < now()", "now()"),
        ("id = uuid()", "uuid()"),
        ("monotonically_increasing_id() > 7", "monotonically_increasing_id()"),
        ("unix_timestamp() > 7", "current_timestamp()"),
        ("row_number() over (order by a) = 1", "a window function"),
        ("a in (select b from c)", "a subquery"),
        ("sum(amount) > 7", "the aggregate sum()"),
        ("mean(amount) > 7", "the aggregate mean()"),
        ("any(amount > 7)", "the aggregate any()"),
    ],
)
def test_a_row_operator_must_give_the_same_rows_when_replayed(
    sales: tg.Stream, sql: str, found: str
) -> None:
    assert found in mistake(ForbiddenSql, lambda: sales.filter(sql), sql=sql).what
    assert found in mistake(ForbiddenSql, lambda: sales.select(a=sql), sql=sql).what


@pytest.mark.parametrize(
    "sql", ["a like any ('x%', 'y%')", "exists(a, x -> x > 1)", "null", "`a b`"]
)
def test_what_only_looks_like_an_aggregate_or_a_subquery_is_allowed(
    sales: tg.Stream, sql: str
) -> None:
    sales.select(a=sql)


def test_a_select_names_each_column_once(sales: tg.Stream) -> None:
    mistake(DuplicateColumn, lambda: sales.select("amount", Amount="amount * 2"), column="Amount")
    mistake(DuplicateColumn, lambda: sales.select(columns={"a": "1"}, a="2"), column="a")


def test_a_select_has_columns(sales: tg.Stream) -> None:
    mistake(InvalidArgument, lambda: sales.select(), operator="select")  # noqa: PLW0108


def test_an_expression_in_a_select_needs_a_name(sales: tg.Stream) -> None:
    mistake(InvalidArgument, lambda: sales.select("amount * 2"), value="amount * 2")


def test_a_transform_needs_a_function(sales: tg.Stream) -> None:
    mistake(InvalidArgument, lambda: sales.transform("upper"), value="upper")  # type: ignore[arg-type]


@pytest.mark.parametrize("shards", [0, -1, 1.5, True, "4"])
def test_shards_are_counted_from_one(sales: tg.Stream, shards: int) -> None:
    mistake(InvalidArgument, lambda: tg.Pipeline("shop", shards=shards), value=shards)
    mistake(InvalidArgument, lambda: sales.aggregate(n="count(*)", shards=shards), value=shards)


def test_an_aggregate_needs_a_key_or_a_column(sales: tg.Stream) -> None:
    mistake(InvalidArgument, lambda: sales.aggregate(), argument="by")  # noqa: PLW0108


def test_keys_are_columns_and_not_expressions(sales: tg.Stream) -> None:
    mistake(InvalidArgument, lambda: sales.aggregate(by="year(sold_at)"), argument="by")
    mistake(InvalidArgument, lambda: sales.top(1, by="a asc", per="a + b"), argument="per")
    mistake(InvalidArgument, lambda: sales.join(sales, on=["a", "A"]), argument="on")


def test_an_aggregate_names_each_column_once(sales: tg.Stream) -> None:
    mistake(DuplicateColumn, lambda: sales.aggregate(by="a", A="count(*)"), column="A")


@pytest.mark.parametrize("n", [0, -3, 1.5, True])
def test_a_top_keeps_at_least_one_row(sales: tg.Stream, n: int) -> None:
    mistake(InvalidArgument, lambda: sales.top(n, by="amount desc"), argument="n", value=n)


@pytest.mark.parametrize("by", ["amount", "", "a sideways", "a, b desc", ["a", "b desc"]])
def test_the_first_order_of_a_top_has_a_direction(sales: tg.Stream, by: str | list[str]) -> None:
    mistake(InvalidArgument, lambda: sales.top(1, by=by), argument="by")


def test_a_top_has_an_order(sales: tg.Stream) -> None:
    mistake(InvalidArgument, lambda: sales.top(1, by=[]), argument="by")


@pytest.mark.parametrize(
    ("by", "instead"),
    [
        ("amount desc nulls last", "'amount desc'"),
        ("amount NULLS FIRST", "'amount desc'"),
        ("store_id desc, amount asc nulls last", "'amount asc'"),
    ],
)
def test_a_top_leaves_the_place_of_nulls_to_spark(sales: tg.Stream, by: str, instead: str) -> None:
    assert instead in mistake(InvalidArgument, lambda: sales.top(1, by=by), argument="by").todo


@pytest.mark.parametrize("given", [None, 3, [1], ["a", None], 1.5])
def test_names_are_text(sales: tg.Stream, given: Any) -> None:
    mistake(InvalidArgument, lambda: sales.aggregate(by=given), argument="by", value=given)
    mistake(InvalidArgument, lambda: sales.top(1, by=given), argument="by", value=given)
    mistake(InvalidArgument, lambda: sales.top(1, by="a asc", per=given), argument="per")
    mistake(InvalidArgument, lambda: sales.join(sales, on=given), argument="on", value=given)


@pytest.mark.parametrize("given", [["a"], "a", 3, {1: "a"}])
def test_columns_are_given_by_name(sales: tg.Stream, given: Any) -> None:
    mistake(InvalidArgument, lambda: sales.select(columns=given), argument="columns", value=given)
    mistake(InvalidArgument, lambda: sales.aggregate(columns=given), argument="columns")


@pytest.mark.parametrize("schema", [None, 3, ["a int"], {"a": None}, {1: "int"}])
def test_a_schema_is_text_or_a_mapping(shop: tg.Pipeline, schema: Any) -> None:
    mistake(InvalidSchema, lambda: shop.source("sales", schema), source="sales")


def test_a_join_has_keys(sales: tg.Stream) -> None:
    mistake(JoinWithoutKeys, lambda: sales.join(sales))


def test_a_join_knows_six_ways(sales: tg.Stream) -> None:
    error = mistake(InvalidArgument, lambda: sales.join(sales, on="a", how="cross"))  # type: ignore[arg-type]
    assert "inner, left, right, full, semi, anti" in error.todo


def test_a_union_has_others(sales: tg.Stream) -> None:
    mistake(InvalidArgument, lambda: sales.union(), operator="union")  # noqa: PLW0108


def test_streams_of_two_pipelines_do_not_mix(sales: tg.Stream) -> None:
    other = tg.Pipeline("other").source("sales", "a int")
    mistake(ForeignStream, lambda: sales.join(other, on="a"), pipeline="shop", other="other")
    mistake(ForeignStream, lambda: sales.union(other), pipeline="shop", other="other")


def test_only_streams_can_be_joined(sales: tg.Stream) -> None:
    mistake(InvalidArgument, lambda: sales.join("stores", on="a"), value="stores")  # type: ignore[arg-type]


def test_a_stream_that_reads_itself_is_a_cycle(shop: tg.Pipeline, sales: tg.Stream) -> None:
    grown = sales.union(shop.stream("grown"))
    error = mistake(CyclicPipeline, lambda: grown.named("grown"))
    assert isinstance(error, CyclicPipeline)
    assert error.path.startswith("union (line ")
    assert "reference" in error.path


def test_a_cycle_over_two_names_is_found_when_the_second_closes_it(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.union(shop.stream("right")).named("left")
    right = shop.stream("left").filter("amount > 0")
    mistake(CyclicPipeline, lambda: right.named("right"))


def test_an_error_has_line_cause_and_advice(sales: tg.Stream) -> None:
    error = mistake(JoinWithoutKeys, lambda: sales.join(sales))
    assert str(error) == (
        f"{__file__}:{error.at.line}: this join has no keys."
        " Name the columns both sides share, for example on='store_id'."
    )


# ── event time ──

TIMED = "amount decimal(10,2), sold_at timestamp, day date, moment TIMESTAMP_NTZ"


@pytest.mark.parametrize("column", ["amount", "nowhere", "", 3])
def test_the_event_time_is_a_timestamp_or_date_column(shop: tg.Pipeline, column: Any) -> None:
    wrong = mistake(
        InvalidArgument,
        lambda: shop.source("sales", TIMED, event_time=column),
        argument="event_time",
        value=column,
    )
    assert "sold_at, day, moment" in wrong.todo


@pytest.mark.parametrize(
    "delay",
    [-1, "-1 s", "", "soon", "10", "minutes", "3 months", "1 h 5 min", True, float("nan"),
     float("inf"), 10**400, "9" * 400 + " s", "40000 days", ["1 s"]],
)  # fmt: skip
def test_a_delay_is_a_length_of_time(shop: tg.Pipeline, delay: Any) -> None:
    mistake(
        InvalidArgument,
        lambda: shop.source("sales", TIMED, event_time="day", delay=delay),
        argument="delay",
    )


def test_a_delay_is_the_delay_of_an_event_time(shop: tg.Pipeline) -> None:
    mistake(InvalidArgument, lambda: shop.source("sales", TIMED, delay=5), argument="delay")
