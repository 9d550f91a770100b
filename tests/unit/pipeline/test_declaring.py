"""A declaration is a graph of frozen values that remember the user's lines; nothing runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest

import tidegate as tg
from tidegate.pipeline.nodes import (
    Aggregate,
    EventTime,
    Filter,
    Join,
    Order,
    Select,
    SelectColumn,
    Source,
    Top,
)


@pytest.fixture
def sales(shop: tg.Pipeline) -> tg.Stream:
    return shop.source("sales", "store_id bigint, amount decimal(10,2), sold_at timestamp")


def test_every_operator_remembers_the_line_that_declared_it(sales: tg.Stream) -> None:
    filtered = sales.filter("amount > 0")
    assert filtered.node.at.file == __file__
    assert filtered.node.at.text == 'filtered = sales.filter("amount > 0")'


def test_a_chain_over_several_lines_points_at_the_line_of_each_operator(sales: tg.Stream) -> None:
    chain = (
        sales.filter("amount > 0")
        .select("store_id")
    )  # fmt: skip
    assert chain.node.at.text == '.select("store_id")'


def test_operators_do_not_change_the_stream_they_are_applied_to(sales: tg.Stream) -> None:
    before = sales.node
    sales.filter("amount > 0")
    assert sales.node is before


def test_nodes_are_frozen(sales: tg.Stream) -> None:
    with pytest.raises(FrozenInstanceError):
        sales.node.name = "other"  # type: ignore[misc, union-attr]


def test_a_stream_used_twice_stays_one_node(sales: tg.Stream) -> None:
    both = sales.join(sales, on="store_id").node
    assert isinstance(both, Join)
    assert both.left is both.right


def test_a_schema_may_be_a_mapping(shop: tg.Pipeline) -> None:
    node = shop.source("stores", {"store id": "bigint", "name": "string"}).node
    assert isinstance(node, Source)
    assert [(field.name, field.type) for field in node.schema] == [
        ("store id", "bigint"),
        ("name", "string"),
    ]


def test_a_schema_keeps_the_commas_of_nested_types(shop: tg.Pipeline) -> None:
    ddl = "id bigint not null, `full name` string, tags map<string,array<int>>, at: timestamp"
    node = shop.source("nested", ddl).node
    assert isinstance(node, Source)
    assert [(field.name, field.type) for field in node.schema] == [
        ("id", "bigint"),
        ("full name", "string"),
        ("tags", "map<string,array<int>>"),
        ("at", "timestamp"),
    ]


def test_a_filter_knows_which_columns_it_reads(sales: tg.Stream) -> None:
    node = sales.filter("amount > 0 and sold_at.year = 2024").node
    assert isinstance(node, Filter)
    assert set(node.reads) == {"amount", "sold_at"}


def test_a_select_takes_names_expressions_and_a_mapping(sales: tg.Stream) -> None:
    node = sales.select("store_id", columns={"in cents": "amount * 100"}, self="amount").node
    assert isinstance(node, Select)
    assert node.columns == (
        SelectColumn("store_id", "store_id", ("store_id",)),
        SelectColumn("in cents", "amount * 100", ("amount",)),
        SelectColumn("self", "amount", ("amount",)),
    )


def test_an_aggregate_column_may_have_the_name_of_an_argument(sales: tg.Stream) -> None:
    node = sales.aggregate(by="store_id", columns={"by": "count(*)", "shards": "count(*)"}).node
    assert isinstance(node, Aggregate)
    assert [column.name for column in node.columns] == ["by", "shards"]


@pytest.mark.parametrize("by", ["amount DESC, store_id", ["amount desc", " store_id  ASC "]])
def test_a_top_keeps_the_order_of_its_sort_keys(sales: tg.Stream, by: str | list[str]) -> None:
    node = sales.top(3, by=by).node
    assert isinstance(node, Top)
    assert node.by == (
        Order("amount", descending=True, reads=("amount",)),
        Order("store_id", descending=False, reads=("store_id",)),
    )


def test_the_commas_of_a_call_do_not_end_an_order(sales: tg.Stream) -> None:
    node = sales.top(3, by="greatest(amount, ',') desc, store_id asc").node
    assert isinstance(node, Top)
    assert [order.sql for order in node.by] == ["greatest(amount, ',')", "store_id"]


def test_sinks_and_sources_are_listed_in_the_order_of_their_declaration(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.sink("second")
    sales.sink("first")
    assert list(shop.sinks) == ["second", "first"]
    assert list(shop.sources) == ["sales"]


def test_a_deep_chain_can_be_printed_and_compared(sales: tg.Stream) -> None:
    deep = sales
    for _ in range(5_000):
        deep = deep.filter("amount > 0")
    assert "amount > 0" in repr(deep.node)
    assert deep.node == deep.node
    assert deep.node != sales.node


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [(None, 0), (0, 0), (2.5, 2500), ("90 s", 90_000), ("10 minutes", 600_000), ("2h", 7_200_000),
     (" 1 Day ", 86_400_000), ("0.5 min", 30_000), ("250 ms", 250), (0.0001, 1)],
)  # fmt: skip
def test_an_event_time_is_a_column_and_how_late_its_rows_may_come(
    shop: tg.Pipeline, delay: float | str | None, milliseconds: int
) -> None:
    node = shop.source("visits", "at timestamp", event_time="AT", delay=delay).node
    assert isinstance(node, Source)
    assert node.event_time == EventTime("at", milliseconds)


def test_a_source_has_no_event_time_unless_it_is_declared(sales: tg.Stream) -> None:
    assert isinstance(sales.node, Source)
    assert sales.node.event_time is None


@pytest.mark.parametrize("module", ["pyspark", "sqlglot"])
def test_importing_tidegate_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, tidegate; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_declaring_never_loads_spark() -> None:
    code = "import sys, tidegate_examples.coffee; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
